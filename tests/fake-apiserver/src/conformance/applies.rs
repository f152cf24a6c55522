//! Server-side apply.

use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Bench, Verdict, refused, same, sentences, version};

sentences![
    an_apply_makes_what_is_not_there,
    an_apply_with_the_uid_of_what_is_gone_is_refused,
    an_apply_at_a_version_of_what_is_gone_makes_it_anew,
    an_apply_removes_what_its_owner_applied_before,
    an_apply_leaves_what_others_own,
    an_apply_over_another_value_of_others_needs_force,
    an_apply_of_the_same_value_shares_it,
    an_apply_that_changes_nothing_makes_no_version,
    an_apply_without_its_last_member_removes_the_object_too,
    an_update_takes_fields_from_an_applier,
    atomic_maps_and_lists_are_replaced_whole,
    sets_merge_by_value,
    conditions_merge_by_type,
    status_and_main_resource_have_separate_owners,
    an_apply_with_managed_fields_is_refused,
    an_apply_at_a_stale_version_is_refused,
    finalizers_can_be_applied_by_several,
];

struct Applier<'a> {
    bench: &'a Bench,
    manager: &'a str,
    name: &'a str,
}

impl Applier<'_> {
    fn object(&self, mut rest: Value) -> Value {
        rest["apiVersion"] = json!("test.baremetal.cluster.io/v1");
        rest["kind"] = json!("Widget");
        rest["metadata"]["name"] = json!(self.name);
        rest
    }

    async fn politely(&self, rest: Value) -> kube::Result<DynamicObject> {
        let patch = Patch::Apply(self.object(rest));
        self.bench.widgets().patch(self.name, &PatchParams::apply(self.manager), &patch).await
    }

    async fn apply(&self, rest: Value) -> kube::Result<DynamicObject> {
        let pp = PatchParams::apply(self.manager).force();
        self.bench.widgets().patch(self.name, &pp, &Patch::Apply(self.object(rest))).await
    }

    async fn status(&self, status: Value) -> kube::Result<DynamicObject> {
        let pp = PatchParams::apply(self.manager).force();
        let patch = Patch::Apply(self.object(json!({ "status": status })));
        self.bench.widgets().patch_status(self.name, &pp, &patch).await
    }
}

impl Bench {
    fn as_manager<'a>(&'a self, manager: &'a str, name: &'a str) -> Applier<'a> {
        Applier { bench: self, manager, name }
    }
}

async fn an_apply_makes_what_is_not_there(bench: Bench) -> Verdict {
    let made = bench.as_manager("one", "applied").apply(json!({ "spec": { "size": 1 } })).await?;
    same("size", &made.data["spec"]["size"], &json!(1))?;
    same("generation", super::generation(&made), 1)?;
    same("has uid", made.uid().is_some(), true)
}

async fn an_apply_with_the_uid_of_what_is_gone_is_refused(bench: Bench) -> Verdict {
    let uid = "11111111-1111-4111-8111-111111111111";
    let config = json!({ "metadata": { "uid": uid }, "spec": { "size": 1 } });
    refused(bench.as_manager("one", "gone").apply(config).await, 409, "Conflict")
}

async fn an_apply_removes_what_its_owner_applied_before(bench: Bench) -> Verdict {
    let one = bench.as_manager("one", "shrinks");
    let labels = json!({ "a": "1", "b": "2" });
    let spec = json!({ "size": 1, "strings": { "a": "1", "b": "2" } });
    one.apply(json!({ "metadata": { "labels": labels }, "spec": spec })).await?;
    let labels = json!({ "b": "2" });
    let spec = json!({ "size": 1, "strings": { "a": "1" } });
    let after = one.apply(json!({ "metadata": { "labels": labels }, "spec": spec })).await?;
    same("spec", &after.data["spec"], &spec)?;
    same("labels", json!(after.labels()), labels)
}

