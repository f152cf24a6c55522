//! Labels of the host on its Node.

use super::*;
use crate::node_link::NodeFacts;
use crate::problem::Problem;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A machine whose Node Cluster API has found, in a cluster with these prefixes.
fn found(prefixes: Option<&str>, host_labels: &[(&str, &str)]) -> World {
    let mut machine = chosen();
    machine.spec.provider_id = Some("metal3://fleet/bmh-1/m3m".into());
    let mut host = used(true, "provisioned");
    host.metadata.labels = Some(labels(host_labels));
    let mut world = world(machine, Some(host));
    let annotations = prefixes.map(|prefixes| (names::LABEL_SYNC_PREFIXES.to_owned(), prefixes.to_owned()));
    world.infrastructure.as_mut().unwrap().annotations_mut().extend(annotations);
    let node_ref = Some(capi::NodeRef { name: "n1".into() });
    world.owner.as_mut().unwrap().status = Some(capi::MachineStatus { node_ref });
    world
}

fn node(node_labels: &[(&str, &str)]) -> NodesRead {
    let (name, uid) = ("n1".to_owned(), Some("uid".to_owned()));
    NodesRead::Read(vec![NodeFacts { name, uid, labels: labels(node_labels), ..NodeFacts::default() }])
}

#[test]
fn f_node_gets_prefixed_labels_of_host() {
    let rack = ("rack.example.com/position", "u7");
    for (what, host, node_labels, want) in [
        ("new", vec![rack], vec![("a/b", "c")], Some(json!({ rack.0: "u7" }))),
        ("the same", vec![rack], vec![rack], None),
        ("changed", vec![rack], vec![(rack.0, "u1")], Some(json!({ rack.0: "u7" }))),
        ("removed", vec![], vec![rack, ("a/b", "c")], Some(json!({ rack.0: null }))),
        ("of other prefixes", vec![("a/b", "c"), ("position", "u7")], vec![], None),
        ("of a longer prefix", vec![("more.rack.example.com/x", "y")], vec![], None),
        ("Kubernetes's own stay", vec![], vec![("node-role.kubernetes.io/control-plane", "")], None),
        (
            "and are set",
            vec![("node-role.kubernetes.io/gpu", "")],
            vec![],
            Some(json!({ "node-role.kubernetes.io/gpu": "" })),
        ),
    ] {
        let mut world = found(Some(" rack.example.com,, node-role.kubernetes.io "), &host);
        let outcome = decide(&world);
        let Step::FindNodes(search) = outcome.step else { panic!("{what}: {outcome:?}") };
        assert_eq!(search.node.as_deref(), Some("n1"), "{what}");
        world.nodes = node(&node_labels);
        let outcome = decide(&world);
        assert!(outcome.is_rechecked && outcome.blocker.is_none(), "{what}");
        match (outcome.step, want) {
            (Step::LabelNode { node, labels }, Some(want)) => {
                assert_eq!((node.uid.as_deref(), Value::Object(labels)), (Some("uid"), want), "{what}");
            }
            (step, want) => assert!(step == Step::Rest && want.is_none(), "{what}: {step:?}"),
        }
    }
}

#[test]
fn f_labels_wait_for_what_is_missing() {
    let problem = Problem::of_cause(Reason::WorkloadUnreachable, "no answer: wait");
    for (what, prefixes, nodes, want) in [
        ("no prefixes", None, node(&[]), "Rest"),
        ("no subdomain", Some("rack.example.com,a/b"), node(&[]), "LabelPrefixInvalid"),
        ("in capitals", Some("Rack.example.com"), node(&[]), "LabelPrefixInvalid"),
        ("no answer", Some("a"), NodesRead::Unavailable(problem), "WorkloadUnreachable"),
        ("no Node", Some("a"), NodesRead::Read(vec![]), "NodeWaiting"),
    ] {
        let mut world = found(prefixes, &[("a/b", "c")]);
        world.nodes = nodes;
        let outcome = decide(&world);
        assert_eq!(name(&outcome), want, "{what}");
        let status =
            project_status(&world.situation(), outcome.blocker.as_ref(), None, Timestamp::UNIX_EPOCH);
        let shown = |kind| {
            let found = coordinator_api::conditions::find_condition(&status.conditions, kind);
            found.map(|condition| (condition.status.clone(), condition.reason.clone()))
        };
        assert_eq!(shown(Type::Ready).unwrap().0, "True", "{what}: the machine runs");
        let want = prefixes.map(|_| ("False".to_owned(), want.to_owned()));
        assert_eq!(shown(Type::LabelsSynced), want, "{what}");
    }
    let mut world = found(Some("a"), &[]);
    world.nodes = node(&[]);
    world.machine.status = serde_json::from_value(json!({})).unwrap();
    let synced = |world: &World| {
        let status = project_status(&world.situation(), None, None, Timestamp::UNIX_EPOCH);
        status.conditions.into_iter().find(|condition| condition.type_ == "LabelsSynced")
    };
    assert_eq!(synced(&world).unwrap().reason, "LabelsCurrent");
    let status = project_status(&world.situation(), None, None, Timestamp::UNIX_EPOCH);
    world.machine.status = Some(status);
    world.infrastructure.as_mut().unwrap().metadata.annotations = None;
    assert_eq!(synced(&world), None, "no longer asked for");
}
