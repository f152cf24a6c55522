mod hostile;

use std::sync::atomic::{AtomicUsize, Ordering};

use coordinator_core::cluster::EndpointAnswer;
use coordinator_core::node_link::{NodeFacts, UUID_LABEL};
use fake_apiserver::{FakeApi, Outage, Verb};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;

use super::*;

/// A management cluster, a workload cluster, and how often it was connected to.
struct Setting {
    management: FakeApi,
    workload: FakeApi,
    connects: Arc<AtomicUsize>,
    clients: WorkloadClients,
}

impl Setting {
    fn new() -> Self {
        let (management, workload) = (FakeApi::new(), FakeApi::new());
        let connects = Arc::<AtomicUsize>::default();
        let (counted, served) = (connects.clone(), workload.clone());
        let clients = WorkloadClients::new(Arc::new(move |kubeconfig| {
            counted.fetch_add(1, Ordering::SeqCst);
            let is_usable = kubeconfig.expose() != b"unusable";
            let client = is_usable.then(|| served.client("workload")).ok_or(KubeconfigError::Unusable);
            std::future::ready(client).boxed()
        }));
        Self { management, workload, connects, clients }
    }

    async fn write_kubeconfig(&self, cluster: &str, text: &str) {
        self.write_kubeconfig_in("fleet", cluster, text).await;
    }

    async fn write_kubeconfig_in(&self, namespace: &str, cluster: &str, text: &str) {
        let name = format!("{cluster}-kubeconfig");
        let api: Api<KubeSecret> = Api::namespaced(self.management.client("operator"), namespace);
        let secret = json!({ "metadata": { "name": name }, "stringData": { "value": text } });
        if self.management.look("secrets", namespace, &name).is_some() {
            let patch = json!({ "stringData": { "value": text } });
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        } else {
            api.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
        }
    }

    async fn create_node(&self, name: &str, value: &str) {
        let api: Api<Node> = Api::all(self.workload.client("kubelet"));
        let labels = json!({ UUID_LABEL: value });
        let node =
            json!({ "metadata": { "name": name, "labels": labels }, "spec": { "podCIDR": "10.0.0.0/24" } });
        api.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }

    async fn read(&self, cluster: &str, value: &str) -> Result<Vec<NodeFacts>, Reason> {
        let search = NodeSearch::new(cluster, UUID_LABEL, &[value.to_owned()]);
        let read = self.clients.read_nodes(&self.management.client("coordinator"), "fleet", &search).await;
        match read.unwrap() {
            NodesRead::Read(nodes) => Ok(nodes),
            NodesRead::Unavailable(problem) => Err(problem.reason),
            NodesRead::NotRead => panic!("nothing was read"),
        }
    }

