//! Faults as an operator looks at them: the objects that a scenario leaves, at a real API
//! server, through the real `kubectl get`, `kubectl describe` and `kubectl baremetal why`.

mod faults;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, anyhow, ensure};
use control_plane::parts::{Part, Parts};
use control_plane::{ControlPlane, Settings, apply};
use coordinator_api::{crds, metal3};
use e2e::replicas::find_binary;
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use scenarios::{NAMESPACE, World};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::task::spawn_blocking;

use crate::common::take_turn;
use faults::{FAULTS, Fault};

/// `kubectl` with the plugin in its path.
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    path: String,
}

impl Kubectl {
    fn find(parts: &Parts, server: &ControlPlane) -> Result<Self> {
        let plugin = find_binary("kubectl-baremetal", "kubectl-baremetal")?;
        let directory = plugin.parent().unwrap().display().to_string();
        let path = format!("{directory}:{}", std::env::var("PATH")?);
        Ok(Self { program: parts.path(Part::Kubectl)?, kubeconfig: server.admin_kubeconfig(), path })
    }

    /// What it writes; each of `words` has to be in it.
    async fn expect(&self, line: &str, code: i32, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(line.split(' ')).env("KUBECONFIG", &self.kubeconfig).env("PATH", &self.path);
        let output = command.output().await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(code), "`kubectl {line}`:\n{text}{errors}");
        for word in words {
            ensure!(text.contains(word), "`kubectl {line}` did not write {word:?}:\n{text}");
        }
        Ok(text)
    }
}

/// Plays a fault in virtual time until `why` tells of it; the answer is every object.
fn play(fault: &'static Fault) -> Result<Vec<Value>> {
    let thread = std::thread::spawn(move || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let world: World = (fault.play)().await;
            world.expect_why(fault.object, fault.reason, fault.cause, fault.action).await;
            let objects = world.snapshot();
            world.skip_invariants();
            objects
        })
    });
    // The panic was printed where it happened.
    thread.join().map_err(|_| anyhow!("{} {}: `why` does not tell of it", fault.object, fault.reason))
}

/// The objects of the scenario in a namespace of their own.
fn move_to(namespace: &str, objects: &[Value]) -> Vec<Value> {
    let text = serde_json::to_string(objects).unwrap();
    let text = text.replace(&format!("\"{NAMESPACE}\""), &format!("\"{namespace}\""));
    serde_json::from_str(&text.replace(&format!("\"{NAMESPACE}/"), &format!("\"{namespace}/"))).unwrap()
}

fn resource_of(object: &DynamicObject) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap())
}

/// Creates an object with its status; the answer is its UID.
async fn create(client: &Client, namespace: &str, object: &Value) -> String {
    let mut object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let is_deleting = object.metadata.deletion_timestamp.take().is_some();
    object.metadata.resource_version = None;
    object.metadata.uid = None;
    object.metadata.managed_fields = None;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource_of(&object));
    let name = object.name_any();
    let created = api.create(&PostParams::default(), &object).await;
    let created = created.unwrap_or_else(|error| panic!("{name}: {error}"));
    if !object.data["status"].is_null() {
        let status = Patch::Merge(json!({ "status": object.data["status"] }));
        let patched = api.patch_status(&name, &PatchParams::default(), &status).await;
        patched.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    if is_deleting {
        api.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    created.metadata.uid.unwrap()
}

/// Creates the objects, then the Events about them, by their new UIDs.
async fn restore(client: &Client, namespace: &str, objects: &[Value]) {
    let named = json!({ "metadata": { "name": namespace } });
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &serde_json::from_value(named).unwrap()).await.unwrap();
    let (events, others): (Vec<_>, Vec<_>) =
        move_to(namespace, objects).into_iter().partition(|object| object["kind"] == "Event");
    let mut uids = BTreeMap::new();
    for object in &others {
        let former = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        uids.insert(former, create(client, namespace, object).await);
    }
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    for event in events {
        let mut event: Event = serde_json::from_value(event).unwrap();
        event.metadata.resource_version = None;
        let about = event.involved_object.uid.as_ref().and_then(|uid| uids.get(uid));
        event.involved_object.uid = about.cloned();
        api.create(&PostParams::default(), &event).await.unwrap();
    }
}

/// What an operator sees of a fault.
async fn look(kubectl: &Kubectl, namespace: &str, fault: &Fault) -> Result<()> {
    let (kind, name) = fault.object.split_once('/').unwrap();
    kubectl.expect(&format!("get {kind} {name} -n {namespace}"), 0, &[name, fault.listed]).await?;
    kubectl.expect(&format!("describe {kind} {name} -n {namespace}"), 0, fault.described).await?;
    let line = format!("baremetal why {} -n {namespace}", fault.object);
    let text = kubectl.expect(&line, fault.exit, &[fault.reason, fault.cause]).await?;
    let next = text.split_once("\n  next ").map(|(_, next)| next).unwrap_or_default();
    ensure!(next.contains(fault.action), "`{line}` names another action than {:?}:\n{text}", fault.action);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_explained_by_kubectl_alone() {
    let _turn = take_turn().await;
    let parts = Parts::from_environment().unwrap();
    let server = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
    let client = server.admin().await.unwrap();
    for mut crd in crds::all().into_iter().chain(metal3::crds()) {
        // kubectl reads the newest version, and no coordinator converts objects here.
        crd.spec.versions.truncate(1);
        crd.spec.conversion = None;
        apply::manifest(&client, &crds::yaml(&crd).unwrap()).await.unwrap();
    }
    let kubectl = Kubectl::find(&parts, &server).unwrap();
    let mut wrong = vec![];
    for (number, fault) in FAULTS.iter().enumerate() {
        let namespace = format!("fault-{number}");
        let looked = async {
            let objects = spawn_blocking(move || play(fault)).await??;
            restore(&client, &namespace, &objects).await;
            look(&kubectl, &namespace, fault).await
        };
        wrong.extend(looked.await.err().map(|error| error.to_string()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
