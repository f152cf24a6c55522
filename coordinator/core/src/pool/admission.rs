//! Who brings hosts into a pool that selects by labels, because the registrations of its namespace give
//! these labels.

use coordinator_api::conditions::{ConditionUpdate, Reason, Type, condition_false, condition_true};
use coordinator_api::inventory::KeyClass;
use coordinator_api::names::label;
use coordinator_api::registration::MachineRegistration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};

use super::Roster;
use crate::inventory::{ForeseenLabels, admission, foresee_labels};

/// Bound of the registrations in one message.
const NAMED: usize = 8;

/// Key classes of a host that has the token alone. The class that needs a vendor's certificate is not one.
const OF_A_TOKEN: [KeyClass; 2] = [KeyClass::Unverified, KeyClass::Emulated];
const ANY: [KeyClass; 3] = [KeyClass::Hardware, KeyClass::Unverified, KeyClass::Emulated];

/// The hosts that a registration admits, as far as pools depend on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    labels: ForeseenLabels,
    /// The token alone admits a host.
    is_open: bool,
}

impl Admission {
    /// `None` while the registration admits no new host.
    pub fn of_registration(registration: &MachineRegistration) -> Option<Self> {
        let admits = admission::admits_hosts(registration);
        let (labels, is_open) = (foresee_labels(registration), admission::is_open(registration));
        admits.then_some(Self { labels, is_open })
    }

    /// A host with a key of one of these classes may get labels that the selector matches. A label that the
    /// host states may have any value, and may be missing.
    fn may_give(&self, selector: &LabelSelector, classes: &[KeyClass]) -> bool {
        let mut known = selector.clone();
        if let Some(labels) = &mut known.match_labels {
            labels.retain(|key, _| !self.labels.stated.contains(key));
        }
        if let Some(expressions) = &mut known.match_expressions {
            expressions.retain(|expression| !self.labels.stated.contains(&expression.key));
        }
        let Ok(known) = Selector::try_from(known) else { return false };
        let mut labels = self.labels.fixed.clone();
        classes.iter().any(|class| {
            labels.insert(label::IDENTITY_CLASS.to_owned(), class.as_str().to_owned());
            known.matches(&labels)
        })
    }
}

impl Roster {
    /// The condition about the hosts that the registrations of the namespace bring into the pool; `None`
    /// without a valid selector.
    pub fn admission_condition<'a>(
        &self,
        admissions: impl Iterator<Item = (&'a str, &'a Admission)>,
    ) -> Option<ConditionUpdate> {
        let selector = self.pool.spec.selector.as_ref().filter(|_| self.selector.is_some())?;
        let (mut open, mut guarded) = (vec![], vec![]);
        for (name, admission) in admissions {
            if admission.is_open && admission.may_give(selector, &OF_A_TOKEN) {
                open.push(name);
            } else if admission.may_give(selector, &ANY) {
                guarded.push(name);
            }
        }
        Some(describe_admission(&open, &guarded))
    }
}

