use proptest::prelude::*;
use proto::plan::{Checksum, CustomInstruction, Generation, Image, Kind, PlanId};
use proto::v1alpha1::{StepDone, StepFailed};

use super::*;
use crate::state::journal::Outcome;

fn plan(id: &str, generation: u64, steps: Vec<Step>) -> Plan {
    Plan {
        id: PlanId::parse(id).unwrap(),
        generation: Generation(generation),
        checksum: Checksum::of(id.as_bytes()),
        kind: Kind::Reprovision,
        steps,
    }
}

fn image() -> Image {
    Image::parse("lab/os:v1").unwrap()
}

fn custom() -> Step {
    Step::RunCustomInstruction(CustomInstruction {
        name: "n".into(),
        command: "c".into(),
        args: vec![],
        env: vec![],
        save_output: true,
    })
}

fn steps() -> Vec<Step> {
    vec![Step::RequestCleanup, custom(), Step::Reboot, Step::VerifySystem { image: image() }]
}

fn done() -> Outcome {
    Outcome::Done(StepDone::default())
}

/// A journal in which the first `count` steps are done.
fn journal(plan: &Plan, count: usize) -> Journal {
    (0..count).fold(Journal::begin_plan(plan), |journal, index| {
        journal.with_started(index, "boot-1").with_ended(index, done()).with_acknowledged()
    })
}

#[test]
fn next_action_follows_plan_journal_and_boot() {
    let plan = plan("p", 2, steps());
    let begun = Journal::begin_plan(&plan);
    let failed = Outcome::Failed(StepFailed::default());
    let run = |index: usize| Next::Run { index, step: &plan.steps[index] };
    let cases = [
        ("no journal", None, Next::Begin),
        ("nothing done", Some(begun.clone()), run(0)),
        ("started and not done", Some(begun.clone().with_started(0, "boot-1")), run(0)),
        ("first done", Some(journal(&plan, 1)), run(1)),
        (
            "a custom instruction was started",
            Some(journal(&plan, 1).with_started(1, "boot-1")),
            Next::Interrupted { index: 1 },
        ),
        ("a step was given up", Some(begun.with_started(0, "boot-1").with_ended(0, failed)), Next::Finished),
        ("reboot asked for in this boot", Some(journal(&plan, 2).with_started(2, "boot-2")), run(2)),
        (
            "reboot asked for in another boot",
            Some(journal(&plan, 2).with_started(2, "boot-1")),
            Next::Rebooted { index: 2 },
        ),
        ("rebooted", Some(journal(&plan, 3)), run(3)),
        ("all done", Some(journal(&plan, 4)), Next::Finished),
    ];
    for (name, journal, want) in cases {
        assert_eq!(next(&plan, journal.as_ref(), "boot-2"), want, "{name}");
    }
}

#[test]
fn older_and_conflicting_plans_are_refused() {
    let accepted = plan("p", 5, steps());
    let journal = journal(&accepted, 1);
    let older = "generation 4 is older than generation 5, which this host has accepted";
    let other = "generation 5 is taken by plan p with another name or content";
    let cases = [
        ("older", plan("q", 4, steps()), older),
        ("older, same name", plan("p", 4, steps()), older),
        ("other name", plan("q", 5, steps()), other),
        ("other steps", plan("p", 5, vec![Step::StopKubelet]), other),
    ];
    for (name, plan, want) in cases {
        let Next::Refuse(refusal) = next(&plan, Some(&journal), "boot-1") else { panic!("{name}") };
        assert_eq!(refusal.message, want, "{name}");
    }
    assert_eq!(next(&plan("q", 6, steps()), Some(&journal), "boot-1"), Next::Begin);
}

/// A host that crashes wherever the schedule says.
#[derive(Default)]
struct Host {
    boot: u32,
    journal: Option<Journal>,
    /// Every effect in order.
    effects: Vec<usize>,
    given_up: Vec<usize>,
}

/// Where a crash falls.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Crash {
    No,
    BeforeIntent,
    AfterIntent,
    AfterEffect,
}

impl Host {
    fn boot_id(&self) -> String {
        format!("boot-{}", self.boot)
    }

