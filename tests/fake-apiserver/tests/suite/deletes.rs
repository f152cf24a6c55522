//! Deletion, preconditions, finalizers.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use kube::core::params::PostParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{
    CaseResult, Fixture, Mismatch, define_cases, expect_equal, expect_rejection, generation, version,
};

define_cases![
    deletes_remove_objects_without_finalizers,
    finalizers_hold_deleted_objects,
    repeated_deletes_of_held_objects_change_nothing,
    objects_are_deleted_with_their_last_finalizer,
    json_patches_remove_last_finalizers_too,
    deleted_objects_reject_new_finalizers,
    names_in_deletion_are_taken,
    deletes_for_another_uid_are_rejected,
    stale_deletes_are_rejected,
    recreated_objects_have_new_uids,
    a_collection_can_be_deleted_by_label,
    a_dry_delete_changes_nothing,
    nothing_is_created_in_a_namespace_in_deletion,
];

const FINALIZER: &str = "test.baremetal.cluster.io/held";

async fn nothing_is_created_in_a_namespace_in_deletion(fixture: Fixture) -> CaseResult {
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    let new = serde_json::from_value(json!({ "metadata": { "generateName": "conformance-deleted-" } }))?;
    let namespace = namespaces.create(&PostParams::default(), &new).await?.name_any();
    let widgets: Api<DynamicObject> =
        Api::namespaced_with(fixture.client.clone(), &namespace, &super::widget_resource());
    let mut held = super::widget("held");
    held.data = json!({ "spec": {} });
    held.finalizers_mut().push(FINALIZER.into());
    widgets.create(&PostParams::default(), &held).await?;
    namespaces.delete(&namespace, &delete_params()).await?;
    let mut late = super::widget("late");
    late.data = json!({ "spec": {} });
    let Err(kube::Error::Api(status)) = widgets.create(&PostParams::default(), &late).await else {
        return Err("it was created".into());
    };
    expect_equal("code", status.code, 403)?;
    let causes: Vec<_> = status.details.into_iter().flat_map(|details| details.causes).collect();
    let reasons: Vec<_> = causes.into_iter().map(|cause| (cause.reason, cause.field)).collect();
    expect_equal("causes", reasons, vec![("NamespaceTerminating".into(), "metadata.namespace".into())])?;
    let let_go = Patch::Merge(json!({ "metadata": { "finalizers": null }, "spec": { "size": 1 } }));
    widgets.patch("held", &PatchParams::default(), &let_go).await?;
    Ok(())
}

async fn create_held(fixture: &Fixture, name: &str) -> Result<DynamicObject, Mismatch> {
    let mut new = super::widget(name);
    new.data = json!({ "spec": {} });
    new.finalizers_mut().push(FINALIZER.into());
    Ok(fixture.widgets().create(&PostParams::default(), &new).await?)
}

fn delete_params() -> DeleteParams {
    DeleteParams::default()
}

async fn deletes_remove_objects_without_finalizers(fixture: Fixture) -> CaseResult {
    let made = fixture.widget("deleted", json!({})).await?;
    let answer = fixture.widgets().delete("deleted", &delete_params()).await?;
    let status = answer.right().ok_or("got an object, want a Status")?;
    expect_equal("success", status.is_success(), true)?;
    expect_equal("uid", status.details.map(|details| details.uid), made.uid())?;
    expect_equal("left", fixture.widgets().get_opt("deleted").await?.is_some(), false)
}

async fn finalizers_hold_deleted_objects(fixture: Fixture) -> CaseResult {
    let made = create_held(&fixture, "held-deleted").await?;
    let answer = fixture.widgets().delete("held-deleted", &delete_params()).await?;
    let object = answer.left().ok_or("got a Status, want the object")?;
    expect_equal("marked", object.metadata.deletion_timestamp.is_some(), true)?;
    expect_equal("grace", object.metadata.deletion_grace_period_seconds, Some(0))?;
    expect_equal("new version", version(&object) != version(&made), true)?;
    expect_equal("new generation", generation(&object), 2)
}

async fn repeated_deletes_of_held_objects_change_nothing(fixture: Fixture) -> CaseResult {
    create_held(&fixture, "held-twice").await?;
    fixture.widgets().delete("held-twice", &delete_params()).await?;
    let before = fixture.widgets().get("held-twice").await?;
    // A deletionTimestamp has whole seconds: a changed one must be seen.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    fixture.widgets().delete("held-twice", &delete_params()).await?;
    let after = fixture.widgets().get("held-twice").await?;
    expect_equal("version", version(&after), version(&before))
}

async fn objects_are_deleted_with_their_last_finalizer(fixture: Fixture) -> CaseResult {
    create_held(&fixture, "freed").await?;
    let widgets = fixture.widgets();
    widgets.delete("freed", &delete_params()).await?;
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let last = widgets.patch("freed", &PatchParams::default(), &patch).await?;
    expect_equal("answered with the object", last.name_any().as_str(), "freed")?;
    expect_equal("left", widgets.get_opt("freed").await?.is_some(), false)
}

