//! The simulated operating system with fault injection: at one chosen call into
//! it the agent is killed, or the whole host loses power, before or after the call took
//! effect.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::ground::failure::Failure;
use agent::host::system::{
    CloudInit, Installation, Job, Output, Placement, RebootAsked, RebootMethod, Snapshot, System,
};
use agent::state::before_node::{KernelItem, OwnItems};
use proto::plan::{CustomInstruction, Upgrade};
use proto::v1alpha1::SystemState;
use simulated_host::SimulatedSystem;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What happens at the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// kill -9 and a restart by systemd.
    Killed,
    /// Unflushed writes are lost, and no connection is closed.
    PowerCut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The call had no effect.
    Before,
    /// The call took effect, and its result was lost.
    After,
}

/// A call into the operating system.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// What was asked for.
    pub verb: &'static str,
    pub at: Instant,
}

#[derive(Default)]
struct Set {
    /// In order.
    calls: Vec<Call>,
    at: Option<(usize, Side, Fault)>,
    triggered: Option<Fault>,
}

/// The injected fault of one host.
#[derive(Default)]
pub(crate) struct FaultPoint {
    set: Mutex<Set>,
    news: Notify,
}

impl FaultPoint {
    fn set(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Triggers at the `call`th call from now, counted from 1.
    pub(crate) fn arm(&self, call: usize, side: Side, fault: Fault) {
        let mut set = self.set();
        set.at = Some((set.calls.len() + call, side, fault));
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.set().calls.clone()
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.set().at.is_some()
    }

    pub(crate) fn trigger(&self, fault: Fault) {
        self.set().triggered = Some(fault);
        self.news.notify_one();
    }

    /// Waits until the fault is triggered.
    pub(crate) async fn triggered(&self) -> Fault {
        loop {
            if let Some(fault) = self.set().triggered.take() {
                return fault;
            }
            self.news.notified().await;
        }
    }

    async fn pass(&self, verb: &'static str, side: Side) {
        let due = {
            let mut set = self.set();
            if side == Side::Before {
                set.calls.push(Call { verb, at: Instant::now() });
            }
            let calls = set.calls.len();
            let hit = set.at.take_if(|(at, when, _)| *at == calls && *when == side);
            hit.map(|(_, _, fault)| fault)
        };
        if let Some(fault) = due {
            self.trigger(fault);
            // The caller was killed.
            std::future::pending::<()>().await;
        }
    }
}

/// The host's operating system as its agent sees it.
#[derive(Clone)]
pub(crate) struct FaultySystem {
    pub(crate) system: SimulatedSystem,
    pub(crate) faults: Arc<FaultPoint>,
}

impl FaultySystem {
    async fn call<T>(&self, verb: &'static str, work: impl Future<Output = T>) -> T {
        self.faults.pass(verb, Side::Before).await;
        let done = work.await;
        self.faults.pass(verb, Side::After).await;
        done
    }
}

impl System for FaultySystem {
    async fn install(&self, installation: Installation<'_>) -> Result<Output, Failure> {
        self.call("install", self.system.install(installation)).await
    }

    async fn upgrade(&self, job: &Job, upgrade: &Upgrade) -> Result<Output, Failure> {
        self.call("upgrade", self.system.upgrade(job, upgrade)).await
    }

    async fn snapshots(&self) -> Result<Vec<Snapshot>, Failure> {
        self.system.snapshots().await
    }

    async fn earlier_jobs(&self) -> Result<(), Failure> {
        self.system.earlier_jobs().await
    }

    async fn running(&self) -> Result<SystemState, Failure> {
        self.system.running().await
    }

    async fn reboot(&self, method: RebootMethod) -> Result<RebootAsked, Failure> {
        self.call("reboot", self.system.reboot(method)).await
    }

    async fn sync(&self) -> Result<(), Failure> {
        self.call("sync", self.system.sync()).await
    }

    async fn cloud_init_clean(&self, job: &Job) -> Result<Output, Failure> {
        self.call("cloud_init_clean", self.system.cloud_init_clean(job)).await
    }

    async fn cloud_init(&self) -> Result<CloudInit, Failure> {
        self.call("cloud_init", self.system.cloud_init()).await
    }

    async fn stop_unit(&self, unit: &str) -> Result<Output, Failure> {
        self.call("stop_unit", self.system.stop_unit(unit)).await
    }

    async fn unit_runs(&self, unit: &str) -> Result<bool, Failure> {
        self.system.unit_runs(unit).await
    }

    async fn workload(&self) -> Result<Vec<String>, Failure> {
        self.system.workload().await
    }

    async fn remove_workload(&self) -> Result<Output, Failure> {
        self.call("remove_workload", self.system.remove_workload()).await
    }

    async fn kernel_items(&self) -> Result<BTreeSet<KernelItem>, Failure> {
        self.system.kernel_items().await
    }

    async fn remove_foreign_items(&self, job: &Job, own: &OwnItems) -> Result<(), Failure> {
        self.call("remove_foreign_items", self.system.remove_foreign_items(job, own)).await
    }

    async fn unmount(&self, job: &Job, path: &Path) -> Result<Output, Failure> {
        self.call("unmount", self.system.unmount(job, path)).await
    }

    async fn trim(&self, job: &Job) -> Result<Output, Failure> {
        self.call("trim", self.system.trim(job)).await
    }

    async fn clear_journal(&self, job: &Job) -> Result<Output, Failure> {
        self.call("clear_journal", self.system.clear_journal(job)).await
    }

    async fn place_file(&self, job: &Job, placement: &Placement<'_>) -> Result<Output, Failure> {
        self.call("place_file", self.system.place_file(job, placement)).await
    }

    async fn run_custom(&self, job: &Job, instruction: &CustomInstruction) -> Result<Output, Failure> {
        self.call("run_custom", self.system.run_custom(job, instruction)).await
    }
}
