//! The Node of a machine.

use super::*;
use crate::demand::{LeftNode, NodeLink};
use crate::node_link::{Expected, NodeFacts, NodeSearch, UUID_LABEL};
use crate::provider_id::ProviderId;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A running machine whose plan ended at the epoch, `waits` seconds later.
fn link_at(now: i64, is_found: bool, nodes: NodesRead) -> Outcome {
    let mut demand = samples::running(samples::demand());
    let expected = Expected {
        provider_ids: vec![samples::PROVIDER_ID.into()],
        label: UUID_LABEL.into(),
        label_values: vec!["uid-of-host-1".into()],
        ..Expected::default()
    };
    node(&mut demand).link = Some(NodeLink { expected, is_found });
    let mut inventory = running_host();
    inventory.status.as_mut().unwrap().plan.as_mut().unwrap().ended = Some(Time(NOW));
    outcome_at(&demand, Some(&inventory), &Secrets { nodes, ..Secrets::default() }, seconds(now))
}

fn workload_node(provider_id: Option<&str>) -> NodesRead {
    NodesRead::Read(vec![NodeFacts {
        is_deleting: false,
        name: "n1".into(),
        uid: Some("uid-of-n1".into()),
        provider_id: provider_id.map(str::to_owned),
        labels: [(UUID_LABEL.to_owned(), "uid-of-host-1".to_owned())].into(),
    }])
}

fn deleted_node() -> NodesRead {
    NodesRead::Read(vec![NodeFacts { is_deleting: true, ..samples::node("n1", samples::PROVIDER_ID, &[]) }])
}

fn node_ref() -> NodeRef {
    NodeRef { cluster: "c1".into(), name: "n1".into(), uid: Some("uid-of-n1".into()) }
}

fn unreachable_workload() -> NodesRead {
    NodesRead::Unavailable(Problem::of_cause(Reason::WorkloadUnreachable, "it is down"))
}

#[test]
fn node_is_searched_until_cluster_api_finds_it() {
    let condition = |outcome: &Outcome, kind: Type| {
        let updates = project_conditions(outcome.state.as_ref().unwrap());
        let update = updates.into_iter().find(|update| update.kind == kind).unwrap();
        (<&str>::from(update.status), update.reason)
    };
    let none = || NodesRead::Read(vec![]);
    for (name, outcome, linked, ready, wake) in [
        ("found", link_at(0, true, NodesRead::NotRead), ("True", Reason::NodeFound), "True", Wake::OnChange),
        (
            "just applied",
            link_at(29, false, NodesRead::NotRead),
            ("Unknown", Reason::NodeWaiting),
            "True",
            Wake::At(seconds(30)),
        ),
        (
            "unreachable",
            link_at(30, false, unreachable_workload()),
            ("Unknown", Reason::WorkloadUnreachable),
            "True",
            Wake::Backoff,
        ),
        ("not joined", link_at(30, false, none()), ("False", Reason::NodeWaiting), "True", Wake::Backoff),
        ("overdue", link_at(900, false, none()), ("False", Reason::NodeOverdue), "False", Wake::Backoff),
        (
            "of another provider",
            link_at(30, false, workload_node(Some("aws:///i-1"))),
            ("False", Reason::NodeProviderIDUnsupported),
            "False",
            Wake::Backoff,
        ),
        (
            "linked",
            link_at(30, false, workload_node(Some(samples::PROVIDER_ID))),
            ("True", Reason::NodeFound),
            "True",
            Wake::OnChange,
        ),
    ] {
        assert_eq!(condition(&outcome, Type::NodeLinked), linked, "{name}");
        assert_eq!((condition(&outcome, Type::Ready).0, outcome.wake), (ready, wake), "{name}");
        assert_eq!(outcome.effect, None, "{name}");
    }
    let search = NodeSearch::new("c1", UUID_LABEL, &["uid-of-host-1".to_owned()]);
    assert_eq!(link_at(30, false, NodesRead::NotRead).effect, Some(Effect::FindNodes(search)));
    let want = Effect::LinkNode { node: node_ref(), provider_id: samples::PROVIDER_ID.into() };
    assert_eq!(link_at(30, false, workload_node(None)).effect, Some(want));
}

#[test]
fn leftover_node_goes_before_the_host_is_released() {
    let mut inventory = with_plan(PlanType::Clean, Some(PlanState::Applied));
    inventory.status.as_mut().unwrap().plan.as_mut().unwrap().ended = Some(Time(NOW));
    let managed = samples::deleted(samples::running(samples::demand()));
    let left_node = LeftNode { cluster: "c1".into(), provider_id: None, uuid: None };
    let left = Demand { left_node: Some(left_node.clone()), ..managed.clone() };
    let provider_id = ProviderId::parse("metal3://fleet/bmh-1/m-1");
    let left_node = LeftNode { provider_id, uuid: Some("uid-of-bmh-1".into()), ..left_node };
    let unlinked = Demand { provider_id: None, left_node: Some(left_node), ..left.clone() };
    let of_pool = Demand { provider_id: None, ..left.clone() };
    let labelled = NodeSearch::new("c1", UUID_LABEL, &["uid-of-bmh-1".to_owned()]);
    let search = NodeSearch::new("c1", UUID_LABEL, &["uid-of-host-1".to_owned()]);
    let missing = Problem::of_cause(Reason::KubeconfigMissing, String::new());
    for (name, demand, nodes, now, want) in [
        ("Cluster API deletes it", &managed, NodesRead::NotRead, 1, Some(Effect::Release)),
        ("not read", &left, NodesRead::NotRead, 1, Some(Effect::FindNodes(search))),
        ("another label", &unlinked, NodesRead::NotRead, 1, Some(Effect::FindNodes(labelled))),
        (
            "its own",
            &left,
            workload_node(Some(samples::PROVIDER_ID)),
            1,
            Some(Effect::RemoveNode(node_ref())),
        ),
        (
            "joined before the machine was linked",
            &unlinked,
            workload_node(Some("metal3://fleet/bmh-1/m-1")),
            1,
            Some(Effect::RemoveNode(node_ref())),
        ),
        ("joined without providerID", &of_pool, workload_node(None), 1, Some(Effect::RemoveNode(node_ref()))),
        ("of another host, without providerID", &unlinked, workload_node(None), 1, Some(Effect::Release)),
        (
            "of the next machine",
            &unlinked,
            workload_node(Some("metal3://fleet/bmh-1/m-2")),
            1,
            Some(Effect::Release),
        ),
        ("in deletion", &left, deleted_node(), 1, Some(Effect::Release)),
        ("of another", &left, workload_node(Some("baremetal:///host-9")), 1, Some(Effect::Release)),
        ("without one", &left, workload_node(None), 1, Some(Effect::Release)),
        ("no access", &left, NodesRead::Unavailable(missing), 1, Some(Effect::Release)),
        ("unreachable", &left, unreachable_workload(), 119, None),
        ("unreachable for long", &left, unreachable_workload(), 120, Some(Effect::Release)),
    ] {
        let secrets = Secrets { nodes, ..Secrets::default() };
        let outcome = outcome_at(demand, Some(&inventory), &secrets, seconds(now));
        assert_eq!(outcome.effect, want, "{name}");
    }
}
