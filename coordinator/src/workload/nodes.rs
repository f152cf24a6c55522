//! Nodes of a workload cluster, read in pages of which each and all together are bounded.

use coordinator_core::node_link::{NodeFacts, NodeSearch};
use kube::api::ListParams;
use kube::{Client, Error};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::timeout;

use super::answer::{AnswerError, read_answer};
use super::{LIST_DEADLINE, PAGE_DEADLINE, node_request};
use crate::bounded::{Entries, Items, Text};

/// Nodes of a page. A Node that lists its images has some 30 KiB.
const PAGE: usize = 50;
/// Twice the Nodes that Kubernetes supports in a cluster.
const NODES: usize = 10_000;
/// A server may send pages that are not full, as one that filters does.
const PAGES: usize = 2 * NODES / PAGE;
/// Bytes of all pages. They are not kept, and cost time alone.
const LIST_BYTES: usize = 256 << 20;
/// Bytes that are kept of all Nodes: 5,000 Nodes with 40 labels.
const KEPT_BYTES: usize = 32 << 20;
const LABELS: usize = 1024;
/// Memory of a Node and of a label beside their texts.
const NODE_BYTES: usize = 256;
const LABEL_BYTES: usize = 96;

/// A page of a list of Nodes, of which only the facts that are used are kept.
#[derive(Deserialize)]
pub(super) struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(default)]
    items: Items<NodeItem, PAGE>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: Option<Text<8192>>,
}

#[derive(Deserialize)]
struct NodeItem {
    metadata: NodeMetadata,
    spec: Option<NodeSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeMetadata {
    name: Text<253>,
    uid: Option<Text<128>>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(default)]
    labels: Entries<Text<317>, Text<63>, LABELS>,
}

#[derive(Deserialize)]
struct NodeSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<Text<1024>>,
}

impl Page {
    pub(super) fn into_facts(self) -> Vec<NodeFacts> {
        let Items(items) = self.items;
        items.into_iter().map(NodeItem::into_facts).collect()
    }

    fn take_next(&mut self) -> Option<String> {
        self.metadata.next.take().map(|Text(token)| token).filter(|token| !token.is_empty())
    }
}

impl NodeItem {
    fn into_facts(self) -> NodeFacts {
        let Entries(labels) = self.metadata.labels;
        let provider_id = self.spec.and_then(|spec| spec.provider_id).map(|Text(id)| id);
        NodeFacts {
            name: self.metadata.name.0,
            uid: self.metadata.uid.map(|Text(uid)| uid),
            provider_id: provider_id.filter(|id| !id.is_empty()),
            is_deleting: self.metadata.deletion_timestamp.is_some(),
            labels: labels.into_iter().map(|(Text(key), Text(value))| (key, value)).collect(),
        }
    }
}

/// The Node of the name; or the Node of the selector, if that leaves one; or all Nodes.
pub(super) async fn find_nodes(client: &Client, search: &NodeSearch) -> Result<Vec<NodeFacts>, Error> {
    if let Some(node) = &search.node {
        return list_nodes(client, ListParams::default().fields(&format!("metadata.name={node}"))).await;
    }
    if let Some(selector) = &search.selector {
        let found = list_nodes(client, ListParams::default().labels(selector)).await?;
        if found.len() == 1 {
            return Ok(found);
        }
    }
    list_nodes(client, ListParams::default()).await
}

async fn list_nodes(client: &Client, params: ListParams) -> Result<Vec<NodeFacts>, Error> {
    let mut params = ListParams { limit: u32::try_from(PAGE).ok(), ..params };
    let (mut found, mut read, mut kept) = (vec![], 0, 0);
    for _ in 0..PAGES {
        let reading = read_answer::<Page>(client, node_request().list(&params));
        let deadline = if read == 0 { PAGE_DEADLINE } else { LIST_DEADLINE };
        let answered = timeout(deadline, reading).await;
        let (mut page, bytes) = answered.map_err(|_| AnswerError::Silent(deadline))??;
        let next = page.take_next();
        let nodes = page.into_facts();
        read += bytes;
        kept += nodes.iter().map(count_kept).sum::<usize>();
        found.extend(nodes);
        if found.len() > NODES || read > LIST_BYTES || kept > KEPT_BYTES {
            break;
        }
        let Some(next) = next else { return Ok(found) };
        params = params.continue_token(&next);
    }
    Err(AnswerError::TooMany("10000 Nodes, 400 pages, or 32 MiB of labels").into())
}

fn count_kept(node: &NodeFacts) -> usize {
    let labels = node.labels.iter().map(|(key, value)| LABEL_BYTES + key.len() + value.len());
    let texts = [Some(&node.name), node.uid.as_ref(), node.provider_id.as_ref()];
    NODE_BYTES + texts.into_iter().flatten().map(String::len).sum::<usize>() + labels.sum::<usize>()
}
