//! The line of an object in the lists of the page.

use coordinator_api::explain::Attention;
use jiff::Timestamp;
use serde::Serialize;

use crate::fleet::{Fleet, Id, Kind, Object, text_of};
use crate::view::{HostRow, describe_host};
use crate::why::{Finding, find, find_stated};

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

/// The name of an object in the page.
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

pub(super) fn describe_line(fleet: &Fleet, host: &Object, now: Timestamp) -> Option<Line> {
    let row = describe_host(fleet, host, now)?;
    Some(Line::Host(Box::new(HostLine { key: key_of(&host.id), row })))
}

/// The line of an object that is not a host. A Cluster always has a line; another object has a line
/// if an operator has to act, unless the line of its host shows the same (`is_shown`).
pub(super) fn describe_other(fleet: &Fleet, object: &Object, is_shown: bool, now: Timestamp) -> Option<Line> {
    let finding = find_alone(fleet, object, now)?;
    let is_cluster = object.id.kind == Kind::Cluster;
    let is_asking = finding.attention == Attention::Act && !is_shown;
    if !is_cluster && !is_asking {
        return None;
    }
    let phase = &object.status()["phase"];
    let mut line = OtherLine {
        key: key_of(&object.id),
        kind: object.id.kind,
        namespace: object.id.namespace.clone(),
        name: object.id.name.clone(),
        state: if is_cluster { text_of(phase).to_owned() } else { String::new() },
        attention: finding.attention,
        action: String::new(),
        cause: String::new(),
        reason: String::new(),
        created: object.created(),
    };
    if finding.attention != Attention::None {
        line.action = finding.action(object);
        line.cause = finding.told_cause();
        line.reason = finding.reason;
    }
    Some(Line::Other(Box::new(line)))
}

/// The finding of an object that does not depend on other objects.
fn find_alone(fleet: &Fleet, object: &Object, now: Timestamp) -> Option<Finding> {
    match object.id.kind {
        Kind::MachineInventory => None,
        // The members of a pool are shown as hosts.
        Kind::MachineInventoryPool => Some(find_stated(object)),
        kind => Some(find(fleet, object, !kind.is_of_cluster_api(), now)),
    }
}
