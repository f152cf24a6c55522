//! The verified plans that hosts of this replica execute, so that a report of a step costs no read. A
//! plan is forgotten when it or its stream ends, because it contains bootstrap data.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordinator_api::conditions::Reason;
use coordinator_api::inventory::MachineInventory;
use coordinator_core::assignment::render_clean_again;
use coordinator_core::host::{AnnouncedPlan, HostRecord};
use coordinator_core::plan::{StoredPlan, verify_checksum};
use coordinator_core::problem::Problem;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use proto::plan::Plan;

use crate::ca::HostKey;
use crate::store::StoreError;
use crate::store::plan_record::{self, PlanSecret};

/// Output of each step, by number and name.
pub(super) type Outputs = BTreeMap<String, String>;

/// A plan whose record has the announced checksum, with the reports of its host.
#[derive(Debug)]
pub(super) struct RunningPlan {
    /// The Secret that gets the result.
    pub(super) secret: PlanSecret,
    pub(super) plan: Plan,
    reported: Mutex<ReportedSteps>,
}

#[derive(Debug, Default)]
struct ReportedSteps {
    /// Steps that were reported, from the first on.
    count: u32,
    outputs: Outputs,
}

impl RunningPlan {
    fn new(secret: PlanSecret, plan: Plan) -> Self {
        Self { secret, plan, reported: Mutex::default() }
    }

    fn lock_reported(&self) -> MutexGuard<'_, ReportedSteps> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cause that no plan can be sent.
#[derive(Debug)]
pub(super) enum PlanReadError {
    /// The API server did not answer.
    Store(StoreError),
    /// The record of a newer plan was written and is not announced yet.
    Newer(Problem),
    /// The Secret does not have the announced plan.
    Unusable(Problem),
}

/// Reads the announced record, and no other. A clean plan needs no record, because it can be rendered
/// from `inventory`.
pub(super) async fn read_plan(
    secrets: &Api<Secret>,
    announced: &AnnouncedPlan,
    inventory: Option<&MachineInventory>,
) -> Result<RunningPlan, PlanReadError> {
    let name = &announced.secret;
    let problem = |reason, cause: &str| {
        let message = format!("the plan Secret {name} {cause}");
        Problem::new(
            reason,
            message,
            "restore the Secret, or delete the machine to have another plan assigned",
        )
    };
    let (secret, stored) = match plan_record::read(secrets, name).await {
        Ok(read) => read,
        Err(StoreError::Taken { why, .. }) => {
            return Err(PlanReadError::Unusable(problem(Reason::PlanSecretInvalid, why)));
        }
        Err(error) => return Err(PlanReadError::Store(error)),
    };
    let found = match stored {
        StoredPlan::Missing => problem(Reason::PlanSecretMissing, "is missing"),
        StoredPlan::Unusable { error, .. } => {
            problem(Reason::PlanSecretInvalid, &format!("holds no plan record: {error}"))
        }
        StoredPlan::Empty => problem(Reason::PlanSecretAltered, "holds the empty plan"),
        StoredPlan::Record(plan) => {
            let generation = plan.generation;
            let error = match verify_checksum(*plan, &announced.checksum) {
                Ok(plan) => return Ok(RunningPlan::new(secret, plan)),
                Err(error) => error,
            };
            let found = problem(Reason::PlanSecretAltered, &format!("is not what was announced: {error}"));
            if generation > announced.generation {
                return Err(PlanReadError::Newer(found));
            }
            found
        }
    };
    // A restored Secret may be older than the clean, which is rendered again.
    let rendered = inventory.and_then(|inventory| {
        render_clean_again(&HostRecord::parse(inventory)?, &inventory.spec, &announced.checksum)
    });
    match rendered {
        Some(plan) => Ok(RunningPlan::new(secret, plan)),
        None => Err(PlanReadError::Unusable(found)),
    }
}

/// The plans by the identity of their host.
#[derive(Default)]
pub(super) struct RunningPlans(Mutex<HashMap<HostKey, Arc<RunningPlan>>>);

impl RunningPlans {
    fn lock_plans(&self) -> MutexGuard<'_, HashMap<HostKey, Arc<RunningPlan>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a plan. The output of its steps stays if the plan was kept before.
    pub(super) fn insert_plan(&self, key: &HostKey, running: Arc<RunningPlan>) {
        let mut plans = self.lock_plans();
        if let Some(old) = plans.get(key).filter(|old| old.plan.checksum == running.plan.checksum) {
            let reported = std::mem::take(&mut *old.lock_reported());
            *running.lock_reported() = reported;
        }
        plans.insert(key.clone(), running);
    }

    /// The plan with that id and generation.
    pub(super) fn find_plan(&self, key: &HostKey, id: &str, generation: u64) -> Option<Arc<RunningPlan>> {
        let plans = self.lock_plans();
        let found = plans.get(key)?;
        let is_meant = found.plan.id.as_str() == id && found.plan.generation.0 == generation;
        is_meant.then(|| found.clone())
    }

    /// Records the output of a step; returns the output of all steps.
    pub(super) fn record_output(&self, key: &HostKey, step: u32, name: &str, output: &str) -> Outputs {
        let name = format!("{step:02}-{name}");
        let plans = self.lock_plans();
        let Some(running) = plans.get(key) else {
            return Outputs::from([(name, output.to_owned())]);
        };
        let mut reported = running.lock_reported();
        reported.count = reported.count.max(step.saturating_add(1));
        reported.outputs.insert(name, output.to_owned());
        reported.outputs.clone()
    }

    /// The step was reported.
    pub(super) fn is_reported(&self, key: &HostKey, step: u32) -> bool {
        self.lock_plans().get(key).is_some_and(|running| step < running.lock_reported().count)
    }

    pub(super) fn remove_plan(&self, key: &HostKey) {
        self.lock_plans().remove(key);
    }
}
