//! With the token of the coordinator's service account, what the real API server
//! answers to reads and writes of Secrets.

use std::time::Duration;

use control_plane::parts::Parts;
use control_plane::{ControlPlane, Settings, apply};
use coordinator_api::names::{label, plan_secret, registration_secret};
use e2e::manifests;
use e2e::replicas::NAMESPACE as OWN;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const FLEET: &str = "fleet";
const OTHER: &str = "other";
const CA: &str = "baremetal-coordinator-ca";
const TOKEN: &str = "hosts-registration-token";
const BOOTSTRAP: &str = "cluster.x-k8s.io/secret";
const ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
const DEADLINE: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The code of the refusal: RBAC answers 403, the policy 422.
type Answer = Result<(), u16>;
const DONE: Answer = Ok(());
const FORBIDDEN: Answer = Err(403);
const DENIED: Answer = Err(422);

struct Caller(Client);

fn answer<T>(result: Result<T, kube::Error>) -> Answer {
    match result {
        Ok(_) => DONE,
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{error}"),
    }
}

/// A Secret as the coordinator writes one.
fn own(name: &str, kind: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { label::MANAGED: "true" } }, "type": kind })
}

fn foreign(name: &str, kind: &str) -> Value {
    json!({ "metadata": { "name": name }, "type": kind })
}

/// As Cluster API's bootstrap provider writes it.
fn bootstrap_data() -> Value {
    json!({
        "metadata": { "name": "bootstrap" },
        "type": BOOTSTRAP,
        "data": { "value": "djE=", "format": "Y2xvdWQtY29uZmln" },
    })
}

fn authority(is_immutable: bool) -> Value {
    json!({ "metadata": { "name": CA }, "immutable": is_immutable })
}

