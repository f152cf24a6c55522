//! The status subresource.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::{CaseResult, Fixture, define_cases, expect_equal, expect_rejection, generation, version};

define_cases![
    a_status_is_dropped_at_creation,
    the_main_resource_does_not_change_status,
    the_status_subresource_changes_nothing_else,
    a_status_is_not_a_new_generation,
    stale_status_updates_are_rejected,
    stale_status_patches_are_rejected,
    uids_in_status_patches_are_ignored,
    status_updates_for_another_uid_are_rejected,
    status_of_absent_objects_cannot_be_created,
];

async fn a_status_is_dropped_at_creation(fixture: Fixture) -> CaseResult {
    let mut new = super::widget("created-with-status");
    new.data = json!({ "spec": {}, "status": { "phase": "Running" } });
    let made = fixture.widgets().create(&PostParams::default(), &new).await?;
    expect_equal("status", made.data.get("status"), None)
}

async fn the_main_resource_does_not_change_status(fixture: Fixture) -> CaseResult {
    let made = fixture.widget("main", json!({ "size": 1 })).await?;
    let patch = json!({ "status": { "phase": "Running" } });
    let widgets = fixture.widgets();
    let after = widgets.patch("main", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    expect_equal("status", after.data.get("status"), None)?;
    expect_equal("version", version(&after), version(&made))
}

async fn the_status_subresource_changes_nothing_else(fixture: Fixture) -> CaseResult {
    fixture.widget("apart", json!({ "size": 1 })).await?;
    let patch = json!({
        "metadata": { "labels": { "a": "1" }, "finalizers": ["x.y/z"] },
        "spec": { "size": 2 },
        "status": { "phase": "Running" },
    });
    let widgets = fixture.widgets();
    let pp = PatchParams::default();
    let after = widgets.patch_status("apart", &pp, &Patch::Merge(&patch)).await?;
    expect_equal("phase", &after.data["status"]["phase"], &json!("Running"))?;
    expect_equal("spec", &after.data["spec"], &json!({ "size": 1 }))?;
    expect_equal("labels", after.labels().len(), 0)?;
    expect_equal("finalizers", after.finalizers().len(), 0)
}

async fn a_status_is_not_a_new_generation(fixture: Fixture) -> CaseResult {
    let mut made = fixture.widget("status-generation", json!({ "size": 1 })).await?;
    made.data["status"] = json!({ "phase": "Running" });
    let pp = PostParams::default();
    let after = fixture.widgets().replace_status("status-generation", &pp, &made).await?;
    expect_equal("generation", generation(&after), 1)?;
    expect_equal("phase", &after.data["status"]["phase"], &json!("Running"))
}

async fn stale_status_updates_are_rejected(fixture: Fixture) -> CaseResult {
    let mut made = fixture.widget("status-stale", json!({})).await?;
    made.data["status"] = json!({ "phase": "One" });
    let (widgets, pp) = (fixture.widgets(), PostParams::default());
    widgets.replace_status("status-stale", &pp, &made).await?;
    made.data["status"] = json!({ "phase": "Two" });
    expect_rejection(widgets.replace_status("status-stale", &pp, &made).await, 409, "Conflict")
}

async fn stale_status_patches_are_rejected(fixture: Fixture) -> CaseResult {
    let made = fixture.widget("status-patch-stale", json!({})).await?;
    let (widgets, pp) = (fixture.widgets(), PatchParams::default());
    let patch = |phase: &str| {
        json!({
            "metadata": { "resourceVersion": version(&made) },
            "status": { "phase": phase },
        })
    };
    widgets.patch_status("status-patch-stale", &pp, &Patch::Merge(patch("One"))).await?;
    let second = Patch::Merge(patch("Two"));
    expect_rejection(widgets.patch_status("status-patch-stale", &pp, &second).await, 409, "Conflict")
}

async fn uids_in_status_patches_are_ignored(fixture: Fixture) -> CaseResult {
    fixture.widget("status-uid", json!({})).await?;
    let patch = json!({
        "metadata": { "uid": "11111111-1111-4111-8111-111111111111" },
        "status": { "phase": "One" },
    });
    let (widgets, pp) = (fixture.widgets(), PatchParams::default());
    let after = widgets.patch_status("status-uid", &pp, &Patch::Merge(&patch)).await?;
    expect_equal("phase", &after.data["status"]["phase"], &json!("One"))
}

async fn status_of_absent_objects_cannot_be_created(fixture: Fixture) -> CaseResult {
    let patch = Patch::Merge(json!({ "status": { "phase": "One" } }));
    let refusal = fixture.widgets().patch_status("absent", &PatchParams::default(), &patch).await;
    expect_rejection(refusal, 404, "NotFound")
}

async fn status_updates_for_another_uid_are_rejected(fixture: Fixture) -> CaseResult {
    let mut made = fixture.widget("status-recreated", json!({})).await?;
    made.metadata.uid = Some("11111111-1111-4111-8111-111111111111".into());
    made.data["status"] = json!({ "phase": "One" });
    let (widgets, pp) = (fixture.widgets(), PostParams::default());
    expect_rejection(widgets.replace_status("status-recreated", &pp, &made).await, 409, "Conflict")
}
