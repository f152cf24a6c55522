//! Deletion, preconditions, finalizers.

use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use kube::core::params::PostParams;
use serde_json::json;

use super::{Bench, Mismatch, Verdict, generation, refused, same, sentences, version};

sentences![
    a_delete_removes_at_once_what_nothing_holds,
    a_finalizer_holds_a_deleted_object,
    a_second_delete_of_a_held_object_changes_nothing,
    the_object_goes_with_its_last_finalizer,
    the_object_goes_with_its_last_finalizer_by_json_patch_too,
    a_deleted_object_takes_no_new_finalizers,
    a_name_in_deletion_is_still_taken,
    a_delete_of_another_incarnation_is_refused,
    a_delete_at_a_stale_version_is_refused,
    a_new_object_of_an_old_name_is_another,
    a_collection_can_be_deleted_by_label,
    a_dry_delete_changes_nothing,
];

const FINALIZER: &str = "test.baremetal.cluster.io/held";

async fn held(bench: &Bench, name: &str) -> Result<DynamicObject, Mismatch> {
    let mut new = super::widget(name);
    new.data = json!({ "spec": {} });
    new.finalizers_mut().push(FINALIZER.into());
    Ok(bench.widgets().create(&PostParams::default(), &new).await?)
}

fn dp() -> DeleteParams {
    DeleteParams::default()
}

async fn a_delete_removes_at_once_what_nothing_holds(bench: Bench) -> Verdict {
    let made = bench.widget("deleted", json!({})).await?;
    let answer = bench.widgets().delete("deleted", &dp()).await?;
    let status = answer.right().ok_or("got an object, want a Status")?;
    same("success", status.is_success(), true)?;
    same("uid", status.details.map(|details| details.uid), made.uid())?;
    same("left", bench.widgets().get_opt("deleted").await?.is_some(), false)
}

async fn a_finalizer_holds_a_deleted_object(bench: Bench) -> Verdict {
    let made = held(&bench, "held-deleted").await?;
    let answer = bench.widgets().delete("held-deleted", &dp()).await?;
    let object = answer.left().ok_or("got a Status, want the object")?;
    same("marked", object.metadata.deletion_timestamp.is_some(), true)?;
    same("grace", object.metadata.deletion_grace_period_seconds, Some(0))?;
    same("new version", version(&object) != version(&made), true)?;
    same("new generation", generation(&object), 2)
}

async fn a_second_delete_of_a_held_object_changes_nothing(bench: Bench) -> Verdict {
    held(&bench, "held-twice").await?;
    bench.widgets().delete("held-twice", &dp()).await?;
    let before = bench.widgets().get("held-twice").await?;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    bench.widgets().delete("held-twice", &dp()).await?;
    let after = bench.widgets().get("held-twice").await?;
    same("version", version(&after), version(&before))
}

async fn the_object_goes_with_its_last_finalizer(bench: Bench) -> Verdict {
    held(&bench, "freed").await?;
    let widgets = bench.widgets();
    widgets.delete("freed", &dp()).await?;
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let last = widgets.patch("freed", &PatchParams::default(), &patch).await?;
    same("answered with the object", last.name_any().as_str(), "freed")?;
    same("left", widgets.get_opt("freed").await?.is_some(), false)
}

async fn the_object_goes_with_its_last_finalizer_by_json_patch_too(bench: Bench) -> Verdict {
    held(&bench, "freed-by-json").await?;
    let widgets = bench.widgets();
    widgets.delete("freed-by-json", &dp()).await?;
    let patch: json_patch::Patch = serde_json::from_value(json!([
        { "op": "test", "path": "/metadata/finalizers/0", "value": FINALIZER },
        { "op": "remove", "path": "/metadata/finalizers/0" },
    ]))?;
    let patch = Patch::Json::<()>(patch);
    widgets.patch("freed-by-json", &PatchParams::default(), &patch).await?;
    same("left", widgets.get_opt("freed-by-json").await?.is_some(), false)
}

