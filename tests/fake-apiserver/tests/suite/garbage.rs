//! The garbage collector.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Bench, Mismatch, Verdict, same, sentences, widget};

sentences![
    dependents_go_after_their_last_owner,
    an_owner_deleted_in_the_foreground_waits_for_what_blocks_it,
    orphans_stay_without_their_reference,
];

async fn owned(bench: &Bench, name: &str, owners: &[&DynamicObject]) -> Result<(), Mismatch> {
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
    bench.widgets().create(&PostParams::default(), &new).await?;
    Ok(())
}

async fn free(bench: &Bench, name: &str) -> Result<(), Mismatch> {
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    bench.widgets().patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits up to a minute: a real collector works when it has time.
async fn until(bench: &Bench, name: &str, is: fn(Option<&DynamicObject>) -> bool) -> Result<(), Mismatch> {
    for _ in 0..120 {
        if is(bench.widgets().get_opt(name).await?.as_ref()) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Err(format!("{name} is not as wanted after a minute").into())
}

fn gone(object: Option<&DynamicObject>) -> bool {
    object.is_none()
}

fn deleting(object: Option<&DynamicObject>) -> bool {
    object.is_some_and(|object| object.metadata.deletion_timestamp.is_some())
}

async fn dependents_go_after_their_last_owner(bench: Bench) -> Verdict {
    let first = bench.widget("owner-1", json!({})).await?;
    let second = bench.widget("owner-2", json!({})).await?;
    owned(&bench, "owned-by-two", &[&first, &second]).await?;
    owned(&bench, "owned-by-one", &[&first]).await?;
    bench.widgets().delete("owner-1", &DeleteParams::default()).await?;
    until(&bench, "owned-by-one", deleting).await?;
    same("still owned", deleting(Some(&bench.widgets().get("owned-by-two").await?)), false)?;
    bench.widgets().delete("owner-2", &DeleteParams::default()).await?;
    until(&bench, "owned-by-two", deleting).await?;
    free(&bench, "owned-by-one").await?;
    free(&bench, "owned-by-two").await
}

async fn an_owner_deleted_in_the_foreground_waits_for_what_blocks_it(bench: Bench) -> Verdict {
    let owner = bench.widget("foreground", json!({})).await?;
    owned(&bench, "blocking", &[&owner]).await?;
    bench.widgets().delete("foreground", &DeleteParams::foreground()).await?;
    until(&bench, "blocking", deleting).await?;
    let waiting = bench.widgets().get("foreground").await?;
    same("finalizers", waiting.finalizers(), &["foregroundDeletion".to_owned()])?;
    free(&bench, "blocking").await?;
    until(&bench, "foreground", gone).await
}

async fn orphans_stay_without_their_reference(bench: Bench) -> Verdict {
    let owner = bench.widget("orphaning", json!({})).await?;
    owned(&bench, "orphan", &[&owner]).await?;
    bench.widgets().delete("orphaning", &DeleteParams::orphan()).await?;
    until(&bench, "orphaning", gone).await?;
    let orphan = bench.widgets().get("orphan").await?;
    same("owners", orphan.owner_references().len(), 0)?;
    same("alive", deleting(Some(&orphan)), false)?;
    free(&bench, "orphan").await
}
