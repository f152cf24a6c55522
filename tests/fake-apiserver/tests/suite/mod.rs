//! The behaviour of an API server that this project relies on, as cases that run on any client.
//!
//! The fake passes them in `tests/fake`, the real kube-apiserver in `tests/real_server`. The suite
//! creates a namespace, CRDs of its own and the CRDs of this project.

mod built_in;
mod deletes;
mod discovery;
mod garbage;
mod lists;
mod metadata;
mod metal3_rules;
mod objects;
mod own_kinds;
mod pages;
mod patches;
mod policies;
pub(crate) mod samples;
mod schemas;
mod status;
mod watches;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A case that takes longer has failed.
const CASE_DEADLINE: Duration = Duration::from_mins(2);
/// Group of the kinds of the suite.
const GROUP: &str = "test.baremetal.cluster.io";

/// Why a case failed.
pub(crate) type Mismatch = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type CaseResult = Result<(), Mismatch>;
type Run = fn(Fixture) -> Pin<Box<dyn Future<Output = CaseResult> + Send>>;

/// One statement about API servers, and its test.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    run: Run,
}

/// The outcome of every case.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) passed: Vec<&'static str>,
    /// With what was seen instead.
    pub(crate) failed: Vec<(&'static str, String)>,
}

/// A list of cases from functions whose name is the statement.
macro_rules! define_cases {
    ($($case:ident),* $(,)?) => {
        pub(super) const CASES: &[super::Case] = &[$(super::Case {
            name: stringify!($case),
            run: |fixture| Box::pin($case(fixture)),
        }),*];
    };
}
use define_cases;

/// The namespace and the client of a case.
#[derive(Clone)]
pub(crate) struct Fixture {
    client: Client,
    namespace: String,
}

impl Fixture {
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

    /// A kind of the suite.
    fn resource(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind, plural))
    }

    /// Creates or replaces a CRD, and waits until its kind is served.
    async fn install(&self, crd: &CustomResourceDefinition) -> CaseResult {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let name = crd.name_any();
        match crds.get_opt(&name).await? {
            Some(present) => {
                let mut crd = crd.clone();
                crd.metadata.resource_version = present.metadata.resource_version;
                crds.replace(&name, &PostParams::default(), &crd).await?;
            }
            None => {
                crds.create(&PostParams::default(), crd).await?;
            }
        }
        until(&format!("{name} is established"), || async {
            let crd = crds.get(&name).await?;
            let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
            Ok(conditions.iter().any(|one| one.type_ == "Established" && one.status == "True"))
        })
        .await?;
        let objects: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource_of(crd));
        until(&format!("{name} can be watched"), || is_watchable(&objects)).await
    }

    /// A new widget of this name and spec.
    async fn widget(&self, name: &str, spec: Value) -> Result<DynamicObject, Mismatch> {
        let mut widget = widget(name);
        widget.data = json!({ "spec": spec });
        Ok(self.widgets().create(&PostParams::default(), &widget).await?)
    }
}

pub(crate) fn cases() -> Vec<Case> {
    [
        objects::CASES,
        status::CASES,
        patches::CASES,
        policies::CASES,
        schemas::CASES,
        own_kinds::CASES,
        metal3_rules::CASES,
        deletes::CASES,
        lists::CASES,
        pages::CASES,
        metadata::CASES,
        discovery::CASES,
        watches::CASES,
        built_in::CASES,
        garbage::CASES,
    ]
    .concat()
}

/// Runs every case. Those of the garbage collector need kube-controller-manager beside a real
/// server, and a garbage collector in the fake. The client must be allowed to create namespaces
/// and CRDs, and all in them.
///
/// # Errors
/// When namespace or CRDs cannot be created; failures of cases are in the [`Report`].
pub(crate) async fn run(client: Client) -> Result<Report, Mismatch> {
    let fixture = prepare(client).await?;
    let mut report = Report::default();
    for case in cases() {
        match timeout(CASE_DEADLINE, (case.run)(fixture.clone())).await {
            Ok(Ok(())) => report.passed.push(case.name),
            Ok(Err(mismatch)) => report.failed.push((case.name, mismatch.to_string())),
            Err(elapsed) => report.failed.push((case.name, elapsed.to_string())),
        }
    }
    Ok(report)
}

async fn prepare(client: Client) -> Result<Fixture, Mismatch> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "generateName": "conformance-" } }))?;
    let namespace = namespaces.create(&PostParams::default(), &namespace).await?.name_any();
    let fixture = Fixture { client, namespace };
    fixture.install(&widgets()?).await?;
    for crd in coordinator_api::crds::all() {
        fixture.install(&crd).await?;
    }
    Ok(fixture)
}

/// A watch that is opened before the server has finished the kind is closed at once: one that
/// lasts until its timeout is not.
async fn is_watchable(objects: &Api<DynamicObject>) -> Result<bool, Mismatch> {
    let Ok(list) = objects.list(&ListParams::default()).await else {
        return Ok(false);
    };
    let version = list.metadata.resource_version.unwrap_or_default();
    let opened = Instant::now();
    let wp = WatchParams::default().timeout(1).disable_bookmarks();
    let Ok(stream) = objects.watch(&wp, &version).await else {
        return Ok(false);
    };
    let is_clean = stream.all(|event| async move { event.is_ok() }).await;
    Ok(is_clean && opened.elapsed() >= Duration::from_millis(900))
}

