//! Named after the rules of CAPM3's workflow for providerIDs: steps 1 to 4, their
//! errors, duplicates, and the two forms side by side.

use coordinator_api::capi::{
    self, Bootstrap, Cluster, ClusterSpec, InfrastructureRef, Machine, MachineSpec, MachineStatus,
    NodeRef as FoundNode,
};
use coordinator_api::inventory::CarriedNode;
use coordinator_api::metal3::cluster::{Metal3Cluster, Metal3ClusterSpec};
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::Metal3Machine;
use serde_json::json;

use super::super::{Outcome, Situation, Step, decide_machine};
use crate::assignment::NodesRead;
use crate::node_link::{HOSTNAME_LABEL, NodeFacts, UUID_LABEL};
use crate::samples::node;

const NEW: &str = "metal3://fleet/bmh-1/m3m";
const LEGACY: &str = "metal3://uid-1";
const PROPOSED: &str = "metal3://fleet/bmh-1?owner=m3m";

fn labelled(name: &str, provider_id: &str) -> NodeFacts {
    node(name, provider_id, &[(UUID_LABEL, "uid-1")])
}

fn named(name: &str, provider_id: &str) -> NodeFacts {
    node(name, provider_id, &[(HOSTNAME_LABEL, "bmh-1")])
}

/// Of other hosts, in both forms and twice: no error of this machine.
fn others() -> Vec<NodeFacts> {
    vec![
        node("o1", "metal3://fleet/bmh-11/m3m", &[(UUID_LABEL, "uid-9")]),
        node("o2", "metal3://uid-8", &[(UUID_LABEL, "uid-8"), (HOSTNAME_LABEL, "bmh-8")]),
        node("o3", "metal3://uid-8", &[]),
    ]
}

/// A provisioned host of a machine, and how the machine is looked at.
#[derive(Clone, Copy, Default)]
struct Case<'a> {
    provider_id: Option<&'a str>,
    /// Of the Machine: it has a `bootstrap.configRef`.
    is_configured: bool,
    has_cloud_provider: bool,
    /// The providerID that the host states.
    carried: Option<&'a str>,
    is_found: bool,
}

impl Case<'_> {
    fn configured() -> Self {
        Self { is_configured: true, ..Self::default() }
    }

    fn decide(self, nodes: &NodesRead) -> Outcome {
        let machine: Metal3Machine = serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
            "metadata": {
                "name": "m3m", "namespace": "fleet",
                "annotations": { "metal3.io/BareMetalHost": "fleet/bmh-1" },
                "finalizers": ["metal3machine.infrastructure.cluster.x-k8s.io"],
            },
            "spec": { "image": { "url": "oci://registry.example/os:v1" }, "providerID": self.provider_id },
        }))
        .unwrap();
        let host: BareMetalHost = serde_json::from_value(json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": { "name": "bmh-1", "namespace": "fleet", "uid": "uid-1" },
            "spec": {
                "image": { "url": "oci://registry.example/os:v1" },
                "consumerRef": {
                    "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
                    "name": "m3m", "namespace": "fleet",
                },
            },
            "status": {
                "provisioning": { "state": "provisioned" },
                "hardware": { "hostname": "bmh-1", "nics": [] },
            },
        }))
        .unwrap();
        let reference = || InfrastructureRef { kind: "KubeadmConfig".into(), name: "m-1".into() };
        let config_ref = self.is_configured.then(reference);
        let bootstrap = Bootstrap { data_secret_name: Some("data".into()), config_ref };
        let spec = MachineSpec { cluster_name: "c1".into(), bootstrap, ..MachineSpec::default() };
        let mut owner = Machine::new("m-1", &capi::machine("v1beta2"), spec);
        let found = self.is_found.then(|| FoundNode { name: "n1".into() });
        owner.status = Some(MachineStatus { node_ref: found });
        let cluster = Cluster::new("c1", &capi::cluster_resource("v1beta2"), ClusterSpec::default());
        let enabled = Some(self.has_cloud_provider);
        let spec = Metal3ClusterSpec { cloud_provider_enabled: enabled, ..Metal3ClusterSpec::default() };
        let mut infrastructure = Metal3Cluster::new("c1", spec);
        infrastructure.status = serde_json::from_value(json!({ "ready": true })).unwrap();
        let carried = self.carried.map(|id| CarriedNode {
            provider_id: id.into(),
            uuid: "uid-1".into(),
            owner: String::new(),
        });
        decide_machine(&Situation {
            machine: &machine,
            owner: Some(&owner),
            cluster: Some(&cluster),
            infrastructure: Some(&infrastructure),
            template: None,
            host: Some(&host),
            owned: &[],
            catalog: None,
            data_claim: None,
            data: None,
            carried: carried.as_ref(),
            nodes,
            now: jiff::Timestamp::UNIX_EPOCH,
        })
    }

    /// What follows, beside Nodes of other hosts.
    fn show(self, nodes: Vec<NodeFacts>) -> String {
        let outcome = self.decide(&NodesRead::Read(others().into_iter().chain(nodes).collect()));
        let blocker = outcome.blocker.as_ref().map(|blocker| blocker.problem.reason.as_str());
        assert_eq!(outcome.is_retried, blocker.is_some(), "no event announces a Node");
        match (outcome.step, blocker) {
            (Step::Rest, None) => "rest".to_owned(),
            (Step::Rest, Some(reason)) => reason.to_owned(),
            (Step::Provide(id), None) => format!("provide {id}"),
            (Step::LinkNode { node, provider_id }, None) => format!("link {} {provider_id}", node.name),
            other => panic!("{other:?}"),
        }
    }
}

