//! Secrets, `ConfigMaps`, Leases and Events.

use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::{CaseResult, Fixture, define_cases, expect_equal, expect_rejection};

define_cases![
    string_data_of_a_secret_becomes_data,
    the_type_of_a_secret_cannot_change,
    an_immutable_secret_cannot_change,
    built_in_kinds_have_no_generation,
    config_maps_are_replaced_without_a_version,
    keys_of_data_are_names_of_files,
    leases_need_a_version_for_updates,
    only_one_of_two_takes_a_lease,
    events_are_created_and_counted,
];

fn post_params() -> PostParams {
    PostParams::default()
}

async fn string_data_of_a_secret_becomes_data(fixture: Fixture) -> CaseResult {
    let secret: Secret = serde_json::from_value(json!({
        "metadata": { "name": "plain" },
        "stringData": { "a": "hello" },
        "data": { "b": "d29ybGQ=" },
    }))?;
    let made = fixture.api::<Secret>().create(&post_params(), &secret).await?;
    expect_equal("type", made.type_.as_deref(), Some("Opaque"))?;
    expect_equal("string data", made.string_data.is_some(), false)?;
    let data = made.data.unwrap_or_default();
    expect_equal("a", data.get("a"), Some(&ByteString(b"hello".to_vec())))?;
    expect_equal("b", data.get("b"), Some(&ByteString(b"world".to_vec())))
}

async fn the_type_of_a_secret_cannot_change(fixture: Fixture) -> CaseResult {
    let secret: Secret = serde_json::from_value(json!({ "metadata": { "name": "typed" } }))?;
    let secrets = fixture.api::<Secret>();
    secrets.create(&post_params(), &secret).await?;
    let patch = Patch::Merge(json!({ "type": "cluster.x-k8s.io/secret" }));
    expect_rejection(secrets.patch("typed", &PatchParams::default(), &patch).await, 422, "Invalid")
}

async fn an_immutable_secret_cannot_change(fixture: Fixture) -> CaseResult {
    let secret: Secret = serde_json::from_value(json!({
        "metadata": { "name": "frozen" }, "immutable": true, "data": { "a": "MQ==" },
    }))?;
    let secrets = fixture.api::<Secret>();
    secrets.create(&post_params(), &secret).await?;
    let patch = Patch::Merge(json!({ "data": { "a": "Mg==" } }));
    expect_rejection(secrets.patch("frozen", &PatchParams::default(), &patch).await, 422, "Invalid")?;
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "a": "1" } } }));
    secrets.patch("frozen", &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn built_in_kinds_have_no_generation(fixture: Fixture) -> CaseResult {
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "ungenerated" } }))?;
    let made = fixture.api::<ConfigMap>().create(&post_params(), &map).await?;
    expect_equal("generation", made.metadata.generation, None)
}

async fn config_maps_are_replaced_without_a_version(fixture: Fixture) -> CaseResult {
    let maps = fixture.api::<ConfigMap>();
    let mut map: ConfigMap = serde_json::from_value(json!({
        "metadata": { "name": "unguarded" }, "data": { "a": "1" },
    }))?;
    maps.create(&post_params(), &map).await?;
    map.data = None;
    let after = maps.replace("unguarded", &post_params(), &map).await?;
    expect_equal("data", after.data, None)
}

async fn keys_of_data_are_names_of_files(fixture: Fixture) -> CaseResult {
    let maps = fixture.api::<ConfigMap>();
    for (name, key) in [("slash", "v1/os"), ("plus", "v1.36.3+rke2r1"), ("dots", ".."), ("empty", "")] {
        let map = serde_json::from_value(json!({ "metadata": { "name": name }, "data": { key: "x" } }))?;
        expect_rejection(maps.create(&post_params(), &map).await, 422, "Invalid")?;
    }
    let map = serde_json::from_value(json!({
        "metadata": { "name": "allowed" }, "data": { "v1.36.3_arm64": "x", "-": "", "...x": "" },
    }))?;
    expect_rejection(maps.create(&post_params(), &map).await, 422, "Invalid")?;
    let map = serde_json::from_value(json!({
        "metadata": { "name": "allowed" }, "data": { "v1.36.3_arm64": "x", "-": "" },
    }))?;
    maps.create(&post_params(), &map).await.map(drop).map_err(Into::into)
}

async fn leases_need_a_version_for_updates(fixture: Fixture) -> CaseResult {
    let leases = fixture.api::<Lease>();
    let lease: Lease = serde_json::from_value(json!({
        "metadata": { "name": "unguarded" }, "spec": { "holderIdentity": "a" },
    }))?;
    leases.create(&post_params(), &lease).await?;
    expect_rejection(leases.replace("unguarded", &post_params(), &lease).await, 422, "Invalid")
}

async fn only_one_of_two_takes_a_lease(fixture: Fixture) -> CaseResult {
    let leases = fixture.api::<Lease>();
    let lease: Lease = serde_json::from_value(json!({
        "metadata": { "name": "election" },
        "spec": {
            "holderIdentity": "a", "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    }))?;
    let read = leases.create(&post_params(), &lease).await?;
    let take = |holder: &str| {
        let mut wish = read.clone();
        if let Some(spec) = &mut wish.spec {
            spec.holder_identity = Some(holder.into());
        }
        wish
    };
    let taken = leases.replace("election", &post_params(), &take("b")).await?;
    expect_rejection(leases.replace("election", &post_params(), &take("c")).await, 409, "Conflict")?;
    let holder = taken.spec.and_then(|spec| spec.holder_identity);
    expect_equal("holder", holder.as_deref(), Some("b"))
}

async fn events_are_created_and_counted(fixture: Fixture) -> CaseResult {
    let events = fixture.api::<Event>();
    let event: Event = serde_json::from_value(json!({
        "metadata": { "generateName": "host-1." },
        "action": "Claim", "reason": "Claimed", "message": "claimed by m-1", "type": "Normal",
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "reportingComponent": "baremetal.cluster.io/coordinator",
        "reportingInstance": "coordinator-0",
        "involvedObject": {
            "apiVersion": "test.baremetal.cluster.io/v1", "kind": "Widget",
            "name": "host-1", "namespace": fixture.namespace,
        },
    }))?;
    let made = events.create(&post_params(), &event).await?;
    let patch = Patch::Merge(
        json!({ "count": 2, "lastTimestamp": "2026-01-01T00:00:01Z", "message": "claimed by m-2" }),
    );
    let after = events.patch(&made.name_any(), &PatchParams::default(), &patch).await?;
    let last = after.last_timestamp.map(|time| time.0.to_string());
    expect_equal("last", last.as_deref(), Some("2026-01-01T00:00:01Z"))?;
    expect_equal("count and message", (after.count, after.message), (Some(2), Some("claimed by m-2".into())))
}
