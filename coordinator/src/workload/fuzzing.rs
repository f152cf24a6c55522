//! The parsers of this module for the targets of `tests/fuzz`.

use coordinator_core::node_link::NodeFacts;

/// Reads a kubeconfig.
pub fn read_kubeconfig(bytes: &[u8]) {
    drop(super::kubeconfig::parse_kubeconfig(bytes));
}

/// Reads a page of Nodes.
pub fn read_nodes(bytes: &[u8]) -> Option<Vec<NodeFacts>> {
    let page: super::nodes::Page = serde_json::from_slice(bytes).ok()?;
    Some(page.into_facts())
}
