//! One scenario, played undisturbed and then with a crash at each write of the coordinator: both runs
//! must have one outcome.

use fake_apiserver::{Counts, Entry, Request, Side, Verb};
use tokio::time::Instant;

use crate::fault_injection::Call;
use crate::outcome::Outcome;
use crate::world::{COORDINATOR, World};

/// A sequence of actions that ends in the same state whatever crashes meanwhile.
pub trait Scenario {
    /// The world before the first write that a crash may meet.
    fn begin() -> impl Future<Output = World>;

    /// The actions, up to their last visible effect.
    fn play(world: &mut World) -> impl Future<Output = ()>;
}

/// A write of the coordinator.
#[derive(Clone, Debug)]
pub struct Write {
    /// Its number among all writes of the scenario, counted from 1.
    pub number: usize,
    pub request: Request,
    pub at: Instant,
}

/// A run that met no fault: runs with one are compared with it.
#[derive(Clone, Debug)]
pub struct Undisturbed {
    pub outcome: Outcome,
    /// Writes of the coordinator, in their order, without the renewals of a Lease that follow
    /// the first: each does the same.
    pub writes: Vec<Write>,
    /// Calls of the agent of `host-1` into the operating system, in their order.
    pub calls: Vec<Call>,
    pub cost: Counts,
}

impl Undisturbed {
    pub async fn run<S: Scenario>() -> Self {
        let started = Instant::now();
        let mut world = S::begin().await;
        let mark = world.fake.journal().mark();
        let earlier = world.hosts.get("host-1").map_or(0, |host| host.calls().len());
        let outcome = world.finish::<S>().await;
        let writes = list_writes(world.fake.journal().since(mark), started);
        let calls = world.hosts.get("host-1").map(|host| host.calls().split_off(earlier));
        let cost = world.count_requests(mark);
        world.check_invariants().await;
        assert!(!writes.is_empty(), "a crash has nothing to meet");
        Self { outcome, writes, calls: calls.into_iter().flatten().collect(), cost }
    }

    /// Asserts that a disturbed run had the same outcome.
    #[track_caller]
    pub fn assert_same(&self, outcome: &Outcome, case: &str, world: &World) {
        let is_same = *outcome == self.outcome;
        assert!(is_same, "{case}\n{}\n{}", self.outcome.list_differences(outcome), world.dump());
    }
}

/// Kills the coordinator at each of its writes, in a run for each: before one write and after the
/// next one, in turn. `SCENARIO_CASES` asks for both sides of each write, which take twice the time.
pub async fn kill_at_every_write<S: Scenario>() {
    let undisturbed = Undisturbed::run::<S>().await;
    let is_whole = std::env::var_os("SCENARIO_CASES").is_some();
    for side in [Side::Before, Side::After] {
        let turn = usize::from(side == Side::After);
        let is_due = |write: &&Write| is_whole || write.number % 2 == turn;
        kill_at_writes::<S>(&undisturbed, undisturbed.writes.iter().filter(is_due), side).await;
    }
}

/// Kills the coordinator on one side of each of its writes, in a run for each.
pub async fn kill_on_side_of_every_write<S: Scenario>(side: Side) {
    let undisturbed = Undisturbed::run::<S>().await;
    kill_at_writes::<S>(&undisturbed, undisturbed.writes.iter(), side).await;
}

async fn kill_at_writes<S: Scenario>(
    undisturbed: &Undisturbed,
    writes: impl Iterator<Item = &Write>,
    side: Side,
) {
    for Write { number, request, .. } in writes {
        let mut world = S::begin().await;
        world.stop_coordinator_at(*number, side);
        let outcome = world.finish::<S>().await;
        undisturbed.assert_same(&outcome, &format!("{side:?} write {number}, {request}"), &world);
        world.check_invariants().await;
    }
}

/// Kills the coordinator at two of its writes, which are drawn for each run by this seed. A crash may
/// leave out a later write, as that of an Event: such a run does not count, and another pair is drawn.
pub async fn kill_at_drawn_writes<S: Scenario>(runs: usize, seed: u64) {
    let undisturbed = Undisturbed::run::<S>().await;
    let writes = &undisturbed.writes;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut met = 0;
    for _ in 0..runs * 4 {
        let mut pair = random.choose_multiple(writes.iter(), 2);
        pair.sort_by_key(|write| write.number);
        let sides = [(); 2].map(|()| if random.bool() { Side::Before } else { Side::After });
        let mut world = S::begin().await;
        world.allow_unmet_faults();
        for (write, side) in pair.iter().zip(sides) {
            world.stop_coordinator_at(write.number, side);
        }
        let outcome = world.finish::<S>().await;
        let requests: Vec<_> =
            pair.iter().map(|write| format!("{}, {}", write.number, write.request)).collect();
        undisturbed.assert_same(&outcome, &format!("seed {seed}: {sides:?} writes {requests:?}"), &world);
        met += usize::from(world.count_unmet_stops() == 0);
        world.check_invariants().await;
        if met == runs {
            return;
        }
    }
    panic!("seed {seed}: {met} of {} pairs met both writes", runs * 4);
}

impl World {
    /// Plays a scenario until no coordinator has anything left to do.
    pub async fn finish<S: Scenario>(&mut self) -> Outcome {
        S::play(self).await;
        self.finish_deletions();
        self.wait_idle().await;
        self.outcome()
    }
}

fn list_writes(entries: Vec<Entry>, started: Instant) -> Vec<Write> {
    let is_write = |entry: &Entry| entry.request.user == COORDINATOR && entry.request.verb.is_write();
    let ours = entries.into_iter().filter(is_write).enumerate();
    let mut writes: Vec<_> = ours
        .map(|(before, entry)| Write { number: before + 1, request: entry.request, at: started + entry.at })
        .collect();
    let mut is_renewed = false;
    writes.retain(|Write { request, .. }| {
        let is_renewal = request.verb == Verb::Patch && request.resource == "leases";
        !is_renewal || !std::mem::replace(&mut is_renewed, true)
    });
    writes
}
