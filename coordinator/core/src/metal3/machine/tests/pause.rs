//! The pause of a Cluster on the host.

use super::*;

const PAUSE: &str = names::HOST_PAUSES[0];
const CLUSTER: &str = "cluster.x-k8s.io/cluster-name";

/// With a host of Cluster `c1` that has these annotations.
fn pausing(paused: bool, annotations: &Value) -> World {
    let mut host = used(true, "provisioned");
    host.labels_mut().insert(CLUSTER.into(), "c1".into());
    host.metadata.annotations = serde_json::from_value(annotations.clone()).unwrap();
    let mut world = world(chosen(), Some(host));
    world.cluster.as_mut().unwrap().spec.paused = Some(paused);
    world
}

fn show(world: &World) -> (Option<Value>, bool) {
    let outcome = decide(world);
    let is_held = outcome.blocker.is_some_and(|blocker| blocker.problem.reason == Reason::Paused);
    match outcome.step {
        Step::PauseHost(change) => (Some(change["metadata"]["annotations"].clone()), is_held),
        _ => (None, is_held),
    }
}

#[test]
fn b7_pause_of_cluster_pauses_its_hosts() {
    const HOLD: &str = annotation::BLOCK_MOVE;
    let nothing = json!({});
    let (ours, foreign) = (json!({ PAUSE: "metal3.io/capm3" }), json!({ PAUSE: "maintenance" }));
    for (what, paused, annotations, want) in [
        ("runs", false, json!({ HOLD: "" }), None),
        ("is paused", true, json!({ HOLD: "" }), Some(json!({ PAUSE: "metal3.io/capm3", HOLD: null }))),
        (
            "is paused, was claimed before",
            true,
            nothing,
            Some(json!({ PAUSE: "metal3.io/capm3", HOLD: null })),
        ),
        ("stays paused", true, ours.clone(), None),
        ("by an operator too", true, foreign.clone(), None),
        ("by an operator, move held", true, json!({ PAUSE: "x", HOLD: "" }), Some(json!({ HOLD: null }))),
        ("continues", false, ours.clone(), Some(json!({ PAUSE: null, HOLD: "" }))),
        ("an operator's pause stays", false, foreign, None),
    ] {
        assert_eq!(show(&pausing(paused, &annotations)), (want, paused), "{what}");
    }
    let mut other = pausing(false, &ours);
    other.host.as_mut().unwrap().labels_mut().insert(CLUSTER.into(), "c2".into());
    assert_eq!(show(&other), (None, false), "the host is of another Cluster");
    let mut foreign = pausing(true, &json!({}));
    foreign.host.as_mut().unwrap().spec.consumer_ref = Some(Consumer::default());
    assert_eq!(show(&foreign), (None, true), "the host is not the machine's");
    let mut gone = pausing(false, &ours);
    gone.cluster = None;
    assert_eq!(show(&gone), (None, false), "a Cluster that is not found ends no pause");
}

#[test]
fn b8_8_release_of_host_ends_own_pause() {
    for (value, is_removed) in [("metal3.io/capm3", true), ("maintenance", false)] {
        let mut host = used(false, "available");
        host.annotations_mut().insert(PAUSE.into(), value.into());
        let mut world = world(deleted(chosen()), Some(host));
        world.owner = Some(deleted_owner());
        let Step::ChangeHost { change, .. } = decide(&world).step else { panic!("no change") };
        let annotations = change["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations.get(PAUSE), is_removed.then_some(&Value::Null), "{value}");
        assert_eq!(annotations[annotation::BLOCK_MOVE], Value::Null, "{value}");
    }
}
