//! What a registration costs the coordinator, with few and with many inventories.

use std::path::Path;
use std::time::Duration;

use agent::identity::tpm::Attestor;
use anyhow::Context as _;
use coordinator_api::inventory::MachineInventory;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::PostParams;
use serde_json::json;
use swtpm::Swtpm;
use tokio::time::sleep;

use crate::as_f64;
use crate::figure::{Figure, median};
use crate::fleet::IN_FLIGHT;
use crate::protocol::{self, Endpoint};
use crate::site::{Coordinator, Site};
use crate::wait::{Observed, until};

/// Inventories that exist before.
const FEW: usize = 100;
const MANY: usize = 10_000;
/// Registrations of one round, and rounds of each size. The kernel counts in steps of 10 ms.
const BATCH: usize = 250;
const ROUNDS: usize = 4;
const CONCURRENT: usize = 16;
/// Hosts with a TPM.
const TPMS: usize = 40;
/// Numbers of hosts that only exist as objects.
const FIRST_IDLE: usize = 50_000;
const TIME_LIMIT: Duration = Duration::from_mins(10);
/// CPU seconds of a coordinator in one second without work; elections and probes go on.
const IDLE: f64 = 0.05;
const SECOND: Duration = Duration::from_secs(1);

/// What a registration by a TPM costs.
struct TpmCosts {
    cpu: f64,
    requests: f64,
    writes: f64,
}

/// What registrations cost with so many inventories.
struct Costs {
    /// CPU of each round with software keys.
    rounds: Vec<f64>,
    requests: f64,
    writes: f64,
    lists: f64,
    details: String,
    tpm: TpmCosts,
}

impl Costs {
    fn figures(self, hosts: usize) -> Vec<Figure> {
        let named = |what: &str| format!("registration: {what} at {hosts} hosts");
        let cpu = median(&self.rounds);
        vec![
            Figure::at_most(named("CPU"), cpu, 1.2, "ms").with_range(&self.rounds),
            Figure::at_most(named("API requests"), self.requests, 3.0, "per host").with_note(self.details),
            Figure::at_most(named("API writes"), self.writes, 3.0, "per host"),
            Figure::at_most(named("LISTs"), self.lists, 0.0, "per host"),
            Figure::measured(named("CPU with TPM"), self.tpm.cpu, "ms"),
            Figure::at_most(named("API requests with TPM"), self.tpm.requests, 4.0, "per host"),
            Figure::at_most(named("API writes with TPM"), self.tpm.writes, 3.0, "per host"),
        ]
    }
}

struct Bench {
    site: Site,
    coordinator: Coordinator,
    endpoint: Endpoint,
    registered: usize,
    existing: usize,
}

impl Bench {
    /// Creates inventories until there are `wanted` that no registration made.
    async fn fill(&mut self, wanted: usize) -> anyhow::Result<()> {
        let api = self.site.api::<MachineInventory>();
        let create = async |number: usize| {
            let inventory = serde_json::from_value(json!({
                "apiVersion": "elemental.cattle.io/v1beta1",
                "kind": "MachineInventory",
                "metadata": { "name": protocol::host_name(FIRST_IDLE + number) },
                "spec": { "tpmHash": format!("{number:064x}") },
            }))?;
            api.create(&PostParams::default(), &inventory).await?;
            anyhow::Ok(())
        };
        let numbers = stream::iter(self.existing..wanted);
        numbers.map(create).buffer_unordered(CONCURRENT).try_collect::<()>().await?;
        self.existing = wanted;
        let observed: Observed<MachineInventory> = Observed::start(api);
        observed.until("inventories exist", wanted, TIME_LIMIT, |_| true).await?;
        self.await_idle().await
    }

    /// An inventory that nothing registered gets no status: CPU time tells when the coordinator is
    /// done with all of them.
    async fn await_idle(&self) -> anyhow::Result<()> {
        let mut used = self.coordinator.cpu()?;
        until("the coordinator is idle", TIME_LIMIT, async || {
            sleep(SECOND).await;
            let before = std::mem::replace(&mut used, self.coordinator.cpu()?);
            Ok(used - before < IDLE)
        })
        .await
    }

