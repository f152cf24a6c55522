//! The plans that hosts of this replica work on, as they were streamed, so that
//! a report of a step costs no read. Forgotten when the plan or the stream
//! ends: they hold bootstrap data.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::report::PlanSecret;

/// Step name and what it printed.
type Outputs = BTreeMap<String, String>;

struct Running {
    plan: Arc<PlanSecret>,
    outputs: Outputs,
}

/// By UID of the inventory.
#[derive(Default)]
pub(super) struct Plans(Mutex<HashMap<String, Running>>);

impl Plans {
    fn running(&self) -> MutexGuard<'_, HashMap<String, Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a plan; what was printed stays with the same plan.
    pub(super) fn keep(&self, uid: &str, plan: Arc<PlanSecret>) {
        let mut running = self.running();
        let outputs = match running.remove(uid) {
            Some(old) if old.plan.stored.checksum == plan.stored.checksum => old.outputs,
            _ => Outputs::new(),
        };
        running.insert(uid.to_owned(), Running { plan, outputs });
    }

    pub(super) fn find(&self, uid: &str) -> Option<Arc<PlanSecret>> {
        self.running().get(uid).map(|running| running.plan.clone())
    }

    /// Remembers what a step printed; answers with all that the plan printed.
    pub(super) fn print(&self, uid: &str, step: &str, output: &str) -> Outputs {
        let mut running = self.running();
        let Some(running) = running.get_mut(uid) else {
            return Outputs::from([(step.to_owned(), output.to_owned())]);
        };
        running.outputs.insert(step.to_owned(), output.to_owned());
        running.outputs.clone()
    }

    pub(super) fn forget(&self, uid: &str) {
        self.running().remove(uid);
    }
}
