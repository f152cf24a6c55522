//! Cost of an event, of a choice of a host and of a recount of the pool, by the number of
//! inventories: CPU time of one thread, the sizes interleaved. An event is decoded, stored and
//! indexed, as the coordinator does it.

use std::fmt::Debug;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use coordinator::index::Index;
use coordinator::key::{Key, Presence};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_api::pool::MachineInventoryPool;
use coordinator_core::pool::Wish;
use jiff::Timestamp;
use kube::Resource;
use kube::core::{DeserializeGuard, WatchEvent};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::figure::{Figure, median};
use crate::metal3_index;
use crate::usage::thread_cpu;

const SIZES: [usize; 3] = [100, 1_000, 10_000];
const ROUNDS: usize = 9;
const OPERATIONS: usize = 2_000;
/// Events that are prepared before they are timed.
const CHUNK: usize = 50;
const NAMESPACE: &str = "fleet";
const POOL: &str = "pool";
/// Goal: a size of 10,000 against one of 100.
const RATIO: f64 = 1.5;

/// An index with a pool of that many hosts, half of them claimed.
struct Sample {
    cache: Cache<MachineInventory>,
    index: Index,
    /// All of its hosts are claimed, as in most pools most of the time.
    full: Index,
    pool: Key,
    /// Each host without and with a claim, as a watch sends it.
    hosts: Vec<[Vec<u8>; 2]>,
    /// Which of the two the index has.
    claimed: Vec<bool>,
    next: usize,
}

/// What is measured on a sample.
#[derive(Clone, Copy)]
enum Operation {
    Event,
    Choice,
    Refusal,
    Recount,
}

const OPERATION_NAMES: [(Operation, &str); 4] = [
    (Operation::Event, "event of an inventory"),
    (Operation::Choice, "choice of a host"),
    (Operation::Refusal, "choice in a full pool"),
    (Operation::Recount, "recount of the pool"),
];

/// What the watch of a kind fills.
pub(crate) struct Cache<K: Resource<DynamicType = ()> + Clone + 'static>(Writer<K>);

impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned> Cache<K> {
    pub(crate) fn new() -> Self {
        Self(Writer::new(()))
    }

    /// Decodes what a watch sends and stores the object.
    pub(crate) fn take_event(&mut self, line: &[u8]) -> anyhow::Result<Arc<K>> {
        let event: WatchEvent<DeserializeGuard<K>> = serde_json::from_slice(line)?;
        let WatchEvent::Modified(object) = event else { anyhow::bail!("not a change") };
        let object = object.0.map_err(|invalid| anyhow::anyhow!("{}", invalid.error))?;
        let key = ObjectRef::from_obj(&object);
        self.0.apply_watcher_event(&Event::Apply(object));
        self.0.as_reader().get(&key).context("the object is not stored")
    }
}

/// A change of `object` as a watch sends it.
pub(crate) fn changed(object: &Value) -> Vec<u8> {
    json!({ "type": "MODIFIED", "object": object }).to_string().into_bytes()
}

fn inventory(name: &str, machine: Option<&str>) -> Vec<u8> {
    let mut annotations = json!({ annotation::POOL: POOL });
    if let Some(machine) = machine {
        annotations[annotation::OWNER_BAREMETAL_MACHINE] = Value::from(machine);
        annotations[annotation::OWNER_CLUSTER] = Value::from("lab");
    }
    changed(&json!({
        "apiVersion": "elemental.cattle.io/v1beta1",
        "kind": "MachineInventory",
        "metadata": { "name": name, "namespace": NAMESPACE, "annotations": annotations },
        "spec": {},
        "status": {
            "plan": { "secretRef": { "name": name } },
            "host": {
                "session": { "replica": "r1", "bootId": "b1", "since": "2026-01-01T00:00:00Z" },
                "carried": {},
            },
        },
    }))
}

impl Sample {
    fn build(size: usize) -> anyhow::Result<Self> {
        let names: Vec<String> = (0..size).map(|number| format!("host-{number:05}")).collect();
        let members: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
        let pool: MachineInventoryPool = serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
            "kind": "MachineInventoryPool",
            "metadata": { "name": POOL, "namespace": NAMESPACE, "uid": POOL, "generation": 1 },
            "spec": { "clusterName": "lab", "machineInventories": members },
        }))?;
        let pool = Arc::new(pool);
        let (index, full) = (Index::default(), Index::default());
        black_box(index.apply_pool(&pool, Presence::Exists));
        black_box(full.apply_pool(&pool, Presence::Exists));
        let of_host =
            |name: &String| [inventory(name, None), inventory(name, Some(&format!("machine-{name}")))];
        let hosts: Vec<_> = names.iter().map(of_host).collect();
        let mut cache = Cache::new();
        let mut claimed = vec![];
        for (number, pair) in hosts.iter().enumerate() {
            let held = cache.take_event(&pair[1])?;
            black_box(full.apply_host(&held, Presence::Exists));
            claimed.push(number % 2 == 0);
            let inventory = cache.take_event(&pair[usize::from(claimed[number])])?;
            black_box(index.apply_host(&inventory, Presence::Exists));
        }
        Ok(Self { cache, index, full, pool: Key::new(NAMESPACE, POOL), hosts, claimed, next: 0 })
    }

    /// A claim or a release, as new as a watch delivers it; the hosts follow each other with a
    /// stride that no cache guesses.
    fn next_event(&mut self) -> Vec<u8> {
        self.next = (self.next + 7_919) % self.hosts.len();
        let claimed = !self.claimed[self.next];
        self.claimed[self.next] = claimed;
        self.hosts[self.next][usize::from(claimed)].clone()
    }
}

