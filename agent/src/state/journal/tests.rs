use proptest::prelude::*;
use proto::plan::{Image, Kind, Step};

use proto::v1alpha1::{Failure, FailureReason, StepDone, StepFailed};

use super::*;
use crate::ground::paths::Root;

fn plan() -> Plan {
    let image = Image::parse("lab/os:v1").unwrap();
    Plan {
        id: PlanId::parse("reprovision-01").unwrap(),
        generation: Generation(7),
        checksum: Checksum::of(b"reprovision-01"),
        kind: Kind::Reprovision,
        steps: vec![
            Step::RequestCleanup,
            Step::UpgradeSystem(image.clone().into()),
            Step::Reboot,
            Step::VerifySystem { image },
        ],
    }
}

fn done() -> Outcome {
    Outcome::Done(StepDone { output: "line\n".into(), system: None })
}

fn failed() -> Outcome {
    let failure = Failure {
        reason: FailureReason::Command.into(),
        message: "why".into(),
        next_action: "correct it".into(),
    };
    Outcome::Failed(StepFailed { failure: Some(failure), output: "\n\"".into() })
}

fn journal() -> Journal {
    Journal::begin_plan(&plan())
        .with_started(0, "boot-1")
        .with_ended(0, done())
        .with_acknowledged()
        .with_started(1, "boot-1")
}

#[test]
fn a_journal_comes_back_as_it_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let state = Root::at(directory.path()).state();
    durable::create_directory(state.path()).unwrap();
    let path = state.journal();
    assert_eq!(read(&path).unwrap(), None);
    let unreported = journal().with_ended(1, failed());
    for journal in [Journal::begin_plan(&plan()), journal(), unreported] {
        write_journal(&state, &journal).unwrap();
        assert_eq!(read(&path).unwrap(), Some(journal));
    }
}

#[test]
fn a_step_that_starts_again_is_counted() {
    let journal = journal().with_started(1, "boot-2");
    let want = State::Started { boot_id: "boot-2".into(), attempts: 2, active_snapshot: None };
    assert_eq!(journal.steps()[1].state, want);
}

#[test]
fn an_acknowledged_outcome_can_be_reported_again() {
    let begun = Journal::begin_plan(&plan());
    let ended = begun.clone().with_started(0, "b").with_ended(0, done());
    let two = ended.clone().with_acknowledged().with_started(1, "b").with_ended(1, done());
    let cases = [
        ("nothing ended", begun.clone(), None),
        ("nothing ended, asked again", begun.with_unacknowledged(), None),
        ("ended", ended.clone(), Some(0)),
        ("acknowledged", ended.clone().with_acknowledged(), None),
        ("asked again", ended.clone().with_acknowledged().with_unacknowledged(), Some(0)),
        ("asked again before the answer", ended.with_unacknowledged(), Some(0)),
        ("two ended, asked again", two.with_acknowledged().with_unacknowledged(), Some(1)),
    ];
    for (name, journal, want) in cases {
        assert_eq!(journal.unreported().map(|last| last.step), want, "{name}");
    }
}

#[test]
fn journal_with_unknown_fields_is_damaged() {
    let body = serde_json::to_string(&journal()).unwrap().replacen('{', r#"{"unreported":null,"#, 1);
    let text = format!("{LAYOUT} {}\n{body}\n", Checksum::of(body.as_bytes()));
    assert!(parse(text.as_bytes()).is_err());
}

#[test]
fn the_journal_states_plan_and_outcome() {
    let begun = Journal::begin_plan(&plan());
    let complete = (0..4)
        .fold(begun.clone(), |journal, index| journal.with_started(index, "b").with_ended(index, done()));
    let cases = [
        ("begun", begun, PlanOutcome::InProgress),
        ("half-way", journal(), PlanOutcome::InProgress),
        ("complete", complete, PlanOutcome::Applied),
        ("failed", journal().with_ended(1, failed()), PlanOutcome::Failed),
    ];
    for (name, journal, want) in cases {
        let carried = journal.carried();
        assert_eq!(carried.outcome(), want, "{name}");
        assert_eq!(
            (carried.id.as_str(), carried.generation, carried.checksum.as_str(), carried.kind()),
            ("reprovision-01", 7, Checksum::of(b"reprovision-01").as_str(), PlanKind::Reprovision),
            "{name}"
        );
    }
}

#[test]
fn outcomes_of_an_older_contract_are_read() {
    let journal = Journal::begin_plan(&plan()).with_started(0, "b").with_ended(0, done());
    let body = serde_json::to_string(&journal).unwrap();
    let older = body.replace(r#","system":null"#, "");
    assert_ne!(body, older);
    let text = format!("{LAYOUT} {}\n{older}\n", Checksum::of(older.as_bytes()));
    assert_eq!(parse(text.as_bytes()).unwrap(), journal);
}

#[test]
fn only_the_same_plan_has_this_journal() {
    type Change = fn(&mut Plan);
    let cases: [(&str, Change, bool); 6] = [
        ("same", |_| (), true),
        ("id", |plan| plan.id = PlanId::parse("other").unwrap(), false),
        ("generation", |plan| plan.generation = Generation(8), false),
        ("checksum", |plan| plan.checksum = Checksum::of(b"other"), false),
        ("fewer steps", |plan| drop(plan.steps.pop()), false),
        ("other steps", |plan| plan.steps[0] = Step::StopKubelet, false),
    ];
    for (name, change, want) in cases {
        let mut plan = plan();
        change(&mut plan);
        assert_eq!(journal().is_of(&plan), want, "{name}");
    }
}

#[test]
fn a_truncated_journal_is_damaged() {
    let whole = render_json(&journal());
    for length in 0..whole.len() {
        assert!(parse(&whole[..length]).is_err(), "cut at {length}");
    }
    assert!(parse(&whole).is_ok());
}

#[test]
fn another_layout_is_reported() {
    let text = String::from_utf8(render_json(&journal())).unwrap();
    let newer = text.replace(LAYOUT, "baremetal-journal-9");
    assert_eq!(
        parse(newer.as_bytes()).unwrap_err().to_string(),
        "the journal is damaged (written by another version of the agent)"
    );
}

proptest! {
    #[test]
    fn one_flipped_bit_is_damage(position in any::<prop::sample::Index>(), bit in 0_u32..8) {
        let mut bytes = render_json(&journal());
        let position = position.index(bytes.len());
        bytes[position] ^= 1_u8 << bit;
        prop_assert!(parse(&bytes).is_err());
    }

    #[test]
    fn spoilt_journal_is_damaged_or_says_the_same(
        position in any::<prop::sample::Index>(),
        removed in 0..20_usize,
        written in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut bytes = render_json(&journal());
        let start = position.index(bytes.len() + 1);
        let end = (start + removed).min(bytes.len());
        bytes.splice(start..end, written);
        // White space around it says nothing.
        prop_assert!(parse(&bytes).map_or(true, |read| read == journal()));
    }
}

#[test]
fn first_start_in_boot_sets_active_snapshot() {
    let active = |journal: &Journal| match journal.steps()[0].state {
        State::Started { active_snapshot, .. } => active_snapshot,
        _ => panic!("{journal:?}"),
    };
    let start = |journal: Journal, boot: &str, number| {
        journal.with_started(0, boot).with_active_snapshot(0, Some(number))
    };
    let journal = start(Journal::begin_plan(&plan()), "boot-1", 1);
    let again = start(journal, "boot-1", 2);
    assert_eq!(active(&again), Some(1));
    assert_eq!(
        active(&start(again, "boot-2", 2)),
        Some(2),
        "what was written before a power cut may be torn"
    );
}
