//! The `status` verb: what a person at the host's console wants to know.

use std::fmt::Write as _;

use crate::boot::receipt;
use crate::console::chain;
use crate::journal::{self, Journal, State};
use crate::paths::Root;
use crate::system::observed;

/// Plain text, a few lines. Never fails: what is not known is said.
#[must_use]
pub fn render(root: &Root) -> String {
    let mut text = String::new();
    match observed::system_state(root) {
        Ok(system) => {
            let _ = writeln!(text, "host      {}", system.hostname);
            let image = if system.image.is_empty() { "unknown" } else { &system.image };
            let mode = system.boot_mode().as_str_name().trim_start_matches("BOOT_MODE_");
            let _ = writeln!(text, "image     {image} ({})", mode.to_lowercase());
            let _ = writeln!(text, "boot      {}", system.boot_id);
        }
        Err(error) => {
            let _ = writeln!(text, "host      unknown: {}", chain(&error));
        }
    }
    match journal::read(&root.state().journal()) {
        Ok(None) => text.push_str("plan      none yet\n"),
        Ok(Some(journal)) => plan(&mut text, &journal),
        Err(error) => {
            let _ = writeln!(text, "plan      safe mode, none is run: {}", chain(&error));
        }
    }
    if root.state().cleanup_marker().exists() {
        text.push_str("cleanup   asked for, done by the boot that the plan asks for\n");
    }
    if let Some(receipt) = receipt::read(root) {
        let _ = writeln!(text, "wiped     for plan {} in boot {}", receipt.plan_id, receipt.boot_id);
    }
    text
}

fn plan(text: &mut String, journal: &Journal) {
    let (id, generation) = (journal.plan_id(), journal.generation());
    let _ = writeln!(text, "plan      {id}, generation {generation}");
    for entry in journal.steps() {
        let state = match &entry.state {
            State::Pending => "pending".to_owned(),
            State::Started { attempts, .. } => format!("started ({attempts}. attempt)"),
            State::Done { .. } => "done".to_owned(),
            State::Failed => "failed".to_owned(),
        };
        let _ = writeln!(text, "  {:<24} {state}", entry.name);
    }
    if let Some(last) = journal.unreported() {
        let _ = writeln!(text, "  the outcome of step {} is not reported yet", last.step);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proto::plan::{Generation, Kind, Plan, PlanId, Step};

    use super::*;

    #[test]
    fn the_status_says_how_far_the_plan_is_and_when_it_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let text = render(&root);
        assert!(text.contains("host      unknown") && text.contains("none yet"), "{text}");
        fs::create_dir_all(root.state().path()).unwrap();
        let plan = Plan {
            id: PlanId::parse("clean-1").unwrap(),
            generation: Generation(3),
            kind: Kind::Clean,
            steps: vec![Step::StopKubelet, Step::StopContainerd],
        };
        let journal = Journal::begin(&plan).started(0, "b");
        journal::write(&root.state().journal(), &journal).unwrap();
        let text = render(&root);
        assert!(text.contains("clean-1, generation 3"), "{text}");
        assert!(text.contains("stop-kubelet             started (1. attempt)"), "{text}");
        fs::write(root.state().journal(), "torn").unwrap();
        assert!(render(&root).contains("safe mode"));
    }
}
