//! The journal of the newest plan, and the reports that are due to the coordinator.

use std::fs;
use std::path::Path;

use proto::plan::{Checksum, Plan, Step};
use proto::v1alpha1::StepReport;

use crate::ground::durable;
use crate::ground::failpoint::failpoint;
use crate::ground::failure::Failure;
use crate::ground::paths::{Root, read_or_empty};
use crate::state::journal::{self, Journal, Outcome, State};

/// This file holds plan and number of requests until the next boot.
const REBOOT_REQUESTS: &str = "reboot-requests";

pub(super) struct PlanProgress {
    root: Root,
    knowledge: Knowledge,
    /// Failed writes since the journal was written last.
    failed_writes: u32,
    /// Reboot requests for the newest plan by this agent.
    reboot_requests: u32,
}

enum Knowledge {
    Known(Option<Journal>),
    /// Safe mode: the host is reachable and reports, and runs nothing.
    Lost(LostJournal),
}

/// A journal that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostJournal {
    /// Why it cannot be read.
    pub message: String,
    /// Lower-case hexadecimal SHA-256 of the file; [`UNREADABLE`] if the file cannot be read.
    pub checksum: String,
}

const UNREADABLE: &str = "unreadable";

fn checksum_of(journal: &Path) -> String {
    fs::read(journal).map_or_else(|_| UNREADABLE.to_owned(), |bytes| Checksum::of(&bytes).to_string())
}

impl PlanProgress {
    pub(super) fn open(root: &Root) -> Result<Self, Failure> {
        durable::create_directory(root.state().path())?;
        let knowledge = match journal::read(&root.state().journal()) {
            Ok(journal) => Knowledge::Known(journal),
            Err(error) => {
                tracing::error!(%error, "cannot read the journal, running no plan (safe mode)");
                let checksum = checksum_of(&root.state().journal());
                Knowledge::Lost(LostJournal { message: error.message, checksum })
            }
        };
        Ok(Self { root: root.clone(), knowledge, failed_writes: 0, reboot_requests: 0 })
    }

    /// The journal, `None` before the first plan; the cause if it is unreadable.
    pub(super) fn readable_journal(&self) -> Result<Option<&Journal>, &LostJournal> {
        match &self.knowledge {
            Knowledge::Known(journal) => Ok(journal.as_ref()),
            Knowledge::Lost(lost) => Err(lost),
        }
    }

    /// Removes the journal if it cannot be read and has this checksum.
    pub(super) fn forget_journal(&mut self, checksum: &str) -> Result<(), Failure> {
        let path = self.root.state().journal();
        if matches!(&self.knowledge, Knowledge::Lost(lost) if lost.checksum == checksum)
            && checksum_of(&path) == checksum
        {
            // The journal is the last, because without it the order cannot be repeated.
            durable::remove(&self.root.state().node_hold())?;
            durable::remove(&path)?;
            self.knowledge = Knowledge::Known(None);
            tracing::warn!("the journal that cannot be read was removed on request of an operator");
        }
        Ok(())
    }

    pub(super) fn journal(&self) -> Option<&Journal> {
        self.readable_journal().ok().flatten()
    }

    pub(super) fn begin_plan(&mut self, plan: &Plan) -> Result<(), Failure> {
        failpoint("executor::begin::before");
        self.save_journal(Journal::begin_plan(plan))?;
        failpoint("executor::begin::after");
        self.reboot_requests = 0;
        Ok(())
    }

    fn save_journal(&mut self, journal: Journal) -> Result<(), Failure> {
        let written = journal::write_journal(&self.root.state(), &journal);
        self.failed_writes = if written.is_ok() { 0 } else { self.failed_writes.saturating_add(1) };
        written?;
        self.knowledge = Knowledge::Known(Some(journal));
        Ok(())
    }

    /// Failed writes of the journal since the last successful one.
    pub(super) fn failed_writes(&self) -> u32 {
        self.failed_writes
    }