fn describe_admission(open: &[&str], guarded: &[&str]) -> ConditionUpdate {
    let name = |names: &[&str]| names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    if !open.is_empty() {
        let message = format!(
            "whoever has the registration URL of MachineRegistration {} brings a host into this pool, because hosts of it get labels that spec.selector matches",
            name(open)
        );
        return condition_true(Type::AdmissionOpen, Reason::TokenAdmitsMembers, message).with_next_action(
            "set spec.approval: Manual of the MachineRegistration, or select by a label that operators alone write",
        );
    }
    let message = if guarded.is_empty() {
        "no MachineRegistration gives labels that spec.selector matches: operators label the hosts".to_owned()
    } else {
        format!(
            "hosts of MachineRegistration {} get labels that spec.selector matches, after an operator or the TPM of a named vendor admitted them",
            name(guarded)
        )
    };
    condition_false(Type::AdmissionOpen, Reason::AdmissionGuarded, message)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use coordinator_api::pool::MachineInventoryPool;
    use serde_json::{Value, json};

    use super::*;
    use crate::samples;

    fn registration(spec: &Value, conditions: &Value) -> MachineRegistration {
        let object = json!({
            "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineRegistration",
            "metadata": { "name": "reg" }, "spec": spec, "status": { "conditions": conditions },
        });
        serde_json::from_value(object).unwrap()
    }

    fn condition(kind: Type, status: &str, reason: Reason) -> Value {
        json!({
            "type": kind.as_str(), "status": status, "reason": reason.as_str(), "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    }

    /// The registration of hosts in rack r1, whose row a host states.
    fn hosts(approval: &str, emulates: bool, is_tpm_open: &str) -> Option<Admission> {
        let spec = json!({
            "approval": approval,
            "machineInventoryLabels": { "rack": "r1", "row": "${Chassis/Row}" },
            "config": { "elemental": { "registration": { "emulate-tpm": emulates } } },
        });
        let open = condition(Type::AdmissionOpen, is_tpm_open, Reason::AdmissionGuarded);
        let ready = condition(Type::Ready, "True", Reason::SuccessfullyCreated);
        Admission::of_registration(&registration(&spec, &json!([ready, open])))
    }

    fn show(selector: &Value, admissions: &[(&str, Option<Admission>)]) -> Option<(Reason, String)> {
        let mut pool = MachineInventoryPool::clone(&samples::pool(&["listed"]));
        pool.spec.selector = serde_json::from_value(selector.clone()).unwrap();
        let admissions: BTreeMap<_, _> = admissions.iter().cloned().collect();
        let named = admissions.iter().filter_map(|(name, admission)| Some((*name, admission.as_ref()?)));
        let shown = Roster::new(Arc::new(pool)).admission_condition(named)?;
        Some((shown.reason, shown.text()))
    }

    #[test]
    fn pool_tells_whom_its_labels_let_in() {
        use Reason::{AdmissionGuarded, TokenAdmitsMembers};
        let open = hosts("Automatic", true, "");
        let (manual, vendors) = (hosts("Manual", true, ""), hosts("Automatic", false, "False"));
        let tpms = hosts("Automatic", false, "True");
        let fits = |key: &str, text: &str| json!({ "matchLabels": { key: text } });
        let class = |class: KeyClass| fits(label::IDENTITY_CLASS, class.as_str());
        let unlabelled = json!({ "matchExpressions": [{ "key": "row", "operator": "DoesNotExist" }] });
        let both = json!({ "matchLabels": { "rack": "r2", "row": "a" } });
        let (rack, row) = (fits("rack", "r1"), fits("row", "a"));
        for (name, selector, admission, reason, text) in [
            ("a fixed label", &rack, &open, TokenAdmitsMembers, "MachineRegistration reg brings"),
            ("TPMs of any vendor", &rack, &tpms, TokenAdmitsMembers, "spec.approval: Manual"),
            ("a label that the host states", &row, &open, TokenAdmitsMembers, "select by a label"),
            ("a label that a host may lack", &unlabelled, &open, TokenAdmitsMembers, "reg"),
            ("every host", &json!({}), &open, TokenAdmitsMembers, "reg"),
            ("another rack", &both, &open, AdmissionGuarded, "no MachineRegistration gives labels"),
            ("a label of operators", &fits("pool", "a"), &open, AdmissionGuarded, "operators label"),
            ("approval", &rack, &manual, AdmissionGuarded, "hosts of MachineRegistration reg get"),
            ("TPMs of a named vendor", &rack, &vendors, AdmissionGuarded, "TPM of a named vendor"),
            ("keys in files", &class(KeyClass::Emulated), &open, TokenAdmitsMembers, "reg"),
            ("verified keys", &class(KeyClass::Hardware), &open, AdmissionGuarded, "hosts of"),
        ] {
            let shown = show(selector, &[("reg", admission.clone())]).unwrap();
            assert!(shown.0 == reason && shown.1.contains(text), "{name}: {shown:?}");
        }
        let several = show(&rack, &[("b", open.clone()), ("a", open.clone()), ("c", manual)]).unwrap();
        assert!(several.1.contains("MachineRegistration a, b brings"), "{several:?}");
        for none in [json!(null), json!({ "matchExpressions": [{ "key": "rack", "operator": "Near" }] })] {
            assert_eq!(show(&none, &[("reg", open.clone())]), None, "{none}");
        }
    }

    #[test]
    fn closed_registration_lets_nobody_in() {
        for (reason, admits) in [
            (Some(Reason::SuccessfullyCreated), true),
            (Some(Reason::ApiRequestFailed), true),
            (Some(Reason::TokenExpired), false),
            (Some(Reason::FieldUnsupported), false),
            (Some(Reason::DuplicateToken), false),
            (None, false),
        ] {
            let conditions: Vec<_> =
                reason.into_iter().map(|reason| condition(Type::Ready, "False", reason)).collect();
            let found = registration(&json!({}), &json!(conditions));
            assert_eq!(Admission::of_registration(&found).is_some(), admits, "{reason:?}");
        }
    }
}
