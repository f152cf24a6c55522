//! Secrets, `ConfigMaps`, Leases and Events.

use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::{Bench, Verdict, refused, same, sentences};

sentences![
    string_data_of_a_secret_becomes_data,
    the_type_of_a_secret_cannot_change,
    an_immutable_secret_cannot_change,
    built_in_kinds_have_no_generation,
    a_config_map_can_be_replaced_without_a_version,
    a_lease_cannot_be_replaced_without_a_version,
    only_one_of_two_takes_a_lease,
    an_event_can_be_made_and_counted,
];

fn pp() -> PostParams {
    PostParams::default()
}

async fn string_data_of_a_secret_becomes_data(bench: Bench) -> Verdict {
    let secret: Secret = serde_json::from_value(json!({
        "metadata": { "name": "plain" },
        "stringData": { "a": "hello" },
        "data": { "b": "d29ybGQ=" },
    }))?;
    let made = bench.api::<Secret>().create(&pp(), &secret).await?;
    same("type", made.type_.as_deref(), Some("Opaque"))?;
    same("string data", made.string_data.is_some(), false)?;
    let data = made.data.unwrap_or_default();
    same("a", data.get("a"), Some(&ByteString(b"hello".to_vec())))?;
    same("b", data.get("b"), Some(&ByteString(b"world".to_vec())))
}

async fn the_type_of_a_secret_cannot_change(bench: Bench) -> Verdict {
    let secret: Secret = serde_json::from_value(json!({ "metadata": { "name": "typed" } }))?;
    let secrets = bench.api::<Secret>();
    secrets.create(&pp(), &secret).await?;
    let patch = Patch::Merge(json!({ "type": "cluster.x-k8s.io/secret" }));
    refused(secrets.patch("typed", &PatchParams::default(), &patch).await, 422, "Invalid")
}

async fn an_immutable_secret_cannot_change(bench: Bench) -> Verdict {
    let secret: Secret = serde_json::from_value(json!({
        "metadata": { "name": "frozen" }, "immutable": true, "data": { "a": "MQ==" },
    }))?;
    let secrets = bench.api::<Secret>();
    secrets.create(&pp(), &secret).await?;
    let patch = Patch::Merge(json!({ "data": { "a": "Mg==" } }));
    refused(secrets.patch("frozen", &PatchParams::default(), &patch).await, 422, "Invalid")?;
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "a": "1" } } }));
    secrets.patch("frozen", &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn built_in_kinds_have_no_generation(bench: Bench) -> Verdict {
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "ungenerated" } }))?;
    let made = bench.api::<ConfigMap>().create(&pp(), &map).await?;
    same("generation", made.metadata.generation, None)
}

async fn a_config_map_can_be_replaced_without_a_version(bench: Bench) -> Verdict {
    let maps = bench.api::<ConfigMap>();
    let mut map: ConfigMap = serde_json::from_value(json!({
        "metadata": { "name": "unguarded" }, "data": { "a": "1" },
    }))?;
    maps.create(&pp(), &map).await?;
    map.data = None;
    let after = maps.replace("unguarded", &pp(), &map).await?;
    same("data", after.data, None)
}

async fn a_lease_cannot_be_replaced_without_a_version(bench: Bench) -> Verdict {
    let leases = bench.api::<Lease>();
    let lease: Lease = serde_json::from_value(json!({
        "metadata": { "name": "unguarded" }, "spec": { "holderIdentity": "a" },
    }))?;
    leases.create(&pp(), &lease).await?;
    refused(leases.replace("unguarded", &pp(), &lease).await, 422, "Invalid")
}

async fn only_one_of_two_takes_a_lease(bench: Bench) -> Verdict {
    let leases = bench.api::<Lease>();
    let lease: Lease = serde_json::from_value(json!({
        "metadata": { "name": "election" },
        "spec": {
            "holderIdentity": "a", "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    }))?;
    let read = leases.create(&pp(), &lease).await?;
    let take = |holder: &str| {
        let mut wish = read.clone();
        if let Some(spec) = &mut wish.spec {
            spec.holder_identity = Some(holder.into());
        }
        wish
    };
    let taken = leases.replace("election", &pp(), &take("b")).await?;
    refused(leases.replace("election", &pp(), &take("c")).await, 409, "Conflict")?;
    let holder = taken.spec.and_then(|spec| spec.holder_identity);
    same("holder", holder.as_deref(), Some("b"))
}

async fn an_event_can_be_made_and_counted(bench: Bench) -> Verdict {
    let events = bench.api::<Event>();
    let event: Event = serde_json::from_value(json!({
        "metadata": { "generateName": "host-1-" },
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "action": "Claim", "reason": "Claimed", "note": "claimed by m-1", "type": "Normal",
        "reportingController": "baremetal.cluster.io/coordinator",
        "reportingInstance": "coordinator-0",
        "regarding": {
            "apiVersion": "test.baremetal.cluster.io/v1", "kind": "Widget",
            "name": "host-1", "namespace": bench.namespace,
        },
    }))?;
    let made = events.create(&pp(), &event).await?;
    let series = json!({ "count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z" });
    let patch = Patch::Merge(json!({ "series": series }));
    let after = events.patch(&made.name_any(), &PatchParams::default(), &patch).await?;
    same("count", after.series.map(|series| series.count), Some(2))
}