const AMBIGUOUS: &str = "NodeAmbiguous";
const UNSUPPORTED: &str = "NodeProviderIDUnsupported";
const WAITING: &str = "NodeWaiting";

fn provide(id: &str) -> String {
    format!("provide {id}")
}

#[test]
fn a4_nodes_searched_until_cluster_api_finds_one() {
    let asked = Case::default().decide(&NodesRead::NotRead);
    assert!(matches!(asked.step, Step::FindNodes(search) if search.selector.is_none()));
    let provided = Case { provider_id: Some(NEW), ..Case::default() };
    assert!(matches!(provided.decide(&NodesRead::NotRead).step, Step::FindNodes(_)));
    let found = Case { is_found: true, ..provided };
    assert_eq!(found.decide(&NodesRead::NotRead).step, Step::Rest);
}

#[test]
fn a5_step_1_a_node_matches_already() {
    let case = Case::configured();
    for (what, nodes, want) in [
        ("new", vec![node("n1", NEW, &[])], provide(NEW)),
        ("legacy", vec![node("n1", LEGACY, &[])], provide(LEGACY)),
        ("another machine of the host", vec![node("n1", "metal3://fleet/bmh-1/m", &[])], WAITING.into()),
        ("another namespace", vec![node("n1", "metal3://other/bmh-1/m3m", &[])], WAITING.into()),
    ] {
        assert_eq!(case.show(nodes), want, "{what}");
    }
    for (what, provided, id, want) in [
        ("new", NEW, NEW, "rest"),
        ("legacy", LEGACY, LEGACY, "rest"),
        ("legacy of a UID before a restore", "metal3://uid-0", "metal3://uid-0", "rest"),
        ("a Node of the other form", NEW, LEGACY, UNSUPPORTED),
        ("the other way round", LEGACY, NEW, UNSUPPORTED),
    ] {
        let case = Case { provider_id: Some(provided), ..case };
        assert_eq!(case.show(vec![node("n1", id, &[])]), want, "{what}");
    }
}

#[test]
fn a5_step_2_cloud_provider_names_the_node() {
    let case = Case { has_cloud_provider: true, ..Case::default() };
    for (what, nodes, want) in [
        ("new", vec![node("n1", NEW, &[])], provide(NEW)),
        ("legacy", vec![node("n1", LEGACY, &[])], provide(LEGACY)),
        ("no providerID yet: the Node is not written", vec![labelled("n1", "")], WAITING.into()),
        ("its own scheme", vec![labelled("n1", "cloud://i-1")], WAITING.into()),
        ("no Node, and step 4 is not reached", vec![], WAITING.into()),
    ] {
        assert_eq!(case.show(nodes), want, "{what}");
    }
}

#[test]
fn a5_step_3_label_tells_the_node() {
    let case = Case::configured();
    for (what, nodes, want) in [
        ("no providerID: the machine first", vec![labelled("n1", "")], provide(NEW)),
        ("new", vec![labelled("n1", NEW)], provide(NEW)),
        ("legacy", vec![labelled("n1", LEGACY)], provide(LEGACY)),
        ("any other form is an error", vec![labelled("n1", "cloud://i-1")], UNSUPPORTED.into()),
        ("the proposed form is an error", vec![labelled("n1", PROPOSED)], UNSUPPORTED.into()),
        ("another machine", vec![labelled("n1", "metal3://fleet/bmh-1/m")], UNSUPPORTED.into()),
        ("two Nodes are an error", vec![labelled("n1", ""), labelled("n2", "")], AMBIGUOUS.into()),
        ("none, with configRef", vec![named("n1", "")], WAITING.into()),
    ] {
        assert_eq!(case.show(nodes), want, "{what}");
    }
    let provided = Case { provider_id: Some(NEW), ..case };
    assert_eq!(provided.show(vec![labelled("n1", "")]), format!("link n1 {NEW}"), "then the Node");
}

