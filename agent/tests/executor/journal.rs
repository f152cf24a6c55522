//! The journal: which plans are accepted, and outcomes that are returned until
//! they are acknowledged.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use agent::installed::worker::{self, Mailbox, Order, Progress};
use agent::plan::executor::{Advance, NewestPlan};
use agent::state::space;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use proto::plan::Generation;
use proto::v1alpha1::StepReport;
use proto::v1alpha1::host_message::Message;
use proto::v1alpha1::step_report::Outcome as Reported;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::Host;
use super::plans::{clean, custom, reprovision};

#[tokio::test]
async fn outcome_is_returned_until_coordinator_has_it() {
    let host = Host::new();
    let mut executor = host.executor();
    executor.accept(reprovision(1)).unwrap();
    let first = executor.advance().await.unwrap();
    assert_eq!(executor.advance().await.unwrap(), first);
    let mut restarted = host.executor();
    assert_eq!(restarted.advance().await.unwrap(), first, "even without the plan");
    let Advance::Report(report) = first else { panic!() };
    restarted.reported(&report).unwrap();
    assert_eq!(restarted.advance().await.unwrap(), Advance::Idle);
    restarted.accept(reprovision(1)).unwrap();
    let Advance::Report(second) = restarted.advance().await.unwrap() else { panic!() };
    assert_eq!(second.step, 1);
}

