//! The kinds of this project, each with an object that has every field of its schema.

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::samples::Sample;
use super::schemas::causes;
use super::{
    CaseResult, Fixture, Mismatch, define_cases, expect_equal, expect_rejection, generation, version,
};

define_cases![
    own_kinds_keep_every_field,
    own_kinds_prune_unknown_fields,
    own_kinds_count_generations,
    own_kinds_isolate_their_status,
    own_kinds_reject_stale_writes,
    own_kinds_reject_a_wrong_type,
    own_kinds_wait_for_finalizers,
    own_defaults_are_set,
    own_transition_rules_hold,
];

fn post_params() -> PostParams {
    PostParams::default()
}

/// Runs a check for every kind, and names the kind that fails it.
async fn each<F>(fixture: &Fixture, check: impl Fn(Sample, Api<DynamicObject>) -> F) -> CaseResult
where
    F: Future<Output = CaseResult>,
{
    for sample in Sample::all() {
        let kind = sample.resource.kind.clone();
        let api = Api::namespaced_with(fixture.client.clone(), &fixture.namespace, &sample.resource);
        check(sample, api).await.map_err(|mismatch| format!("{kind}: {mismatch}"))?;
    }
    Ok(())
}

async fn own_kinds_keep_every_field(fixture: Fixture) -> CaseResult {
    each(&fixture, |sample, api| async move {
        let made = api.create(&post_params(), &sample.object("full")).await?;
        expect_equal("spec", &made.data["spec"], &sample.spec)
    })
    .await
}

async fn own_kinds_prune_unknown_fields(fixture: Fixture) -> CaseResult {
    each(&fixture, |sample, api| async move {
        let mut object = sample.object("pruned");
        object.data["spec"]["unknown"] = json!(1);
        object.data["unknown"] = json!(1);
        let made = api.create(&post_params(), &object).await?;
        expect_equal("data", made.data, json!({ "spec": sample.spec }))
    })
    .await
}

async fn own_kinds_count_generations(fixture: Fixture) -> CaseResult {
    each(&fixture, |sample, api| async move {
        let mut made = api.create(&post_params(), &sample.object("counted")).await?;
        expect_equal("created", generation(&made), 1)?;
        made.labels_mut().insert("a".into(), "1".into());
        let made = api.replace("counted", &post_params(), &made).await?;
        expect_equal("labelled", generation(&made), 1)?;
        api.delete("counted", &DeleteParams::default()).await?;
        Ok(())
    })
    .await
}

async fn own_kinds_isolate_their_status(fixture: Fixture) -> CaseResult {
    each(&fixture, |sample, api| async move {
        let mut object = sample.object("status");
        object.data["status"] = sample.status.clone();
        if !sample.has_status {
            return Ok(());
        }
        let mut made = api.create(&post_params(), &object).await?;
        expect_equal("created", made.data.get("status"), None)?;
        made.data = json!({ "spec": null, "status": sample.status });
        made.labels_mut().insert("a".into(), "1".into());
        let after = api.replace_status("status", &post_params(), &made).await?;
        expect_equal("data", &after.data, &json!({ "spec": sample.spec, "status": sample.status }))?;
        expect_equal("labels", after.labels().len(), 0)?;
        expect_equal("generation", generation(&after), 1)
    })
    .await
}

async fn own_kinds_reject_stale_writes(fixture: Fixture) -> CaseResult {
    each(&fixture, |sample, api| async move {
        let stale = api.create(&post_params(), &sample.object("stale")).await?;
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "a": "1" } } }));
        let after = api.patch("stale", &PatchParams::default(), &patch).await?;
        expect_equal("new version", version(&after) == version(&stale), false)?;
        expect_rejection(api.replace("stale", &post_params(), &stale).await, 409, "Conflict")
    })
    .await
}

async fn own_kinds_reject_a_wrong_type(fixture: Fixture) -> CaseResult {
    each(&fixture, |sample, api| async move {
        let mut object = sample.object("typed");
        object.data["spec"] = json!("text");
        let found = causes(api.create(&post_params(), &object).await)?;
        expect_equal("named", found.contains(&("spec".to_owned(), "FieldValueTypeInvalid".to_owned())), true)
    })
    .await
}

