//! Create, get, replace.

use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::json;

use super::{CaseResult, Fixture, define_cases, expect_equal, expect_rejection, generation, version, widget};

define_cases![
    a_created_object_gets_identity_version_and_generation,
    a_generated_name_starts_with_its_prefix,
    second_creates_of_a_name_are_rejected,
    bad_names_are_rejected,
    creates_with_a_resource_version_are_rejected,
    absent_objects_cannot_be_read_or_replaced,
    current_updates_are_stored,
    stale_updates_are_rejected,
    custom_objects_need_a_version_for_updates,
    updates_for_another_uid_are_rejected,
    unchanged_updates_create_no_version,
    changes_outside_metadata_are_new_generations,
    a_dry_run_changes_nothing,
    a_null_of_a_nullable_field_is_kept,
];

fn post_params() -> PostParams {
    PostParams::default()
}

async fn a_created_object_gets_identity_version_and_generation(fixture: Fixture) -> CaseResult {
    let made = fixture.widget("created", json!({ "size": 1 })).await?;
    expect_equal("has uid", made.uid().is_some_and(|uid| uid.len() == 36), true)?;
    expect_equal("has a time", made.creation_timestamp().is_some(), true)?;
    expect_equal("generation", generation(&made), 1)?;
    let read = fixture.widgets().get("created").await?;
    expect_equal("read back", read, made)
}

async fn a_generated_name_starts_with_its_prefix(fixture: Fixture) -> CaseResult {
    let mut new = widget("");
    new.metadata.name = None;
    new.metadata.generate_name = Some("some-".into());
    let made = fixture.widgets().create(&post_params(), &new).await?;
    expect_equal("prefix", made.name_any().starts_with("some-"), true)?;
    expect_equal("length", made.name_any().len(), "some-".len() + 5)
}

async fn second_creates_of_a_name_are_rejected(fixture: Fixture) -> CaseResult {
    fixture.widget("twice", json!({})).await?;
    expect_rejection(fixture.widgets().create(&post_params(), &widget("twice")).await, 409, "AlreadyExists")
}

async fn bad_names_are_rejected(fixture: Fixture) -> CaseResult {
    expect_rejection(fixture.widgets().create(&post_params(), &widget("Not_A_Name")).await, 422, "Invalid")?;
    let mut new = widget("");
    new.metadata.name = None;
    expect_rejection(fixture.widgets().create(&post_params(), &new).await, 422, "Invalid")
}

async fn creates_with_a_resource_version_are_rejected(fixture: Fixture) -> CaseResult {
    let mut new = widget("versioned");
    new.metadata.resource_version = Some("1".into());
    expect_rejection(fixture.widgets().create(&post_params(), &new).await, 500, "")
}

async fn absent_objects_cannot_be_read_or_replaced(fixture: Fixture) -> CaseResult {
    let widgets = fixture.widgets();
    expect_rejection(widgets.get("absent").await, 404, "NotFound")?;
    let mut new = widget("absent");
    new.metadata.resource_version = Some("1".into());
    expect_rejection(widgets.replace("absent", &post_params(), &new).await, 404, "NotFound")?;
    expect_rejection(widgets.delete("absent", &kube::api::DeleteParams::default()).await, 404, "NotFound")
}

async fn current_updates_are_stored(fixture: Fixture) -> CaseResult {
    let mut object = fixture.widget("replaced", json!({ "size": 1 })).await?;
    let before = version(&object);
    object.data["spec"]["size"] = json!(2);
    object.metadata.uid = None;
    object.metadata.creation_timestamp = None;
    let after = fixture.widgets().replace("replaced", &post_params(), &object).await?;
    expect_equal("size", &after.data["spec"]["size"], &json!(2))?;
    expect_equal("new version", version(&after) != before, true)?;
    expect_equal("uid kept", after.uid().is_some(), true)?;
    expect_equal("time kept", after.creation_timestamp().is_some(), true)
}

async fn stale_updates_are_rejected(fixture: Fixture) -> CaseResult {
    let mut object = fixture.widget("stale", json!({ "size": 1 })).await?;
    let stale = object.clone();
    object.data["spec"]["size"] = json!(2);
    fixture.widgets().replace("stale", &post_params(), &object).await?;
    expect_rejection(fixture.widgets().replace("stale", &post_params(), &stale).await, 409, "Conflict")
}

async fn custom_objects_need_a_version_for_updates(fixture: Fixture) -> CaseResult {
    let mut object = fixture.widget("unversioned", json!({})).await?;
    object.metadata.resource_version = None;
    expect_rejection(fixture.widgets().replace("unversioned", &post_params(), &object).await, 422, "Invalid")
}

async fn updates_for_another_uid_are_rejected(fixture: Fixture) -> CaseResult {
    let mut object = fixture.widget("recreated", json!({})).await?;
    object.metadata.uid = Some("11111111-1111-4111-8111-111111111111".into());
    expect_rejection(fixture.widgets().replace("recreated", &post_params(), &object).await, 409, "Conflict")
}

async fn unchanged_updates_create_no_version(fixture: Fixture) -> CaseResult {
    let object = fixture.widget("unchanged", json!({ "size": 1 })).await?;
    let after = fixture.widgets().replace("unchanged", &post_params(), &object).await?;
    expect_equal("version", version(&after), version(&object))
}

async fn changes_outside_metadata_are_new_generations(fixture: Fixture) -> CaseResult {
    let mut object = fixture.widget("counted", json!({ "size": 1 })).await?;
    object.labels_mut().insert("a".into(), "1".into());
    object.metadata.generation = Some(77);
    let mut object = fixture.widgets().replace("counted", &post_params(), &object).await?;
    expect_equal("after labels", generation(&object), 1)?;
    object.data["spec"]["size"] = json!(2);
    let object = fixture.widgets().replace("counted", &post_params(), &object).await?;
    expect_equal("after spec", generation(&object), 2)
}

async fn a_dry_run_changes_nothing(fixture: Fixture) -> CaseResult {
    let dry = PostParams { dry_run: true, ..post_params() };
    fixture.widgets().create(&dry, &widget("dry")).await?;
    let left = fixture.widgets().get_opt("dry").await?;
    expect_equal("left behind", left.is_some(), false)
}

async fn a_null_of_a_nullable_field_is_kept(fixture: Fixture) -> CaseResult {
    let made = fixture.widget("nullable", json!({ "note": null, "size": 1 })).await?;
    expect_equal("spec", &made.data["spec"], &json!({ "note": null, "size": 1 }))
}
