//! Many hosts through a whole lifecycle: registered, attached, claimed, Running, deleted, cleaned,
//! and available again.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use coordinator_api::conditions::{Type, is_true};
use coordinator_api::inventory::{AllocationState, MachineInventory};
use coordinator_api::machine::{BaremetalMachine, Phase};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::as_f64;
use crate::figure::Figure;
use crate::host::{self, HostEvent, RunningHost};
use crate::protocol::{self, Endpoint};
use crate::site::{Coordinator, Site};
use crate::usage;
use crate::wait::Observed;

pub(crate) const IN_FLIGHT: usize = 32;
const TIME_LIMIT: Duration = Duration::from_mins(15);

/// Registers hosts and keeps them attached.
pub(crate) async fn start_hosts(
    endpoint: &Endpoint,
    numbers: Range<usize>,
    events: &UnboundedSender<HostEvent>,
) -> anyhow::Result<Vec<RunningHost>> {
    let start = async |number| {
        let host = protocol::register(endpoint, number).await?.install().await?;
        anyhow::Ok(host::start(host, number, events.clone()))
    };
    stream::iter(numbers).map(start).buffer_unordered(IN_FLIGHT).try_collect().await
}

pub(crate) fn is_available(inventory: &MachineInventory) -> bool {
    inventory.claim().is_none()
        && inventory.allocation_state() == AllocationState::Available
        && is_true(inventory.conditions(), Type::Ready)
}

fn is_cleaned(inventory: &MachineInventory) -> bool {
    let plan = inventory.plan().and_then(|plan| plan.id.as_ref());
    is_available(inventory) && plan.is_some_and(|id| id.starts_with("clean-"))
}

pub(crate) fn is_running(machine: &BaremetalMachine) -> bool {
    machine.status.as_ref().is_some_and(|status| status.phase == Some(Phase::Running) && status.ready)
}

/// The clock of a phase, and what the coordinator used by its end.
struct Lap {
    start: Instant,
    figures: Vec<Figure>,
}

impl Lap {
    fn end(&mut self, phase: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        eprintln!("  {phase}: {seconds:.1} s");
        self.figures.push(Figure::measured(format!("fleet: {phase}"), seconds, "s"));
        self.start = Instant::now();
    }
}

/// The figures of `count` hosts.
pub(crate) async fn run(binary: &Path, count: usize) -> anyhow::Result<Vec<Figure>> {
    eprintln!("fleet: {count} hosts through a whole lifecycle");
    let site = Site::start(binary).await?;
    let coordinator = site.start_coordinator("bench-0", None).await?;
    let endpoint = site.open_registration(coordinator.address).await?;
    let inventories: Observed<MachineInventory> = Observed::start(site.api());
    let machines: Observed<BaremetalMachine> = Observed::start(site.api());
    site.create_cluster(count).await?;
    let (mark, cpu, others) = (site.mark()?, coordinator.cpu()?, usage::cpu_of_children()?);
    let (events, _received) = tokio::sync::mpsc::unbounded_channel();
    let start = Instant::now();
    let mut lap = Lap { start, figures: vec![] };
    let hosts = start_hosts(&endpoint, 0..count, &events).await?;
    inventories.until("hosts are available", count, TIME_LIMIT, is_available).await?;
    lap.end("registration to available");
    site.create_machines(count).await?;
    machines.until("machines run", count, TIME_LIMIT, is_running).await?;
    lap.end("creation to Running");
    site.delete_machines(count).await?;
    inventories.until("hosts are available again", count, TIME_LIMIT, is_cleaned).await?;
    lap.end("deletion to available");
    let seconds = start.elapsed().as_secs_f64();
    let cpu = coordinator.cpu()? - cpu;
    let mut figures = vec![
        Figure::at_most(format!("fleet: whole lifecycle of {count} hosts"), seconds, 300.0, "s")
            .with_note("wall time; the goal holds for 1,000 hosts on two cores that do nothing else"),
    ];
    figures.append(&mut lap.figures);
    figures.push(Figure::at_most("fleet: coordinator CPU", cpu * 1e3 / as_f64(count), 40.0, "ms/host"));
    figures.extend(cpu_of_others(&others)?);
    figures.extend(requests(&site, mark, count).await?);
    drop(hosts);
    figures.push(memory(&coordinator)?);
    Ok(figures)
}

fn cpu_of_others(before: &std::collections::BTreeMap<String, f64>) -> anyhow::Result<Vec<Figure>> {
    let mut figures = vec![];
    for (name, after) in usage::cpu_of_children()? {
        if name == "etcd" || name == "kube-apiserver" {
            let spent = after - before.get(&name).copied().unwrap_or_default();
            figures.push(Figure::measured(format!("fleet: {name} CPU"), spent, "s"));
        }
    }
    Ok(figures)
}

async fn requests(
    site: &Site,
    mark: control_plane::audit::Mark,
    count: usize,
) -> anyhow::Result<Vec<Figure>> {
    let found = site.requests_since(mark).await?;
    let per_host = |number: u64| as_f64(usize::try_from(number).unwrap_or(usize::MAX)) / as_f64(count);
    Ok(vec![
        Figure::at_most("fleet: API requests", per_host(found.requests), 28.0, "per host")
            .with_note(found.details),
        Figure::at_most("fleet: API writes", per_host(found.writes), 20.0, "per host"),
    ])
}

fn memory(coordinator: &Coordinator) -> anyhow::Result<Figure> {
    Ok(Figure::measured("fleet: coordinator resident at the end", coordinator.resident_bytes()? / 1e6, "MB"))
}
