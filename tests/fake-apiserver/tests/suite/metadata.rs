//! Validation of metadata, and limits of sizes.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::schemas::causes;
use super::{CaseResult, Fixture, Mismatch, define_cases, expect_equal, expect_rejection, widget};

define_cases![
    bad_metadata_is_rejected_at_creation,
    bad_metadata_is_rejected_in_updates,
    metadata_of_a_wrong_type_is_rejected,
    built_in_kinds_need_qualified_finalizers,
    large_annotations_are_rejected,
    large_secrets_are_rejected,
    large_objects_are_rejected,
    large_requests_are_rejected,
];

fn owner(name: &str, controller: bool) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name, "controller": controller })
}

/// What is wrong, its metadata, and the field of the cause.
fn cases() -> Vec<(&'static str, Value, &'static str)> {
    let long = "a".repeat(64);
    let mut nameless = owner("", false);
    nameless["uid"] = json!("x");
    vec![
        ("label key", json!({ "labels": { "a b": "1" } }), "metadata.labels"),
        ("label prefix", json!({ "labels": { "A/b": "1" } }), "metadata.labels"),
        ("label value", json!({ "labels": { "a": "b c" } }), "metadata.labels"),
        ("long label value", json!({ "labels": { "a": long } }), "metadata.labels"),
        ("annotation key", json!({ "annotations": { "a/b/c": "1" } }), "metadata.annotations"),
        ("finalizer", json!({ "finalizers": ["a b"] }), "metadata.finalizers"),
        (
            "two controllers",
            json!({ "ownerReferences": [owner("a", true), owner("b", true)] }),
            "metadata.ownerReferences",
        ),
        ("owner without a name", json!({ "ownerReferences": [nameless] }), "metadata.ownerReferences.name"),
    ]
}

fn check(name: &str, found: Result<Vec<(String, String)>, Mismatch>, field: &str) -> CaseResult {
    let mut found = found.map_err(|mismatch| format!("{name}: {mismatch}"))?;
    // The real server repeats some causes in updates.
    found.dedup();
    expect_equal(name, found, vec![(field.to_owned(), "FieldValueInvalid".to_owned())])
}

async fn bad_metadata_is_rejected_at_creation(fixture: Fixture) -> CaseResult {
    for (name, mut metadata, field) in cases() {
        metadata["name"] = json!("bad-metadata");
        let mut new = widget("bad-metadata");
        new.metadata = serde_json::from_value(metadata)?;
        check(name, causes(fixture.widgets().create(&PostParams::default(), &new).await), field)?;
    }
    Ok(())
}

async fn bad_metadata_is_rejected_in_updates(fixture: Fixture) -> CaseResult {
    fixture.widget("bad-update", json!({})).await?;
    for (name, metadata, field) in cases() {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let result = fixture.widgets().patch("bad-update", &PatchParams::default(), &patch).await;
        check(name, causes(result), field)?;
    }
    Ok(())
}

async fn metadata_of_a_wrong_type_is_rejected(fixture: Fixture) -> CaseResult {
    fixture.widget("mistyped", json!({})).await?;
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "a": 1 } } }));
    let result = fixture.widgets().patch("mistyped", &PatchParams::default(), &patch).await;
    expect_rejection(result, 422, "Invalid")?;
    let object = json!({
        "apiVersion": "test.baremetal.cluster.io/v1", "kind": "Widget",
        "metadata": { "name": "mistyped-new", "labels": { "a": 1 } },
    });
    let url = format!("/apis/test.baremetal.cluster.io/v1/namespaces/{}/widgets", fixture.namespace);
    let request = http::Request::post(url).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes())?;
    expect_rejection(fixture.client.request::<Value>(request).await, 400, "BadRequest")
}

async fn built_in_kinds_need_qualified_finalizers(fixture: Fixture) -> CaseResult {
    let map = json!({ "metadata": { "name": "short", "finalizers": ["short"] } });
    let maps = fixture.api::<ConfigMap>();
    let found = causes(maps.create(&PostParams::default(), &serde_json::from_value(map)?).await);
    check("short", found, "metadata.finalizers[0]")?;
    let mut new = widget("short");
    new.metadata.finalizers = Some(vec!["short".into()]);
    fixture.widgets().create(&PostParams::default(), &new).await?;
    Ok(())
}

async fn large_annotations_are_rejected(fixture: Fixture) -> CaseResult {
    let mut new = widget("annotated");
    let value = "a".repeat((256 << 10) - 1);
    new.metadata.annotations = Some([("a".to_owned(), value.clone())].into());
    fixture.widgets().create(&PostParams::default(), &new).await?;
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "b": "1" } } }));
    let found = causes(fixture.widgets().patch("annotated", &PatchParams::default(), &patch).await)?;
    let fields: Vec<_> = found.iter().map(|(field, _)| field.as_str()).collect();
    expect_equal("field", fields.contains(&"metadata.annotations"), true)
}

async fn large_secrets_are_rejected(fixture: Fixture) -> CaseResult {
    for (size, is_valid) in [(1 << 20, true), ((1 << 20) + 3, false)] {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": { "generateName": "large-" }, "stringData": { "a": "a".repeat(size) },
        }))?;
        let result = fixture.api::<Secret>().create(&PostParams::default(), &secret).await;
        if is_valid {
            result?;
            continue;
        }
        let want = vec![("data".to_owned(), "FieldValueTooLong".to_owned())];
        expect_equal("causes", causes(result)?, want)?;
    }
    Ok(())
}

async fn large_objects_are_rejected(fixture: Fixture) -> CaseResult {
    let mut new = widget("large");
    new.data = json!({ "spec": { "free": { "a": "a".repeat(1_700_000) } } });
    let result = fixture.widgets().create(&PostParams::default(), &new).await;
    expect_rejection(result, 500, "")
}

async fn large_requests_are_rejected(fixture: Fixture) -> CaseResult {
    let mut new = widget("huge");
    new.data = json!({ "spec": { "free": { "a": "a".repeat(3_200_000) } } });
    let result = fixture.widgets().create(&PostParams::default(), &new).await;
    expect_rejection(result, 413, "RequestEntityTooLarge")
}