    fn connects(&self) -> usize {
        self.connects.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn client_is_kept_while_secret_is_unchanged() {
    let setting = Setting::new();
    assert_eq!(setting.read("c1", "u-1").await, Err(Reason::KubeconfigMissing));
    setting.write_kubeconfig("c1", "unusable").await;
    assert_eq!(setting.read("c1", "u-1").await, Err(Reason::KubeconfigInvalid));
    setting.write_kubeconfig("c1", "first").await;
    for _ in 0..3 {
        assert_eq!(setting.read("c1", "u-1").await, Ok(vec![]));
    }
    assert_eq!(setting.connects(), 2);
    setting.write_kubeconfig("c1", "second").await;
    setting.read("c1", "u-1").await.unwrap();
    assert_eq!(setting.connects(), 3, "a new kubeconfig is used at once");
    setting.clients.forget_cluster(&Key::new("fleet", "c1"));
    setting.read("c1", "u-1").await.unwrap();
    assert_eq!(setting.connects(), 4, "a deleted cluster leaves no client");
}

#[tokio::test(start_paused = true)]
async fn clients_are_bounded() {
    let setting = Setting::new();
    for number in 0..=CLIENTS {
        let cluster = format!("c{number}");
        setting.write_kubeconfig(&cluster, "k").await;
        setting.read(&cluster, "u-1").await.unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(setting.clients.lock_known().len(), CLIENTS);
    assert!(!setting.clients.lock_known().contains_key(&Key::new("fleet", "c0")), "the oldest went");
}

#[tokio::test(start_paused = true)]
async fn silent_cluster_is_asked_again_later() {
    let setting = Setting::new();
    setting.write_kubeconfig("c1", "k").await;
    setting.workload.faults().outage(Outage::Refused);
    assert_eq!(setting.read("c1", "u-1").await, Err(Reason::WorkloadUnreachable));
    setting.workload.faults().outage(Outage::Over);
    assert_eq!(setting.read("c1", "u-1").await, Err(Reason::WorkloadUnreachable), "not asked");
    tokio::time::advance(SILENCE).await;
    assert_eq!(setting.read("c1", "u-1").await, Ok(vec![]));
}

#[tokio::test(start_paused = true)]
async fn one_node_with_the_label_is_enough() {
    let setting = Setting::new();
    setting.write_kubeconfig("c1", "k").await;
    setting.create_node("n1", "u-1").await;
    setting.create_node("n2", "u-2").await;
    let names = |nodes: Vec<NodeFacts>| nodes.into_iter().map(|node| node.name).collect::<Vec<_>>();
    assert_eq!(names(setting.read("c1", "u-1").await.unwrap()), ["n1"]);
    assert_eq!(names(setting.read("c1", "u-3").await.unwrap()), ["n1", "n2"]);
}

#[tokio::test(start_paused = true)]
async fn provider_id_alone_is_written_of_a_node() {
    let setting = Setting::new();
    setting.write_kubeconfig("c1", "k").await;
    setting.create_node("n1", "u-1").await;
    let before = setting.workload.look("nodes", "", "n1").unwrap();
    let found = setting.read("c1", "u-1").await.unwrap().remove(0);
    let node = NodeRef { cluster: "c1".into(), name: found.name, uid: found.uid };
    let management = setting.management.client("coordinator");
    setting.clients.set_provider_id(&management, "fleet", &node, "baremetal:///host-1").await.unwrap();
    let mut after = setting.workload.look("nodes", "", "n1").unwrap();
    assert_eq!(after["spec"]["providerID"], "baremetal:///host-1");
    after["spec"].as_object_mut().unwrap().remove("providerID");
    assert_eq!(
        (&after["spec"], &after["metadata"]["labels"]),
        (&before["spec"], &before["metadata"]["labels"])
    );
    let other = NodeRef { uid: Some("uid-of-another".into()), ..node.clone() };
    assert!(
        setting.clients.delete_node(&management, "fleet", &other).await.is_err(),
        "another Node of the name"
    );
    for _ in 0..2 {
        setting.clients.delete_node(&management, "fleet", &node).await.unwrap();
    }
    assert_eq!(setting.workload.look("nodes", "", "n1"), None::<Value>);
}

#[tokio::test(start_paused = true)]
async fn silent_endpoint_is_asked_ever_less_often() {
    let setting = Setting::new();
    let (management, cluster) = (setting.management.client("coordinator"), Key::new("fleet", "c1"));
    let ask = async |is_initialized: bool| {
        let asked = setting.clients.ask_endpoint(&management, &cluster, is_initialized).await;
        let (answer, next) = asked.unwrap();
        (answer, next.map(|next| next.as_secs()))
    };
    let (answer, next) = ask(false).await;
    assert!(
        matches!(answer, EndpointAnswer::Unasked(problem) if problem.reason == Reason::KubeconfigMissing)
    );
    assert_eq!(next, None, "the progress of the Cluster is waited for");
    setting.write_kubeconfig("c1", "k").await;
    setting.workload.faults().outage(Outage::Refused);
    tokio::time::advance(Duration::from_secs(29)).await;
    assert!(matches!(ask(false).await.0, EndpointAnswer::Unasked(_)), "not asked again yet");
    for pause in [30, 60, 120, 240, 300, 300] {
        tokio::time::advance(Duration::from_mins(5)).await;
        let (answer, next) = ask(false).await;
        assert!(
            matches!(&answer, EndpointAnswer::Silent(problem) if problem.reason == Reason::WorkloadUnreachable)
        );
        assert_eq!(next, Some(pause));
    }
    setting.workload.faults().outage(Outage::Over);
    assert!(matches!(ask(false).await.0, EndpointAnswer::Silent(_)), "not asked again yet");
    assert_eq!(ask(true).await, (EndpointAnswer::Answered(None), Some(120)), "Cluster API has reached it");
    setting.workload.faults().outage(Outage::Refused);
    tokio::time::advance(Duration::from_mins(2)).await;
    let mark = setting.management.journal().mark();
    let (answer, next) = ask(true).await;
    assert!(matches!(answer, EndpointAnswer::Silent(_)));
    assert_eq!(next, Some(30));
    assert!(setting.management.journal().since(mark).is_empty(), "the client was kept");
}

#[tokio::test(start_paused = true)]
async fn holder_is_written_once_until_it_changes() {
    let setting = Setting::new();
    setting.write_kubeconfig("c1", "k").await;
    let (management, cluster) = (setting.management.client("coordinator"), Key::new("fleet", "c1"));
    let show = async |clients: &WorkloadClients, host: &str| {
        let mark = setting.workload.journal().mark();
        clients.show_holder(&management, &cluster, host, Timestamp::UNIX_EPOCH).await.unwrap();
        let verbs = setting.workload.journal().since(mark);
        verbs.into_iter().map(|entry| entry.request.verb).collect::<Vec<_>>()
    };
    let spec = || setting.workload.look("leases.coordination.k8s.io", "kube-system", HOLDER_LEASE).unwrap();
    assert_eq!(show(&setting.clients, "host-1").await, [Verb::Get, Verb::Create]);
    assert!(show(&setting.clients, "host-1").await.is_empty());
    assert_eq!(show(&setting.clients, "host-2").await, [Verb::Get, Verb::Patch]);
    let spec_now = spec();
    assert_eq!(
        (&spec_now["spec"]["holderIdentity"], &spec_now["spec"]["leaseTransitions"]),
        (&json!("host-2"), &json!(1))
    );
    setting.clients.forget_holders();
    assert_eq!(show(&setting.clients, "host-2").await, [Verb::Get], "a new leader writes nothing");
    let other = WorkloadClients::new(setting.clients.0.connect.clone());
    assert_eq!(show(&other, "host-3").await, [Verb::Get, Verb::Patch]);
    setting.clients.forget_holders();
    assert_eq!(show(&setting.clients, "host-2").await, [Verb::Get, Verb::Patch], "it leads again");
}
