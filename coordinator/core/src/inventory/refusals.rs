//! The last host that a registration refused for its key, and the condition
//! `HostsRefused`: such a host has no object of its own.

use coordinator_api::conditions::{self, ConditionUpdate, Reason, Type, condition_false, condition_true};
use coordinator_api::registration::{MachineRegistration, MachineRegistrationStatus, RefusedHost};
use jiff::Timestamp;
use kube::Resource as _;
use proto::refusal::Refusal;

/// The status once a host was refused; none for refusals of another cause, which
/// are Events alone.
#[must_use]
pub fn record_refusal(
    registration: &MachineRegistration,
    refusal: Refusal,
    message: &str,
    now: Timestamp,
) -> Option<MachineRegistrationStatus> {
    refusal.code().parse::<Reason>().ok()?;
    let reason = refusal.code().to_owned();
    let generation = registration.meta().generation;
    let refused = RefusedHost { reason, message: message.to_owned(), generation };
    Some(with_refused(registration, Some(refused), now))
}

/// The status once a host has registered; none where no host was refused.
#[must_use]
pub fn clear_refusal(
    registration: &MachineRegistration,
    now: Timestamp,
) -> Option<MachineRegistrationStatus> {
    registration.status.as_ref()?.refused_host.as_ref()?;
    Some(with_refused(registration, None, now))
}

/// Drops a refusal by a former generation of the registration, which says nothing
/// about this one. Returns the condition that follows.
pub fn forget_refusal(
    registration: &MachineRegistration,
    status: &mut MachineRegistrationStatus,
) -> Option<ConditionUpdate> {
    let generation = registration.meta().generation;
    status.refused_host.take_if(|refused| refused.generation != generation).map(|_| project(None))
}

fn with_refused(
    registration: &MachineRegistration,
    refused: Option<RefusedHost>,
    now: Timestamp,
) -> MachineRegistrationStatus {
    let mut status = registration.status.clone().unwrap_or_default();
    let update = project(refused.as_ref());
    conditions::set_conditions(&mut status.conditions, &[update], registration.meta().generation, now);
    status.refused_host = refused;
    status
}

fn project(refused: Option<&RefusedHost>) -> ConditionUpdate {
    match refused {
        Some(refused) => {
            let reason = refused.reason.parse().unwrap_or(Reason::TpmRequired);
            condition_true(Type::HostsRefused, reason, refused.message.clone())
        }
        None => condition_false(Type::HostsRefused, Reason::NoneRefused, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(generation: i64) -> MachineRegistration {
        let mut registration = MachineRegistration::default();
        registration.metadata.generation = Some(generation);
        registration
    }

    #[test]
    fn only_refusals_of_keys_are_recorded() {
        let registration = registration(1);
        let record = |refusal| record_refusal(&registration, refusal, "why", Timestamp::UNIX_EPOCH);
        let recorded: Vec<_> =
            Refusal::ALL.into_iter().filter(|refusal| record(*refusal).is_some()).collect();
        assert_eq!(recorded, [Refusal::TpmRequired, Refusal::TpmUntrusted, Refusal::TpmKeyRejected]);
        let status = record(Refusal::TpmUntrusted).unwrap();
        let shown = &status.conditions[0];
        assert_eq!((shown.status.as_str(), shown.reason.as_str()), ("True", "TpmUntrusted"));
    }

    #[test]
    fn a_refusal_ends_with_a_host_or_the_generation() {
        let mut refused = registration(1);
        assert_eq!(clear_refusal(&refused, Timestamp::UNIX_EPOCH), None, "none was refused");
        refused.status = record_refusal(&refused, Refusal::TpmRequired, "why", Timestamp::UNIX_EPOCH);
        let cleared = clear_refusal(&refused, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!((cleared.refused_host, cleared.conditions[0].status.as_str()), (None, "False"));
        for (generation, want) in [(1, None), (2, Some(project(None)))] {
            refused.metadata.generation = Some(generation);
            let mut status = refused.status.clone().unwrap();
            assert_eq!(forget_refusal(&refused, &mut status), want, "{generation}");
            assert_eq!(status.refused_host.is_some(), want.is_none(), "{generation}");
        }
    }
}
