//! Admission of new hosts by a `MachineRegistration`, and the record of refusals.

use std::collections::BTreeMap;
use std::time::Duration;

use coordinator_api::conditions::{
    ConditionUpdate, Reason, Type, condition_false, condition_true, find_condition,
};
use coordinator_api::registration::{ApprovalPolicy, LastRefusal, MachineRegistration};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use proto::refusal::Refusal;

use super::emulates_tpm;

/// Lifetime of a reservation. It exceeds the lag of any cache, because a watch is opened again every
/// five minutes.
const RESERVATION: Duration = Duration::from_mins(10);
/// Time for which a refusal is shown after its last occurrence.
const SHOWN: Duration = Duration::from_mins(30);
/// Interval in which an unchanged refusal is written again.
const REFRESH: Duration = Duration::from_mins(10);
/// Shortest time between two written refusals.
const PAUSE: Duration = Duration::from_mins(1);

/// Inventories of a registration that names no number. Pending ones count, because they cost the same.
const MAX_HOSTS: u32 = 1000;
/// New hosts a minute of a registration that names no number, and those that may come at once.
const NEW_HOSTS: u32 = 60;
const NEW_HOSTS_AT_ONCE: u32 = 200;

fn after(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// The time after which the token registers no new hosts.
pub fn token_expiry(registration: &MachineRegistration) -> Option<Timestamp> {
    registration.spec.token_expires_at.as_ref().map(|time| time.0)
}

pub fn is_token_expired(registration: &MachineRegistration, now: Timestamp) -> bool {
    token_expiry(registration).is_some_and(|expiry| expiry <= now)
}

/// New hosts wait for the approval of an operator.
pub fn needs_approval(registration: &MachineRegistration) -> bool {
    registration.spec.approval == ApprovalPolicy::Manual
}

/// Largest number of inventories of the registration.
pub fn max_hosts(registration: &MachineRegistration) -> u32 {
    registration.spec.max_hosts.unwrap_or(MAX_HOSTS)
}

/// New hosts of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewHosts {
    pub per_minute: u32,
    pub at_once: u32,
}

/// The rate at which the registration admits new hosts.
pub fn new_hosts(registration: &MachineRegistration) -> NewHosts {
    let per_minute = registration.spec.new_hosts_per_minute.unwrap_or(NEW_HOSTS).max(1);
    NewHosts { per_minute, at_once: per_minute.max(NEW_HOSTS_AT_ONCE) }
}

/// The hosts of a registration in an index, which may lag.
pub struct Registered<'a> {
    pub count: usize,
    pub contains: &'a dyn Fn(&str) -> bool,
}

/// The quota of a registration for one more host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quota {
    /// The registration has room by the default quota, or the host counts already.
    Free,
    /// The host needs a reservation. The reservations are written with the precondition of the
    /// registration that was read.
    Reserve(BTreeMap<String, Time>),
    Exhausted,
}

/// Checks the quota for the host with this hash. A host in the index with a reservation counts once. The
/// default quota protects the coordinator and counts the index alone, so that a fleet costs no
/// reservations; the rate of new hosts bounds what the index has not seen.
pub fn check_quota(
    registration: &MachineRegistration,
    registered: &Registered<'_>,
    tpm_hash: &str,
    now: Timestamp,
) -> Quota {
    let Some(quota) = registration.spec.max_hosts else {
        let is_full = registered.count >= usize::try_from(MAX_HOSTS).unwrap_or(usize::MAX);
        return if is_full && !(registered.contains)(tpm_hash) { Quota::Exhausted } else { Quota::Free };
    };
    let mut reserved =
        registration.status.as_ref().map_or_else(BTreeMap::new, |status| status.reservations.clone());
    reserved.retain(|_, time| after(time.0, RESERVATION) > now);
    if (registered.contains)(tpm_hash) || reserved.contains_key(tpm_hash) {
        return Quota::Free;
    }
    let unseen = reserved.keys().filter(|hash| !(registered.contains)(hash)).count();
    if registered.count + unseen >= usize::try_from(quota).unwrap_or(usize::MAX) {
        return Quota::Exhausted;
    }
    reserved.insert(tpm_hash.to_owned(), Time(now));
    Quota::Reserve(reserved)
}

/// The refusal to store; `None` if the stored one is equal or too recent.
pub fn record_refusal(
    registration: &MachineRegistration,
    refusal: Refusal,
    message: &str,
    now: Timestamp,
) -> Option<LastRefusal> {
    let new = LastRefusal {
        reason: refusal.code().to_owned(),
        message: message.to_owned(),
        time: Time(now),
        observed_generation: registration.metadata.generation,
    };
    let stored = registration.status.as_ref().and_then(|status| status.last_refusal.as_ref());
    let is_due = stored.is_none_or(|stored| {
        let is_same = LastRefusal { time: Time(now), ..stored.clone() } == new;
        after(stored.time.0, if is_same { REFRESH } else { PAUSE }) <= now
    });
    is_due.then_some(new)
}

