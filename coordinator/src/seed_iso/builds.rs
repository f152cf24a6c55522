//! Builds of seed ISOs in tasks of their own, because fetching and hashing a base takes minutes and a
//! reconcile must not wait for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use coordinator_core::seed_image::{self, Base, BaseRecord};
use kube::runtime::reflector::ObjectRef;
use tokio::task::AbortHandle;
use tracing::Instrument as _;

use super::compose::NewFile;
use super::{Prepared, SeedIsoError, SeedIsos};
use crate::base_image::Wanted;

/// Inputs of a build; a change of the inputs needs another build.
#[derive(Debug, PartialEq, Eq)]
struct Inputs {
    base: Base,
    wanted: Wanted,
    digest: Option<String>,
    recorded: Option<BaseRecord>,
    files: Vec<NewFile>,
}

type Outcome = Result<Prepared, SeedIsoError>;

struct Build {
    inputs: Inputs,
    outcome: Arc<Mutex<Option<Outcome>>>,
    task: AbortHandle,
}

impl Drop for Build {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// At most one build for each `SeedImage`.
#[derive(Default)]
pub(super) struct Builds(Mutex<HashMap<ObjectRef<SeedImage>, Build>>);

impl SeedIsos {
    /// Takes the outcome of the build for the current `seed`. The first call starts the build; `wake`
    /// is called when the outcome is there.
    pub fn poll_build(
        self: &Arc<Self>,
        seed: &Arc<SeedImage>,
        registration: &Arc<MachineRegistration>,
        wake: impl FnOnce() + Send + 'static,
    ) -> Option<Outcome> {
        let inputs = match self.render_files(seed, registration) {
            Ok(files) => Inputs {
                base: seed_image::base_image(seed),
                wanted: Wanted::of(seed),
                digest: seed.spec.base_image_digest.clone(),
                recorded: seed_image::recorded_base(seed),
                files,
            },
            Err(error) => return Some(Err(error)),
        };
        let key = ObjectRef::from_obj(&**seed);
        let mut builds = self.builds.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(build) = builds.get(&key).filter(|build| build.inputs == inputs) {
            let outcome = build.outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
            if outcome.is_some() {
                builds.remove(&key);
                return outcome;
            }
            if !build.task.is_finished() {
                return None;
            }
        }
        builds.retain(|seed, _| self.seeds.get(seed).is_some());
        let outcome = Arc::<Mutex<Option<Outcome>>>::default();
        let (isos, seed, registration) = (self.clone(), seed.clone(), registration.clone());
        let written = outcome.clone();
        let run = async move {
            let prepared = isos.prepare_iso(&seed, &registration).await;
            *written.lock().unwrap_or_else(PoisonError::into_inner) = Some(prepared);
            wake();
        };
        let task = tokio::spawn(run.in_current_span()).abort_handle();
        builds.insert(key, Build { inputs, outcome, task });
        None
    }
}