async fn own_kinds_wait_for_finalizers(fixture: Fixture) -> CaseResult {
    each(&fixture, |sample, api| async move {
        let mut object = sample.object("held");
        object.finalizers_mut().push("test.baremetal.cluster.io/held".into());
        api.create(&post_params(), &object).await?;
        api.delete("held", &DeleteParams::default()).await?;
        let held = api.get("held").await?;
        expect_equal("marked", held.metadata.deletion_timestamp.is_some(), true)?;
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        api.patch("held", &PatchParams::default(), &patch).await?;
        expect_equal("left", api.get_opt("held").await?.is_some(), false)
    })
    .await
}

fn find(kind: &str) -> Result<Sample, Mismatch> {
    let mut all = Sample::all().into_iter();
    Ok(all.find(|sample| sample.resource.kind == kind).ok_or_else(|| format!("no kind {kind}"))?)
}

impl Fixture {
    fn own(&self, sample: &Sample) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &sample.resource)
    }
}

async fn own_defaults_are_set(fixture: Fixture) -> CaseResult {
    let sample = find("SeedImage")?;
    let mut image = sample.object("defaulted");
    image.data = json!({ "spec": { "registrationRef": {} } });
    let made = fixture.own(&sample).create(&post_params(), &image).await?;
    let want = json!({
        "cleanupAfterMinutes": 60, "registrationRef": {}, "size": 6_442_450_944_i64, "type": "iso",
    });
    expect_equal("spec", &made.data["spec"], &want)?;
    let sample = find("MachineInventoryPool")?;
    let pool = fixture.own(&sample).create(&post_params(), &sample.object("defaulted")).await?;
    let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": version(&pool) }, "status": {} }));
    let after = fixture.own(&sample).patch_status("defaulted", &PatchParams::default(), &patch).await?;
    expect_equal("total", &after.data["status"]["total"], &json!(0))?;
    expect_equal("conditions", &after.data["status"]["conditions"], &json!([]))
}

/// Kind, its spec, a change that a rule forbids, and the field that the rejection names.
async fn own_transition_rules_hold(fixture: Fixture) -> CaseResult {
    let endpoint = |port: u16| json!({ "controlPlaneEndpoint": { "host": "a", "port": port } });
    let machine = |pool: &str| json!({ "machineInventoryPoolRef": { "name": pool } });
    let with = |mut spec: Value, field: &str, value: &str| {
        spec[field] = json!(value);
        spec
    };
    let cases = [
        ("BaremetalCluster", endpoint(1), endpoint(2), "spec"),
        ("BaremetalCluster", endpoint(1), json!({}), "spec"),
        ("BaremetalMachine", machine("a"), machine("b"), "spec"),
        ("BaremetalMachine", with(machine("a"), "providerID", "x"), machine("a"), "spec"),
        (
            "BaremetalMachine",
            with(machine("a"), "providerID", "x"),
            with(machine("a"), "providerID", "y"),
            "spec",
        ),
        ("MachineInventory", json!({ "tpmHash": "x" }), json!({ "tpmHash": "y" }), "<nil>"),
        ("MachineInventory", json!({ "tpmHash": "x" }), json!({}), "<nil>"),
    ];
    for (index, (kind, spec, change, field)) in cases.into_iter().enumerate() {
        let (sample, name) = (find(kind)?, format!("rule-{index}"));
        let mut object = sample.object(&name);
        object.data = json!({ "spec": spec });
        let mut made = fixture.own(&sample).create(&post_params(), &object).await?;
        made.data["spec"] = change;
        let found = causes(fixture.own(&sample).replace(&name, &post_params(), &made).await);
        let found = found.map_err(|mismatch| format!("{kind} {}: {mismatch}", made.data))?;
        let found: Vec<_> = found.into_iter().map(|(field, _)| field).collect();
        expect_equal(kind, found.contains(&field.to_owned()), true)?;
    }
    Ok(())
}
