//! The parsers of this module for the targets of `tests/fuzz`.

use coordinator_core::node_link::NodeFacts;
use k8s_openapi::api::core::v1::Node;

/// Reads a kubeconfig.
pub fn read_kubeconfig(bytes: &[u8]) {
    drop(super::kubeconfig::parse_kubeconfig(bytes));
}

/// Reads a page of Nodes.
pub fn read_nodes(bytes: &[u8]) -> Option<Vec<NodeFacts>> {
    let page: kube::api::ObjectList<Node> = serde_json::from_slice(bytes).ok()?;
    Some(page.items.into_iter().map(super::read_facts).collect())
}
