//! The real API server refuses changes of templates, but for the dry runs of
//! Cluster API's topology controller.

use std::time::Duration;

use control_plane::parts::Parts;
use control_plane::{ControlPlane, Settings, apply};
use coordinator_api::crds;
use coordinator_api::template::BaremetalMachineTemplate;
use e2e::manifests::RIGHTS;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const DEADLINE: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

fn template(pool: &str, metadata: &Value) -> Value {
    let spec = json!({ "machineInventoryPoolRef": { "name": pool } });
    json!({ "metadata": metadata, "spec": { "template": { "spec": spec } } })
}

fn dry_run_of_topology() -> Value {
    json!({ "annotations": { "topology.cluster.x-k8s.io/dry-run": "" } })
}

/// As Cluster API's topology controller does it: by server-side apply. The code of the refusal.
async fn change(api: &Api<BaremetalMachineTemplate>, patch: &Value, dry_run: bool) -> Result<(), u16> {
    let params = PatchParams { dry_run, ..PatchParams::apply("capi-topology").force() };
    let mut object = patch.clone();
    object["apiVersion"] = BaremetalMachineTemplate::api_version(&()).into();
    object["kind"] = BaremetalMachineTemplate::kind(&()).into();
    match api.patch("workers", &params, &Patch::Apply(object)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_change_in_dry_runs_of_topologies_alone() {
    let parts = Parts::from_environment().unwrap();
    let management = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
    let client = management.admin().await.unwrap();
    for crd in crds::all() {
        apply::manifest(&client, &crds::yaml(&crd).unwrap()).await.unwrap();
    }
    apply::manifest(&client, RIGHTS).await.unwrap();
    let api: Api<BaremetalMachineTemplate> = Api::namespaced(client, "default");
    let made = serde_json::from_value(template("a", &json!({ "name": "workers" }))).unwrap();
    api.create(&PostParams::default(), &made).await.unwrap();
    let end = Instant::now() + DEADLINE;
    while change(&api, &template("b", &json!({})), true).await != Err(422) {
        assert!(Instant::now() < end, "the policy does not act");
        sleep(POLL_INTERVAL).await;
    }
    for (name, patch, dry_run, want) in [
        ("a change", template("b", &json!({})), false, Err(422)),
        ("a dry run of the topology", template("b", &dry_run_of_topology()), true, Ok(())),
        ("its annotation without a dry run", template("b", &dry_run_of_topology()), false, Err(422)),
        ("labels", template("a", &json!({ "labels": { "a": "b" } })), false, Ok(())),
    ] {
        assert_eq!(change(&api, &patch, dry_run).await, want, "{name}");
    }
}
