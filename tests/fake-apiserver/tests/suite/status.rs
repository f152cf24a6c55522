//! The status subresource.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::{Bench, Verdict, generation, refused, same, sentences, version};

sentences![
    a_status_is_dropped_at_creation,
    the_main_resource_does_not_change_status,
    the_status_subresource_changes_nothing_else,
    a_status_is_not_a_new_generation,
    a_stale_status_is_refused,
    a_status_patch_at_a_stale_version_is_refused,
    a_uid_in_a_status_patch_guards_nothing,
    a_replace_of_the_status_of_another_incarnation_is_refused,
    a_status_cannot_be_made_for_what_is_not_there,
];

async fn a_status_is_dropped_at_creation(bench: Bench) -> Verdict {
    let mut new = super::widget("born-with-status");
    new.data = json!({ "spec": {}, "status": { "phase": "Running" } });
    let made = bench.widgets().create(&PostParams::default(), &new).await?;
    same("status", made.data.get("status"), None)
}

async fn the_main_resource_does_not_change_status(bench: Bench) -> Verdict {
    let made = bench.widget("main", json!({ "size": 1 })).await?;
    let patch = json!({ "status": { "phase": "Running" } });
    let widgets = bench.widgets();
    let after = widgets.patch("main", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    same("status", after.data.get("status"), None)?;
    same("version", version(&after), version(&made))
}

async fn the_status_subresource_changes_nothing_else(bench: Bench) -> Verdict {
    bench.widget("apart", json!({ "size": 1 })).await?;
    let patch = json!({
        "metadata": { "labels": { "a": "1" }, "finalizers": ["x.y/z"] },
        "spec": { "size": 2 },
        "status": { "phase": "Running" },
    });
    let widgets = bench.widgets();
    let pp = PatchParams::default();
    let after = widgets.patch_status("apart", &pp, &Patch::Merge(&patch)).await?;
    same("phase", &after.data["status"]["phase"], &json!("Running"))?;
    same("spec", &after.data["spec"], &json!({ "size": 1 }))?;
    same("labels", after.labels().len(), 0)?;
    same("finalizers", after.finalizers().len(), 0)
}

async fn a_status_is_not_a_new_generation(bench: Bench) -> Verdict {
    let mut made = bench.widget("status-generation", json!({ "size": 1 })).await?;
    made.data["status"] = json!({ "phase": "Running" });
    let pp = PostParams::default();
    let after = bench.widgets().replace_status("status-generation", &pp, &made).await?;
    same("generation", generation(&after), 1)?;
    same("phase", &after.data["status"]["phase"], &json!("Running"))
}

async fn a_stale_status_is_refused(bench: Bench) -> Verdict {
    let mut made = bench.widget("status-stale", json!({})).await?;
    made.data["status"] = json!({ "phase": "One" });
    let (widgets, pp) = (bench.widgets(), PostParams::default());
    widgets.replace_status("status-stale", &pp, &made).await?;
    made.data["status"] = json!({ "phase": "Two" });
    refused(widgets.replace_status("status-stale", &pp, &made).await, 409, "Conflict")
}

async fn a_status_patch_at_a_stale_version_is_refused(bench: Bench) -> Verdict {
    let made = bench.widget("status-patch-stale", json!({})).await?;
    let (widgets, pp) = (bench.widgets(), PatchParams::default());
    let patch = |phase: &str| {
        json!({
            "metadata": { "resourceVersion": version(&made) },
            "status": { "phase": phase },
        })
    };
    widgets.patch_status("status-patch-stale", &pp, &Patch::Merge(patch("One"))).await?;
    let second = Patch::Merge(patch("Two"));
    refused(widgets.patch_status("status-patch-stale", &pp, &second).await, 409, "Conflict")
}

async fn a_uid_in_a_status_patch_guards_nothing(bench: Bench) -> Verdict {
    bench.widget("status-uid", json!({})).await?;
    let patch = json!({
        "metadata": { "uid": "11111111-1111-4111-8111-111111111111" },
        "status": { "phase": "One" },
    });
    let (widgets, pp) = (bench.widgets(), PatchParams::default());
    let after = widgets.patch_status("status-uid", &pp, &Patch::Merge(&patch)).await?;
    same("phase", &after.data["status"]["phase"], &json!("One"))
}

async fn a_status_cannot_be_made_for_what_is_not_there(bench: Bench) -> Verdict {
    let patch = Patch::Merge(json!({ "status": { "phase": "One" } }));
    let refusal = bench.widgets().patch_status("absent", &PatchParams::default(), &patch).await;
    refused(refusal, 404, "NotFound")
}

async fn a_replace_of_the_status_of_another_incarnation_is_refused(bench: Bench) -> Verdict {
    let mut made = bench.widget("status-reborn", json!({})).await?;
    made.metadata.uid = Some("11111111-1111-4111-8111-111111111111".into());
    made.data["status"] = json!({ "phase": "One" });
    let (widgets, pp) = (bench.widgets(), PostParams::default());
    refused(widgets.replace_status("status-reborn", &pp, &made).await, 409, "Conflict")
}
