//! The garbage collector.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{CaseResult, Fixture, Mismatch, define_cases, expect_equal, widget};

define_cases![
    dependants_are_deleted_after_their_last_owner,
    foreground_deletion_waits_for_blocking_dependants,
    orphaned_dependants_lose_their_reference,
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

async fn remove_finalizers(fixture: &Fixture, name: &str) -> Result<(), Mismatch> {
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    fixture.widgets().patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits up to a minute: a real collector works when it has time.
async fn until(
    fixture: &Fixture,
    name: &str,
    is: fn(Option<&DynamicObject>) -> bool,
) -> Result<(), Mismatch> {
    for _ in 0..120 {
        if is(fixture.widgets().get_opt(name).await?.as_ref()) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Err(format!("{name} is not as wanted after a minute").into())
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
