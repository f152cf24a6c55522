use super::*;
use crate::samples::node;

const ID: &str = "baremetal:///host-1";
const LEGACY: &str = "metal3://uid-1";

fn expected() -> Expected {
    Expected {
        provider_ids: vec![ID.to_owned(), LEGACY.to_owned()],
        label: UUID_LABEL.to_owned(),
        label_values: vec!["uid-1".to_owned(), "uid-2".to_owned()],
        hostnames: vec!["host-1".to_owned()],
        may_use_hostname: false,
    }
}

fn labelled(name: &str, provider_id: &str) -> NodeFacts {
    node(name, provider_id, &[(UUID_LABEL, "uid-1")])
}

fn named(name: &str, provider_id: &str) -> NodeFacts {
    node(name, provider_id, &[(HOSTNAME_LABEL, "host-1")])
}

fn other() -> NodeFacts {
    node("other", "baremetal:///host-2", &[(UUID_LABEL, "uid-9"), (HOSTNAME_LABEL, "host-2")])
}

/// What follows, as `linked NODE ID`, `patch NODE ID` or the reason.
fn shown(expected: &Expected, nodes: &[NodeFacts]) -> String {
    match decide_link(expected, nodes) {
        Link::Linked { node, provider_id } => format!("linked {node} {provider_id}"),
        Link::Patch { node, provider_id } => format!("patch {node} {provider_id}"),
        Link::Waiting(problem) => format!("waiting {}", problem.reason.as_str()),
        Link::Failed(problem) => format!("failed {}", problem.reason.as_str()),
    }
}

#[test]
fn step_1_finds_node_by_provider_id() {
    let expected = expected();
    for (name, nodes, want) in [
        ("new", vec![other(), node("n1", ID, &[])], format!("linked n1 {ID}")),
        ("legacy", vec![other(), node("n1", LEGACY, &[])], format!("linked n1 {LEGACY}")),
        ("before the label", vec![labelled("n2", ""), node("n1", ID, &[])], format!("linked n1 {ID}")),
        ("twice", vec![node("n1", ID, &[]), node("n2", ID, &[])], "failed NodeAmbiguous".into()),
        ("new and legacy", vec![node("n1", ID, &[]), node("n2", LEGACY, &[])], "failed NodeAmbiguous".into()),
        ("a prefix of it", vec![node("n1", "baremetal:///host-11", &[])], "waiting NodeWaiting".into()),
    ] {
        assert_eq!(shown(&expected, &nodes), want, "{name}");
    }
}

#[test]
fn step_3_finds_a_node_by_its_label() {
    let expected = expected();
    let second = node("n2", "", &[(UUID_LABEL, "uid-2")]);
    for (name, nodes, want) in [
        ("empty providerID", vec![other(), labelled("n1", "")], format!("patch n1 {ID}")),
        (
            "of the plan before the live one",
            vec![second.clone(), labelled("n1", "")],
            format!("patch n1 {ID}"),
        ),
        ("the live one", vec![second], format!("patch n2 {ID}")),
        ("the new one", vec![labelled("n1", ID)], format!("linked n1 {ID}")),
        ("the legacy one", vec![labelled("n1", LEGACY)], format!("linked n1 {LEGACY}")),
        ("another format", vec![labelled("n1", "aws:///i-1")], "failed NodeProviderIDUnsupported".into()),
        ("two", vec![labelled("n1", ""), labelled("n2", "")], "failed NodeAmbiguous".into()),
        ("none", vec![other()], "waiting NodeWaiting".into()),
        ("none at all", vec![], "waiting NodeWaiting".into()),
        ("only the host name", vec![named("n1", "")], "waiting NodeWaiting".into()),
    ] {
        assert_eq!(shown(&expected, &nodes), want, "{name}");
    }
}

#[test]
fn step_4_finds_node_by_host_name() {
    let expected = Expected { may_use_hostname: true, ..expected() };
    for (name, nodes, want) in [
        ("empty providerID", vec![other(), named("n1", "")], format!("patch n1 {ID}")),
        ("another format", vec![named("n1", "aws:///i-1")], "failed NodeProviderIDUnsupported".into()),
        ("two", vec![named("n1", ""), named("n2", "")], "waiting NodeWaiting".into()),
        ("none", vec![other()], "waiting NodeWaiting".into()),
        ("without the label of a kubelet", vec![node("host-1", "", &[])], "waiting NodeWaiting".into()),
        ("after the label", vec![named("n1", ""), labelled("n2", "")], format!("patch n2 {ID}")),
    ] {
        assert_eq!(shown(&expected, &nodes), want, "{name}");
    }
}

/// A value that nothing has yet matches no Node without it.
#[test]
fn nothing_expected_matches_nothing() {
    let nodes = [node("n1", "", &[]), named("n2", "")];
    assert_eq!(shown(&Expected::default(), &nodes), "waiting NodeWaiting");
    let only_label = Expected { provider_ids: vec![], ..expected() };
    assert_eq!(shown(&only_label, &[labelled("n1", "")]), "waiting NodeWaiting");
}

#[test]
fn message_names_a_node_whose_label_is_missing() {
    let Link::Waiting(problem) = decide_link(&expected(), &[named("n1", "")]) else { panic!() };
    assert!(problem.message.contains("Node n1") && problem.message.contains("metal3.io/uuid=uid-1"));
}

#[test]
fn deadline_counts_from_the_applied_plan() {
    let at = |seconds| Timestamp::from_second(seconds).unwrap();
    assert_eq!(search_at(Some(at(10))), Some(at(40)));
    assert_eq!(search_at(None), None);
    for (provisioned, now, want) in
        [(Some(at(0)), at(899), false), (Some(at(0)), at(900), true), (None, at(9000), false)]
    {
        assert_eq!(is_overdue(provisioned, now), want, "{provisioned:?} {now}");
    }
}

#[test]
fn search_takes_usable_label_values_alone() {
    let search = |values: &[&str]| {
        let values: Vec<_> = values.iter().map(|value| (*value).to_owned()).collect();
        NodeSearch::new("c1", UUID_LABEL, &values).selector
    };
    assert_eq!(search(&["uid-1", "uid-2"]).as_deref(), Some("metal3.io/uuid in (uid-1,uid-2)"));
    assert_eq!(search(&["a),b in (c", "", "-a", &"a".repeat(64)]), None);
    let texts = [Some("a".to_owned()), None, Some("b".to_owned()), Some("a".to_owned()), Some(String::new())];
    assert_eq!(distinct_texts(texts), ["a", "b"]);
}
