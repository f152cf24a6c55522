//! The page of the console: the identity of the host, its current work, and the operator's next
//! action.

use std::fmt::Write as _;
use std::time::SystemTime;

use crate::console::status::render_status;
use crate::ground::paths::Root;
use crate::state::journal::{self, Journal, State};
use crate::state::message::Message;

/// Column of the values.
const INDENT: usize = 12;

/// Renders the page. No line is longer than `columns`, and no byte moves the cursor.
pub fn render_page(root: &Root, now: SystemTime, columns: usize) -> String {
    let mut page = String::from("Bare-metal host\n\n");
    for line in render_status(root, now).lines() {
        push_wrapped(&mut page, line, columns);
    }
    page.push('\n');
    let plan = journal::read(&root.state().journal()).ok().flatten().and_then(|plan| describe_plan(&plan));
    let last = Message::read(root)
        .unwrap_or_else(|| Message { message: "starting".to_owned(), ..Message::default() });
    push_wrapped(&mut page, &format!("{:<INDENT$}{}", "now", last.message), columns);
    if let Some(plan) = &plan {
        push_wrapped(&mut page, &format!("{:<INDENT$}{}", "", plan.message), columns);
    }
    let actions = [Some(last), plan].into_iter().flatten().map(|message| message.next_action);
    let action = actions.into_iter().find(|action| !action.is_empty());
    let action = action.as_deref().unwrap_or("nothing to do here");
    push_wrapped(&mut page, &format!("{:<INDENT$}{action}", "next"), columns);
    page
}

/// The step of the plan that runs or failed; `None` for a plan that has ended.
fn describe_plan(journal: &Journal) -> Option<Message> {
    let not_done = journal.steps().iter().find(|entry| !matches!(entry.state, State::Done { .. }))?;
    let name = &not_done.name;
    let message = match &not_done.state {
        State::Failed => {
            return Some(Message {
                message: format!(
                    "the plan failed at {name}; this host does nothing until a newer plan comes"
                ),
                next_action: "read the condition PlanApplied of its MachineInventory".to_owned(),
            });
        }
        State::Started { attempts, .. } => format!("{name} is running, attempt {attempts}"),
        State::Pending | State::Done { .. } => format!("{name} is about to run"),
    };
    Some(Message { message, ..Message::default() })
}

/// Breaks a line between words; continuation lines are indented like values.
fn push_wrapped(page: &mut String, line: &str, columns: usize) {
    let width = columns.max(2 * INDENT);
    let mut rest: String = line.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    loop {
        let Some((end, _)) = rest.char_indices().nth(width) else {
            let _ = writeln!(page, "{}", rest.trim_end());
            return;
        };
        let space = rest[..end].rfind(' ').filter(|space| *space > INDENT);
        let at = space.unwrap_or(end);
        let _ = writeln!(page, "{}", rest[..at].trim_end());
        rest = format!("{:INDENT$}{}", "", rest[at..].trim_start());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proto::plan::{Checksum, Generation, Kind, Plan, PlanId, Step};

    use super::*;
    use crate::ground::durable;
    use crate::ground::failure::Failure;
    use crate::state::journal::Outcome;
    use crate::state::message::Console;

    #[test]
    fn the_page_shows_message_and_action() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let page = render_page(&root, SystemTime::now(), 80);
        assert!(page.contains("now         starting\nnext        nothing to do here\n"), "{page}");
        let failure = Failure::input_output("not attached: no route; next: the other one", "check the cable");
        Console::new(&root).print_failure(&failure);
        let page = render_page(&root, SystemTime::now(), 80);
        let want = "now         not attached: no route; next: the other one\nnext        check the cable\n";
        assert!(page.contains(want), "{page}");
    }

    #[test]
    fn the_page_shows_the_running_step() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        durable::create_directory(root.state().path()).unwrap();
        Console::new(&root).print_message("attached to c.example:8443");
        let plan = Plan {
            id: PlanId::parse("clean-1").unwrap(),
            generation: Generation(3),
            checksum: Checksum::of(b"clean-1"),
            kind: Kind::Clean,
            steps: vec![Step::StopKubelet],
        };
        let pending = Journal::begin_plan(&plan);
        let started = pending.clone().with_started(0, "b");
        let failed = started.clone().with_ended(0, Outcome::Failed(proto::v1alpha1::StepFailed::default()));
        let done = started.clone().with_ended(0, Outcome::Done(proto::v1alpha1::StepDone::default()));
        let attached = "now         attached to c.example:8443\n";
        let nothing = "next        nothing to do here\n";
        let read = "next        read the condition PlanApplied of its MachineInventory\n";
        for (name, journal, want) in [
            ("pending", pending, format!("{attached}            stop-kubelet is about to run\n{nothing}")),
            (
                "started",
                started,
                format!("{attached}            stop-kubelet is running, attempt 1\n{nothing}"),
            ),
            ("failed", failed, read.to_owned()),
            ("done", done, format!("{attached}{nothing}")),
        ] {
            journal::write_journal(&root.state(), &journal).unwrap();
            let page = render_page(&root, SystemTime::now(), 80);
            assert!(page.ends_with(&want), "{name}: {page}");
        }
    }

    #[test]
    fn a_long_plan_fits_the_screen() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        durable::create_directory(root.state().path()).unwrap();
        durable::write(&root.state().cleanup_marker(), b"reprovision-1").unwrap();
        let config = "elemental:\n  registration:\n    url: https://c.example:8443/elemental/registration/token\n    ca-cert: '-----BEGIN CERTIFICATE-----'\n";
        durable::write(&root.state().config(), config.as_bytes()).unwrap();
        let boot_id = root.boot_id();
        fs::create_dir_all(boot_id.parent().unwrap()).unwrap();
        fs::write(boot_id, "boot-1\n").unwrap();
        Console::new(&root).print_message(&"a message of several lines ".repeat(8));
        let plan = Plan {
            id: PlanId::parse("reprovision-1").unwrap(),
            generation: Generation(3),
            checksum: Checksum::of(b"reprovision-1"),
            kind: Kind::Reprovision,
            steps: vec![Step::SyncFileSystems; 12],
        };
        let mut journal = Journal::begin_plan(&plan);
        for step in 0..6 {
            let outcome = Outcome::Done(proto::v1alpha1::StepDone::default());
            journal = journal.with_started(step, "b").with_ended(step, outcome);
        }
        journal::write_journal(&root.state(), &journal.with_started(6, "b")).unwrap();
        let page = render_page(&root, SystemTime::now(), 80);
        for line in ["  6 of 12 steps            done\n", "  5 of 12 steps            pending\n"] {
            assert!(page.contains(line), "{page}");
        }
        assert!(page.contains("  sync-file-systems        started (1. attempt)\n"), "{page}");
        assert!(page.lines().count() <= 24, "{page}");
    }

    #[test]
    fn no_line_is_longer_than_the_screen() {
        for (name, line, want) in [
            ("short", "now         fine", "now         fine\n"),
            (
                "between words",
                "now         one two three four",
                "now         one two\n            three four\n",
            ),
            (
                "one long word",
                "now         abcdefghijklmnopq",
                "now         abcdefghijkl\n            mnopq\n",
            ),
            ("escape sequence", "now         \u{1b}[2Jx", "now          [2Jx\n"),
        ] {
            let mut page = String::new();
            push_wrapped(&mut page, line, 24);
            assert_eq!(page, want, "{name}");
        }
    }
}