    /// Milliseconds of server CPU of each registration, with what its watch events cause.
    async fn register(&mut self) -> anyhow::Result<f64> {
        let before = self.coordinator.cpu()?;
        let numbers = self.registered..self.registered + BATCH;
        let endpoint = &self.endpoint;
        let register = async |number| protocol::register(endpoint, number).await.map(drop);
        stream::iter(numbers).map(register).buffer_unordered(IN_FLIGHT).try_collect::<()>().await?;
        self.registered += BATCH;
        Ok((self.coordinator.cpu()? - before) * 1e3 / as_f64(BATCH))
    }

    /// The same by TPMs, each of which is another host.
    async fn register_tpms(&mut self) -> anyhow::Result<TpmCosts> {
        let tpms: Vec<_> = (0..TPMS).map(|_| Swtpm::start()).collect();
        let mut attestors = vec![];
        // Making keys takes a TPM seconds, and is not the coordinator's cost.
        for tpm in &tpms {
            let root = tpm.host_root();
            let key =
                agent::identity::tpm::read_identity(&root).await?.context("swtpm has no endorsement key")?;
            attestors.push(Attestor::load(&root, &key).await?);
        }
        let (before, mark) = (self.coordinator.cpu()?, self.site.mark()?);
        for attestor in attestors {
            protocol::register_by(&self.endpoint, self.registered, Some(attestor)).await?;
            self.registered += 1;
        }
        let cpu = (self.coordinator.cpu()? - before) * 1e3 / as_f64(TPMS);
        let requests = self.site.requests_since(mark).await?;
        let per_host = |count: u64| as_f64(usize::try_from(count).unwrap_or(usize::MAX)) / as_f64(TPMS);
        let (requests, writes) = (per_host(requests.requests), per_host(requests.writes));
        Ok(TpmCosts { cpu, requests, writes })
    }

    async fn measure(&mut self, hosts: usize) -> anyhow::Result<Costs> {
        eprintln!("  creating inventories until there are {hosts}");
        self.fill(hosts).await?;
        let (mark, first) = (self.site.mark()?, self.registered);
        // The first round fills caches.
        self.register().await?;
        let mut rounds = vec![];
        for _ in 0..ROUNDS {
            rounds.push(self.register().await?);
        }
        let requests = self.site.requests_since(mark).await?;
        let registered = as_f64(self.registered - first);
        let per_host = |count: u64| as_f64(usize::try_from(count).unwrap_or(usize::MAX)) / registered;
        eprintln!("  registering {TPMS} TPMs");
        Ok(Costs {
            rounds,
            requests: per_host(requests.requests),
            writes: per_host(requests.writes),
            lists: per_host(requests.lists),
            details: requests.details,
            tpm: self.register_tpms().await?,
        })
    }
}

/// The figures; with few inventories first, as they cannot be removed in no time.
pub(crate) async fn run(binary: &Path) -> anyhow::Result<Vec<Figure>> {
    eprintln!("registration: {BATCH} hosts a round, {IN_FLIGHT} in flight");
    let site = Site::start(binary).await?;
    let coordinator = site.start_coordinator("bench-0", None).await?;
    let endpoint = site.open_registration(coordinator.address).await?;
    let mut bench = Bench { site, coordinator, endpoint, registered: 0, existing: 0 };
    let few = bench.measure(FEW).await?;
    let many = bench.measure(MANY).await?;
    let (few_cpu, many_cpu) = (median(&few.rounds), median(&many.rounds));
    let ratios: Vec<f64> = many.rounds.iter().zip(&few.rounds).map(|(many, few)| many / few).collect();
    let mut figures = vec![
        Figure::at_most(format!("registration: CPU, {MANY} to {FEW}"), many_cpu / few_cpu, 1.2, "ratio")
            .with_range(&ratios),
        Figure::measured("registration: CPU, TPM to software key", few.tpm.cpu / few_cpu, "ratio"),
        Figure::measured(
            format!("registration: CPU with TPM, {MANY} to {FEW}"),
            many.tpm.cpu / few.tpm.cpu,
            "ratio",
        ),
    ];
    figures.extend(few.figures(FEW).into_iter().chain(many.figures(MANY)));
    Ok(figures)
}
