//! Which new hosts a `MachineRegistration` takes, and what it shows of those
//! that were refused.

use std::collections::BTreeMap;
use std::time::Duration;

use coordinator_api::conditions::{ConditionUpdate, Reason, Type, condition_false, condition_true};
use coordinator_api::registration::{ApprovalPolicy, LastRefusal, MachineRegistration};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proto::refusal::Refusal;

use super::emulates_tpm;

/// How long a place stays reserved: longer than any cache is behind, since a
/// watch is opened again every five minutes.
const RESERVATION: Duration = Duration::from_mins(10);
/// How long a refusal is shown after it was seen last.
const SHOWN: Duration = Duration::from_mins(30);
/// How often an unchanged refusal is written again.
const REFRESH: Duration = Duration::from_mins(10);
/// The shortest time between two refusals that are written.
const PAUSE: Duration = Duration::from_mins(1);

fn after(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// When the token ceases to register new hosts.
pub fn token_expiry(registration: &MachineRegistration) -> Option<Timestamp> {
    registration.spec.token_expires_at.as_ref().map(|time| time.0)
}

/// Whether its token registers no new host any more.
pub fn is_token_expired(registration: &MachineRegistration, now: Timestamp) -> bool {
    token_expiry(registration).is_some_and(|expiry| expiry <= now)
}

/// Whether new hosts wait for an operator.
pub fn needs_approval(registration: &MachineRegistration) -> bool {
    registration.spec.approval == ApprovalPolicy::Manual
}

/// The hosts of a registration that an index knows, which may be behind.
pub struct Registered<'a> {
    pub count: usize,
    pub contains: &'a dyn Fn(&str) -> bool,
}

/// A place for one more host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// No quota, or the host has a place.
    Given,
    /// Free: these are the reservations with it, to be written with the
    /// precondition of the registration that was read.
    Reserve(BTreeMap<String, Time>),
    /// Every place is taken.
    None,
}

/// Decides whether there is a place for the host with this hash. A host that is
/// in the index and reserved counts once.
pub fn find_place(
    registration: &MachineRegistration,
    registered: &Registered<'_>,
    tpm_hash: &str,
    now: Timestamp,
) -> Place {
    let Some(quota) = registration.spec.max_hosts else { return Place::Given };
    let stored = registration.status.as_ref().map(|status| status.reservations.clone());
    let mut reserved = stored.unwrap_or_default();
    reserved.retain(|_, time| after(time.0, RESERVATION) > now);
    if (registered.contains)(tpm_hash) || reserved.contains_key(tpm_hash) {
        return Place::Given;
    }
    let unseen = reserved.keys().filter(|hash| !(registered.contains)(hash)).count();
    if registered.count + unseen >= usize::try_from(quota).unwrap_or(usize::MAX) {
        return Place::None;
    }
    reserved.insert(tpm_hash.to_owned(), Time(now));
    Place::Reserve(reserved)
}

/// What is to be stored of a refusal; `None` where the stored one says the same
/// or is too recent.
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

/// What a registration shows of its last refusal, and until when. One of before
/// the registration was changed says nothing of it any more.
pub fn shown_refusal(
    registration: &MachineRegistration,
    now: Timestamp,
) -> Option<(&LastRefusal, Timestamp)> {
    let refusal = registration.status.as_ref()?.last_refusal.as_ref()?;
    let until = after(refusal.time.0, SHOWN);
    let is_current = refusal.observed_generation == registration.metadata.generation;
    (is_current && until > now).then_some((refusal, until))
}

/// The condition of a refusal.
pub fn refusal_condition(refusal: Option<&LastRefusal>) -> ConditionUpdate {
    match refusal {
        Some(LastRefusal { reason, message, .. }) => {
            condition_true(Type::HostsRefused, Reason::HostRefused, format!("{reason}: {message}"))
        }
        None => condition_false(Type::HostsRefused, Reason::NoHostRefused, ""),
    }
}

/// Whether the token alone admits a host.
pub fn admission_condition(registration: &MachineRegistration) -> ConditionUpdate {
    if emulates_tpm(registration) && !needs_approval(registration) {
        let message = "hosts may prove their identity by a key in a file and are approved automatically, so the registration URL alone gets a host admitted: set spec.approval to Manual, or use hosts with a TPM and emulate-tpm: false";
        return condition_true(Type::AdmissionOpen, Reason::SoftwareKeysApproved, message);
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

    fn place(quota: Option<u32>, reserved: &[(&str, u64)], seen: &[&str], at: u64) -> Place {
        let reservations: BTreeMap<_, _> =
            reserved.iter().map(|(hash, at)| ((*hash).to_owned(), Time(seconds(*at)))).collect();
        let found = registration(&json!({ "maxHosts": quota }), &json!({ "reservations": reservations }));
        let contains = |hash: &str| seen.contains(&hash);
        find_place(&found, &Registered { count: seen.len(), contains: &contains }, "new", seconds(at))
    }

    #[test]
    fn quota_counts_hosts_before_watch_shows_them() {
        let free = |place: &Place| matches!(place, Place::Reserve(_));
        for (name, quota, reserved, seen, at, want) in [
            ("no quota", None, &[][..], &["a"][..], 0, Some(Place::Given)),
            ("closed", Some(0), &[], &[], 0, Some(Place::None)),
            ("one is left", Some(2), &[], &["a"], 0, None),
            ("full", Some(2), &[], &["a", "b"], 0, Some(Place::None)),
            ("full with one that was just admitted", Some(2), &[("b", 0)], &["a"], 1, Some(Place::None)),
            ("reserved and seen is one host", Some(2), &[("a", 0)], &["a"], 1, None),
            ("its own reservation", Some(1), &[("new", 0)], &[], 1, Some(Place::Given)),
            ("its own inventory", Some(1), &[], &["new"], 1, Some(Place::Given)),
            ("a reservation that came to nothing", Some(1), &[("b", 0)], &[], 600, None),
            ("not yet", Some(1), &[("b", 0)], &[], 599, Some(Place::None)),
        ] {
            let found = place(quota, reserved, seen, at);
            match want {
                Some(want) => assert_eq!(found, want, "{name}"),
                None => assert!(free(&found), "{name}: {found:?}"),
            }
        }
        let Place::Reserve(stored) = place(Some(3), &[("a", 0), ("b", 500)], &[], 700) else { panic!() };
        let hashes: Vec<_> = stored.keys().map(String::as_str).collect();
        assert_eq!(hashes, ["b", "new"], "an old one is dropped");
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
    fn automatic_approval_of_software_keys_is_warned_of() {
        for (approval, emulate, want) in [
            ("Automatic", true, Reason::SoftwareKeysApproved),
            ("Manual", true, Reason::AdmissionGuarded),
            ("Automatic", false, Reason::AdmissionGuarded),
        ] {
            let elemental = json!({ "registration": { "emulate-tpm": emulate } });
            let spec = json!({ "approval": approval, "config": { "elemental": elemental } });
            assert_eq!(
                admission_condition(&registration(&spec, &json!({}))).reason,
                want,
                "{approval} {emulate}"
            );
        }
    }
}
