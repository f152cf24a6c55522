//! The key that a host's certificates are bound to.
//!
//! A tenant with root on a host can copy its key. A host makes a new key at each clean and each
//! install. A certificate names the time of its key, and the time of the key that asked for it. The
//! newest key that was used counts, and with it the keys that it asked for; all others are refused.
//! The times are in the certificate, so that a host keeps its line after a restore of a backup that is
//! older than its key.

use coordinator_api::inventory::{CertifiedKey, MachineInventoryStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::HostRecord;

/// A key, as a certificate of the authority states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownKey<'a> {
    /// Lower-case hexadecimal SHA-256 of the public key in PKIX DER.
    pub hash: &'a str,
    pub time: KeyTime,
}

/// When a key was certified. Both times are the beginning of the epoch in a certificate of a former
/// release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyTime {
    /// When the key was certified first.
    pub since: Timestamp,
    /// `since` of the key that asked for this one; its own time where the host proved its identity.
    pub from: Timestamp,
}

impl KeyTime {
    /// Of a key by which a host proved its identity.
    pub const fn proven(since: Timestamp) -> Self {
        Self { since, from: since }
    }
}

/// Tells whether `shown` is a former key: neither the known one nor one that the known one or a later
/// one asked for. A thief may have asked for a key by the former one, even a moment before the host
/// used its next one.
pub fn is_replaced(known: Option<&CertifiedKey>, shown: ShownKey<'_>) -> bool {
    known.is_some_and(|known| known.hash != shown.hash && shown.time.from < known.since.0)
}

/// Tells whether a certificate of the key is refused; `taken` is the hash of the key that an operator
/// took away.
pub fn refuses_key(known: Option<&CertifiedKey>, taken: Option<&str>, shown: ShownKey<'_>) -> bool {
    taken == Some(shown.hash) || is_replaced(known, shown)
}

/// Records the key that the host used, unless it is a former one.
pub fn record_key(status: &mut MachineInventoryStatus, shown: ShownKey<'_>) {
    let known = &mut status.host.get_or_insert_default().certified_key;
    let is_other = known.as_ref().is_none_or(|known| known.hash != shown.hash);
    if is_other && !is_replaced(known.as_ref(), shown) {
        *known = Some(CertifiedKey { hash: shown.hash.to_owned(), since: Time(shown.time.since) });
    }
}

/// Whole seconds, as both the certificate and the status hold them.
fn next_second(known: Option<&CertifiedKey>, now: Timestamp) -> Timestamp {
    let after = known.map_or(0, |known| known.since.0.as_second().saturating_add(1));
    Timestamp::from_second(now.as_second().max(after)).unwrap_or(now)
}

impl HostRecord {
    /// Tells whether a certificate of the key is refused.
    fn refuses_key(&self, shown: ShownKey<'_>) -> bool {
        refuses_key(self.certified_key.as_ref(), self.replaced_key.as_deref(), shown)
    }

    /// The time that a certificate names for a key by which the host proved its identity.
    pub fn proven_time(&self, key_hash: &str, now: Timestamp) -> KeyTime {
        KeyTime::proven(match &self.certified_key {
            Some(known) if known.hash == key_hash => known.since.0,
            known => next_second(known.as_ref(), now),
        })
    }

    /// The time that a certificate names for the key that the host of `shown` asks for.
    pub fn requested_time(&self, shown: ShownKey<'_>, key_hash: &str, now: Timestamp) -> KeyTime {
        if key_hash == shown.hash {
            return shown.time;
        }
        let known = self.certified_key.as_ref().filter(|known| known.hash == shown.hash);
        let from = known.map_or(shown.time.since, |known| known.since.0);
        let asking = CertifiedKey { hash: shown.hash.to_owned(), since: Time(from) };
        KeyTime { since: next_second(Some(&asking), now), from }
    }

    /// Tells whether the host may end a clean by a key of that time. An agent that proves its boot at
    /// each renewal has made a new key after the clean, which nobody does without its TPM.
    pub fn may_end_clean(&self, key: KeyTime) -> bool {
        let replaces_keys = self.live_tpm.as_ref().is_some_and(|live| live.proves_renewals);
        let announced = self.plan.as_ref().and_then(|plan| plan.announced);
        !replaces_keys || announced.is_none_or(|announced| key.since.as_second() >= announced.as_second())
    }

    /// The time that a certificate names for a software key that has signed a registration; `None` if
    /// the key does not belong to the host. `evidence` is the last certificate of the key.
    pub fn admit_software_key(
        &self,
        key_hash: &str,
        is_first: bool,
        evidence: Option<ShownKey<'_>>,
        now: Timestamp,
    ) -> Option<KeyTime> {
        if self.replaced_key.as_deref() == Some(key_hash) {
            return None;
        }
        // Where a host was never installed, its inventory was given to another identity, and the
        // record is of the former one.
        let is_of_identity = is_first && (self.certified_key.is_none() || self.was_never_installed());
        let is_known = self.certified_key.as_ref().is_some_and(|known| known.hash == key_hash);
        if is_of_identity || is_known || self.accepted_key.as_deref() == Some(key_hash) {
            return Some(self.proven_time(key_hash, now));
        }
        let evidence = evidence.filter(|shown| shown.hash == key_hash && !self.refuses_key(*shown));
        evidence.map(|shown| shown.time)
    }
}

#[cfg(test)]
mod tests {
    use coordinator_api::inventory::{LiveTpm, MachineInventory, PlanType};
    use coordinator_api::names::annotation;

