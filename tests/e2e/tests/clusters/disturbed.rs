//! The lifecycle while replicas of the coordinator are killed, and while the API
//! server is away.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coordinator_api::inventory::{MachineInventory, PlanType};
use e2e::host::{Disk, Host as _, Simulated};
use e2e::lifecycle::{Lifecycle, NAMESPACE};
use e2e::replicas::Replica;
use e2e::requests::retry;
use kube::Api;
use tokio::time::{Instant, sleep, timeout};

use crate::common::Setup;

/// Of the moments and replicas; `DISTURBED_SEED` replaces it.
const SEED: u64 = 20_260_801;
/// Longest time between a milestone and the kill that is named after it.
const DELAY: Duration = Duration::from_millis(1500);
/// How long the lifecycle may take to reach a milestone.
const DEADLINE: Duration = Duration::from_mins(5);
const POLL_INTERVAL: Duration = Duration::from_millis(25);
const OUTAGE: Duration = Duration::from_mins(1);

/// What the lifecycle has reached. Each holds for ever once it holds, so that
/// a fast system cannot skip one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Milestone {
    Claimed,
    PlanAnnounced,
    Rebooting,
    Joined,
    Cleaning,
    Released,
    ClaimedAgain,
    JoinedAgain,
}

const MILESTONES: [Milestone; 8] = [
    Milestone::Claimed,
    Milestone::PlanAnnounced,
    Milestone::Rebooting,
    Milestone::Joined,
    Milestone::Cleaning,
    Milestone::Released,
    Milestone::ClaimedAgain,
    Milestone::JoinedAgain,
];

impl fmt::Display for Milestone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

/// What a test sees of the lifecycle from outside.
struct Progress {
    inventories: Api<MachineInventory>,
    name: String,
    disk: Disk,
    has_ended: Arc<AtomicBool>,
}

impl Progress {
    async fn has_reached(&self, milestone: Milestone) -> anyhow::Result<bool> {
        let inventory =
            retry("read the inventory", async || self.inventories.get_opt(&self.name).await).await?;
        let Some(inventory) = inventory else { return Ok(false) };
        let plan = inventory.plan();
        let is_cleaned = plan.is_some_and(|plan| plan.kind == Some(PlanType::Clean));
        let claim = inventory.claim();
        // The first claim is made before any plan.
        let is_second = claim.as_ref().is_some_and(|claim| claim.generation > 0);
        let effects = self.disk.effects();
        let count = |prefix: &str| effects.iter().filter(|effect| effect.starts_with(prefix)).count();
        let is_planned = plan.is_some_and(|plan| plan.generation.is_some());
        Ok(match milestone {
            Milestone::Claimed => claim.is_some() || is_planned,
            Milestone::PlanAnnounced => is_planned,
            Milestone::Rebooting => count("reboot") >= 1,
            Milestone::Joined => count("node joins") >= 1,
            Milestone::Cleaning => is_cleaned || is_second,
            Milestone::Released => (is_cleaned && claim.is_none()) || is_second,
            Milestone::ClaimedAgain => is_second,
            Milestone::JoinedAgain => count("node joins") >= 2,
        })
    }

    async fn await_milestone(&self, milestone: Milestone) -> anyhow::Result<()> {
        let deadline = Instant::now() + DEADLINE;
        while !self.has_reached(milestone).await? {
            anyhow::ensure!(Instant::now() < deadline, "{milestone} was not reached");
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Fails where the lifecycle has ended: a disturbance after its end disturbs nothing.
    fn check_running(&self, milestone: Milestone) -> anyhow::Result<()> {
        let has_ended = self.has_ended.load(Ordering::SeqCst);
        anyhow::ensure!(!has_ended, "{milestone}: the lifecycle had ended before the disturbance");
        Ok(())
    }
}

/// What a replica did when it was killed.
#[derive(Debug)]
struct Hit {
    is_leader: bool,
    serves_host: bool,
}

impl Hit {
    /// A replica that does not answer yet does neither.
    async fn read(replica: &Replica) -> Self {
        let metrics = replica.metrics().await.unwrap_or_default();
        let is_set = |series: &str| {
            let name = format!("baremetal_coordinator_{series} ");
            metrics.lines().filter_map(|line| line.strip_prefix(&name)).any(|value| value != "0")
        };
        Self { is_leader: is_set("leader"), serves_host: is_set("sessions") }
    }
}

/// The replica that has the stream of the host, once there is one.
async fn find_serving(replicas: &[Replica]) -> anyhow::Result<(&Replica, Hit)> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        for replica in replicas {
            let hit = Hit::read(replica).await;
            if hit.serves_host {
                return Ok((replica, hit));
            }
        }
        anyhow::ensure!(Instant::now() < deadline, "no replica has the stream of the host");
        sleep(POLL_INTERVAL).await;
    }
}