    fn perform(&mut self, index: usize, step: &Step) {
        if matches!(step, Step::Reboot) {
            self.boot += 1;
        }
        // As real hosts: files and images are found written, an instruction
        // takes effect each time, and each reboot is another boot.
        let found_done =
            matches!(step, Step::RequestCleanup | Step::UpgradeSystem(_) | Step::VerifySystem { .. });
        if !(found_done && self.effects.contains(&index)) {
            self.effects.push(index);
        }
    }

    /// One turn of the executor, ended by the crash; true when it is finished.
    fn turn(&mut self, plan: &Plan, crash: Crash) -> bool {
        let boot = self.boot_id();
        let journal = self.journal.clone();
        match next(plan, journal.as_ref(), &boot) {
            Next::Refuse(refusal) => panic!("{refusal}"),
            Next::Finished => return true,
            _ if crash == Crash::BeforeIntent => {}
            Next::Begin => self.journal = Some(Journal::begin_plan(plan)),
            Next::Rebooted { index } => self.end(index, done()),
            Next::Interrupted { index } => {
                self.given_up.push(index);
                self.end(index, Outcome::Failed(StepFailed::default()));
            }
            Next::Run { index, step } => {
                self.journal = self.journal.take().map(|journal| journal.with_started(index, &boot));
                if crash != Crash::AfterIntent {
                    self.perform(index, step);
                }
                let reboots = matches!(step, Step::Reboot);
                if crash == Crash::No && !reboots {
                    self.end(index, done());
                }
            }
        }
        false
    }

    fn end(&mut self, index: usize, outcome: Outcome) {
        self.journal =
            self.journal.take().map(|journal| journal.with_ended(index, outcome).with_acknowledged());
    }
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::RequestCleanup),
        4 => Just(Step::UpgradeSystem(image().into())),
        1 => Just(custom()),
    ];
    (prop::collection::vec(step, 1..8), any::<bool>()).prop_map(|(mut steps, reboots)| {
        if reboots {
            steps.extend([Step::Reboot, Step::VerifySystem { image: image() }]);
        }
        steps
    })
}

fn any_crash() -> impl Strategy<Value = Crash> {
    prop_oneof![
        3 => Just(Crash::No),
        1 => Just(Crash::BeforeIntent),
        1 => Just(Crash::AfterIntent),
        1 => Just(Crash::AfterEffect),
    ]
}

proptest! {
    #[test]
    fn crashes_never_repeat_reorder_or_skip_an_effect(
        steps in any_steps(),
        crashes in prop::collection::vec((any_crash(), any::<bool>()), 0..40),
    ) {
        let plan = plan("p", 1, steps);
        let mut host = Host::default();
        for (crash, power_cut) in crashes {
            host.turn(&plan, crash);
            if crash != Crash::No && power_cut {
                host.boot += 1;
            }
        }
        let mut turns = 0;
        while !host.turn(&plan, Crash::No) {
            turns += 1;
            prop_assert!(turns <= 2 * plan.steps.len() + 2, "does not come to an end");
        }
        let mut ordered = host.effects.clone();
        ordered.sort_unstable();
        ordered.dedup();
        prop_assert_eq!(&host.effects, &ordered, "an effect was repeated or out of order");
        let reached = host.given_up.first().map_or(plan.steps.len(), |index| index + 1);
        let reboots_by_power_cut = |index: &usize| matches!(plan.steps[*index], Step::Reboot);
        let may_lack = |index: &usize| host.given_up.contains(index) || reboots_by_power_cut(index);
        prop_assert!((0..reached).all(|index| may_lack(&index) || host.effects.contains(&index)));
        prop_assert!(host.effects.iter().all(|&index| index < reached));
    }

    #[test]
    fn no_journal_ever_lets_an_older_plan_run(
        accepted in 1_u64..50,
        offered in 1_u64..50,
        progress in 0_usize..5,
    ) {
        let journal = journal(&plan("p", accepted, steps()), progress.min(4));
        let other = plan("q", offered, steps());
        let next = next(&other, Some(&journal), "boot-1");
        if offered > accepted {
            prop_assert_eq!(next, Next::Begin);
        } else {
            prop_assert!(matches!(next, Next::Refuse(_)));
        }
    }
}