    use super::*;
    use crate::samples;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A key of second `since`, for which a key of second `from` asked.
    fn asked(hash: &str, since: i64, from: i64) -> ShownKey<'_> {
        ShownKey { hash, time: KeyTime { since: at(since), from: at(from) } }
    }

    fn shown(hash: &str, second: i64) -> ShownKey<'_> {
        asked(hash, second, second)
    }

    /// An inventory that knows the key `b` of second 20, with an annotation.
    fn host(annotated: Option<(&str, &str)>) -> HostRecord {
        let mut inventory = samples::inventory("host-1");
        record_key(inventory.status.get_or_insert_default(), shown("b", 20));
        annotate(&mut inventory, annotated);
        samples::record(&inventory)
    }

    fn annotate(inventory: &mut MachineInventory, annotated: Option<(&str, &str)>) {
        if let Some((key, value)) = annotated {
            samples::annotate(inventory, key, value);
        }
    }

    #[test]
    fn only_a_later_key_replaces_the_known_one() {
        for (name, key, is_refused, want) in [
            ("former tenant", shown("a", 10), true, ("b", 20)),
            ("release without the time", shown("a", 0), true, ("b", 20)),
            ("other key of that second", asked("c", 20, 10), true, ("b", 20)),
            ("the known key", shown("b", 20), false, ("b", 20)),
            ("the known key by an older certificate", shown("b", 0), false, ("b", 20)),
            ("the next key", asked("c", 21, 20), false, ("c", 21)),
            ("a later one", asked("d", 40, 30), false, ("d", 40)),
            ("asked for by a former tenant", asked("c", 21, 10), true, ("b", 20)),
        ] {
            assert_eq!(host(None).refuses_key(key), is_refused, "{name}");
            let mut status = MachineInventoryStatus::default();
            record_key(&mut status, shown("b", 20));
            record_key(&mut status, key);
            let known = status.host.unwrap().certified_key.unwrap();
            assert_eq!((known.hash.as_str(), known.since.0), (want.0, at(want.1)), "{name}");
        }
        let taken = host(Some((annotation::REPLACED_KEY, "b")));
        assert!(taken.refuses_key(shown("b", 20)) && !taken.refuses_key(shown("c", 21)));
    }

    #[test]
    fn a_restored_record_follows_the_host() {
        let mut inventory = samples::inventory("host-1");
        inventory.status = None;
        assert!(!samples::record(&inventory).refuses_key(shown("b", 20)), "nothing is known");
    }

    #[test]
    fn software_keys_need_the_record_or_a_certificate() {
        let unknown = samples::record(&samples::inventory("host-1"));
        let known = host(None);
        let (accepts_c, replaced_b) =
            (host(Some((annotation::ACCEPTED_KEY, "c"))), host(Some((annotation::REPLACED_KEY, "b"))));
        for (name, record, key, is_first, evidence, want) in [
            ("first key", &unknown, "a", true, None, Some(30)),
            ("another key of an unknown host", &unknown, "b", false, None, None),
            ("restored without status", &unknown, "b", false, Some(shown("b", 20)), Some(20)),
            ("certificate of another key", &unknown, "b", false, Some(shown("c", 25)), None),
            ("known key", &known, "b", false, None, Some(20)),
            ("first key after it was replaced", &known, "a", true, None, None),
            ("with its old certificate", &known, "a", true, Some(shown("a", 10)), None),
            ("restored from an old backup", &known, "c", false, Some(shown("c", 25)), Some(25)),
            ("accepted by an operator", &accepts_c, "c", false, None, Some(30)),
            ("taken away by an operator", &replaced_b, "b", false, None, None),
        ] {
            let admitted = record.admit_software_key(key, is_first, evidence, at(30));
            assert_eq!(admitted.map(|time| time.since), want.map(at), "{name}");
        }
    }

    #[test]
    fn a_clock_that_is_behind_makes_later_keys() {
        let record = host(None);
        assert_eq!(record.proven_time("c", at(5)), KeyTime::proven(at(21)));
        assert_eq!(record.proven_time("b", at(5)), KeyTime::proven(at(20)));
        for (name, asking, key, want) in [
            ("renewal", asked("b", 20, 15), "b", (20, 15)),
            ("next key", shown("b", 20), "c", (21, 20)),
            ("next key, by a certificate of a former release", shown("b", 0), "c", (21, 20)),
            ("two keys before the record", shown("c", 25), "d", (26, 25)),
        ] {
            let time = record.requested_time(asking, key, at(5));
            assert_eq!(time, KeyTime { since: at(want.0), from: at(want.1) }, "{name}");
        }
    }

    #[test]
    fn a_clean_ends_by_a_newer_key() {
        let mut inventory = samples::inventory("host-1");
        samples::announce(&mut inventory, PlanType::Clean, 1, None);
        let announced = 1_800_000_000;
        let plan = inventory.status.as_mut().unwrap().plan.as_mut().unwrap();
        plan.announced = Some(Time(at(announced)));
        let live =
            |proves_renewals| LiveTpm { attestation_key: "a".to_owned(), reset_count: 1, proves_renewals };
        for (name, tpm, second, may) in [
            ("without a TPM", None, 0, true),
            ("agent of a former release", Some(live(false)), 0, true),
            ("key of the tenancy", Some(live(true)), announced - 1, false),
            ("key after the clean", Some(live(true)), announced, true),
        ] {
            samples::host_status(&mut inventory).live_tpm = tpm;
            let key = KeyTime::proven(at(second));
            assert_eq!(samples::record(&inventory).may_end_clean(key), may, "{name}");
        }
    }
}