    /// Journals the start of a step. `active_snapshot` is the snapshot that boots next, if the step
    /// needs it.
    pub(super) fn start_step(
        &mut self,
        index: usize,
        boot: &str,
        active_snapshot: Option<u32>,
    ) -> Result<(), Failure> {
        failpoint("executor::step::before");
        match self.journal().cloned() {
            Some(journal) => {
                let started = journal.with_started(index, boot);
                self.save_journal(started.with_active_snapshot(index, active_snapshot))
            }
            None => Ok(()),
        }
    }

    pub(super) fn end_step(&mut self, index: usize, outcome: Outcome) -> Result<(), Failure> {
        if let Some(journal) = self.journal().cloned() {
            self.save_journal(journal.with_ended(index, outcome))?;
        }
        failpoint("executor::step::after");
        Ok(())
    }

    /// The report that the coordinator has not acknowledged.
    pub(super) fn unreported(&self) -> Option<StepReport> {
        let journal = self.journal()?;
        Some(journal.unreported()?.report(journal))
    }

    pub(super) fn acknowledge_report(&mut self, report: &StepReport) -> Result<(), Failure> {
        if self.unreported().as_ref() != Some(report) {
            return Ok(());
        }
        failpoint("executor::reported::before");
        match self.journal().cloned() {
            Some(journal) => self.save_journal(journal.with_acknowledged()),
            None => Ok(()),
        }
    }

    /// Has the last outcome reported again. The change is not written, because an agent that
    /// crashes before the report gets the plan again at the next attach.
    pub(super) fn report_again(&mut self) {
        if let Knowledge::Known(journal) = &mut self.knowledge {
            *journal = journal.take().map(Journal::with_unacknowledged);
        }
    }

    fn state(&self, index: usize) -> Option<&State> {
        let entry = self.journal()?.steps().get(index)?;
        Some(&entry.state)
    }

    /// Number of starts of the step, including the next one.
    pub(super) fn count_attempts(&self, plan: &Plan, index: usize) -> u32 {
        let is_accepted = self.journal().is_some_and(|journal| journal.is_of(plan));
        match self.state(index).filter(|_| is_accepted) {
            Some(State::Started { attempts, .. }) => *attempts,
            Some(State::Pending | State::Done { .. } | State::Failed) | None => 1,
        }
    }

    /// The snapshot that was to boot next when this boot first started the step.
    pub(super) fn active_snapshot(&self, index: usize) -> Option<u32> {
        match self.state(index)? {
            State::Started { active_snapshot, .. } => *active_snapshot,
            State::Pending | State::Done { .. } | State::Failed => None,
        }
    }

    /// Number of reboot requests in this boot. The journal does not count them, because an agent
    /// that is killed after the start of the step has not requested a reboot.
    pub(super) fn reboot_requests(&self, plan: &Plan) -> u32 {
        let text = read_or_empty(self.root.runtime().join(REBOOT_REQUESTS));
        let noted = text.trim().split_once(' ').filter(|(id, _)| *id == plan.id.as_str());
        let count = noted.and_then(|(_, count)| count.parse().ok());
        count.map_or(self.reboot_requests, |count: u32| count.max(self.reboot_requests))
    }

    pub(super) fn record_reboot_request(&mut self, plan: &Plan, count: u32) {
        self.reboot_requests = count;
        self.root.write_runtime_file(REBOOT_REQUESTS, &format!("{} {count}\n", plan.id));
    }

    /// The boot in which the plan requested the reboot that has happened.
    pub(super) fn rebooted_from(&self, plan: &Plan) -> Option<&str> {
        let index = plan.steps.iter().position(|step| matches!(step, Step::Reboot))?;
        match self.state(index)? {
            State::Done { boot_id } => Some(boot_id),
            State::Pending | State::Started { .. } | State::Failed => None,
        }
    }
}