async fn a_deleted_object_takes_no_new_finalizers(bench: Bench) -> Verdict {
    held(&bench, "closed").await?;
    let widgets = bench.widgets();
    widgets.delete("closed", &dp()).await?;
    let list = json!([FINALIZER, "test.baremetal.cluster.io/late"]);
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": list } }));
    let refusal = widgets.patch("closed", &PatchParams::default(), &patch).await;
    refused(refusal, 422, "Invalid")?;
    // Everything else can still be changed.
    let patch = Patch::Merge(json!({ "spec": { "size": 5 } }));
    let after = widgets.patch("closed", &PatchParams::default(), &patch).await?;
    same("size", &after.data["spec"]["size"], &json!(5))
}

async fn a_name_in_deletion_is_still_taken(bench: Bench) -> Verdict {
    held(&bench, "occupied").await?;
    bench.widgets().delete("occupied", &dp()).await?;
    let again = super::widget("occupied");
    let refusal = bench.widgets().create(&PostParams::default(), &again).await;
    refused(refusal, 409, "AlreadyExists")
}

fn guard(resource_version: Option<String>, uid: Option<String>) -> DeleteParams {
    dp().preconditions(Preconditions { resource_version, uid })
}

async fn a_delete_of_another_incarnation_is_refused(bench: Bench) -> Verdict {
    let made = bench.widget("delete-uid", json!({})).await?;
    let other = guard(None, Some("11111111-1111-4111-8111-111111111111".into()));
    refused(bench.widgets().delete("delete-uid", &other).await, 409, "Conflict")?;
    bench.widgets().delete("delete-uid", &guard(None, made.uid())).await?;
    same("left", bench.widgets().get_opt("delete-uid").await?.is_some(), false)
}

async fn a_delete_at_a_stale_version_is_refused(bench: Bench) -> Verdict {
    let made = bench.widget("delete-version", json!({})).await?;
    let patch = Patch::Merge(json!({ "spec": { "size": 5 } }));
    let after = bench.widgets().patch("delete-version", &PatchParams::default(), &patch).await?;
    let stale = guard(Some(version(&made)), None);
    refused(bench.widgets().delete("delete-version", &stale).await, 409, "Conflict")?;
    bench.widgets().delete("delete-version", &guard(Some(version(&after)), after.uid())).await?;
    same("left", bench.widgets().get_opt("delete-version").await?.is_some(), false)
}

async fn a_new_object_of_an_old_name_is_another(bench: Bench) -> Verdict {
    let first = bench.widget("again", json!({})).await?;
    bench.widgets().delete("again", &dp()).await?;
    let second = bench.widget("again", json!({})).await?;
    same("same uid", first.uid() == second.uid(), false)
}

async fn a_collection_can_be_deleted_by_label(bench: Bench) -> Verdict {
    for (name, colour) in [("many-1", "red"), ("many-2", "red"), ("many-3", "blue")] {
        let mut new = super::widget(name);
        new.labels_mut().insert("many".into(), colour.into());
        bench.widgets().create(&PostParams::default(), &new).await?;
    }
    let red = ListParams::default().labels("many=red");
    bench.widgets().delete_collection(&dp(), &red).await?;
    let left = bench.widgets().list(&ListParams::default().labels("many")).await?;
    let names: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
    same("left", names, vec!["many-3".to_owned()])
}

async fn a_dry_delete_changes_nothing(bench: Bench) -> Verdict {
    let made = bench.widget("dry-deleted", json!({})).await?;
    let answer = bench.widgets().delete("dry-deleted", &dp().dry_run()).await?;
    same("status", answer.right().is_some_and(|status| status.is_success()), true)?;
    same("left", version(&bench.widgets().get("dry-deleted").await?), version(&made))?;
    let made = held(&bench, "dry-held").await?;
    let answer = bench.widgets().delete("dry-held", &dp().dry_run()).await?;
    let object = answer.left().ok_or("got a Status, want the object")?;
    same("marked", object.metadata.deletion_timestamp.is_some(), true)?;
    same("left", version(&bench.widgets().get("dry-held").await?), version(&made))
}
