//! What this project relies on of an API server, as cases that run on any client.
//!
//! The crate's tests run them on the fake and, where the real parts are built, on the real
//! kube-apiserver: the fake is right where both agree. The suite makes a namespace and the CRD
//! `widgets.test.baremetal.cluster.io` by itself.

mod built_in;
mod deletes;
mod garbage;
mod lists;
mod objects;
mod patches;
mod status;
mod watches;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

/// Why a case failed.
pub type Mismatch = Box<dyn std::error::Error + Send + Sync>;
/// Of one case.
pub type Verdict = Result<(), Mismatch>;
type Run = fn(Bench) -> Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// One sentence about API servers, and how to find out whether it is true.
#[derive(Clone, Copy)]
pub struct Case {
    /// The sentence.
    pub name: &'static str,
    run: Run,
}

/// What the suite found out.
#[derive(Debug, Default)]
pub struct Report {
    /// Sentences that are true of this server.
    pub passed: Vec<&'static str>,
    /// Those that are not, with what was seen instead.
    pub failed: Vec<(&'static str, String)>,
}

/// A list of cases from functions whose name is the sentence.
macro_rules! sentences {
    ($($case:ident),* $(,)?) => {
        pub(super) const CASES: &[super::Case] = &[$(super::Case {
            name: stringify!($case),
            run: |bench| Box::pin($case(bench)),
        }),*];
    };
}
use sentences;

/// Where a case works: a namespace and its clients.
#[derive(Clone)]
pub struct Bench {
    client: Client,
    namespace: String,
}

impl Bench {
    fn widgets(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &widget_resource())
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        <K as kube::Resource>::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A new widget of this name and spec.
    async fn widget(&self, name: &str, spec: Value) -> Result<DynamicObject, Mismatch> {
        let mut widget = widget(name);
        widget.data = json!({ "spec": spec });
        Ok(self.widgets().create(&PostParams::default(), &widget).await?)
    }
}

/// Every case, in the order of the story.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        objects::CASES,
        status::CASES,
        patches::CASES,
        deletes::CASES,
        lists::CASES,
        watches::CASES,
        built_in::CASES,
        garbage::CASES,
    ]
    .concat()
}

/// Runs every case. Those of the garbage collector need kube-controller-manager beside a real
/// server, and [`crate::GarbageCollection::Immediate`] in the fake. The client must be allowed to make namespaces and CRDs, and all in them.
///
/// # Errors
/// Only when the ground cannot be prepared; what a case finds is in the [`Report`].
pub async fn run(client: Client) -> Result<Report, Mismatch> {
    let bench = prepare(client).await?;
    let mut report = Report::default();
    for case in cases() {
        match (case.run)(bench.clone()).await {
            Ok(()) => report.passed.push(case.name),
            Err(mismatch) => report.failed.push((case.name, mismatch.to_string())),
        }
    }
    Ok(report)
}

async fn prepare(client: Client) -> Result<Bench, Mismatch> {
    let spaces: Api<Namespace> = Api::all(client.clone());
    let space = serde_json::from_value(json!({ "metadata": { "generateName": "conformance-" } }))?;
    let space = spaces.create(&PostParams::default(), &space).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = widgets()?;
    if crds.get_opt(&crd.name_any()).await?.is_none() {
        crds.create(&PostParams::default(), &crd).await?;
    }
    let namespace = space.name_any();
    let bench = Bench { client, namespace };
    // A CRD is served some time after it exists, and a watch that is opened too early is closed.
    for _ in 0..100 {
        if bench.widgets().list(&ListParams::default()).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            return Ok(bench);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err("the CRD of widgets was not served within 10 s".into())
}

fn widget_resource() -> ApiResource {
    ApiResource {
        group: "test.baremetal.cluster.io".into(),
        version: "v1".into(),
        api_version: "test.baremetal.cluster.io/v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
    }
}

fn widget(name: &str) -> DynamicObject {
    DynamicObject::new(name, &widget_resource())
}

/// The suite's own kind: namespaced, with a status subresource and every kind of list and map.
///
/// # Errors
/// Never, unless its text is wrong.
pub fn widgets() -> Result<CustomResourceDefinition, serde_json::Error> {
    let string = json!({ "type": "string" });
    let strings = json!({ "type": "object", "additionalProperties": string });
    let conditions = json!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status"],
            "properties": { "type": string, "status": string, "reason": string },
        },
    });
    let schema = json!({ "type": "object", "properties": {
        "spec": { "type": "object", "properties": {
            "size": { "type": "integer" },
            "colour": string,
            "note": { "type": "string", "nullable": true },
            "nested": { "type": "object", "properties": { "left": string, "right": string } },
            "strings": strings,
            "list": { "type": "array", "items": string },
            "set": { "type": "array", "x-kubernetes-list-type": "set", "items": string },
            "reference": {
                "type": "object", "x-kubernetes-map-type": "atomic",
                "properties": { "kind": string, "name": string },
            },
        } },
        "status": { "type": "object", "properties": {
            "phase": string, "conditions": conditions,
        } },
    } });
    serde_json::from_value(json!({
        "metadata": { "name": "widgets.test.baremetal.cluster.io" },
        "spec": {
            "group": "test.baremetal.cluster.io",
            "scope": "Namespaced",
            "names": {
                "plural": "widgets", "singular": "widget", "kind": "Widget",
                "listKind": "WidgetList",
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    }))
}

/// `Err` with both values unless they are equal.
#[expect(clippy::needless_pass_by_value, reason = "cases hand over what they have just read")]
fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Verdict {
    if got == want { Ok(()) } else { Err(format!("{what}: got {got:?}, want {want:?}").into()) }
}

/// The request must be refused with this code and reason.
fn refused<T: std::fmt::Debug>(result: kube::Result<T>, code: u16, reason: &str) -> Verdict {
    match result {
        Err(kube::Error::Api(status)) => {
            same("refusal", (status.code, status.reason.as_str()), (code, reason))
                .map_err(|mismatch| format!("{mismatch} ({})", status.message).into())
        }
        Err(error) => Err(error.into()),
        Ok(object) => Err(format!("got {object:?}, want {code} {reason}").into()),
    }
}

/// The parts of a widget that are not text in its metadata.
fn generation(widget: &DynamicObject) -> i64 {
    widget.metadata.generation.unwrap_or_default()
}

fn version(object: &impl ResourceExt) -> String {
    object.resource_version().unwrap_or_default()
}
