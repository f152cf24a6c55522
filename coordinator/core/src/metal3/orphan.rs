//! Objects whose holder was removed by force, without the release of what the objects hold.
//!
//! The objects have no owner reference, because the garbage collector would delete them after a restore with
//! new UIDs.

use std::time::Duration;

use coordinator_api::metal3::names;
use jiff::Timestamp;
use kube::ResourceExt;

/// Time for which the holder of an object may be missing, because a restore brings objects back in any order.
pub const MISSING_FOR: Duration = Duration::from_mins(30);

/// The step that is due for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanStep {
    /// The holder exists.
    Rest,
    /// The holder is back: remove the note.
    Forget,
    /// If the API server has no holder either, note the time on the object.
    Note,
    /// The holder may come back until this time.
    Wait(Timestamp),
    /// If the API server still has no holder, delete the object.
    Delete,
}

/// Decides about an object that something holds. `has_holder` is a statement of a cache, so that it
/// deletes nothing alone.
pub fn decide_orphan(object: &impl ResourceExt, has_holder: bool, now: Timestamp) -> OrphanStep {
    let note = object.annotations().get(names::ORPHANED_SINCE);
    if has_holder {
        return if note.is_some() { OrphanStep::Forget } else { OrphanStep::Rest };
    }
    // A time that cannot be, of another clock or another hand, is noted again.
    let since = note.and_then(|text| text.parse::<Timestamp>().ok()).filter(|since| *since <= now);
    match since.map(missing_until) {
        None => OrphanStep::Note,
        Some(end) if end <= now => OrphanStep::Delete,
        Some(end) => OrphanStep::Wait(end),
    }
}

/// The time at which an object is deleted whose holder is missing since then.
pub fn missing_until(since: Timestamp) -> Timestamp {
    since.checked_add(MISSING_FOR).unwrap_or(Timestamp::MAX)
}

/// The text on an object whose holder is missing.
pub fn describe_orphan((kind, name): (&str, &str), end: Timestamp) -> String {
    format!(
        "{kind} {name} does not exist: restore it before {end:.0}, when this object is deleted and all that it holds is released"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator_api::metal3::data::Metal3DataClaim;

    #[test]
    fn orphans_are_noted_then_deleted() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let end: Timestamp = "2026-01-01T12:10:00Z".parse().unwrap();
        for (note, has_holder, want) in [
            (None, true, OrphanStep::Rest),
            (Some("2026-01-01T11:00:00Z"), true, OrphanStep::Forget),
            (Some("no time"), true, OrphanStep::Forget),
            (None, false, OrphanStep::Note),
            (Some("no time"), false, OrphanStep::Note),
            (Some("2026-01-01T12:00:01Z"), false, OrphanStep::Note),
            (Some("2026-01-01T11:40:00Z"), false, OrphanStep::Wait(end)),
            (Some("2026-01-01T11:30:00Z"), false, OrphanStep::Delete),
            (Some("2025-01-01T11:30:00Z"), false, OrphanStep::Delete),
        ] {
            let mut claim = Metal3DataClaim::default();
            let note = note.map(|text| (names::ORPHANED_SINCE.to_owned(), text.to_owned()));
            claim.metadata.annotations = Some(note.into_iter().collect());
            assert_eq!(decide_orphan(&claim, has_holder, now), want, "{:?} {has_holder}", claim.metadata);
        }
        let text = describe_orphan(("Metal3Machine", "m-1"), end);
        assert!(text.contains("restore it before 2026-01-01T12:10:00Z"), "{text}");
    }
}
