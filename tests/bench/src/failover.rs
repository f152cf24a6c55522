//! kill -9 of the replica that leads and serves every stream: when the other one acts on an
//! object, and when the streams are back. Each time the hosts were attached for long enough to have
//! forgotten the time before.

use std::path::Path;
use std::time::Duration;

use agent::ground::backoff::STABLE_CONNECTION;
use anyhow::Context as _;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use kube::ResourceExt as _;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, timeout};

use crate::figure::{Figure, percentile};
use crate::fleet::{is_available, start_hosts};
use crate::forwarder::Forwarder;
use crate::host::{EventKind, HostEvent};
use crate::machines::machine_name;
use crate::site::{Coordinator, Site, url_of};
use crate::wait::Observed;

const HOSTS: usize = 200;
const ROUNDS: usize = 3;
const TIME_LIMIT: Duration = Duration::from_mins(2);

struct Bench {
    site: Site,
    forwarder: Forwarder,
    inventories: Observed<MachineInventory>,
    machines: Observed<BaremetalMachine>,
    received: UnboundedReceiver<HostEvent>,
    coordinators: Vec<Coordinator>,
}

/// Seconds after the kill.
struct Round {
    controllers: f64,
    opened: Vec<f64>,
    recorded: f64,
}

fn is_served_by(inventory: &MachineInventory, replica: &str) -> bool {
    let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
    let session = host.and_then(|host| host.session.as_ref());
    session
        .is_some_and(|session| session.ended.is_none() && session.replica.starts_with(&format!("{replica}-")))
}

impl Bench {
    /// Waits for the event of every host; the answer is seconds after `start`.
    async fn reattached(
        received: &mut UnboundedReceiver<HostEvent>,
        start: Instant,
    ) -> anyhow::Result<Vec<f64>> {
        let mut opened = vec![];
        while opened.len() < HOSTS {
            let event = timeout(TIME_LIMIT, received.recv()).await.context("a stream did not come back")?;
            let event = event.context("every host has stopped")?;
            if event.kind == EventKind::Attached {
                opened.push(event.at.duration_since(start).as_secs_f64());
            }
        }
        Ok(opened)
    }

    async fn round(&mut self, round: usize) -> anyhow::Result<Round> {
        let leader = self.site.leader(&self.coordinators).await?;
        let index = self.coordinators.iter().position(|it| it.name == leader).context("no leader")?;
        let survivor = self.coordinators[1 - index].name.clone();
        self.forwarder.set_replicas(vec![self.coordinators[1 - index].address]);
        while self.received.try_recv().is_ok() {}
        let owner = self.site.create_owner(round).await?;
        let start = Instant::now();
        drop(self.coordinators.remove(index));
        self.site.create_baremetal_machine(round, &owner).await?;
        let (machines, inventories) = (&self.machines, &self.inventories);
        let acts = async {
            let name = machine_name(round);
            let is_held =
                |machine: &BaremetalMachine| machine.name_any() == name && !machine.finalizers().is_empty();
            machines.until("machine is reconciled", 1, TIME_LIMIT, is_held).await?;
            anyhow::Ok(start.elapsed().as_secs_f64())
        };
        let records = async {
            let is_back = |inventory: &MachineInventory| is_served_by(inventory, &survivor);
            inventories.until("sessions are recorded", HOSTS, TIME_LIMIT, is_back).await?;
            anyhow::Ok(start.elapsed().as_secs_f64())
        };
        let (controllers, recorded, opened) =
            tokio::try_join!(acts, records, Self::reattached(&mut self.received, start))?;
        Ok(Round { controllers, opened, recorded })
    }

    async fn add_coordinator(&mut self, number: usize) -> anyhow::Result<()> {
        let url = url_of(self.forwarder.address);
        let coordinator = self.site.start_coordinator(&format!("bench-{number}"), Some(&url)).await?;
        self.coordinators.push(coordinator);
        Ok(())
    }
}

/// The figures; the slowest of the rounds counts.
pub(crate) async fn run(binary: &Path) -> anyhow::Result<Vec<Figure>> {
    eprintln!("failover: two replicas, {HOSTS} streams, {ROUNDS} times kill -9");
    let site = Site::start(binary).await?;
    let forwarder = Forwarder::start().await?;
    let (events, received) = tokio::sync::mpsc::unbounded_channel();
    let (inventories, machines) = (Observed::start(site.api()), Observed::start(site.api()));
    let mut bench = Bench { site, forwarder, inventories, machines, received, coordinators: vec![] };
    bench.add_coordinator(0).await?;
    bench.forwarder.set_replicas(vec![bench.coordinators[0].address]);
    let endpoint = bench.site.open_registration(bench.forwarder.address).await?;
    bench.add_coordinator(1).await?;
    bench.site.create_cluster(HOSTS).await?;
    let hosts = start_hosts(&endpoint, 0..HOSTS, &events).await?;
    bench.inventories.until("hosts are available", HOSTS, TIME_LIMIT, is_available).await?;
    let mut rounds = vec![];
    for round in 0..ROUNDS {
        tokio::time::sleep(STABLE_CONNECTION).await;
        rounds.push(bench.round(round).await?);
        eprintln!("  round {}: controllers after {:.2} s", round + 1, rounds[round].controllers);
        bench.add_coordinator(round + 2).await?;
    }
    drop(hosts);
    let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let controllers: Vec<f64> = rounds.iter().map(|round| round.controllers).collect();
    let recorded: Vec<f64> = rounds.iter().map(|round| round.recorded).collect();
    let opened: Vec<f64> = rounds.iter().map(|round| percentile(&round.opened, 99)).collect();
    Ok(vec![
        Figure::at_most("failover: controllers act again", worst(&controllers), 7.0, "s")
            .with_range(&controllers),
        Figure::at_most("failover: streams open again, p99", worst(&opened), 1.0, "s")
            .with_range(&opened)
            .with_note(format!("{HOSTS} hosts with the agent's backoff")),
        Figure::measured("failover: sessions recorded again, all", worst(&recorded), "s")
            .with_range(&recorded),
    ])
}
