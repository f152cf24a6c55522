//! The pause of a Cluster on the hosts of its machines, in the form of CAPM3. The controller of the
//! host stops, and `clusterctl move` continues after that.

use coordinator_api::metal3::names;
use coordinator_api::names::{annotation, label};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{Situation, is_consumer};

/// Value of the annotation that pauses a host, which distinguishes the pause from an operator's.
const PAUSED_BY_CLUSTER: &str = "metal3.io/capm3";

/// A Cluster paused the host. The pause of an operator is never removed.
pub(super) fn is_paused_by_cluster(situation: &Situation<'_>) -> bool {
    find_pause(situation).is_some_and(|value| value == PAUSED_BY_CLUSTER)
}

fn find_pause<'a>(situation: &Situation<'a>) -> Option<&'a String> {
    situation.host?.annotations().get(names::HOST_PAUSES[0])
}

/// The change of the host that the pause of the Cluster requires. Both annotations change in one
/// write, so that no move sees the host between them.
pub(super) fn find_change(situation: &Situation<'_>) -> Option<Value> {
    let host = situation.host.filter(|host| is_consumer(host, situation.machine))?;
    let cluster = situation.cluster?;
    if host.labels().get(label::CLUSTER_NAME) != Some(&cluster.name_any()) {
        return None;
    }
    let is_held = host.annotations().contains_key(annotation::BLOCK_MOVE);
    let change = match (cluster.spec.paused == Some(true), find_pause(situation)) {
        (true, None) => json!({ names::HOST_PAUSES[0]: PAUSED_BY_CLUSTER, annotation::BLOCK_MOVE: null }),
        (true, Some(_)) if is_held => json!({ annotation::BLOCK_MOVE: null }),
        (false, Some(_)) if is_paused_by_cluster(situation) => {
            json!({ names::HOST_PAUSES[0]: null, annotation::BLOCK_MOVE: "" })
        }
        _ => return None,
    };
    Some(json!({ "metadata": { "annotations": change } }))
}
