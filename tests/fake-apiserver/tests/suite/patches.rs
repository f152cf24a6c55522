//! Merge patches and JSON patches.

use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Bench, Verdict, generation, refused, same, sentences, version};

sentences![
    a_merge_patch_merges_objects_and_removes_nulls,
    a_merge_patch_replaces_lists,
    a_merge_patch_at_the_version_read_is_kept,
    a_merge_patch_at_a_stale_version_is_refused,
    a_merge_patch_of_another_incarnation_is_refused,
    a_patch_that_changes_nothing_makes_no_version,
    a_patch_of_what_is_not_there_is_refused,
    a_patch_cannot_rename,
    a_json_patch_is_done_as_a_whole,
    a_json_patch_whose_test_fails_does_nothing,
    a_json_patch_can_test_the_version,
    a_patch_of_metadata_alone_is_no_new_generation,
];

async fn merge(bench: &Bench, name: &str, patch: Value) -> kube::Result<DynamicObject> {
    bench.widgets().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

async fn ops(bench: &Bench, name: &str, ops: Value) -> kube::Result<DynamicObject> {
    let patch: json_patch::Patch = serde_json::from_value(ops).map_err(kube::Error::SerdeError)?;
    bench.widgets().patch(name, &PatchParams::default(), &Patch::Json::<()>(patch)).await
}

async fn a_merge_patch_merges_objects_and_removes_nulls(bench: Bench) -> Verdict {
    let spec = json!({ "size": 1, "colour": "red", "strings": { "a": "1", "b": "2" } });
    bench.widget("merged", spec).await?;
    let patch = json!({ "spec": { "colour": null, "strings": { "a": null, "c": "3" } } });
    let after = merge(&bench, "merged", patch).await?;
    let want = json!({ "size": 1, "strings": { "b": "2", "c": "3" } });
    same("spec", &after.data["spec"], &want)?;
    same("generation", generation(&after), 2)
}

async fn a_merge_patch_replaces_lists(bench: Bench) -> Verdict {
    bench.widget("lists", json!({ "list": ["a", "b"], "set": ["a", "b"] })).await?;
    let patch = json!({ "spec": { "list": ["c"], "set": ["c"] } });
    let after = merge(&bench, "lists", patch).await?;
    same("spec", &after.data["spec"], &json!({ "list": ["c"], "set": ["c"] }))
}

async fn a_merge_patch_at_the_version_read_is_kept(bench: Bench) -> Verdict {
    let made = bench.widget("guarded", json!({ "size": 1 })).await?;
    let patch = json!({
        "metadata": { "resourceVersion": version(&made), "uid": made.uid() },
        "spec": { "size": 2 },
    });
    let after = merge(&bench, "guarded", patch).await?;
    same("size", &after.data["spec"]["size"], &json!(2))
}

async fn a_merge_patch_at_a_stale_version_is_refused(bench: Bench) -> Verdict {
    let made = bench.widget("guarded-stale", json!({ "size": 1 })).await?;
    merge(&bench, "guarded-stale", json!({ "spec": { "size": 2 } })).await?;
    let patch = json!({
        "metadata": { "resourceVersion": version(&made) },
        "spec": { "size": 3 },
    });
    refused(merge(&bench, "guarded-stale", patch).await, 409, "Conflict")?;
    // Even one that would change nothing.
    let patch = json!({ "metadata": { "resourceVersion": version(&made) } });
    refused(merge(&bench, "guarded-stale", patch).await, 409, "Conflict")
}

async fn a_merge_patch_of_another_incarnation_is_refused(bench: Bench) -> Verdict {
    bench.widget("other-uid", json!({})).await?;
    let uid = "11111111-1111-4111-8111-111111111111";
    let patch = json!({ "metadata": { "uid": uid }, "spec": { "size": 3 } });
    refused(merge(&bench, "other-uid", patch).await, 422, "Invalid")
}

async fn a_patch_that_changes_nothing_makes_no_version(bench: Bench) -> Verdict {
    let made = bench.widget("patched-same", json!({ "size": 1 })).await?;
    let after = merge(&bench, "patched-same", json!({ "spec": { "size": 1 } })).await?;
    same("merge", version(&after), version(&made))?;
    let op = json!([{ "op": "replace", "path": "/spec/size", "value": 1 }]);
    let after = ops(&bench, "patched-same", op).await?;
    same("json", version(&after), version(&made))
}

async fn a_patch_of_what_is_not_there_is_refused(bench: Bench) -> Verdict {
    refused(merge(&bench, "absent", json!({ "spec": {} })).await, 404, "NotFound")
}

async fn a_patch_cannot_rename(bench: Bench) -> Verdict {
    bench.widget("named", json!({})).await?;
    let patch = json!({ "metadata": { "name": "renamed" } });
    refused(merge(&bench, "named", patch).await, 400, "BadRequest")
}

async fn a_json_patch_is_done_as_a_whole(bench: Bench) -> Verdict {
    bench.widget("ops", json!({ "size": 1, "list": ["a"] })).await?;
    let patch = json!([
        { "op": "test", "path": "/spec/size", "value": 1 },
        { "op": "replace", "path": "/spec/size", "value": 2 },
        { "op": "add", "path": "/spec/list/-", "value": "b" },
        { "op": "add", "path": "/metadata/finalizers", "value": ["a.b/c"] },
    ]);
    let after = ops(&bench, "ops", patch).await?;
    same("spec", &after.data["spec"], &json!({ "size": 2, "list": ["a", "b"] }))?;
    same("finalizers", after.finalizers(), &["a.b/c".to_owned()])?;
    let patch = json!([{ "op": "remove", "path": "/metadata/finalizers" }]);
    let after = ops(&bench, "ops", patch).await?;
    same("finalizers", after.finalizers().len(), 0)
}

async fn a_json_patch_whose_test_fails_does_nothing(bench: Bench) -> Verdict {
    let made = bench.widget("ops-test", json!({ "size": 1 })).await?;
    let patch = json!([
        { "op": "replace", "path": "/spec/size", "value": 2 },
        { "op": "test", "path": "/metadata/uid", "value": "another" },
    ]);
    refused(ops(&bench, "ops-test", patch).await, 422, "Invalid")?;
    let after = bench.widgets().get("ops-test").await?;
    same("version", version(&after), version(&made))
}

async fn a_patch_of_metadata_alone_is_no_new_generation(bench: Bench) -> Verdict {
    bench.widget("labelled", json!({})).await?;
    let patch = json!({ "metadata": { "labels": { "a": "1" }, "annotations": { "b": "2" } } });
    let after = merge(&bench, "labelled", patch).await?;
    same("generation", generation(&after), 1)?;
    let patch = json!({ "metadata": { "labels": { "a": null } } });
    let after = merge(&bench, "labelled", patch).await?;
    same("labels", after.labels().len(), 0)?;
    same("annotations", after.annotations().len(), 1)
}

async fn a_json_patch_can_test_the_version(bench: Bench) -> Verdict {
    let made = bench.widget("ops-version", json!({ "size": 1 })).await?;
    let patch = |size: u8| {
        json!([
            { "op": "test", "path": "/metadata/resourceVersion", "value": version(&made) },
            { "op": "replace", "path": "/spec/size", "value": size },
        ])
    };
    ops(&bench, "ops-version", patch(2)).await?;
    refused(ops(&bench, "ops-version", patch(3)).await, 422, "Invalid")
}