/// Polls for up to a minute: a real server and its controllers act after the request.
async fn until<F>(what: &str, mut holds: impl FnMut() -> F) -> CaseResult
where
    F: Future<Output = Result<bool, Mismatch>>,
{
    let deadline = Instant::now() + Duration::from_mins(1);
    while !holds().await? {
        if Instant::now() > deadline {
            return Err(format!("not within a minute: {what}").into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// The first version of a CRD.
fn resource_of(crd: &CustomResourceDefinition) -> ApiResource {
    let (spec, version) = (&crd.spec, &crd.spec.versions[0].name);
    ApiResource {
        group: spec.group.clone(),
        version: version.clone(),
        api_version: format!("{}/{version}", spec.group),
        kind: spec.names.kind.clone(),
        plural: spec.names.plural.clone(),
    }
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: GROUP.into(),
        version: "v1".into(),
        api_version: format!("{GROUP}/v1"),
        kind: kind.into(),
        plural: plural.into(),
    }
}

fn widget_resource() -> ApiResource {
    resource("Widget", "widgets")
}

fn widget(name: &str) -> DynamicObject {
    DynamicObject::new(name, &widget_resource())
}

/// The suite's own kind: namespaced, with a status subresource and every kind of list and map.
///
/// # Errors
/// Never, unless its text is wrong.
fn widgets() -> Result<CustomResourceDefinition, serde_json::Error> {
    let string = json!({ "type": "string" });
    let mut spec = json!({ "type": "object", "properties": {
        "size": { "type": "integer" },
        "small": { "type": "integer", "format": "int32" },
        "colour": string,
        "note": { "type": "string", "nullable": true },
        "mode": { "type": "string", "enum": ["a", "b"], "nullable": true },
        "code": { "type": "string", "pattern": "^[a-z]*$", "minLength": 2, "maxLength": 5 },
        "time": { "type": "string", "format": "date-time" },
        "port": { "x-kubernetes-int-or-string": true },
        "nested": { "type": "object", "properties": { "left": string, "right": string } },
        "strings": { "type": "object", "additionalProperties": string },
        "free": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": { "known": string },
        },
        "limits": {
            "type": "object",
            "properties": {
                "count": { "type": "integer", "minimum": 1, "maximum": 10, "default": 3 },
                "least": { "type": "integer" },
                "unit": { "type": "string", "default": "m" },
            },
            "x-kubernetes-validations": [{
                "rule": "!has(self.least) || self.least <= self.count",
                "message": "least is at most count",
            }],
        },
        "list": { "type": "array", "items": string },
        "few": { "type": "array", "minItems": 1, "maxItems": 2, "items": string },
        "set": { "type": "array", "x-kubernetes-list-type": "set", "items": string },
        "entries": list_map("name", &json!(["name"])),
        "pinned": string,
        "reference": {
            "type": "object", "x-kubernetes-map-type": "atomic",
            "properties": { "kind": string, "name": string },
        },
    } });
    spec["x-kubernetes-validations"] = json!([{
        "rule": "!has(oldSelf.pinned) || (has(self.pinned) && self.pinned == oldSelf.pinned)",
        "message": "pinned never changes once it is set",
    }]);
    let status = json!({ "type": "object", "properties": {
        "phase": string,
        "total": { "type": "integer", "default": 0 },
        "conditions": list_map("type", &json!(["type", "status"])),
    } });
    definition("Widget", "widgets", &json!({ "spec": spec, "status": status }))
}

/// A kind whose `spec.size` has this schema.
fn gauges(size: &Value) -> Result<CustomResourceDefinition, serde_json::Error> {
    let properties = json!({ "size": size, "colour": { "type": "string" } });
    definition("Gauge", "gauges", &json!({ "spec": { "type": "object", "properties": properties } }))
}

fn list_map(key: &str, required: &Value) -> Value {
    let string = json!({ "type": "string" });
    json!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        "items": {
            "type": "object",
            "required": required,
            "properties": { key: string, "status": string, "reason": string },
        },
    })
}

fn definition(
    kind: &str,
    plural: &str,
    properties: &Value,
) -> Result<CustomResourceDefinition, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "plural": plural, "singular": kind.to_lowercase(), "kind": kind,
                "listKind": format!("{kind}List"),
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": properties } },
            }],
        },
    }))
}

/// `Err` with both values unless they are equal.
#[expect(clippy::needless_pass_by_value, reason = "cases pass what they have just read")]
fn expect_equal<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> CaseResult {
    if got == want { Ok(()) } else { Err(format!("{what}: got {got:?}, want {want:?}").into()) }
}

/// The request must be rejected with this code and reason.
fn expect_rejection<T: std::fmt::Debug>(result: kube::Result<T>, code: u16, reason: &str) -> CaseResult {
    match result {
        Err(kube::Error::Api(status)) => {
            expect_equal("rejection", (status.code, status.reason.as_str()), (code, reason))
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
