//! The kinds of this project, each with an object that has every field of its schema.

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::samples::Sample;
use super::schemas::causes;
use super::{Bench, Mismatch, Verdict, generation, refused, same, sentences, version};

sentences![
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

fn pp() -> PostParams {
    PostParams::default()
}

/// Runs a check for every kind, and names the kind that fails it.
async fn each<F>(bench: &Bench, check: impl Fn(Sample, Api<DynamicObject>) -> F) -> Verdict
where
    F: Future<Output = Verdict>,
{
    for sample in Sample::all() {
        let kind = sample.resource.kind.clone();
        let api = Api::namespaced_with(bench.client.clone(), &bench.namespace, &sample.resource);
        check(sample, api).await.map_err(|mismatch| format!("{kind}: {mismatch}"))?;
    }
    Ok(())
}

async fn own_kinds_keep_every_field(bench: Bench) -> Verdict {
    each(&bench, |sample, api| async move {
        let made = api.create(&pp(), &sample.object("full")).await?;
        same("spec", &made.data["spec"], &sample.spec)
    })
    .await
}

async fn own_kinds_prune_unknown_fields(bench: Bench) -> Verdict {
    each(&bench, |sample, api| async move {
        let mut object = sample.object("pruned");
        object.data["spec"]["unknown"] = json!(1);
        object.data["unknown"] = json!(1);
        let made = api.create(&pp(), &object).await?;
        same("data", made.data, json!({ "spec": sample.spec }))
    })
    .await
}

async fn own_kinds_count_generations(bench: Bench) -> Verdict {
    each(&bench, |sample, api| async move {
        let mut made = api.create(&pp(), &sample.object("counted")).await?;
        same("created", generation(&made), 1)?;
        made.labels_mut().insert("a".into(), "1".into());
        let made = api.replace("counted", &pp(), &made).await?;
        same("labelled", generation(&made), 1)?;
        api.delete("counted", &DeleteParams::default()).await?;
        Ok(())
    })
    .await
}

async fn own_kinds_isolate_their_status(bench: Bench) -> Verdict {
    each(&bench, |sample, api| async move {
        let mut object = sample.object("status");
        object.data["status"] = sample.status.clone();
        if !sample.has_status {
            return Ok(());
        }
        let mut made = api.create(&pp(), &object).await?;
        same("created", made.data.get("status"), None)?;
        made.data = json!({ "spec": null, "status": sample.status });
        made.labels_mut().insert("a".into(), "1".into());
        let after = api.replace_status("status", &pp(), &made).await?;
        same("data", &after.data, &json!({ "spec": sample.spec, "status": sample.status }))?;
        same("labels", after.labels().len(), 0)?;
        same("generation", generation(&after), 1)
    })
    .await
}

async fn own_kinds_reject_stale_writes(bench: Bench) -> Verdict {
    each(&bench, |sample, api| async move {
        let stale = api.create(&pp(), &sample.object("stale")).await?;
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "a": "1" } } }));
        let after = api.patch("stale", &PatchParams::default(), &patch).await?;
        same("new version", version(&after) == version(&stale), false)?;
        refused(api.replace("stale", &pp(), &stale).await, 409, "Conflict")
    })
    .await
}

async fn own_kinds_reject_a_wrong_type(bench: Bench) -> Verdict {
    each(&bench, |sample, api| async move {
        let mut object = sample.object("typed");
        object.data["spec"] = json!("text");
        let found = causes(api.create(&pp(), &object).await)?;
        same("named", found.contains(&("spec".to_owned(), "FieldValueTypeInvalid".to_owned())), true)
    })
    .await
}

async fn own_kinds_wait_for_finalizers(bench: Bench) -> Verdict {
    each(&bench, |sample, api| async move {
        let mut object = sample.object("held");
        object.finalizers_mut().push("test.baremetal.cluster.io/held".into());
        api.create(&pp(), &object).await?;
        api.delete("held", &DeleteParams::default()).await?;
        let held = api.get("held").await?;
        same("marked", held.metadata.deletion_timestamp.is_some(), true)?;
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        api.patch("held", &PatchParams::default(), &patch).await?;
        same("left", api.get_opt("held").await?.is_some(), false)
    })
    .await
}

fn find(kind: &str) -> Result<Sample, Mismatch> {
    let mut all = Sample::all().into_iter();
    Ok(all.find(|sample| sample.resource.kind == kind).ok_or_else(|| format!("no kind {kind}"))?)
}

impl Bench {
    fn own(&self, sample: &Sample) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &sample.resource)
    }
}

async fn own_defaults_are_set(bench: Bench) -> Verdict {
    let sample = find("SeedImage")?;
    let mut image = sample.object("defaulted");
    image.data = json!({ "spec": { "registrationRef": {} } });
    let made = bench.own(&sample).create(&pp(), &image).await?;
    let want = json!({
        "cleanupAfterMinutes": 60, "registrationRef": {}, "size": 6_442_450_944_i64, "type": "iso",
    });
    same("spec", &made.data["spec"], &want)?;
    let sample = find("MachineInventoryPool")?;
    let pool = bench.own(&sample).create(&pp(), &sample.object("defaulted")).await?;
    let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": version(&pool) }, "status": {} }));
    let after = bench.own(&sample).patch_status("defaulted", &PatchParams::default(), &patch).await?;
    same("total", &after.data["status"]["total"], &json!(0))?;
    same("conditions", &after.data["status"]["conditions"], &json!([]))
}

/// Kind, its spec, a change that a rule forbids, and the field that the rejection names.
async fn own_transition_rules_hold(bench: Bench) -> Verdict {
    let endpoint = |port: u16| json!({ "controlPlaneEndpoint": { "host": "a", "port": port } });
    let machine = |pool: &str| json!({ "machineInventoryPoolRef": { "name": pool } });
    let with = |mut spec: Value, field: &str, value: &str| {
        spec[field] = json!(value);
        spec
    };
    let template = |pool: &str| json!({ "template": { "spec": machine(pool) } });
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
        ("BaremetalMachineTemplate", template("a"), template("b"), "spec.template.spec"),
        ("MachineInventory", json!({ "tpmHash": "x" }), json!({ "tpmHash": "y" }), "spec"),
        ("MachineInventory", json!({ "tpmHash": "x" }), json!({}), "spec"),
    ];
    for (index, (kind, spec, change, field)) in cases.into_iter().enumerate() {
        let (sample, name) = (find(kind)?, format!("rule-{index}"));
        let mut object = sample.object(&name);
        object.data = json!({ "spec": spec });
        let mut made = bench.own(&sample).create(&pp(), &object).await?;
        made.data["spec"] = change;
        let found = causes(bench.own(&sample).replace(&name, &pp(), &made).await);
        let found = found.map_err(|mismatch| format!("{kind} {}: {mismatch}", made.data))?;
        let found: Vec<_> = found.into_iter().map(|(field, _)| field).collect();
        same(kind, found.contains(&field.to_owned()), true)?;
    }
    Ok(())
}
