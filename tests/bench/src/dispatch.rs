//! From a `BaremetalMachine` to the plan on its host, on an idle coordinator.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use coordinator_api::inventory::MachineInventory;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, timeout};

use crate::figure::{Figure, median, percentile};
use crate::fleet::{is_available, start_hosts};
use crate::host::{EventKind, HostEvent};
use crate::site::Site;
use crate::wait::Observed;

const PLANS: usize = 100;
const TIME_LIMIT: Duration = Duration::from_mins(2);
/// Until the writes that follow a plan are over.
const PAUSE: Duration = Duration::from_millis(200);

async fn next(received: &mut UnboundedReceiver<HostEvent>, kind: EventKind) -> anyhow::Result<Instant> {
    let found = async {
        loop {
            let event = received.recv().await.context("every host has stopped")?;
            if event.kind == kind {
                return anyhow::Ok(event.at);
            }
        }
    };
    timeout(TIME_LIMIT, found).await.with_context(|| format!("no host: {kind:?}"))?
}

/// The figures of plans that follow one another.
pub(crate) async fn run(binary: &Path) -> anyhow::Result<Vec<Figure>> {
    eprintln!("dispatch: {PLANS} plans, one after the other");
    let site = Site::start(binary).await?;
    let coordinator = site.start_coordinator("bench-0", None).await?;
    let endpoint = site.open_registration(coordinator.address).await?;
    site.create_cluster(PLANS).await?;
    let (events, mut received) = tokio::sync::mpsc::unbounded_channel();
    let hosts = start_hosts(&endpoint, 0..PLANS, &events).await?;
    let inventories: Observed<MachineInventory> = Observed::start(site.api());
    inventories.until("hosts are available", PLANS, TIME_LIMIT, is_available).await?;
    let mut milliseconds = vec![];
    for number in 0..PLANS {
        let owner = site.create_owner(number).await?;
        sleep(PAUSE).await;
        let start = Instant::now();
        site.create_baremetal_machine(number, &owner).await?;
        let at = next(&mut received, EventKind::PlanReceived).await?;
        milliseconds.push(at.duration_since(start).as_secs_f64() * 1e3);
        next(&mut received, EventKind::PlanApplied).await?;
        sleep(PAUSE).await;
    }
    drop(hosts);
    let name = "dispatch: BaremetalMachine to plan on the host";
    Ok(vec![
        Figure::measured(format!("{name}, p50"), median(&milliseconds), "ms"),
        Figure::at_most(format!("{name}, p99"), percentile(&milliseconds, 99), 100.0, "ms")
            .with_distribution(&milliseconds)
            .with_note("wall time from before the request that creates it"),
    ])
}
