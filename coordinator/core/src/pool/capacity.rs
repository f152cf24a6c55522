//! Capacity of the members of a pool, for autoscalers whose pool runs no node yet.

use std::collections::BTreeMap;

use coordinator_api::template::{BaremetalMachineTemplateStatus, NodeInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::host::hardware::Capacity;

/// Number of members with each value, so that the least capacity needs no scan of the members.
#[derive(Clone, Debug, Default)]
pub(super) struct CapacityCounts {
    cpu_threads: Counts<i64>,
    memory_bytes: Counts<i64>,
    architectures: Counts<&'static str>,
}

impl CapacityCounts {
    pub(super) fn add(&mut self, capacity: &Capacity) {
        self.cpu_threads.add(capacity.cpu_threads);
        self.memory_bytes.add(capacity.memory_bytes);
        self.architectures.add(capacity.architecture);
    }

    pub(super) fn remove(&mut self, capacity: &Capacity) {
        self.cpu_threads.remove(capacity.cpu_threads);
        self.memory_bytes.remove(capacity.memory_bytes);
        self.architectures.remove(capacity.architecture);
    }

    /// The least of each resource, and the architecture if all members with a known one agree.
    pub(super) fn least(&self) -> Capacity {
        let mut architectures = self.architectures.values();
        let architecture = architectures.next().filter(|_| architectures.next().is_none());
        Capacity {
            cpu_threads: self.cpu_threads.values().next(),
            memory_bytes: self.memory_bytes.values().next(),
            architecture,
        }
    }
}

#[derive(Clone, Debug)]
struct Counts<T>(BTreeMap<T, usize>);

impl<T> Default for Counts<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy + Ord> Counts<T> {
    fn add(&mut self, value: Option<T>) {
        if let Some(value) = value {
            *self.0.entry(value).or_default() += 1;
        }
    }

    fn remove(&mut self, value: Option<T>) {
        let Some(value) = value else { return };
        if let Some(count) = self.0.get_mut(&value) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&value);
            }
        }
    }

    fn values(&self) -> impl Iterator<Item = T> {
        self.0.keys().copied()
    }
}

/// The status of a template whose pool has this capacity.
pub fn template_status(capacity: &Capacity) -> BaremetalMachineTemplateStatus {
    let resources = [("cpu", capacity.cpu_threads), ("memory", capacity.memory_bytes)];
    let known = resources
        .into_iter()
        .filter_map(|(name, amount)| Some((name.to_owned(), Quantity(amount?.to_string()))));
    let node_info = capacity
        .architecture
        .map(|name| NodeInfo { architecture: name.to_owned(), operating_system: "linux".to_owned() });
    BaremetalMachineTemplateStatus { capacity: known.collect(), node_info }
}
