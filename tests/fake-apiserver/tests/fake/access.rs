//! RBAC.

use fake_apiserver::{FakeApi, Rules, Verb};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchParams};
use serde_json::json;

const RULES: &str = "
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: everywhere}
rules:
  - {apiGroups: [''], resources: [secrets], verbs: [get, create]}
  - {apiGroups: [infrastructure.cluster.x-k8s.io], resources: [baremetalmachines], verbs: [list]}
  - {apiGroups: [infrastructure.cluster.x-k8s.io], resources: [baremetalmachines/status], verbs: [patch]}
---
kind: ClusterRoleBinding
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: everywhere}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: everywhere}
subjects: [{kind: ServiceAccount, namespace: system, name: controller}]
---
kind: Role
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: catalog, namespace: system}
rules:
  - {apiGroups: [''], resources: [configmaps], resourceNames: [catalog], verbs: [get, list, watch, create]}
---
kind: RoleBinding
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: catalog, namespace: system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: catalog}
subjects: [{kind: ServiceAccount, namespace: system, name: controller}]
---
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: unbound}
rules:
  - {apiGroups: ['*'], resources: ['*'], verbs: ['*']}
";

fn server() -> FakeApi {
    let fake = FakeApi::new();
    for crd in coordinator_api::crds::all() {
        fake.register_crd(&crd);
    }
    fake.authorize("controller", Rules::of_service_account(RULES, "system", "controller").unwrap());
    fake
}

fn is_forbidden<T>(result: kube::Result<T>) -> bool {
    match result {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            assert_eq!(status.reason, "Forbidden");
            true
        }
        _ => false,
    }
}

fn machines(client: Client) -> Api<DynamicObject> {
    let crds = coordinator_api::crds::all();
    let sample = crds.iter().map(crate::suite::samples::Sample::of);
    let sample = sample.into_iter().find(|sample| sample.resource.kind == "BaremetalMachine").unwrap();
    Api::namespaced_with(client, "default", &sample.resource)
}

#[tokio::test(start_paused = true)]
async fn rules_restrict_verbs_and_resources() {
    let fake = server();
    let client = fake.client("controller");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "anywhere");
    let secret = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
    assert!(!is_forbidden(secrets.create(&PostParams::default(), &secret).await));
    assert!(!is_forbidden(secrets.get("a").await));
    assert!(is_forbidden(secrets.list(&ListParams::default()).await));
    assert!(is_forbidden(secrets.watch(&WatchParams::default(), "0").await.map(|_| ())));
    assert!(is_forbidden(secrets.delete("a", &kube::api::DeleteParams::default()).await));
    assert!(fake.look("secrets", "anywhere", "a").is_some());
    let forbidden = fake.journal().entries();
    assert_eq!(forbidden.last().unwrap().request.verb, Verb::Delete);
}

#[tokio::test(start_paused = true)]
async fn subresources_need_rules_of_their_own() {
    let fake = server();
    let machines = machines(fake.client("controller"));
    let (pp, patch) = (PatchParams::default(), Patch::Merge(json!({ "status": {} })));
    assert!(is_forbidden(machines.patch("m", &pp, &patch).await));
    assert!(!is_forbidden(machines.patch_status("m", &pp, &patch).await));
    assert!(is_forbidden(machines.get("m").await));
    assert!(!is_forbidden(machines.list(&ListParams::default()).await));
}

#[tokio::test(start_paused = true)]
async fn names_and_namespaces_restrict_rules() {
    let fake = server();
    let client = fake.client("controller");
    let maps = |namespace: &str| -> Api<ConfigMap> { Api::namespaced(client.clone(), namespace) };
    let only = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
    assert!(!is_forbidden(maps("system").get("catalog").await));
    assert!(is_forbidden(maps("system").get("other").await));
    assert!(is_forbidden(maps("other").get("catalog").await));
    assert!(!is_forbidden(maps("system").list(&only("catalog")).await));
    assert!(is_forbidden(maps("system").list(&only("other")).await));
    assert!(is_forbidden(maps("system").list(&ListParams::default()).await));
    let all: Api<ConfigMap> = Api::all(client.clone());
    assert!(is_forbidden(all.list(&only("catalog")).await));
    // The name of a create is in its body, so that a rule for names allows none.
    let map = serde_json::from_value(json!({ "metadata": { "name": "catalog" } })).unwrap();
    assert!(is_forbidden(maps("system").create(&PostParams::default(), &map).await));
}

#[tokio::test(start_paused = true)]
async fn users_without_rules_are_not_restricted() {
    let fake = server();
    let secrets: Api<Secret> = Api::default_namespaced(fake.client("other"));
    assert!(secrets.list(&ListParams::default()).await.is_ok());
    fake.authorize("none", Rules::default());
    let secrets: Api<Secret> = Api::default_namespaced(fake.client("none"));
    assert!(is_forbidden(secrets.list(&ListParams::default()).await));
}

#[tokio::test(start_paused = true)]
async fn coordinator_manifests_are_enforced() {
    let manifests = concat!(
        include_str!("../../../../coordinator/config/rbac.yaml"),
        "---\n",
        include_str!("../../../../coordinator/config/all-namespaces.yaml")
    );
    let rules = Rules::of_service_account(manifests, "baremetal-system", "baremetal-coordinator");
    let fake = server();
    fake.authorize("coordinator", rules.unwrap());
    let client = fake.client("coordinator");
    assert!(!is_forbidden(machines(client.clone()).list(&ListParams::default()).await));
    let secrets: Api<Secret> = Api::default_namespaced(client);
    assert!(!is_forbidden(secrets.get("a").await));
    assert!(is_forbidden(secrets.list(&ListParams::default()).await));
}