fn choose_host(index: &Index) {
    let machine = Key::new(NAMESPACE, "machine");
    index.with_roster(&machine, POOL, |roster, is_reserved| {
        black_box(roster.map(|roster| {
            roster
                .choose_member(&Wish::default(), Timestamp::UNIX_EPOCH, is_reserved)
                .map(|member| member.name.len())
        }));
    });
}

impl Measured for Sample {
    type Operation = Operation;

    fn prepare_event(&mut self, operation: Operation) -> Option<Vec<u8>> {
        matches!(operation, Operation::Event).then(|| self.next_event())
    }

    fn perform(&mut self, operation: Operation, event: Option<&[u8]>) -> anyhow::Result<()> {
        match operation {
            Operation::Event => {
                let inventory = self.cache.take_event(event.unwrap_or_default())?;
                black_box(self.index.apply_host(&inventory, Presence::Exists));
            }
            Operation::Choice => choose_host(&self.index),
            Operation::Refusal => choose_host(&self.full),
            Operation::Recount => {
                black_box(
                    self.index.read_roster(&self.pool, |roster| roster.project_status(Timestamp::UNIX_EPOCH)),
                );
            }
        }
        Ok(())
    }
}

/// Something of a size, on which operations are timed.
pub(crate) trait Measured: Sized {
    type Operation: Copy;

    /// What the operation takes, where it takes something: made before it is timed.
    fn prepare_event(&mut self, operation: Self::Operation) -> Option<Vec<u8>>;

    fn perform(&mut self, operation: Self::Operation, event: Option<&[u8]>) -> anyhow::Result<()>;

    /// Microseconds of one operation.
    fn time_operation(&mut self, operation: Self::Operation) -> anyhow::Result<f64> {
        let mut spent = Duration::ZERO;
        for _ in 0..OPERATIONS / CHUNK {
            let events: Vec<_> = (0..CHUNK).map(|_| self.prepare_event(operation)).collect();
            let start = thread_cpu()?;
            for event in &events {
                self.perform(operation, event.as_deref())?;
            }
            spent += thread_cpu()?.saturating_sub(start);
        }
        Ok(spent.as_secs_f64() * 1e6 / crate::as_f64(OPERATIONS))
    }
}

/// The figures of every operation, with samples that `build` makes of each size.
pub(crate) fn measure<M: Measured>(
    build: impl Fn(usize) -> anyhow::Result<M>,
    operations: &[(M::Operation, &str)],
) -> anyhow::Result<Vec<Figure>> {
    let mut samples = SIZES.into_iter().map(build).collect::<anyhow::Result<Vec<_>>>()?;
    let mut figures = vec![];
    for (operation, name) in operations {
        for sample in &mut samples {
            sample.time_operation(*operation)?;
        }
        let mut costs = [(); SIZES.len()].map(|()| vec![]);
        for _ in 0..ROUNDS {
            for (sample, costs) in samples.iter_mut().zip(&mut costs) {
                costs.push(sample.time_operation(*operation)?);
            }
        }
        for (size, costs) in SIZES.iter().zip(&costs) {
            let figure = Figure::measured(format!("index: {name}, {size}"), median(costs), "us");
            figures.push(figure.with_range(costs).of_size(name, *size));
        }
        let ratios: Vec<f64> = costs[2].iter().zip(&costs[0]).map(|(large, small)| large / small).collect();
        let figure = Figure::at_most(format!("index: {name}, 10000 to 100"), median(&ratios), RATIO, "ratio");
        figures.push(figure.with_range(&ratios));
    }
    Ok(figures)
}

/// The figures of inventories, and of the hosts of Metal3.
pub(crate) fn run() -> anyhow::Result<Vec<Figure>> {
    let build = |size| {
        eprintln!("index: building a pool of {size} hosts");
        Sample::build(size)
    };
    let mut figures = measure(build, &OPERATION_NAMES)?;
    figures.extend(metal3_index::run()?);
    Ok(figures)
}
