//! Objects that the tests of this crate start from.

use coordinator_api::capi::{self, Machine, MachineSpec};
use coordinator_api::conditions::{self, Finding, Reason, Type};
use coordinator_api::inventory::{
    AllocationState, MachineInventory, MachineInventorySpec, MachineInventoryStatus, PlanState, PlanStatus,
};
use coordinator_api::machine::{BaremetalMachine, BaremetalMachineSpec, LocalRef};
use coordinator_api::names::annotation;
use coordinator_api::pool::{MachineInventoryPool, MachineInventoryPoolSpec, PoolMember};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;

/// A host that is ready and free.
pub(crate) fn inventory(name: &str) -> MachineInventory {
    let mut inventory = MachineInventory::new(name, MachineInventorySpec::default());
    inventory.metadata.namespace = Some("default".into());
    inventory.metadata.uid = Some(format!("uid-of-{name}"));
    let mut status = MachineInventoryStatus {
        plan: Some(PlanStatus {
            secret_ref: Some(ObjectReference { name: Some(name.into()), ..Default::default() }),
            state: Some(PlanState::Applied),
            ..Default::default()
        }),
        ..Default::default()
    };
    let ready = Finding::holds(Type::Ready, Reason::PlanSuccessfullyApplied, "");
    conditions::apply(&mut status.conditions, &[ready], None, Timestamp::UNIX_EPOCH);
    inventory.status = Some(status);
    inventory
}

pub(crate) fn annotate(inventory: &mut MachineInventory, key: &str, value: &str) {
    inventory.annotations_mut().insert(key.into(), value.into());
}

/// Claimed by [`machine`].
pub(crate) fn claim(inventory: &mut MachineInventory, state: AllocationState) {
    let state: &str = state.into();
    for (key, value) in [
        (annotation::OWNER_BAREMETAL_MACHINE, "worker-1"),
        (annotation::OWNER_MACHINE, "worker-1"),
        (annotation::OWNER_CLUSTER, "c1"),
        (annotation::OWNER_UID, "uid-of-worker-1"),
        (annotation::POOL, "workers"),
        (annotation::ALLOCATION_STATE, state),
    ] {
        annotate(inventory, key, value);
    }
}

pub(crate) fn pool(members: &[&str]) -> MachineInventoryPool {
    let member = |name: &&str| PoolMember { name: (*name).into(), ..Default::default() };
    let mut pool = MachineInventoryPool::new(
        "workers",
        MachineInventoryPoolSpec {
            cluster_name: "c1".into(),
            machine_inventories: members.iter().map(member).collect(),
        },
    );
    pool.metadata.namespace = Some("default".into());
    pool.metadata.uid = Some("uid-of-workers".into());
    pool
}

pub(crate) fn machine() -> BaremetalMachine {
    let mut machine = BaremetalMachine::new(
        "worker-1",
        BaremetalMachineSpec {
            machine_inventory_pool_ref: LocalRef { name: "workers".into() },
            ..Default::default()
        },
    );
    machine.metadata.namespace = Some("default".into());
    machine.metadata.uid = Some("uid-of-worker-1".into());
    machine
}

pub(crate) fn owner() -> Machine {
    let spec = MachineSpec {
        cluster_name: "c1".into(),
        bootstrap: capi::Bootstrap { data_secret_name: Some("join".into()) },
        version: Some("v1.36.3".into()),
        infrastructure_ref: capi::InfrastructureRef {
            kind: "BaremetalMachine".into(),
            name: "worker-1".into(),
        },
    };
    Machine::new("worker-1", &capi::machine("v1beta2"), spec).within("default")
}