/// Runs the lifecycle and `disturb` side by side; both have to end well.
async fn run_disturbed<T>(setup: &Setup, disturb: impl AsyncFnOnce(Progress) -> anyhow::Result<T>) -> T {
    let environment = &setup.environment;
    let mut host = Simulated::new(environment.workload.clone(), 1).unwrap();
    let has_ended = Arc::<AtomicBool>::default();
    let progress = Progress {
        inventories: Api::namespaced(environment.management.admin.clone(), NAMESPACE),
        name: host.inventory(),
        disk: host.disk(),
        has_ended: has_ended.clone(),
    };
    let lifecycle = Lifecycle::new(environment, &mut host, setup.progress.clone());
    let run = async {
        let proof = Box::pin(lifecycle.run(&setup.base)).await;
        has_ended.store(true, Ordering::SeqCst);
        proof
    };
    let result = tokio::try_join!(run, disturb(progress));
    setup.check(result).1
}

// Fault: a replica of the coordinator is killed at moments of a fixed seed.
// Shown: nothing: the other one goes on.
#[tokio::test(flavor = "multi_thread")]
async fn lifecycle_survives_kills_of_replicas() {
    let seed = std::env::var("DISTURBED_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let setup = Setup::start().await;
    let replicas = &setup.environment.management.replicas;
    // Both are victims, so that the leader is one: it leads until it is killed.
    let mut victims: Vec<_> = replicas.iter().cycle().take(MILESTONES.len()).collect();
    random.shuffle(&mut victims);
    let hits = run_disturbed(&setup, async |progress| {
        let mut hits = vec![];
        for (milestone, victim) in MILESTONES.into_iter().zip(victims) {
            // The lifecycle ends soon after the last one.
            let is_last = milestone == Milestone::JoinedAgain;
            let delay = if is_last { Duration::ZERO } else { DELAY.mul_f64(random.f64()) };
            progress.await_milestone(milestone).await?;
            sleep(delay).await;
            // Of the free host, which has a stream until it is claimed and reboots.
            let (replica, hit) = if milestone == Milestone::Released {
                find_serving(replicas).await?
            } else {
                (victim, Hit::read(victim).await)
            };
            progress.check_running(milestone)?;
            println!("{milestone}: kill {} after {} ms, {hit:?}", replica.name(), delay.as_millis());
            replica.kill()?;
            hits.push(hit);
            // Without a wait until it is ready: the other one would meanwhile reach the next milestone, and more.
            replica.restart()?;
        }
        for replica in replicas {
            replica.ready().await?;
        }
        Ok(hits)
    })
    .await;
    assert!(hits.iter().any(|hit| hit.is_leader), "no victim was the leader: {hits:?}");
    assert!(hits.iter().any(|hit| hit.serves_host), "no victim had the stream of the host: {hits:?}");
}

// Fault: the real API server is stopped in the middle of answers.
// Shown: nothing: it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn lifecycle_survives_api_server_outage() {
    let setup = Setup::start().await;
    let control_plane = &setup.environment.management.control_plane;
    run_disturbed(&setup, async |progress| {
        progress.await_milestone(Milestone::PlanAnnounced).await?;
        control_plane.pause_api_server()?;
        println!("PlanAnnounced: the API server is paused for {} s", OUTAGE.as_secs());
        let hanging = timeout(OUTAGE, progress.inventories.get_opt(&progress.name)).await;
        control_plane.resume_api_server()?;
        anyhow::ensure!(hanging.is_err(), "a paused API server answered: {hanging:?}");
        progress.check_running(Milestone::PlanAnnounced)
    })
    .await;
}
