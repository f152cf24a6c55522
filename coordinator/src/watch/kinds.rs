//! What an event of each kind is recorded as.

use std::sync::Arc;

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::cluster::BaremetalCluster;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::pool::MachineInventoryPool;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use coordinator_api::template::BaremetalMachineTemplate;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;

use super::Sinks;
use super::follow::Watched;
use crate::index::{Index, Triggers};
use crate::key::{Key, Presence};

impl Watched for MachineInventory {
    const KIND: &'static str = "MachineInventory";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        (sinks.inventory_changes)(this, presence);
        let mut triggers = sinks.index.apply_host(this, presence);
        triggers.metal3.extend(sinks.metal3.apply_inventory(this, presence).metal3);
        triggers
    }
}

impl Watched for MachineInventoryPool {
    const KIND: &'static str = "MachineInventoryPool";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.index.apply_pool(this, presence)
    }
}

impl Watched for BaremetalMachineTemplate {
    const KIND: &'static str = "BaremetalMachineTemplate";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.index.apply_template(this, presence)
    }
}

impl Watched for BaremetalMachine {
    const KIND: &'static str = "BaremetalMachine";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.index.apply_machine(this, presence)
    }
}

impl Watched for Machine {
    const KIND: &'static str = "Machine";

    fn record_change(this: &Arc<Self>, _: Presence, sinks: &Sinks) -> Triggers {
        let mut triggers = Index::apply_owner(this);
        triggers.metal3.extend(sinks.metal3.apply_owner(this).metal3);
        triggers
    }
}

impl Watched for Cluster {
    const KIND: &'static str = "Cluster";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        if presence == Presence::Deleted {
            sinks.workloads.forget_cluster(&Key::of(&**this));
        }
        let mut triggers = sinks.index.apply_cluster(this, presence);
        triggers.metal3.extend(sinks.metal3.apply_cluster(this, presence).metal3);
        triggers
    }
}

impl Watched for BaremetalCluster {
    const KIND: &'static str = "BaremetalCluster";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.index.apply_baremetal_cluster(this, presence)
    }
}

impl Watched for MachineRegistration {
    const KIND: &'static str = "MachineRegistration";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        (sinks.registration_changes)(this, presence);
        sinks.index.apply_registration(this, presence)
    }
}

impl Watched for SeedImage {
    const KIND: &'static str = "SeedImage";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        (sinks.seed_image_changes)(this, presence);
        sinks.index.apply_seed_image(this, presence)
    }
}

impl Watched for ConfigMap {
    const KIND: &'static str = "ConfigMap";

    fn record_change(_: &Arc<Self>, _: Presence, sinks: &Sinks) -> Triggers {
        let mut triggers = sinks.index.apply_catalog();
        triggers.metal3.extend(sinks.metal3.apply_catalog().metal3);
        triggers
    }
}

impl Watched for Lease {
    const KIND: &'static str = "Lease";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        let died = sinks.replicas.observe_lease(this, presence);
        let hosts = died.iter().flat_map(|replica| sinks.index.hosts_by_replica(replica)).collect();
        Triggers { hosts, ..Triggers::default() }
    }
}
