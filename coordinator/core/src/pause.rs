//! The pause of an object, by its annotation or by its Cluster.

use coordinator_api::capi::Cluster;
use coordinator_api::conditions::{
    ConditionUpdate, Reason, Type, condition_false, condition_true, find_condition,
};
use coordinator_api::names::annotation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

pub const PAUSED_MESSAGE: &str =
    "spec.paused of the Cluster or the annotation cluster.x-k8s.io/paused is set";

/// The object is paused, or it was moved to another management cluster: until `clusterctl`
/// deletes the remaining object, its annotations show no claim.
pub fn is_paused(object: &impl ResourceExt, cluster: Option<&Cluster>) -> bool {
    let annotations = object.annotations();
    [annotation::PAUSED, annotation::DELETE_FOR_MOVE].into_iter().any(|key| annotations.contains_key(key))
        || cluster.is_some_and(|cluster| cluster.spec.paused == Some(true))
}

/// The condition `Paused`, which Cluster API expects on every object.
pub fn paused_condition(is_paused: bool) -> ConditionUpdate {
    if is_paused {
        condition_true(Type::Paused, Reason::Paused, PAUSED_MESSAGE)
    } else {
        condition_false(Type::Paused, Reason::NotPaused, "")
    }
}

/// `Ready` of a paused object that has no such condition yet; `shown` has its cause. Cluster API and
/// `kubectl wait` read the condition of a new object too.
pub fn first_ready(before: &[Condition], shown: Option<ConditionUpdate>) -> Option<ConditionUpdate> {
    shown.filter(|_| find_condition(before, Type::Ready).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::bare_cluster;
    use coordinator_api::cluster::{BaremetalCluster, BaremetalClusterSpec};

    #[test]
    fn paused_and_moved_objects_rest() {
        for (name, annotation, owner, want) in [
            ("neither", None, bare_cluster(None), false),
            ("its cluster", None, bare_cluster(Some(true)), true),
            ("paused", Some(annotation::PAUSED), bare_cluster(None), true),
            ("moved", Some(annotation::DELETE_FOR_MOVE), bare_cluster(None), true),
            ("held back", Some(annotation::BLOCK_MOVE), bare_cluster(None), false),
        ] {
            let mut object = BaremetalCluster::new("c1", BaremetalClusterSpec::default());
            object.annotations_mut().extend(annotation.map(|key| (key.to_owned(), String::new())));
            assert_eq!(is_paused(&object, Some(&owner)), want, "{name}");
        }
    }
}