async fn an_apply_leaves_what_others_own(bench: Bench) -> Verdict {
    let (one, two) = (bench.as_manager("one", "shared"), bench.as_manager("two", "shared"));
    one.apply(json!({ "spec": { "size": 1, "strings": { "a": "1" } } })).await?;
    two.apply(json!({ "spec": { "colour": "red", "strings": { "b": "2" } } })).await?;
    let after = one.apply(json!({ "spec": { "size": 2 } })).await?;
    let want = json!({ "size": 2, "colour": "red", "strings": { "b": "2" } });
    same("spec", &after.data["spec"], &want)
}

async fn an_apply_over_another_value_of_others_needs_force(bench: Bench) -> Verdict {
    let (one, two) = (bench.as_manager("one", "contested"), bench.as_manager("two", "contested"));
    one.apply(json!({ "spec": { "size": 1, "colour": "red" } })).await?;
    let wish = json!({ "spec": { "size": 2 } });
    refused(two.politely(wish.clone()).await, 409, "Conflict")?;
    two.apply(wish).await?;
    // The field is the second's now: the first no longer removes it.
    let after = one.apply(json!({ "spec": { "colour": "red" } })).await?;
    same("spec", &after.data["spec"], &json!({ "size": 2, "colour": "red" }))
}

async fn an_apply_of_the_same_value_shares_it(bench: Bench) -> Verdict {
    let (one, two) = (bench.as_manager("one", "common"), bench.as_manager("two", "common"));
    one.apply(json!({ "spec": { "size": 1, "colour": "red" } })).await?;
    two.politely(json!({ "spec": { "size": 1 } })).await?;
    let after = one.apply(json!({ "spec": { "colour": "red" } })).await?;
    same("still there", &after.data["spec"], &json!({ "size": 1, "colour": "red" }))?;
    let after = two.apply(json!({})).await?;
    same("gone with its last owner", &after.data["spec"], &json!({ "colour": "red" }))
}

async fn an_apply_that_changes_nothing_makes_no_version(bench: Bench) -> Verdict {
    let one = bench.as_manager("one", "steady");
    let config = json!({ "metadata": { "labels": { "a": "1" } }, "spec": { "size": 1 } });
    let before = one.apply(config.clone()).await?;
    // Managed fields have times of whole seconds: a changed one must not count.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let after = one.apply(config).await?;
    same("version", version(&after), version(&before))?;
    let status = json!({ "phase": "Running" });
    let before = one.status(status.clone()).await?;
    let after = one.status(status).await?;
    same("status version", version(&after), version(&before))
}

async fn an_apply_without_its_last_member_removes_the_object_too(bench: Bench) -> Verdict {
    let one = bench.as_manager("one", "empties");
    let labels = json!({ "labels": { "a": "1" } });
    one.apply(json!({ "metadata": labels, "spec": { "size": 1, "nested": { "left": "l" } } })).await?;
    let after = one.apply(json!({ "spec": { "size": 1 } })).await?;
    same("spec", &after.data["spec"], &json!({ "size": 1 }))?;
    same("labels", after.metadata.labels.clone(), None)
}

async fn an_update_takes_fields_from_an_applier(bench: Bench) -> Verdict {
    let one = bench.as_manager("one", "taken");
    one.apply(json!({ "spec": { "size": 1, "colour": "red" } })).await?;
    let patch = Patch::Merge(json!({ "spec": { "colour": "blue" } }));
    bench.widgets().patch("taken", &PatchParams::default(), &patch).await?;
    let after = one.apply(json!({ "spec": { "size": 1 } })).await?;
    same("spec", &after.data["spec"], &json!({ "size": 1, "colour": "blue" }))
}

async fn atomic_maps_and_lists_are_replaced_whole(bench: Bench) -> Verdict {
    let one = bench.as_manager("one", "atoms");
    let reference = json!({ "kind": "K", "name": "n" });
    one.apply(json!({ "spec": { "reference": reference, "list": ["a", "b"] } })).await?;
    let spec = json!({ "reference": { "name": "m" }, "list": ["c"] });
    let after = one.apply(json!({ "spec": spec })).await?;
    same("spec", &after.data["spec"], &spec)
}

