//! The condition `HostsRefused` of a registration: hosts without an inventory
//! have no object of their own.

use coordinator_api::conditions::{self, ConditionUpdate, Reason, Type, condition_false, condition_true};
use coordinator_api::registration::MachineRegistration;
use proto::refusal::Refusal;

/// The condition for a refusal of a host's key; none for other refusals, which
/// are Events alone.
#[must_use]
pub fn show_refusal(refusal: Refusal, note: String) -> Option<ConditionUpdate> {
    let reason: Reason = refusal.code().parse().ok()?;
    Some(condition_true(Type::HostsRefused, reason, note))
}

/// The condition once a host has registered, or the registration has changed.
#[must_use]
pub fn no_refusal() -> ConditionUpdate {
    condition_false(Type::HostsRefused, Reason::NoneRefused, "")
}

/// What becomes of the condition when the registration is reconciled: a refusal by
/// a former generation says nothing about this one.
#[must_use]
pub fn forget_refusal(registration: &MachineRegistration) -> Option<ConditionUpdate> {
    let conditions = &registration.status.as_ref()?.conditions;
    let shown = conditions::find_condition(conditions, Type::HostsRefused)?;
    let is_former = shown.observed_generation != registration.metadata.generation;
    (shown.status == "True" && is_former).then(no_refusal)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn only_refusals_of_keys_are_conditions() {
        let shown: Vec<_> = Refusal::ALL
            .into_iter()
            .filter(|refusal| show_refusal(*refusal, String::new()).is_some())
            .collect();
        assert_eq!(shown, [Refusal::TpmRequired, Refusal::TpmUntrusted, Refusal::TpmKeyRejected]);
    }

    #[test]
    fn a_refusal_ends_with_its_generation() {
        let refused = show_refusal(Refusal::TpmRequired, "why".to_owned()).unwrap();
        for (name, shown, generation, want) in [
            ("never refused", None, 2, None),
            ("refused by this one", Some((refused.clone(), 2)), 2, None),
            ("refused by a former one", Some((refused, 1)), 2, Some(no_refusal())),
            ("forgotten", Some((no_refusal(), 1)), 2, None),
        ] {
            let mut registration = MachineRegistration::default();
            registration.metadata.generation = Some(generation);
            if let Some((update, of)) = shown {
                let status = registration.status.get_or_insert_default();
                conditions::set_conditions(
                    &mut status.conditions,
                    &[update],
                    Some(of),
                    Timestamp::UNIX_EPOCH,
                );
            }
            assert_eq!(forget_refusal(&registration), want, "{name}");
        }
    }
}
