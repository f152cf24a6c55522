//! Create, get, replace.

use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::json;

use super::{Bench, Verdict, generation, refused, same, sentences, version, widget};

sentences![
    a_created_object_gets_identity_version_and_generation,
    a_generated_name_starts_with_its_prefix,
    a_second_create_of_one_name_is_refused,
    a_bad_name_is_refused,
    a_create_with_a_resource_version_is_refused,
    what_is_not_there_cannot_be_read_or_replaced,
    a_replace_at_the_version_read_is_kept,
    a_stale_replace_is_refused,
    a_replace_of_a_custom_object_needs_a_version,
    a_replace_of_another_incarnation_is_refused,
    a_replace_that_changes_nothing_makes_no_version,
    only_a_change_outside_metadata_is_a_new_generation,
    a_dry_run_changes_nothing,
    a_null_of_a_nullable_field_is_kept,
];

fn pp() -> PostParams {
    PostParams::default()
}

async fn a_created_object_gets_identity_version_and_generation(bench: Bench) -> Verdict {
    let made = bench.widget("created", json!({ "size": 1 })).await?;
    same("has uid", made.uid().is_some_and(|uid| uid.len() == 36), true)?;
    same("has a time", made.creation_timestamp().is_some(), true)?;
    same("generation", generation(&made), 1)?;
    let read = bench.widgets().get("created").await?;
    same("read back", read, made)
}

async fn a_generated_name_starts_with_its_prefix(bench: Bench) -> Verdict {
    let mut new = widget("");
    new.metadata.name = None;
    new.metadata.generate_name = Some("some-".into());
    let made = bench.widgets().create(&pp(), &new).await?;
    same("prefix", made.name_any().starts_with("some-"), true)?;
    same("length", made.name_any().len(), "some-".len() + 5)
}

async fn a_second_create_of_one_name_is_refused(bench: Bench) -> Verdict {
    bench.widget("twice", json!({})).await?;
    refused(bench.widgets().create(&pp(), &widget("twice")).await, 409, "AlreadyExists")
}

async fn a_bad_name_is_refused(bench: Bench) -> Verdict {
    refused(bench.widgets().create(&pp(), &widget("Not_A_Name")).await, 422, "Invalid")?;
    let mut new = widget("");
    new.metadata.name = None;
    refused(bench.widgets().create(&pp(), &new).await, 422, "Invalid")
}

async fn a_create_with_a_resource_version_is_refused(bench: Bench) -> Verdict {
    let mut new = widget("versioned");
    new.metadata.resource_version = Some("1".into());
    refused(bench.widgets().create(&pp(), &new).await, 500, "")
}

async fn what_is_not_there_cannot_be_read_or_replaced(bench: Bench) -> Verdict {
    let widgets = bench.widgets();
    refused(widgets.get("absent").await, 404, "NotFound")?;
    let mut new = widget("absent");
    new.metadata.resource_version = Some("1".into());
    refused(widgets.replace("absent", &pp(), &new).await, 404, "NotFound")?;
    refused(widgets.delete("absent", &kube::api::DeleteParams::default()).await, 404, "NotFound")
}

async fn a_replace_at_the_version_read_is_kept(bench: Bench) -> Verdict {
    let mut object = bench.widget("replaced", json!({ "size": 1 })).await?;
    let before = version(&object);
    object.data["spec"]["size"] = json!(2);
    object.metadata.uid = None;
    object.metadata.creation_timestamp = None;
    let after = bench.widgets().replace("replaced", &pp(), &object).await?;
    same("size", &after.data["spec"]["size"], &json!(2))?;
    same("new version", version(&after) != before, true)?;
    same("uid kept", after.uid().is_some(), true)?;
    same("time kept", after.creation_timestamp().is_some(), true)
}

async fn a_stale_replace_is_refused(bench: Bench) -> Verdict {
    let mut object = bench.widget("stale", json!({ "size": 1 })).await?;
    let stale = object.clone();
    object.data["spec"]["size"] = json!(2);
    bench.widgets().replace("stale", &pp(), &object).await?;
    refused(bench.widgets().replace("stale", &pp(), &stale).await, 409, "Conflict")
}

async fn a_replace_of_a_custom_object_needs_a_version(bench: Bench) -> Verdict {
    let mut object = bench.widget("unversioned", json!({})).await?;
    object.metadata.resource_version = None;
    refused(bench.widgets().replace("unversioned", &pp(), &object).await, 422, "Invalid")
}

async fn a_replace_of_another_incarnation_is_refused(bench: Bench) -> Verdict {
    let mut object = bench.widget("reborn", json!({})).await?;
    object.metadata.uid = Some("11111111-1111-4111-8111-111111111111".into());
    refused(bench.widgets().replace("reborn", &pp(), &object).await, 409, "Conflict")
}

async fn a_replace_that_changes_nothing_makes_no_version(bench: Bench) -> Verdict {
    let object = bench.widget("unchanged", json!({ "size": 1 })).await?;
    let after = bench.widgets().replace("unchanged", &pp(), &object).await?;
    same("version", version(&after), version(&object))
}

async fn only_a_change_outside_metadata_is_a_new_generation(bench: Bench) -> Verdict {
    let mut object = bench.widget("counted", json!({ "size": 1 })).await?;
    object.labels_mut().insert("a".into(), "1".into());
    object.metadata.generation = Some(77);
    let mut object = bench.widgets().replace("counted", &pp(), &object).await?;
    same("after labels", generation(&object), 1)?;
    object.data["spec"]["size"] = json!(2);
    let object = bench.widgets().replace("counted", &pp(), &object).await?;
    same("after spec", generation(&object), 2)
}

async fn a_dry_run_changes_nothing(bench: Bench) -> Verdict {
    let dry = PostParams { dry_run: true, ..pp() };
    bench.widgets().create(&dry, &widget("dry")).await?;
    let left = bench.widgets().get_opt("dry").await?;
    same("left behind", left.is_some(), false)
}

async fn a_null_of_a_nullable_field_is_kept(bench: Bench) -> Verdict {
    let made = bench.widget("nullable", json!({ "note": null, "size": 1 })).await?;
    same("spec", &made.data["spec"], &json!({ "note": null, "size": 1 }))
}
