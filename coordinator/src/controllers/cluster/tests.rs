use fake_apiserver::{Matching, Refusal, Verb};
use serde_json::{Value, json};

use crate::tests::{NAMESPACE, Setting};

const CLUSTERS: &str = "baremetalclusters.infrastructure.cluster.x-k8s.io";

/// A Cluster whose `BaremetalCluster` has an external load balancer.
async fn create_cluster(setting: &Setting, name: &str, metadata: Value) {
    let reference =
        json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "BaremetalCluster", "name": name });
    setting.create("Cluster", name, json!({ "spec": { "infrastructureRef": reference } })).await;
    let balancer = json!({ "type": "External", "host": "192.0.2.1", "port": 6443 });
    let owner =
        json!({ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": name, "uid": "u" });
    let mut object = json!({ "metadata": metadata, "spec": { "controlPlaneLoadBalancer": balancer } });
    object["metadata"]["ownerReferences"] = json!([owner]);
    setting.create("BaremetalCluster", name, object).await;
}

fn look(setting: &Setting, name: &str) -> Value {
    setting.fake.look(CLUSTERS, NAMESPACE, name).unwrap()
}

fn condition(setting: &Setting, name: &str, kind: &str) -> (String, String) {
    let object = look(setting, name);
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind).cloned().unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[tokio::test(start_paused = true)]
async fn refused_endpoint_is_shown_until_it_is_written() {
    let setting = Setting::leading().await;
    let writes = Matching::any().user("coordinator").verb(Verb::Patch).resource("baremetalclusters");
    let refused = setting.fake.faults().fail(writes.subresource(""), 3, Refusal::Forbidden);
    create_cluster(&setting, "c1", json!({})).await;
    let shown = || condition(&setting, "c1", "Ready");
    setting.settle().await;
    assert!(refused.is_met());
    assert_eq!(shown(), pair("False", "ApiRequestFailed"));
    assert_eq!(condition(&setting, "c1", "EndpointReady"), pair("Unknown", "NotDecided"));
    tokio::time::sleep(std::time::Duration::from_mins(20)).await;
    assert_eq!(shown(), pair("True", "EndpointKnown"));
    assert_eq!(look(&setting, "c1")["spec"]["controlPlaneEndpoint"]["host"], "192.0.2.1");
}

#[tokio::test(start_paused = true)]
async fn watch_filter_leaves_other_clusters_alone() {
    let mut setting = Setting::new(&["--watch-filter=a"]);
    setting.start();
    create_cluster(&setting, "other", json!({ "labels": { "cluster.x-k8s.io/watch-filter": "b" } })).await;
    create_cluster(&setting, "own", json!({ "labels": { "cluster.x-k8s.io/watch-filter": "a" } })).await;
    setting.settle().await;
    assert_eq!(condition(&setting, "own", "Ready"), pair("True", "EndpointKnown"));
    assert!(
        look(&setting, "other")["status"].is_null()
            && look(&setting, "other")["spec"]["controlPlaneEndpoint"].is_null()
    );
}
