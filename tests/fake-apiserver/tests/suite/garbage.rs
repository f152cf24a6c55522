//! The garbage collector.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{CaseResult, Fixture, Mismatch, define_cases, expect_equal, widget};

define_cases![
    dependants_are_deleted_after_their_last_owner,
    foreground_deletion_waits_for_blocking_dependants,
    orphaned_dependants_lose_their_reference,
    dependants_of_absent_owners_are_deleted,
    dependants_of_unknown_kinds_are_kept,
];

async fn create_owned(fixture: &Fixture, name: &str, owners: &[&DynamicObject]) -> Result<(), Mismatch> {
    let references: Vec<Value> = owners
        .iter()
        .map(|owner| {
            json!({
                "apiVersion": "test.baremetal.cluster.io/v1", "kind": "Widget",
                "name": owner.name_any(), "uid": owner.uid(), "blockOwnerDeletion": true,
            })
        })
        .collect();
    let mut new = widget(name);
    new.metadata.owner_references = Some(serde_json::from_value(json!(references))?);
    new.finalizers_mut().push("test.baremetal.cluster.io/held".into());
    fixture.widgets().create(&PostParams::default(), &new).await?;
    Ok(())
}

/// A config map that names this owner.
async fn create_map(fixture: &Fixture, name: &str, owner: &Value) -> CaseResult {
    let map = json!({ "metadata": { "name": name, "ownerReferences": [owner] } });
    let maps = fixture.api::<ConfigMap>();
    maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    Ok(())
}

async fn remove_finalizers(fixture: &Fixture, name: &str) -> Result<(), Mismatch> {
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    fixture.widgets().patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn until(fixture: &Fixture, name: &str, holds: fn(Option<&DynamicObject>) -> bool) -> CaseResult {
    super::until(&format!("{name} is as wanted"), || async {
        Ok(holds(fixture.widgets().get_opt(name).await?.as_ref()))
    })
    .await
}

fn is_gone(object: Option<&DynamicObject>) -> bool {
    object.is_none()
}

fn is_deleting(object: Option<&DynamicObject>) -> bool {
    object.is_some_and(|object| object.metadata.deletion_timestamp.is_some())
}

async fn dependants_are_deleted_after_their_last_owner(fixture: Fixture) -> CaseResult {
    let first = fixture.widget("owner-1", json!({})).await?;
    let second = fixture.widget("owner-2", json!({})).await?;
    create_owned(&fixture, "owned-by-two", &[&first, &second]).await?;
    create_owned(&fixture, "owned-by-one", &[&first]).await?;
    fixture.widgets().delete("owner-1", &DeleteParams::default()).await?;
    until(&fixture, "owned-by-one", is_deleting).await?;
    expect_equal("still owned", is_deleting(Some(&fixture.widgets().get("owned-by-two").await?)), false)?;
    fixture.widgets().delete("owner-2", &DeleteParams::default()).await?;
    until(&fixture, "owned-by-two", is_deleting).await?;
    remove_finalizers(&fixture, "owned-by-one").await?;
    remove_finalizers(&fixture, "owned-by-two").await
}

async fn foreground_deletion_waits_for_blocking_dependants(fixture: Fixture) -> CaseResult {
    let owner = fixture.widget("foreground", json!({})).await?;
    create_owned(&fixture, "blocking", &[&owner]).await?;
    fixture.widgets().delete("foreground", &DeleteParams::foreground()).await?;
    until(&fixture, "blocking", is_deleting).await?;
    let waiting = fixture.widgets().get("foreground").await?;
    expect_equal("finalizers", waiting.finalizers(), &["foregroundDeletion".to_owned()])?;
    remove_finalizers(&fixture, "blocking").await?;
    until(&fixture, "foreground", is_gone).await
}

async fn orphaned_dependants_lose_their_reference(fixture: Fixture) -> CaseResult {
    let owner = fixture.widget("orphaning", json!({})).await?;
    create_owned(&fixture, "orphan", &[&owner]).await?;
    fixture.widgets().delete("orphaning", &DeleteParams::orphan()).await?;
    until(&fixture, "orphaning", is_gone).await?;
    let orphan = fixture.widgets().get("orphan").await?;
    expect_equal("owners", orphan.owner_references().len(), 0)?;
    expect_equal("alive", is_deleting(Some(&orphan)), false)?;
    remove_finalizers(&fixture, "orphan").await
}

/// Owners that never existed, were created again, or are in another namespace.
async fn dependants_of_absent_owners_are_deleted(fixture: Fixture) -> CaseResult {
    let owner =
        |name: &str, uid: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid });
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "generateName": "elsewhere-" } }))?;
    let elsewhere: Api<ConfigMap> = Api::namespaced(fixture.client.clone(), "default");
    let elsewhere = elsewhere.create(&PostParams::default(), &map).await?;
    let present = fixture.api::<ConfigMap>().create(&PostParams::default(), &map).await?;
    let uid = "11111111-1111-4111-8111-111111111111";
    let cases = [
        ("of-nothing", owner("absent", uid)),
        ("of-recreated", owner(&present.name_any(), uid)),
        ("of-elsewhere", owner(&elsewhere.name_any(), &elsewhere.uid().unwrap_or_default())),
    ];
    for (name, owner) in &cases {
        create_map(&fixture, name, owner).await?;
    }
    for (name, _) in &cases {
        super::until(&format!("{name} is deleted"), || async {
            Ok(fixture.api::<ConfigMap>().get_opt(name).await?.is_none())
        })
        .await?;
    }
    Ok(())
}

/// The collector cannot find out whether such an owner exists. What came later is deleted first.
async fn dependants_of_unknown_kinds_are_kept(fixture: Fixture) -> CaseResult {
    let uid = "11111111-1111-4111-8111-111111111111";
    let unknown = json!({ "apiVersion": "absent.example/v1", "kind": "Absent", "name": "a", "uid": uid });
    let absent = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": uid });
    create_map(&fixture, "of-unknown", &unknown).await?;
    create_map(&fixture, "of-absent", &absent).await?;
    super::until("of-absent is deleted", || async {
        Ok(fixture.api::<ConfigMap>().get_opt("of-absent").await?.is_none())
    })
    .await?;
    fixture.api::<ConfigMap>().get("of-unknown").await?;
    Ok(())
}