#[tokio::test(start_paused = true)]
async fn a_finished_plan_runs_once() {
    type Spoil = fn(&Host);
    let cases: [(&str, Spoil); 2] =
        [("applied", |_| ()), ("failed half-way", |host| host.simulated.fail("upgrade", 18).unwrap())];
    for (name, spoil) in cases {
        let host = Host::new();
        spoil(&host);
        let end = host.play(&reprovision(1)).await.pop().unwrap();
        let effects = host.simulated.effects();
        let mut executor = host.executor();
        assert_eq!(executor.advance().await.unwrap(), Advance::Idle, "{name}: nothing is asked for");
        for round in ["asked again", "and again"] {
            executor.accept(reprovision(1)).unwrap();
            executor.accept(reprovision(1)).unwrap();
            let again = executor.advance().await.unwrap();
            assert_eq!(again, Advance::Report(end.clone()), "{name}, {round}");
            executor.reported(&end).unwrap();
            assert_eq!(executor.advance().await.unwrap(), Advance::Idle, "{name}, {round}");
        }
        assert_eq!(host.simulated.effects(), effects, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_that_cannot_be_written_are_paced() {
    let host = Host::new();
    let mut executor = host.executor();
    executor.accept(reprovision(1)).unwrap();
    let newest = executor.newest_plan();
    let (publish, mut progress) = watch::channel(Progress { newest, pending: None, is_idle: false });
    let mailbox = Mailbox::default();
    let blocker = host.root.state().path().join(".journal.new");
    let link = async {
        for reports in 0..1000 {
            let pending = progress.borrow_and_update().pending.clone();
            if let Some(report) = pending {
                fs::create_dir_all(&blocker).unwrap();
                mailbox.put(Order::Reported(report));
            }
            if progress.changed().await.is_err() {
                return reports;
            }
        }
        1000
    };
    let minute = tokio::time::sleep(Duration::from_mins(1));
    tokio::select! {
        never = worker::run_worker(executor, &mailbox, publish) => match never {},
        reports = link => panic!("{reports} reports within a minute"),
        () = minute => {}
    }
    assert!(blocker.exists(), "a report was acknowledged");
}

// Fault: the coordinator sends a plan that is older or not allowed.
// Shown: the plan is refused with the reason.
#[tokio::test]
async fn refused_plans_change_nothing() {
    let host = Host::new();
    let mut executor = host.executor();
    executor.accept(reprovision(5)).unwrap();
    let mut other = clean(5);
    other.generation = Generation(5);
    let cases = [
        ("older", clean(4), "older than generation 5"),
        ("another of the same number", other, "is taken by plan reprovision-"),
        ("custom", custom(6), "--allow-custom-instructions"),
    ];
    for (name, plan, want) in cases {
        let refusal = executor.accept(plan).unwrap_err().to_string();
        assert!(refusal.contains(want), "{name}: {refusal}");
        let NewestPlan::Known(newest) = executor.newest_plan() else { panic!("{name}") };
        assert_eq!((newest.id.as_str(), newest.generation), (reprovision(5).id.as_str(), 5), "{name}");
    }
    executor.accept(clean(6)).unwrap();
    assert!(matches!(executor.newest_plan(), NewestPlan::Known(newest) if newest.generation == 6));
}

#[tokio::test]
async fn a_damaged_journal_refuses_every_plan() {
    let host = Host::new();
    fs::create_dir_all(host.root.state().path()).unwrap();
    for garbage in ["", "torn", "baremetal-journal-1 00\n{}\n"] {
        fs::write(host.root.state().journal(), garbage).unwrap();
        let mut executor = host.executor();
        let refusal = executor.accept(reprovision(1)).unwrap_err().to_string();
        assert!(refusal.contains("has the command that removes the journal"), "{refusal}");
        assert_eq!(executor.advance().await.unwrap(), Advance::Idle);
        assert!(matches!(executor.newest_plan(), NewestPlan::Unknown(_)));
        assert_eq!(fs::read_to_string(host.root.state().journal()).unwrap(), garbage);
    }
    assert!(host.simulated.effects().is_empty());
}

// Fault: the partition of the host's state is full.
// Shown: `status.plan.step` with attempt and last failure; the plan goes on once there is space.
#[test]
fn a_full_state_partition_delays_its_plan() {
    let host = Host::new();
    let filler = host.root.state().path().join("filler");
    let fill = || {
        let mut file = fs::File::create(&filler).unwrap();
        while file.write_all(&[1; 512]).is_ok() {}
    };
    let play = async {
        let mut executor = host.executor();
        let running = executor.running_step();
        let shown = || {
            let step = running.borrow().clone().unwrap();
            assert!(step.last_failure.contains("No space left"), "{step:?}");
            (step.generation, step.step, step.attempt)
        };
        fill();
        for attempt in [2, 3] {
            let refusal = executor.accept(reprovision(1)).unwrap_err().to_string();
            assert!(refusal.contains("free space on the host's persistent partition"), "{refusal}");
            assert_eq!(shown(), (1, 0, attempt));
        }
        assert_eq!(executor.newest_plan(), NewestPlan::None);
        fs::remove_file(&filler).unwrap();
        executor.accept(reprovision(1)).unwrap();
        fill();
        for attempt in [2, 3] {
            let error = executor.advance().await.unwrap_err().message;
            assert!(error.contains("cannot journal step 0"), "{error}");
            assert_eq!(shown(), (1, 0, attempt));
        }
        assert!(!host.root.state().cleanup_marker().exists(), "the step was begun");
        fs::remove_file(&filler).unwrap();
        let Advance::Report(report) = executor.advance().await.unwrap() else { panic!() };
        assert!(matches!(report.outcome, Some(Reported::Done(_))), "{report:?}");
    };
    let in_namespace = || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount_tmpfs(host.root.state().path(), "size=1m");
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(play);
    };
    thread::scope(|scope| scope.spawn(in_namespace).join()).unwrap();
}

#[test]
fn the_ballast_has_room_for_a_journal() {
    let host = Host::new();
    let state = host.root.state();
    let in_namespace = || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount_tmpfs(state.path(), "size=8m");
        space::keep_ballast(&state);
        assert_eq!(space::find_failure(&state), None);
        let filler = state.path().join("filler");
        let mut file = fs::File::create(&filler).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        let failure = space::find_failure(&state).unwrap();
        assert!(failure.next_action.contains("free space on the host's persistent partition"), "{failure}");
        host.executor().accept(reprovision(1)).unwrap();
        assert!(!state.ballast().exists());
        space::keep_ballast(&state);
        assert!(!state.ballast().exists(), "there is no room");
        drop(file);
        fs::remove_file(&filler).unwrap();
        space::keep_ballast(&state);
        assert_eq!((state.ballast().exists(), space::find_failure(&state)), (true, None));
    };
    thread::scope(|scope| scope.spawn(in_namespace).join()).unwrap();
}

fn mount_tmpfs(at: &Path, size: &str) {
    const NONE: Option<&str> = None;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
    fs::create_dir_all(at).unwrap();
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some(size)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn plans_wait_for_their_journal() {
    let host = Host::new();
    let executor = host.executor();
    let newest = executor.newest_plan();
    let (publish, _progress) = watch::channel(Progress { newest, pending: None, is_idle: false });
    let mailbox = Mailbox::default();
    let (answer, mut answers) = mpsc::channel(1);
    mailbox.put(Order::Plan { plan: (&reprovision(1)).into(), answer });
    // The temporary file's name is taken: the journal cannot be replaced.
    let blocker = host.root.state().path().join(".journal.new");
    fs::create_dir_all(&blocker).unwrap();
    let link = async {
        let refused = timeout(Duration::from_mins(10), answers.recv()).await;
        assert!(refused.is_err(), "it ends the plan: {refused:?}");
        fs::remove_dir(&blocker).unwrap();
        answers.recv().await.unwrap().message.unwrap()
    };
    tokio::select! {
        never = worker::run_worker(executor, &mailbox, publish) => match never {},
        message = link => match message {
            Message::Acknowledgement(acknowledgement) => assert_eq!(acknowledgement.failure, None),
            other => panic!("{other:?}"),
        },
    }
}

#[tokio::test]
async fn a_report_of_another_plan_acknowledges_nothing() {
    let host = Host::new();
    let mut executor = host.executor();
    executor.accept(reprovision(1)).unwrap();
    let Advance::Report(report) = executor.advance().await.unwrap() else { panic!() };
    executor.reported(&StepReport { step: 3, ..report.clone() }).unwrap();
    assert_eq!(executor.advance().await.unwrap(), Advance::Report(report));
}