#[test]
fn a5_step_4_host_name_tells_the_node() {
    let case = Case::default();
    assert_eq!(case.show(vec![]), provide(NEW), "before a Node is known");
    let provided = Case { provider_id: Some(NEW), ..case };
    for (what, nodes, want) in [
        ("no Node", vec![], WAITING.to_owned()),
        ("one", vec![named("n1", "")], format!("link n1 {NEW}")),
        ("the label comes first", vec![named("n1", ""), labelled("n2", "")], format!("link n2 {NEW}")),
        ("two wait", vec![named("n1", ""), named("n2", "")], WAITING.into()),
        ("without the label of kubelets", vec![node("bmh-1", "", &[])], WAITING.into()),
        ("no Node loses its providerID", vec![named("n1", "cloud://i-1")], UNSUPPORTED.into()),
    ] {
        assert_eq!(provided.show(nodes), want, "{what}");
    }
    let stated = Case { carried: Some(LEGACY), ..case };
    assert_eq!(stated.show(vec![]), provide(LEGACY), "what the bootstrap data gave the kubelet");
    let foreign = Case { carried: Some("metal3://fleet/bmh-9/m3m"), ..case };
    assert_eq!(foreign.show(vec![]), provide(NEW), "a host cannot name another one");
}

#[test]
fn a6_duplicates_of_one_host_are_ambiguous() {
    for (what, nodes) in [
        ("one ID twice", vec![node("n1", NEW, &[]), node("n2", NEW, &[])]),
        ("both forms", vec![node("n1", NEW, &[]), node("n2", LEGACY, &[])]),
        ("a former machine", vec![node("n1", NEW, &[]), node("n2", "metal3://fleet/bmh-1/m", &[])]),
        ("legacy twice", vec![labelled("n1", LEGACY), node("n2", LEGACY, &[])]),
    ] {
        for provider_id in [None, Some(NEW)] {
            let case = Case { provider_id, ..Case::configured() };
            assert_eq!(case.show(nodes.clone()), AMBIGUOUS, "{what}");
        }
    }
}

#[test]
fn a1_the_proposed_form_is_refused_by_name() {
    let machine = Case { provider_id: Some(PROPOSED), ..Case::configured() };
    let node = Case::configured().decide(&NodesRead::Read(vec![labelled("n1", PROPOSED)]));
    for outcome in [machine.decide(&NodesRead::Read(vec![])), node] {
        let blocker = outcome.blocker.unwrap();
        assert_eq!(blocker.problem.reason.as_str(), UNSUPPORTED);
        assert!(blocker.problem.text().contains("?owner= was proposed"), "{}", blocker.problem.text());
    }
}

/// The bootstrap data decides the form of a Node: templates of the older form keep
/// it through scale-out and upgrade, changed ones move to the newer node by node. A
/// machine never has two Nodes.
#[test]
fn migration_keeps_or_moves_nodes_individually() {
    for (what, provider_id, carried, nodes, want) in [
        ("scale-out, legacy template", None, LEGACY, vec![labelled("n1", LEGACY)], provide(LEGACY)),
        ("scale-out, changed template", None, NEW, vec![labelled("n1", NEW)], provide(NEW)),
        ("a machine from before", Some(LEGACY), LEGACY, vec![labelled("n1", LEGACY)], "rest".into()),
        ("a machine of the newer form", Some(NEW), NEW, vec![labelled("n1", NEW)], "rest".into()),
        (
            "the former Node of the host is left",
            None,
            NEW,
            vec![labelled("n1", LEGACY), labelled("n2", NEW)],
            AMBIGUOUS.into(),
        ),
        (
            "the former Node was not deleted and has the name of the new one",
            None,
            NEW,
            vec![node("n1", "metal3://fleet/bmh-1/former", &[(UUID_LABEL, "uid-1")])],
            UNSUPPORTED.into(),
        ),
        (
            "the kubelet of a legacy template has none",
            None,
            LEGACY,
            vec![labelled("n1", "")],
            provide(LEGACY),
        ),
    ] {
        let case = Case { provider_id, carried: Some(carried), ..Case::configured() };
        assert_eq!(case.show(nodes), want, "{what}");
    }
}
