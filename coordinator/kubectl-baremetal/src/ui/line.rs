//! What the page shows of one object in its lists.

use coordinator_api::explain::Attention;
use jiff::Timestamp;
use serde::Serialize;

use crate::fleet::{Fleet, Id, Kind, Object};
use crate::view::{HostRow, describe_host};
use crate::why::{Finding, find, find_stated};

/// One object of the lists.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Line {
    Host(Box<HostLine>),
    Other(Box<OtherLine>),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct HostLine {
    key: String,
    #[serde(flatten)]
    pub(super) row: HostRow,
}

/// A Cluster, or an object for which an operator has to act.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct OtherLine {
    key: String,
    kind: Kind,
    namespace: String,
    name: String,
    /// Phase of a Cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    state: String,
    pub(super) attention: Attention,
    reason: String,
    cause: String,
    action: String,
    created: Option<Timestamp>,
}

/// By which the page knows an object.
pub(super) fn key_of(id: &Id) -> String {
    format!("{}/{}/{}", id.kind.name().to_lowercase(), id.namespace, id.name)
}

impl Line {
    pub(super) fn attention(&self) -> Attention {
        match self {
            Self::Host(line) => line.row.attention,
            Self::Other(line) => line.attention,
        }
    }
}

/// The line of a host.
pub(super) fn describe_line(fleet: &Fleet, host: &Object, now: Timestamp) -> Option<Line> {
    let row = describe_host(fleet, host, now)?;
    Some(Line::Host(Box::new(HostLine { key: key_of(&host.id), row })))
}

/// The line of an object that is no host: of a Cluster always, of others where an operator
/// has to act. `is_told` where the line of its host says so already.
pub(super) fn describe_other(fleet: &Fleet, object: &Object, is_told: bool, now: Timestamp) -> Option<Line> {
    let finding = look_at(fleet, object, now)?;
    let is_cluster = object.id.kind == Kind::Cluster;
    let is_asking = finding.attention == Attention::Act && !is_told;
    if !is_cluster && !is_asking {
        return None;
    }
    let is_fine = finding.attention == Attention::None;
    Some(Line::Other(Box::new(OtherLine {
        key: key_of(&object.id),
        kind: object.id.kind,
        namespace: object.id.namespace.clone(),
        name: object.id.name.clone(),
        state: object.status()["phase"].as_str().filter(|_| is_cluster).unwrap_or_default().to_owned(),
        attention: finding.attention,
        action: if is_fine { String::new() } else { finding.action(object) },
        cause: if is_fine { String::new() } else { finding.told_cause() },
        reason: if is_fine { String::new() } else { finding.reason },
        created: object.created(),
    })))
}

/// What an object says of itself, where that takes no look at others.
fn look_at(fleet: &Fleet, object: &Object, now: Timestamp) -> Option<Finding> {
    match object.id.kind {
        Kind::MachineInventory => None,
        // Its members are shown as hosts.
        Kind::MachineInventoryPool => Some(find_stated(object)),
        kind => Some(find(fleet, object, !kind.is_of_cluster_api(), now)),
    }
}