impl Caller {
    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.0.clone(), namespace)
    }

    async fn create(&self, namespace: &str, secret: &Value) -> Answer {
        let secret: Secret = serde_json::from_value(secret.clone()).unwrap();
        let params = PostParams { dry_run: true, ..PostParams::default() };
        answer(self.secrets(namespace).create(&params, &secret).await)
    }

    async fn patch(&self, namespace: &str, name: &str, patch: Value) -> Answer {
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        answer(self.secrets(namespace).patch(name, &params, &Patch::Merge(patch)).await)
    }

    async fn get(&self, namespace: &str, name: &str) -> Answer {
        answer(self.secrets(namespace).get(name).await)
    }

    /// The API server follows changes of roles and policies a moment later.
    async fn wait_for(&self, what: &str, want: Answer, attempt: impl AsyncFn(&Self) -> Answer) {
        let deadline = Instant::now() + DEADLINE;
        while attempt(self).await != want {
            assert!(Instant::now() < deadline, "{what}: never {want:?}");
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn check_creations(&self, namespace: &str) {
        let mut account_token = own("a", ACCOUNT_TOKEN);
        account_token["metadata"]["annotations"] = json!({ "kubernetes.io/service-account.name": "default" });
        let cases = [
            ("a plan", namespace, own("h", plan_secret::TYPE), DONE),
            ("a token", namespace, own("new-registration-token", registration_secret::TYPE), DONE),
            ("the CA", OWN, authority(true), DONE),
            ("a plan without label", namespace, foreign("h", plan_secret::TYPE), DENIED),
            ("a token of another name", namespace, own("t", registration_secret::TYPE), DENIED),
            ("no type of ours", namespace, own("o", "Opaque"), DENIED),
            ("the token of an account", namespace, account_token, DENIED),
            ("bootstrap data", namespace, own("b", BOOTSTRAP), DENIED),
            ("a CA in another namespace", namespace, authority(true), DENIED),
            ("a CA that can be changed", OWN, authority(false), DENIED),
            ("another name in the own namespace", OWN, own("o", "Opaque"), DENIED),
        ];
        for (name, namespace, secret, want) in cases {
            assert_eq!(self.create(namespace, &secret).await, want, "create {name}");
        }
    }

    async fn check_changes(&self, namespace: &str) {
        let data = json!({ "data": { "k": "dg==" } });
        let takeover = json!({ "metadata": { "labels": { label::MANAGED: "true" } } });
        let resolved = json!({ "data": { "resolved-value": "dg==" } });
        let with_another = json!({ "data": { "resolved-value": "dg==", "value": "dg==" } });
        let without_value = json!({ "data": { "resolved-value": "dg==", "value": null } });
        let labelled = json!({
            "metadata": { "labels": { label::MANAGED: "true" } },
            "data": { "resolved-value": "dg==" },
        });
        let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u" });
        let with_owner = json!({
            "metadata": { "ownerReferences": [owner] },
            "data": { "resolved-value": "dg==" },
        });
        let frozen = json!({ "immutable": true, "data": { "resolved-value": "dg==" } });
        let cases = [
            ("a plan", namespace, "plan", &data, DONE),
            ("a plan that was restored without label", namespace, "bare-plan", &data, DONE),
            ("a token", namespace, TOKEN, &data, DONE),
            ("another Secret", namespace, "kubeconfig", &data, DENIED),
            ("the label of another Secret", namespace, "kubeconfig", &takeover, DENIED),
            (
                "the type of another Secret",
                namespace,
                "kubeconfig",
                &json!({ "type": plan_secret::TYPE }),
                DENIED,
            ),
            ("one with our label", namespace, "labelled", &data, DENIED),
            ("bootstrap data", namespace, "bootstrap", &data, DENIED),
            ("the normalised bootstrap data", namespace, "bootstrap", &resolved, DONE),
            ("that and the bootstrap data", namespace, "bootstrap", &with_another, DENIED),
            ("that and no bootstrap data", namespace, "bootstrap", &without_value, DENIED),
            ("that and a label", namespace, "bootstrap", &labelled, DENIED),
            ("that and an owner", namespace, "bootstrap", &with_owner, DENIED),
            ("that for ever", namespace, "bootstrap", &frozen, DENIED),
            ("normalised data of another Secret", namespace, "kubeconfig", &resolved, DENIED),
        ];
        for (name, namespace, secret, patch, want) in cases {
            assert_eq!(self.patch(namespace, secret, patch.clone()).await, want, "patch {name}");
        }
        let plan = self.secrets(namespace).get("plan").await.unwrap();
        let params = PostParams::default();
        assert_eq!(answer(self.secrets(namespace).replace("plan", &params, &plan).await), FORBIDDEN);
    }

    /// Not even of its own.
    async fn check_no_other_verb(&self, namespace: &str) {
        let secrets = self.secrets(namespace);
        let (delete, list) = (DeleteParams::default(), ListParams::default());
        assert_eq!(answer(secrets.delete("plan", &delete).await), FORBIDDEN);
        assert_eq!(answer(secrets.delete_collection(&delete, &list).await), FORBIDDEN);
        assert_eq!(answer(secrets.list(&list).await), FORBIDDEN);
        assert_eq!(answer(secrets.watch(&WatchParams::default(), "0").await.map(drop)), FORBIDDEN);
        let everywhere: Api<Secret> = Api::all(self.0.clone());
        assert_eq!(answer(everywhere.list(&list).await), FORBIDDEN);
    }
}

async fn apply_rights(admin: &Client, namespaces: &[&str]) {
    for manifest in manifests::rights(namespaces) {
        apply::manifest(admin, &manifest).await.unwrap();
    }
}

/// What exists before the coordinator comes.
async fn create_secrets(admin: &Client) {
    for namespace in [FLEET, OTHER] {
        let spaces: Api<Namespace> = Api::all(admin.clone());
        let space = serde_json::from_value(json!({ "metadata": { "name": namespace } })).unwrap();
        spaces.create(&PostParams::default(), &space).await.unwrap();
        let secrets: Api<Secret> = Api::namespaced(admin.clone(), namespace);
        for secret in [
            own("plan", plan_secret::TYPE),
            foreign("bare-plan", plan_secret::TYPE),
            own(TOKEN, registration_secret::TYPE),
            foreign("kubeconfig", "Opaque"),
            own("labelled", "Opaque"),
            bootstrap_data(),
        ] {
            let secret = serde_json::from_value(secret).unwrap();
            secrets.create(&PostParams::default(), &secret).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn coordinator_writes_no_secret_but_its_own() {
    let parts = Parts::from_environment().unwrap();
    let management = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
    let admin = management.admin().await.unwrap();
    create_secrets(&admin).await;
    apply_rights(&admin, &[]).await;
    let account = management.service_account(OWN, "baremetal-coordinator").await;
    let caller = Caller(account.unwrap());
    let foreign = foreign("o", "Opaque");
    caller.wait_for("the policy acts", DENIED, async |caller| caller.create(FLEET, &foreign).await).await;
    for namespace in [FLEET, OTHER] {
        caller.check_creations(namespace).await;
        caller.check_changes(namespace).await;
        caller.check_no_other_verb(namespace).await;
    }
    assert_eq!(caller.get(OTHER, "kubeconfig").await, DONE, "RBAC cannot tell one Secret from another");

    let bindings: Api<ClusterRoleBinding> = Api::all(admin.clone());
    bindings.delete("baremetal-coordinator", &DeleteParams::default()).await.unwrap();
    apply_rights(&admin, &[FLEET]).await;
    let read_other = async |caller: &Caller| caller.get(OTHER, "plan").await;
    caller.wait_for("another namespace is out of reach", FORBIDDEN, read_other).await;
    caller.wait_for("its own is not", DONE, async |caller| caller.get(FLEET, "bootstrap").await).await;
    caller.check_creations(FLEET).await;
    caller.check_changes(FLEET).await;
    caller.check_no_other_verb(FLEET).await;
    let data = json!({ "data": { "k": "dg==" } });
    assert_eq!(caller.patch(OTHER, "plan", data).await, FORBIDDEN);
    assert_eq!(caller.create(OTHER, &own("h", plan_secret::TYPE)).await, FORBIDDEN);
    assert_eq!(caller.get(OWN, "cloud-credentials").await, FORBIDDEN);
    assert_eq!(caller.get(OWN, CA).await, Err(404), "it may be read");
}