async fn sets_merge_by_value(bench: Bench) -> Verdict {
    let (one, two) = (bench.as_manager("one", "sets"), bench.as_manager("two", "sets"));
    one.apply(json!({ "spec": { "set": ["a", "b"] } })).await?;
    two.apply(json!({ "spec": { "set": ["b", "c"] } })).await?;
    let after = one.apply(json!({ "spec": { "set": ["a"] } })).await?;
    let mut set: Vec<_> = after.data["spec"]["set"].as_array().cloned().unwrap_or_default();
    set.sort_by_key(ToString::to_string);
    same("set", set, vec![json!("a"), json!("b"), json!("c")])
}

async fn conditions_merge_by_type(bench: Bench) -> Verdict {
    let (one, two) = (bench.as_manager("one", "states"), bench.as_manager("two", "states"));
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status });
    one.apply(json!({})).await?;
    let (ready, up) = (condition("Ready", "False"), condition("Up", "True"));
    one.status(json!({ "phase": "One", "conditions": [ready, up] })).await?;
    two.status(json!({ "conditions": [condition("Paused", "True")] })).await?;
    let ready = condition("Ready", "True");
    let after = one.status(json!({ "conditions": [ready] })).await?;
    let want = json!({ "conditions": [ready, condition("Paused", "True")] });
    same("status", &after.data["status"], &want)
}

async fn status_and_main_resource_have_separate_owners(bench: Bench) -> Verdict {
    let one = bench.as_manager("one", "halves");
    one.apply(json!({ "metadata": { "labels": { "a": "1" } }, "spec": { "size": 1 } })).await?;
    let after = one.status(json!({ "phase": "Running" })).await?;
    same("spec", &after.data["spec"], &json!({ "size": 1 }))?;
    same("labels", after.labels().len(), 1)?;
    let ignored = json!({ "spec": { "size": 2 }, "status": { "phase": "Other" } });
    let after = one.apply(ignored).await?;
    same("status", &after.data["status"], &json!({ "phase": "Running" }))
}

async fn an_apply_with_managed_fields_is_refused(bench: Bench) -> Verdict {
    let one = bench.as_manager("one", "managed");
    let made = one.apply(json!({ "spec": { "size": 1 } })).await?;
    let fields = json!(made.managed_fields());
    let config = json!({ "metadata": { "managedFields": fields } });
    refused(one.apply(config).await, 400, "BadRequest")
}

async fn an_apply_at_a_stale_version_is_refused(bench: Bench) -> Verdict {
    let one = bench.as_manager("one", "apply-stale");
    let made = one.apply(json!({ "spec": { "size": 1 } })).await?;
    one.apply(json!({ "spec": { "size": 2 } })).await?;
    let stale = json!({
        "metadata": { "resourceVersion": version(&made) },
        "spec": { "size": 3 },
    });
    refused(one.apply(stale).await, 409, "Conflict")
}

async fn finalizers_can_be_applied_by_several(bench: Bench) -> Verdict {
    let (one, two) = (bench.as_manager("one", "held"), bench.as_manager("two", "held"));
    one.apply(json!({ "metadata": { "finalizers": ["a.b/one"] } })).await?;
    let both = two.apply(json!({ "metadata": { "finalizers": ["a.b/two"] } })).await?;
    same("both", both.finalizers().len(), 2)?;
    let after = one.apply(json!({})).await?;
    same("the other's", after.finalizers(), &["a.b/two".to_owned()])?;
    let mut freed = two.apply(json!({})).await?;
    same("none", freed.finalizers().len(), 0)?;
    freed.metadata.managed_fields = None;
    freed.finalizers_mut().push("a.b/three".into());
    let held = bench.widgets().replace("held", &PostParams::default(), &freed).await?;
    let after = one.apply(json!({})).await?;
    same("an updater's", after.finalizers(), held.finalizers())
}

/// So a resourceVersion does not keep an apply from bringing back what was deleted: a uid does.
async fn an_apply_at_a_version_of_what_is_gone_makes_it_anew(bench: Bench) -> Verdict {
    let config = json!({ "metadata": { "resourceVersion": "1" }, "spec": { "size": 1 } });
    let made = bench.as_manager("one", "gone-version").apply(config).await?;
    same("generation", super::generation(&made), 1)
}