async fn json_patches_remove_last_finalizers_too(fixture: Fixture) -> CaseResult {
    create_held(&fixture, "freed-by-json").await?;
    let widgets = fixture.widgets();
    widgets.delete("freed-by-json", &delete_params()).await?;
    let patch: json_patch::Patch = serde_json::from_value(json!([
        { "op": "test", "path": "/metadata/finalizers/0", "value": FINALIZER },
        { "op": "remove", "path": "/metadata/finalizers/0" },
    ]))?;
    let patch = Patch::Json::<()>(patch);
    widgets.patch("freed-by-json", &PatchParams::default(), &patch).await?;
    expect_equal("left", widgets.get_opt("freed-by-json").await?.is_some(), false)
}

async fn deleted_objects_reject_new_finalizers(fixture: Fixture) -> CaseResult {
    create_held(&fixture, "closed").await?;
    let widgets = fixture.widgets();
    widgets.delete("closed", &delete_params()).await?;
    let list = json!([FINALIZER, "test.baremetal.cluster.io/late"]);
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": list } }));
    let refusal = widgets.patch("closed", &PatchParams::default(), &patch).await;
    expect_rejection(refusal, 422, "Invalid")?;
    // Everything else can still be changed.
    let patch = Patch::Merge(json!({ "spec": { "size": 5 } }));
    let after = widgets.patch("closed", &PatchParams::default(), &patch).await?;
    expect_equal("size", &after.data["spec"]["size"], &json!(5))
}

async fn names_in_deletion_are_taken(fixture: Fixture) -> CaseResult {
    create_held(&fixture, "occupied").await?;
    fixture.widgets().delete("occupied", &delete_params()).await?;
    let again = super::widget("occupied");
    let refusal = fixture.widgets().create(&PostParams::default(), &again).await;
    expect_rejection(refusal, 409, "AlreadyExists")
}

fn guard(resource_version: Option<String>, uid: Option<String>) -> DeleteParams {
    delete_params().preconditions(Preconditions { resource_version, uid })
}

async fn deletes_for_another_uid_are_rejected(fixture: Fixture) -> CaseResult {
    let made = fixture.widget("delete-uid", json!({})).await?;
    let other = guard(None, Some("11111111-1111-4111-8111-111111111111".into()));
    expect_rejection(fixture.widgets().delete("delete-uid", &other).await, 409, "Conflict")?;
    fixture.widgets().delete("delete-uid", &guard(None, made.uid())).await?;
    expect_equal("left", fixture.widgets().get_opt("delete-uid").await?.is_some(), false)
}

async fn stale_deletes_are_rejected(fixture: Fixture) -> CaseResult {
    let made = fixture.widget("delete-version", json!({})).await?;
    let patch = Patch::Merge(json!({ "spec": { "size": 5 } }));
    let after = fixture.widgets().patch("delete-version", &PatchParams::default(), &patch).await?;
    let stale = guard(Some(version(&made)), None);
    expect_rejection(fixture.widgets().delete("delete-version", &stale).await, 409, "Conflict")?;
    fixture.widgets().delete("delete-version", &guard(Some(version(&after)), after.uid())).await?;
    expect_equal("left", fixture.widgets().get_opt("delete-version").await?.is_some(), false)
}

async fn recreated_objects_have_new_uids(fixture: Fixture) -> CaseResult {
    let first = fixture.widget("again", json!({})).await?;
    fixture.widgets().delete("again", &delete_params()).await?;
    let second = fixture.widget("again", json!({})).await?;
    expect_equal("same uid", first.uid() == second.uid(), false)
}

async fn a_collection_can_be_deleted_by_label(fixture: Fixture) -> CaseResult {
    for (name, colour) in [("many-1", "red"), ("many-2", "red"), ("many-3", "blue")] {
        let mut new = super::widget(name);
        new.labels_mut().insert("many".into(), colour.into());
        fixture.widgets().create(&PostParams::default(), &new).await?;
    }
    let red = ListParams::default().labels("many=red");
    fixture.widgets().delete_collection(&delete_params(), &red).await?;
    let left = fixture.widgets().list(&ListParams::default().labels("many")).await?;
    let names: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
    expect_equal("left", names, vec!["many-3".to_owned()])
}

async fn a_dry_delete_changes_nothing(fixture: Fixture) -> CaseResult {
    let made = fixture.widget("dry-deleted", json!({})).await?;
    let answer = fixture.widgets().delete("dry-deleted", &delete_params().dry_run()).await?;
    expect_equal("status", answer.right().is_some_and(|status| status.is_success()), true)?;
    expect_equal("left", version(&fixture.widgets().get("dry-deleted").await?), version(&made))?;
    let made = create_held(&fixture, "dry-held").await?;
    let answer = fixture.widgets().delete("dry-held", &delete_params().dry_run()).await?;
    let object = answer.left().ok_or("got a Status, want the object")?;
    expect_equal("marked", object.metadata.deletion_timestamp.is_some(), true)?;
    expect_equal("left", version(&fixture.widgets().get("dry-held").await?), version(&made))
}
