//! Prepares the base ISOs and seed ISOs of the existing seed images before a download asks for them.
//! Each preparation runs once, in a task of its own, and waits for a permit to fetch and to make.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::{SeedImage, SeedImageState};
use coordinator_core::retry;
use coordinator_core::seed_image::{self, BaseRecord};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::Instrument as _;

use super::{SeedIsoError, SeedIsos};
use crate::base_image::Wanted;
use crate::telemetry::chain;

/// Interval between two checks of the seed images.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval after an error that may end by itself.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Number of bases that are announced, because the size of an annotation is limited.
const MAX_ANNOUNCED: usize = 500;

/// The cause of a preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The status names a base.
    Check,
    /// The base was removed for another one while other replicas are waited for.
    Lost,
    /// A download did not find the ISO.
    Download,
}

/// The goal of a preparation; another goal needs another preparation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Goal {
    base: BaseRecord,
    url: Option<String>,
}

/// The end of a preparation.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    has_failed: bool,
    /// `None` if a retry would download the base and fail again.
    retry_at: Option<Instant>,
}

impl Outcome {
    fn of(result: &Result<(), SeedIsoError>, now: Instant) -> Self {
        let interval = match result {
            Err(error) if error.is_fetched_in_vain() => None,
            Err(error) if error.is_terminal() => Some(retry::RETRY_MAX),
            Ok(()) | Err(_) => Some(RETRY_INTERVAL),
        };
        Self { has_failed: result.is_err(), retry_at: interval.map(|interval| now + interval) }
    }

    /// The preparation has to run again.
    fn is_due(self, occasion: Occasion, now: Instant) -> bool {
        let is_over = self.retry_at.is_some_and(|at| now >= at);
        match occasion {
            Occasion::Check => self.has_failed && is_over,
            Occasion::Lost => is_over,
            Occasion::Download => !self.has_failed || is_over,
        }
    }
}

struct Preparation {
    goal: Goal,
    outcome: Arc<Mutex<Option<Outcome>>>,
    task: AbortHandle,
}

impl Preparation {
    fn outcome(&self) -> Option<Outcome> {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Preparation {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// At most one preparation for each `SeedImage`.
#[derive(Default)]
pub(super) struct Preparations {
    started: Mutex<HashMap<ObjectRef<SeedImage>, Preparation>>,
    ended: watch::Sender<()>,
}

impl Preparations {
    /// Notifies of the end of every preparation, of any seed image.
    pub(super) fn follow_ends(&self) -> watch::Receiver<()> {
        self.ended.subscribe()
    }
}

impl SeedIsos {
    /// Prepares the bases and ISOs that the statuses of seed images name; never returns.
    pub async fn keep_prepared(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.forget_deleted();
            let held = self.bases.list_held(usize::MAX);
            for seed in self.seeds.state() {
                let Some(registration) = self.registration_of(&seed) else { continue };
                let is_lost = seed.status.as_ref().is_some_and(|status| {
                    status.state == Some(SeedImageState::Started)
                        && status.base_digest.as_ref().is_some_and(|digest| !held.contains(digest))
                });
                let occasion = if is_lost { Occasion::Lost } else { Occasion::Check };
                self.start_preparation(&seed, &registration, occasion);
            }
        }
    }

    /// Digests of the stored bases for the Lease of this replica, separated by commas.
    pub fn announce_bases(&self) -> String {
        let mut held = self.bases.list_held(MAX_ANNOUNCED);
        held.sort_unstable();
        held.join(",")
    }

    fn forget_deleted(&self) {
        let mut started = self.preparations.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.retain(|seed, _| self.seeds.get(seed).is_some());
    }

    /// Starts a preparation that is due; `true` if a preparation runs.
    pub(super) fn start_preparation(
        self: &Arc<Self>,
        seed: &Arc<SeedImage>,
        registration: &Arc<MachineRegistration>,
        occasion: Occasion,
    ) -> bool {
        let Some(base) = seed_image::base_to_hold(seed, Some(registration), self.clock.now()) else {
            return false;
        };
        let url = seed.status.as_ref().and_then(|status| status.download_url.clone());
        let (key, goal) = (ObjectRef::from_obj(&**seed), Goal { base, url });
        let mut started = self.preparations.started.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = started.get(&key).filter(|known| known.goal == goal) {
            match known.outcome() {
                Some(outcome) if !outcome.is_due(occasion, Instant::now()) => return false,
                None if !known.task.is_finished() => return true,
                Some(_) | None => {}
            }
        }
        let outcome = Arc::<Mutex<Option<Outcome>>>::default();
        let run = self.clone().run_preparation(
            (seed.clone(), registration.clone()),
            goal.base.clone(),
            outcome.clone(),
        );
        let task = tokio::spawn(run.in_current_span()).abort_handle();
        started.insert(key, Preparation { goal, outcome, task });
        true
    }

    async fn run_preparation(
        self: Arc<Self>,
        (seed, registration): (Arc<SeedImage>, Arc<MachineRegistration>),
        base: BaseRecord,
        outcome: Arc<Mutex<Option<Outcome>>>,
    ) {
        let result = self.prepare_recorded(&seed, &registration, &base).await;
        if let Err(error) = &result {
            log_unserved(&seed, error);
        }
        let ended = Outcome::of(&result, Instant::now());
        *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        self.preparations.ended.send_replace(());
    }

    /// Prepares the ISO from the base that the status names, and from no other one.
    async fn prepare_recorded(
        &self,
        seed: &SeedImage,
        registration: &MachineRegistration,
        recorded: &BaseRecord,
    ) -> Result<(), SeedIsoError> {
        let files = self.render_files(seed, registration)?;
        let base = self.bases.fetch_recorded(Wanted::of(seed), recorded).await?;
        self.ensure_iso(seed, &base, files).await.map(drop)
    }
}

pub(super) fn log_unserved(seed: &SeedImage, error: &SeedIsoError) {
    let seed_image = seed.name_any();
    tracing::warn!(seed_image, error = %chain(error), "this replica cannot serve a seed image");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn preparation_is_repeated_when_it_helps() {
        let now = Instant::now();
        let ended = |has_failed, seconds: Option<u64>| Outcome {
            has_failed,
            retry_at: seconds.map(|seconds| now + Duration::from_secs(seconds)),
        };
        for (name, outcome, want) in [
            ("succeeded", ended(false, Some(30)), [false, false, true]),
            ("succeeded a while ago", ended(false, Some(0)), [false, true, true]),
            ("failed", ended(true, Some(30)), [false, false, false]),
            ("failed a while ago", ended(true, Some(0)), [true, true, true]),
            ("failed, and would again", ended(true, None), [false, false, false]),
        ] {
            let occasions = [Occasion::Check, Occasion::Lost, Occasion::Download];
            assert_eq!(occasions.map(|occasion| outcome.is_due(occasion, now)), want, "{name}");
        }
    }
}
