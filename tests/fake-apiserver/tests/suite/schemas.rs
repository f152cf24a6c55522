//! Schemas of CRDs: pruning, defaults, validation, rules in CEL.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{CaseResult, Fixture, Mismatch, define_cases, expect_equal, widget};

define_cases![
    unknown_fields_are_pruned,
    unknown_fields_are_kept_where_allowed,
    unknown_metadata_is_pruned,
    defaults_fill_missing_members,
    defaults_apply_to_status_too,
    nulls_of_required_types_are_dropped,
    violations_name_field_and_reason,
    several_violations_are_several_causes,
    status_is_validated,
    a_transition_rule_guards_an_update,
    a_rule_guards_a_create,
    rules_wait_for_valid_schemas,
    an_unchanged_violation_is_tolerated,
];

/// Field and reason of every cause of a rejection.
type Causes = Vec<(String, String)>;

async fn create(fixture: &Fixture, name: &str, data: Value) -> kube::Result<DynamicObject> {
    let mut new = widget(name);
    new.data = data;
    fixture.widgets().create(&PostParams::default(), &new).await
}

async fn merge(fixture: &Fixture, name: &str, patch: Value) -> kube::Result<DynamicObject> {
    fixture.widgets().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

/// The causes of a 422, sorted.
pub(super) fn causes<T: std::fmt::Debug>(result: kube::Result<T>) -> Result<Causes, Mismatch> {
    let status = match result {
        Err(kube::Error::Api(status)) => status,
        Err(error) => return Err(error.into()),
        Ok(object) => return Err(format!("got {object:?}, want 422 Invalid").into()),
    };
    expect_equal("rejection", (status.code, status.reason.as_str()), (422, "Invalid"))
        .map_err(|mismatch| format!("{mismatch} ({})", status.message))?;
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    let mut causes: Causes = causes.into_iter().map(|cause| (cause.field, cause.reason)).collect();
    causes.sort();
    Ok(causes)
}

/// The causes of one violation of a kind that has rules.
fn cause(field: &str, reason: &str) -> Causes {
    let mut causes = vec![(field.to_owned(), reason.to_owned())];
    let is_blocking = !["FieldValueInvalid", "FieldValueDuplicate"].contains(&reason);
    if is_blocking {
        // "some validation rules were not checked because the object was invalid"
        causes.insert(0, ("<nil>".to_owned(), "FieldValueInvalid".to_owned()));
    }
    causes
}

async fn unknown_fields_are_pruned(fixture: Fixture) -> CaseResult {
    let data = json!({
        "spec": { "size": 1, "unknown": 1, "nested": { "left": "l", "unknown": { "a": 1 } } },
        "unknown": true,
    });
    let made = create(&fixture, "pruned", data).await?;
    expect_equal("data", made.data, json!({ "spec": { "size": 1, "nested": { "left": "l" } } }))?;
    let after = merge(&fixture, "pruned", json!({ "spec": { "unknown": 2 } })).await?;
    expect_equal("patched", &after.data["spec"], &json!({ "size": 1, "nested": { "left": "l" } }))
}

async fn unknown_fields_are_kept_where_allowed(fixture: Fixture) -> CaseResult {
    let spec = json!({ "free": { "a": { "b": [1, null] }, "known": "x" } });
    let made = create(&fixture, "kept", json!({ "spec": spec })).await?;
    expect_equal("spec", &made.data["spec"], &spec)
}

async fn unknown_metadata_is_pruned(fixture: Fixture) -> CaseResult {
    fixture.widget("metadata-pruned", json!({})).await?;
    let patch = json!({ "metadata": { "unknown": "x", "labels": { "a": "1" } } });
    let after = merge(&fixture, "metadata-pruned", patch).await?;
    let raw = serde_json::to_value(&after)?;
    expect_equal("label", &raw["metadata"]["labels"], &json!({ "a": "1" }))?;
    expect_equal("unknown", raw["metadata"].get("unknown"), None)
}

async fn defaults_fill_missing_members(fixture: Fixture) -> CaseResult {
    let made = fixture.widget("defaulted", json!({ "limits": {} })).await?;
    expect_equal("limits", &made.data["spec"], &json!({ "limits": { "count": 3, "unit": "m" } }))?;
    let made = fixture.widget("not-defaulted", json!({ "limits": { "count": 5 } })).await?;
    expect_equal("given", &made.data["spec"]["limits"], &json!({ "count": 5, "unit": "m" }))?;
    let made = fixture.widget("absent-parent", json!({})).await?;
    expect_equal("parent", &made.data["spec"], &json!({}))
}

async fn defaults_apply_to_status_too(fixture: Fixture) -> CaseResult {
    let mut made = fixture.widget("status-defaulted", json!({})).await?;
    made.data["status"] = json!({ "phase": "One" });
    let after = fixture.widgets().replace_status("status-defaulted", &PostParams::default(), &made).await?;
    expect_equal("status", &after.data["status"], &json!({ "phase": "One", "total": 0 }))
}

async fn nulls_of_required_types_are_dropped(fixture: Fixture) -> CaseResult {
    let spec = json!({ "colour": null, "note": null, "limits": { "count": null } });
    let made = fixture.widget("nulls", spec).await?;
    expect_equal("spec", &made.data["spec"], &json!({ "note": null, "limits": { "count": 3, "unit": "m" } }))
}

async fn violations_name_field_and_reason(fixture: Fixture) -> CaseResult {
    let cases = [
        ("type", json!({ "size": "big" }), "spec.size", "FieldValueTypeInvalid"),
        ("object", json!({ "nested": "x" }), "spec.nested", "FieldValueTypeInvalid"),
        ("list", json!({ "list": {} }), "spec.list", "FieldValueTypeInvalid"),
        ("item", json!({ "list": ["a", 1] }), "spec.list[1]", "FieldValueTypeInvalid"),
        ("value of a map", json!({ "strings": { "a": 1 } }), "spec.strings.a", "FieldValueTypeInvalid"),
        ("enum", json!({ "mode": "c" }), "spec.mode", "FieldValueNotSupported"),
        ("minimum", json!({ "limits": { "count": 0 } }), "spec.limits.count", "FieldValueInvalid"),
        ("maximum", json!({ "limits": { "count": 11 } }), "spec.limits.count", "FieldValueInvalid"),
        ("int32", json!({ "small": 3_000_000_000_i64 }), "<nil>", "FieldValueInvalid"),
        ("pattern", json!({ "code": "A1" }), "spec.code", "FieldValueInvalid"),
        ("too short", json!({ "code": "a" }), "spec.code", "FieldValueInvalid"),
        ("too long", json!({ "code": "abcdef" }), "spec.code", "FieldValueTooLong"),
        ("too many", json!({ "few": ["a", "b", "c"] }), "spec.few", "FieldValueTooMany"),
        ("too few", json!({ "few": [] }), "spec.few", "FieldValueInvalid"),
        ("time", json!({ "time": "yesterday" }), "spec.time", "FieldValueTypeInvalid"),
        ("int or string", json!({ "port": true }), "spec.port", "FieldValueTypeInvalid"),
        ("set", json!({ "set": ["a", "b", "a"] }), "spec.set[2]", "FieldValueDuplicate"),
        (
            "map",
            json!({ "entries": [{ "name": "a" }, { "name": "a" }] }),
            "spec.entries[1]",
            "FieldValueDuplicate",
        ),
        ("required", json!({ "entries": [{}] }), "spec.entries[0].name", "FieldValueRequired"),
    ];
    let mut wrong = Vec::new();
    for (name, spec, field, reason) in cases {
        let found = causes(create(&fixture, "violating", json!({ "spec": spec })).await);
        match found {
            Ok(found) if found == cause(field, reason) => {}
            other => wrong.push(format!("{name}: {other:?}, want {field} {reason}")),
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
}

async fn several_violations_are_several_causes(fixture: Fixture) -> CaseResult {
    let spec = json!({ "size": "big", "mode": "c" });
    let found = causes(create(&fixture, "violating", json!({ "spec": spec })).await)?;
    let want = [cause("spec.mode", "FieldValueNotSupported"), cause("spec.size", "FieldValueTypeInvalid")];
    let mut want = want.concat();
    want.sort();
    want.dedup();
    expect_equal("causes", found, want)
}

async fn status_is_validated(fixture: Fixture) -> CaseResult {
    let mut made = fixture.widget("status-invalid", json!({})).await?;
    made.data["status"] = json!({ "conditions": [{ "type": "Ready" }] });
    let result = fixture.widgets().replace_status("status-invalid", &PostParams::default(), &made).await;
    expect_equal("causes", causes(result)?, cause("status.conditions[0].status", "FieldValueRequired"))
}

async fn a_transition_rule_guards_an_update(fixture: Fixture) -> CaseResult {
    fixture.widget("pinned", json!({ "size": 1 })).await?;
    merge(&fixture, "pinned", json!({ "spec": { "pinned": "a" } })).await?;
    let found = causes(merge(&fixture, "pinned", json!({ "spec": { "pinned": "b" } })).await)?;
    expect_equal("changed", found, cause("spec", "FieldValueInvalid"))?;
    let found = causes(merge(&fixture, "pinned", json!({ "spec": { "pinned": null } })).await)?;
    expect_equal("removed", found, cause("spec", "FieldValueInvalid"))?;
    merge(&fixture, "pinned", json!({ "spec": { "size": 2 } })).await?;
    Ok(())
}

async fn a_rule_guards_a_create(fixture: Fixture) -> CaseResult {
    let limits = json!({ "count": 5, "least": 6 });
    let result = create(&fixture, "ruled", json!({ "spec": { "limits": limits } })).await;
    expect_equal("causes", causes(result)?, cause("spec.limits", "FieldValueInvalid"))
}

async fn rules_wait_for_valid_schemas(fixture: Fixture) -> CaseResult {
    let spec = json!({ "size": "big", "limits": { "count": 5, "least": 6 } });
    let result = create(&fixture, "ruled", json!({ "spec": spec })).await;
    expect_equal("causes", causes(result)?, cause("spec.size", "FieldValueTypeInvalid"))
}

/// A stored object may violate a schema that came later: writes to other fields still pass.
async fn an_unchanged_violation_is_tolerated(fixture: Fixture) -> CaseResult {
    fixture.install(&super::gauges(&json!({ "type": "integer" }))?).await?;
    let gauges = fixture.resource("Gauge", "gauges");
    let mut gauge = DynamicObject::new("ratcheted", &super::resource("Gauge", "gauges"));
    gauge.data = json!({ "spec": { "size": 99 } });
    gauges.create(&PostParams::default(), &gauge).await?;
    fixture.install(&super::gauges(&json!({ "type": "integer", "maximum": 10 }))?).await?;
    let change = |spec: Value| {
        let gauges = gauges.clone();
        async move {
            let patch = Patch::Merge(json!({ "spec": spec }));
            gauges.patch("ratcheted", &PatchParams::default(), &patch).await
        }
    };
    super::until("the stricter schema is served", || async {
        Ok(change(json!({ "size": 98 })).await.is_err())
    })
    .await?;
    change(json!({ "colour": "red" })).await?;
    let found = causes(change(json!({ "size": 97 })).await)?;
    expect_equal("changed", found, cause("spec.size", "FieldValueInvalid"))
}
