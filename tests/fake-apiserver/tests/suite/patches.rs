//! Merge patches and JSON patches.

use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::{CaseResult, Fixture, define_cases, expect_equal, expect_rejection, generation, version};

define_cases![
    a_merge_patch_merges_objects_and_removes_nulls,
    a_merge_patch_replaces_lists,
    current_merge_patches_are_stored,
    stale_merge_patches_are_rejected,
    merge_patches_for_another_uid_are_rejected,
    unchanged_patches_create_no_version,
    patches_of_absent_objects_are_rejected,
    a_patch_cannot_rename,
    a_json_patch_is_done_as_a_whole,
    a_json_patch_whose_test_fails_does_nothing,
    a_json_patch_can_test_the_version,
    metadata_patches_keep_the_generation,
];

async fn merge(fixture: &Fixture, name: &str, patch: Value) -> kube::Result<DynamicObject> {
    fixture.widgets().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

async fn ops(fixture: &Fixture, name: &str, ops: Value) -> kube::Result<DynamicObject> {
    let patch: json_patch::Patch = serde_json::from_value(ops).map_err(kube::Error::SerdeError)?;
    fixture.widgets().patch(name, &PatchParams::default(), &Patch::Json::<()>(patch)).await
}

async fn a_merge_patch_merges_objects_and_removes_nulls(fixture: Fixture) -> CaseResult {
    let spec = json!({ "size": 1, "colour": "red", "strings": { "a": "1", "b": "2" } });
    fixture.widget("merged", spec).await?;
    let patch = json!({ "spec": { "colour": null, "strings": { "a": null, "c": "3" } } });
    let after = merge(&fixture, "merged", patch).await?;
    let want = json!({ "size": 1, "strings": { "b": "2", "c": "3" } });
    expect_equal("spec", &after.data["spec"], &want)?;
    expect_equal("generation", generation(&after), 2)
}

async fn a_merge_patch_replaces_lists(fixture: Fixture) -> CaseResult {
    fixture.widget("lists", json!({ "list": ["a", "b"], "set": ["a", "b"] })).await?;
    let patch = json!({ "spec": { "list": ["c"], "set": ["c"] } });
    let after = merge(&fixture, "lists", patch).await?;
    expect_equal("spec", &after.data["spec"], &json!({ "list": ["c"], "set": ["c"] }))
}

async fn current_merge_patches_are_stored(fixture: Fixture) -> CaseResult {
    let made = fixture.widget("guarded", json!({ "size": 1 })).await?;
    let patch = json!({
        "metadata": { "resourceVersion": version(&made), "uid": made.uid() },
        "spec": { "size": 2 },
    });
    let after = merge(&fixture, "guarded", patch).await?;
    expect_equal("size", &after.data["spec"]["size"], &json!(2))
}

async fn stale_merge_patches_are_rejected(fixture: Fixture) -> CaseResult {
    let made = fixture.widget("guarded-stale", json!({ "size": 1 })).await?;
    merge(&fixture, "guarded-stale", json!({ "spec": { "size": 2 } })).await?;
    let patch = json!({
        "metadata": { "resourceVersion": version(&made) },
        "spec": { "size": 3 },
    });
    expect_rejection(merge(&fixture, "guarded-stale", patch).await, 409, "Conflict")?;
    // Even one that would change nothing.
    let patch = json!({ "metadata": { "resourceVersion": version(&made) } });
    expect_rejection(merge(&fixture, "guarded-stale", patch).await, 409, "Conflict")
}

async fn merge_patches_for_another_uid_are_rejected(fixture: Fixture) -> CaseResult {
    fixture.widget("other-uid", json!({})).await?;
    let uid = "11111111-1111-4111-8111-111111111111";
    let patch = json!({ "metadata": { "uid": uid }, "spec": { "size": 3 } });
    expect_rejection(merge(&fixture, "other-uid", patch).await, 422, "Invalid")
}

async fn unchanged_patches_create_no_version(fixture: Fixture) -> CaseResult {
    let made = fixture.widget("patched-same", json!({ "size": 1 })).await?;
    let after = merge(&fixture, "patched-same", json!({ "spec": { "size": 1 } })).await?;
    expect_equal("merge", version(&after), version(&made))?;
    let op = json!([{ "op": "replace", "path": "/spec/size", "value": 1 }]);
    let after = ops(&fixture, "patched-same", op).await?;
    expect_equal("json", version(&after), version(&made))
}

async fn patches_of_absent_objects_are_rejected(fixture: Fixture) -> CaseResult {
    expect_rejection(merge(&fixture, "absent", json!({ "spec": {} })).await, 404, "NotFound")
}

async fn a_patch_cannot_rename(fixture: Fixture) -> CaseResult {
    fixture.widget("named", json!({})).await?;
    let patch = json!({ "metadata": { "name": "renamed" } });
    expect_rejection(merge(&fixture, "named", patch).await, 400, "BadRequest")
}

async fn a_json_patch_is_done_as_a_whole(fixture: Fixture) -> CaseResult {
    fixture.widget("ops", json!({ "size": 1, "list": ["a"] })).await?;
    let patch = json!([
        { "op": "test", "path": "/spec/size", "value": 1 },
        { "op": "replace", "path": "/spec/size", "value": 2 },
        { "op": "add", "path": "/spec/list/-", "value": "b" },
        { "op": "add", "path": "/metadata/finalizers", "value": ["a.b/c"] },
    ]);
    let after = ops(&fixture, "ops", patch).await?;
    expect_equal("spec", &after.data["spec"], &json!({ "size": 2, "list": ["a", "b"] }))?;
    expect_equal("finalizers", after.finalizers(), &["a.b/c".to_owned()])?;
    let patch = json!([{ "op": "remove", "path": "/metadata/finalizers" }]);
    let after = ops(&fixture, "ops", patch).await?;
    expect_equal("finalizers", after.finalizers().len(), 0)
}

async fn a_json_patch_whose_test_fails_does_nothing(fixture: Fixture) -> CaseResult {
    let made = fixture.widget("ops-test", json!({ "size": 1 })).await?;
    let patch = json!([
        { "op": "replace", "path": "/spec/size", "value": 2 },
        { "op": "test", "path": "/metadata/uid", "value": "another" },
    ]);
    expect_rejection(ops(&fixture, "ops-test", patch).await, 422, "Invalid")?;
    let after = fixture.widgets().get("ops-test").await?;
    expect_equal("version", version(&after), version(&made))
}

async fn metadata_patches_keep_the_generation(fixture: Fixture) -> CaseResult {
    fixture.widget("labelled", json!({})).await?;
    let patch = json!({ "metadata": { "labels": { "a": "1" }, "annotations": { "b": "2" } } });
    let after = merge(&fixture, "labelled", patch).await?;
    expect_equal("generation", generation(&after), 1)?;
    let patch = json!({ "metadata": { "labels": { "a": null } } });
    let after = merge(&fixture, "labelled", patch).await?;
    expect_equal("labels", after.labels().len(), 0)?;
    expect_equal("annotations", after.annotations().len(), 1)
}

async fn a_json_patch_can_test_the_version(fixture: Fixture) -> CaseResult {
    let made = fixture.widget("ops-version", json!({ "size": 1 })).await?;
    let patch = |size: u8| {
        json!([
            { "op": "test", "path": "/metadata/resourceVersion", "value": version(&made) },
            { "op": "replace", "path": "/spec/size", "value": size },
        ])
    };
    ops(&fixture, "ops-version", patch(2)).await?;
    expect_rejection(ops(&fixture, "ops-version", patch(3)).await, 422, "Invalid")
}