/// The last refusal, and the time until which it is shown. A refusal of a former generation of the
/// registration is not shown.
pub fn shown_refusal(
    registration: &MachineRegistration,
    now: Timestamp,
) -> Option<(&LastRefusal, Timestamp)> {
    let refusal = registration.status.as_ref()?.last_refusal.as_ref()?;
    let until = after(refusal.time.0, SHOWN);
    let is_current = refusal.observed_generation == registration.metadata.generation;
    (is_current && until > now).then_some((refusal, until))
}

pub fn refusal_condition(refusal: Option<&LastRefusal>) -> ConditionUpdate {
    match refusal {
        Some(LastRefusal { reason, message, .. }) => {
            condition_true(Type::HostsRefused, Reason::HostRefused, format!("{reason}: {message}"))
        }
        None => condition_false(Type::HostsRefused, Reason::NoHostRefused, ""),
    }
}

/// TPMs admit hosts of this registration without an operator, so that their vendors count.
pub fn relies_on_tpms(registration: &MachineRegistration) -> bool {
    !needs_approval(registration) && !emulates_tpm(registration)
}

/// The token of the registration alone admits a host, for a condition of another object. Only the
/// controller of the registration reads the Secret of the vendors, so that its condition tells of them.
pub fn is_open(registration: &MachineRegistration) -> bool {
    if !relies_on_tpms(registration) {
        return !needs_approval(registration);
    }
    let decided = find_condition(conditions_of(registration), Type::AdmissionOpen);
    decided.is_none_or(|found| found.status != "False")
}

/// New hosts can register, for a condition of another object. A registration that was never reconciled has
/// no token yet.
pub fn admits_hosts(registration: &MachineRegistration) -> bool {
    let closed = [Reason::TokenExpired, Reason::FieldUnsupported, Reason::DuplicateToken];
    let is_closed = |ready: &Condition| closed.iter().any(|reason| reason.as_str() == ready.reason);
    let ready = find_condition(conditions_of(registration), Type::Ready);
    ready.is_some_and(|ready| !is_closed(ready)) && registration.metadata.deletion_timestamp.is_none()
}

fn conditions_of(registration: &MachineRegistration) -> &[Condition] {
    registration.status.as_ref().map_or(&[], |status| &status.conditions)
}

