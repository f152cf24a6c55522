//! Cost of an event of a `BareMetalHost` and of a choice among them, by their number.

use std::hint::black_box;

use coordinator::index::metal3::Metal3Index;
use coordinator::key::Presence;
use coordinator_api::capi::Machine;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::Metal3Machine;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::figure::Figure;
use crate::index::{Cache, Measured, changed, measure};

const NAMESPACE: &str = "fleet";
/// Hosts of one rack, however many racks there are.
const RACK: usize = 40;

/// An index with that many hosts, half of them in use.
struct Sample {
    cache: Cache<BareMetalHost>,
    index: Metal3Index,
    /// Each host free and in use, as a watch sends it.
    hosts: Vec<[Vec<u8>; 2]>,
    /// Which of the two the index has.
    used: Vec<bool>,
    next: usize,
    any: Metal3Machine,
    of_a_rack: Metal3Machine,
    of_none: Metal3Machine,
    owner: Machine,
}

/// What is measured on a sample.
#[derive(Clone, Copy)]
enum Operation {
    Event,
    Choice,
    Selected,
    Exhausted,
}

const OPERATION_NAMES: [(Operation, &str); 4] = [
    (Operation::Event, "event of a BareMetalHost"),
    (Operation::Choice, "choice of any BareMetalHost"),
    (Operation::Selected, "choice of a BareMetalHost by labels"),
    (Operation::Exhausted, "no BareMetalHost to choose"),
];

fn host(number: usize, is_used: bool) -> Vec<u8> {
    let consumer = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
        "name": format!("machine-{number:05}"), "namespace": NAMESPACE,
    });
    changed(&json!({
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": {
            "name": format!("host-{number:05}"),
            "namespace": NAMESPACE,
            "labels": {
                "rack": format!("rack-{:03}", number / RACK),
                "unit": format!("u{}", number % RACK),
                "role": "worker",
            },
        },
        "spec": { "consumerRef": if is_used { consumer } else { Value::Null } },
        "status": { "provisioning": { "state": if is_used { "provisioned" } else { "available" } } },
    }))
}

fn machine(selector: &Value) -> anyhow::Result<Metal3Machine> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
        "kind": "Metal3Machine",
        "metadata": { "name": "machine", "namespace": NAMESPACE },
        "spec": { "hostSelector": selector },
    }))?)
}

impl Sample {
    fn build(size: usize) -> anyhow::Result<Self> {
        eprintln!("index: building a namespace of {size} BareMetalHosts");
        let (mut cache, index) = (Cache::new(), Metal3Index::default());
        let (mut hosts, mut used) = (vec![], vec![]);
        for number in 0..size {
            hosts.push([host(number, false), host(number, true)]);
            used.push(number % 2 == 0);
            let host = cache.take_event(&hosts[number][usize::from(used[number])])?;
            black_box(index.apply_host(&host, Presence::Exists));
        }
        let owner = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": { "name": "machine", "namespace": NAMESPACE },
            "spec": { "clusterName": "lab", "bootstrap": {}, "infrastructureRef": { "kind": "Metal3Machine", "name": "machine" } },
        });
        Ok(Self {
            cache,
            index,
            hosts,
            used,
            next: 0,
            any: machine(&json!({}))?,
            of_a_rack: machine(&json!({ "matchLabels": { "role": "worker", "rack": "rack-001" } }))?,
            of_none: machine(&json!({ "matchLabels": { "role": "worker", "rack": "none" } }))?,
            owner: serde_json::from_value(owner)?,
        })
    }

    /// As new as a watch delivers it; the hosts follow each other with a stride that no cache
    /// guesses.
    fn next_event(&mut self) -> Vec<u8> {
        self.next = (self.next + 7_919) % self.hosts.len();
        let is_used = !self.used[self.next];
        self.used[self.next] = is_used;
        self.hosts[self.next][usize::from(is_used)].clone()
    }

    fn choose(&self, machine: &Metal3Machine) {
        let _ = black_box(self.index.choose_host(machine, &self.owner, Timestamp::UNIX_EPOCH));
    }
}

impl Measured for Sample {
    type Operation = Operation;

    fn prepare_event(&mut self, operation: Operation) -> Option<Vec<u8>> {
        matches!(operation, Operation::Event).then(|| self.next_event())
    }

    fn perform(&mut self, operation: Operation, event: Option<&[u8]>) -> anyhow::Result<()> {
        match operation {
            Operation::Event => {
                let host = self.cache.take_event(event.unwrap_or_default())?;
                black_box(self.index.apply_host(&host, Presence::Exists));
            }
            Operation::Choice => self.choose(&self.any),
            Operation::Selected => self.choose(&self.of_a_rack),
            Operation::Exhausted => self.choose(&self.of_none),
        }
        Ok(())
    }
}

/// The figures of every operation.
pub(crate) fn run() -> anyhow::Result<Vec<Figure>> {
    measure(Sample::build, &OPERATION_NAMES)
}