/// The condition about a registration whose token alone admits a host. `are_vendors_named`: the Secret
/// with the CAs of TPM vendors exists.
pub fn admission_condition(registration: &MachineRegistration, are_vendors_named: bool) -> ConditionUpdate {
    if relies_on_tpms(registration) && !are_vendors_named {
        let message = "the registration URL alone admits a host, because a program can play a TPM that no vendor has certified, and hosts are approved automatically";
        return condition_true(Type::AdmissionOpen, Reason::UnverifiedTpmsApproved, message)
            .with_next_action(
                "put the CAs of the TPM vendors into the Secret tpm-ca, or set spec.approval to Manual",
            );
    }
    if emulates_tpm(registration) && !needs_approval(registration) {
        let message = "the registration URL alone admits a host, because hosts may prove their identity by a key in a file and are approved automatically";
        return condition_true(Type::AdmissionOpen, Reason::SoftwareKeysApproved, message)
            .with_next_action("set spec.approval to Manual, or use hosts with a TPM and emulate-tpm: false");
    }
    condition_false(Type::AdmissionOpen, Reason::AdmissionGuarded, "")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn seconds(count: u64) -> Timestamp {
        after(NOW, Duration::from_secs(count))
    }

    fn registration(spec: &Value, status: &Value) -> MachineRegistration {
        let object = json!({
            "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineRegistration",
            "metadata": { "name": "reg", "generation": 2 }, "spec": spec, "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    fn check(quota: Option<u32>, reserved: &[(&str, u64)], seen: &[&str], at: u64) -> Quota {
        let reservations: BTreeMap<_, _> =
            reserved.iter().map(|(hash, at)| ((*hash).to_owned(), Time(seconds(*at)))).collect();
        let found = registration(&json!({ "maxHosts": quota }), &json!({ "reservations": reservations }));
        let contains = |hash: &str| seen.contains(&hash);
        check_quota(&found, &Registered { count: seen.len(), contains: &contains }, "new", seconds(at))
    }

    #[test]
    fn quota_counts_hosts_before_watch_shows_them() {
        for (name, quota, reserved, seen, at, want) in [
            ("no quota", None, &[][..], &["a"][..], 0, Some(Quota::Free)),
            ("closed", Some(0), &[], &[], 0, Some(Quota::Exhausted)),
            ("one is left", Some(2), &[], &["a"], 0, None),
            ("full", Some(2), &[], &["a", "b"], 0, Some(Quota::Exhausted)),
            ("full with one that was just admitted", Some(2), &[("b", 0)], &["a"], 1, Some(Quota::Exhausted)),
            ("reserved and seen is one host", Some(2), &[("a", 0)], &["a"], 1, None),
            ("its own reservation", Some(1), &[("new", 0)], &[], 1, Some(Quota::Free)),
            ("its own inventory", Some(1), &[], &["new"], 1, Some(Quota::Free)),
            ("a reservation that came to nothing", Some(1), &[("b", 0)], &[], 600, None),
            ("not yet", Some(1), &[("b", 0)], &[], 599, Some(Quota::Exhausted)),
        ] {
            let found = check(quota, reserved, seen, at);
            match want {
                Some(want) => assert_eq!(found, want, "{name}"),
                None => assert!(matches!(found, Quota::Reserve(_)), "{name}: {found:?}"),
            }
        }
        let Quota::Reserve(stored) = check(Some(3), &[("a", 0), ("b", 500)], &[], 700) else { panic!() };
        let hashes: Vec<_> = stored.keys().map(String::as_str).collect();
        assert_eq!(hashes, ["b", "new"], "an old one is dropped");
    }

    #[test]
    fn registration_without_numbers_has_defaults() {
        let found = registration(&json!({}), &json!({}));
        let check = |count, is_known: bool| {
            let contains = |_: &str| is_known;
            check_quota(&found, &Registered { count, contains: &contains }, "new", seconds(0))
        };
        assert_eq!((check(999, false), check(1000, false)), (Quota::Free, Quota::Exhausted));
        assert_eq!(check(5000, true), Quota::Free, "a known host counts already");
        assert_eq!(new_hosts(&found), NewHosts { per_minute: 60, at_once: 200 });
        for (given, per_minute, at_once) in [(1, 1, 200), (200, 200, 200), (5000, 5000, 5000)] {
            let found = registration(&json!({ "newHostsPerMinute": given }), &json!({}));
            assert_eq!(new_hosts(&found), NewHosts { per_minute, at_once });
        }
    }

    #[test]
    fn token_expires_at_its_time() {
        let found = registration(&json!({ "tokenExpiresAt": seconds(60) }), &json!({}));
        assert!(!is_token_expired(&found, seconds(59)) && is_token_expired(&found, seconds(60)));
        assert!(!is_token_expired(&registration(&json!({}), &json!({})), Timestamp::MAX));
    }

    #[test]
    fn refusal_is_written_once_a_minute_at_most() {
        let stored = |generation: i64| {
            registration(
                &json!({}),
                &json!({ "lastRefusal": {
                    "reason": "NameTaken", "message": "a", "time": seconds(0), "observedGeneration": generation,
                } }),
            )
        };
        let none = registration(&json!({}), &json!({}));
        for (name, found, message, at, want) in [
            ("the first", &none, "a", 0, true),
            ("the same", &stored(2), "a", 599, false),
            ("the same, still", &stored(2), "a", 600, true),
            ("another, at once", &stored(2), "b", 59, false),
            ("another", &stored(2), "b", 60, true),
            ("after a change", &stored(1), "a", 60, true),
        ] {
            let recorded = record_refusal(found, Refusal::NameTaken, message, seconds(at));
            assert_eq!(recorded.is_some(), want, "{name}");
        }
        assert!(shown_refusal(&stored(2), seconds(1799)).is_some());
        assert!(shown_refusal(&stored(2), seconds(1800)).is_none(), "it is over");
        assert!(shown_refusal(&stored(1), seconds(1)).is_none(), "the registration was changed");
    }

    #[test]
    fn admission_by_a_token_alone_is_warned_of() {
        for (approval, emulate, are_vendors_named, want) in [
            ("Automatic", true, false, Reason::SoftwareKeysApproved),
            ("Automatic", true, true, Reason::SoftwareKeysApproved),
            ("Manual", true, false, Reason::AdmissionGuarded),
            ("Manual", false, false, Reason::AdmissionGuarded),
            ("Automatic", false, false, Reason::UnverifiedTpmsApproved),
            ("Automatic", false, true, Reason::AdmissionGuarded),
        ] {
            let elemental = json!({ "registration": { "emulate-tpm": emulate } });
            let spec = json!({ "approval": approval, "config": { "elemental": elemental } });
            assert_eq!(
                admission_condition(&registration(&spec, &json!({})), are_vendors_named).reason,
                want,
                "{approval} {emulate} {are_vendors_named}"
            );
        }
    }
}
