//! Objects that the tests of this crate start from.

use std::collections::BTreeMap;
use std::sync::Arc;

use coordinator_api::capi::{
    self, Cluster, ClusterInitialization, ClusterSpec, ClusterStatus, Machine, MachineSpec,
};
use coordinator_api::inventory::{
    AllocationState, CarriedNode, CarriedPlan, CarriedStatus, HostStatus, MachineInventory,
    MachineInventorySpec, MachineInventoryStatus, PlanState, PlanStatus, PlanType, SessionStatus,
};
use coordinator_api::machine::{BaremetalMachine, BaremetalMachineSpec, LocalRef};
use coordinator_api::names::{annotation, finalizer, kind};
use coordinator_api::pool::{MachineInventoryPool, MachineInventoryPoolSpec, PoolMember};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::ResourceExt as _;
use proto::plan::{Checksum, Image, RegistryAccess, Secret};

use crate::demand::{BootstrapEdit, Demand, MachineKey, NodeDemand, Want};
use crate::host::HostRecord;
use crate::ids::{HostName, Uid};
use crate::network::HostNetwork;
use crate::node_link::NodeFacts;
use crate::plan::{Clean, Names, PlanInputs, Reprovision};
use crate::pool::Wish;
use crate::provider_id::ProviderId;

pub(crate) const PROVIDER_ID: &str = "baremetal:///host-1";

/// A host that is attached, carries nothing and has no owner.
pub(crate) fn inventory(name: &str) -> MachineInventory {
    let mut inventory = MachineInventory::new(name, MachineInventorySpec::default());
    inventory.metadata.namespace = Some("default".into());
    inventory.metadata.uid = Some(format!("uid-of-{name}"));
    let session = SessionStatus {
        replica: "replica-1".into(),
        boot_id: "boot-1".into(),
        since: Time(Timestamp::UNIX_EPOCH),
        ended: None,
    };
    inventory.status = Some(MachineInventoryStatus {
        plan: Some(PlanStatus {
            secret_ref: Some(ObjectReference { name: Some(name.into()), ..Default::default() }),
            state: Some(PlanState::Applied),
            ..Default::default()
        }),
        host: Some(HostStatus {
            session: Some(session),
            carried: Some(CarriedStatus::default()),
            ..Default::default()
        }),
        ..Default::default()
    });
    inventory
}

pub(crate) fn record(inventory: &MachineInventory) -> HostRecord {
    HostRecord::parse(inventory).unwrap()
}

pub(crate) fn host_status(inventory: &mut MachineInventory) -> &mut HostStatus {
    inventory.status.as_mut().unwrap().host.as_mut().unwrap()
}

pub(crate) fn annotate(inventory: &mut MachineInventory, key: &str, value: &str) {
    inventory.annotations_mut().insert(key.into(), value.into());
}

/// Claimed by [`machine`] when the newest plan had generation `generation`.
pub(crate) fn claim(inventory: &mut MachineInventory, state: AllocationState, generation: u64) {
    let state: &str = state.into();
    for (key, value) in [
        (annotation::OWNER_BAREMETAL_MACHINE, "worker-1"),
        (annotation::OWNER_MACHINE, "worker-1"),
        (annotation::OWNER_CLUSTER, "c1"),
        (annotation::OWNER_UID, "uid-of-worker-1"),
        (annotation::POOL, "workers"),
        (annotation::ALLOCATION_STATE, state),
        (annotation::CLAIM_GENERATION, &generation.to_string()),
    ] {
        annotate(inventory, key, value);
    }
    inventory.metadata.finalizers = Some(vec![finalizer::MACHINE_INVENTORY.into()]);
}

/// Announces a plan, and lets the host state its result.
pub(crate) fn announce(
    inventory: &mut MachineInventory,
    kind: PlanType,
    generation: i64,
    state: Option<PlanState>,
) {
    let text: &str = kind.into();
    let checksum = Checksum::of(text.as_bytes()).to_string();
    let id = format!("{text}-{generation}");
    let status = inventory.status.as_mut().unwrap();
    status.plan = Some(PlanStatus {
        secret_ref: status.plan.take().and_then(|plan| plan.secret_ref),
        checksum: Some(checksum.clone()),
        state,
        id: Some(id.clone()),
        kind: Some(kind),
        generation: Some(generation),
        ..Default::default()
    });
    let carried = host_status(inventory).carried.get_or_insert_default();
    carried.plan = Some(CarriedPlan { id, generation, checksum, kind, state });
    if state == Some(PlanState::Applied) && kind != PlanType::Custom {
        let node = CarriedNode {
            provider_id: PROVIDER_ID.into(),
            uuid: "uid-of-host-1".into(),
            owner: String::new(),
        };
        carried.node = (kind == PlanType::Reprovision).then_some(node);
    }
}

pub(crate) fn pool(members: &[&str]) -> Arc<MachineInventoryPool> {
    let member = |name: &&str| PoolMember { name: (*name).into(), ..Default::default() };
    let spec = MachineInventoryPoolSpec {
        cluster_name: "c1".into(),
        machine_inventories: members.iter().map(member).collect(),
        ..Default::default()
    };
    let mut pool = MachineInventoryPool::new("workers", spec);
    pool.metadata.namespace = Some("default".into());
    pool.metadata.uid = Some("uid-of-workers".into());
    Arc::new(pool)
}

pub(crate) fn machine() -> BaremetalMachine {
    let spec = BaremetalMachineSpec {
        machine_inventory_pool_ref: LocalRef { name: "workers".into() },
        ..Default::default()
    };
    let mut machine = BaremetalMachine::new("worker-1", spec);
    machine.metadata.namespace = Some("default".into());
    machine.metadata.uid = Some("uid-of-worker-1".into());
    machine.metadata.finalizers = Some(vec![finalizer::BAREMETAL_MACHINE.into()]);
    machine.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "cluster.x-k8s.io/v1beta2".into(),
        kind: kind::MACHINE.into(),
        name: "worker-1".into(),
        uid: "uid-of-owner".into(),
        ..Default::default()
    }]);
    machine
}

pub(crate) fn owner() -> Machine {
    let spec = MachineSpec {
        cluster_name: "c1".into(),
        bootstrap: capi::Bootstrap { data_secret_name: Some("join".into()), config_ref: None },
        version: Some("v1.36.3".into()),
        infrastructure_ref: capi::InfrastructureRef {
            kind: kind::BAREMETAL_MACHINE.into(),
            name: "worker-1".into(),
        },
        failure_domain: None,
    };
    let mut owner = Machine::new("worker-1", &capi::machine("v1beta2"), spec).within("default");
    owner.metadata.uid = Some("uid-of-owner".into());
    owner
}

pub(crate) fn cluster() -> Cluster {
    let resource = capi::cluster_resource("v1beta2");
    let mut cluster = Cluster::new("c1", &resource, ClusterSpec::default()).within("default");
    let done = ClusterInitialization { infrastructure_provisioned: Some(true), ..Default::default() };
    cluster.status = Some(ClusterStatus { initialization: Some(done), ..ClusterStatus::default() });
    cluster
}

/// A Cluster of which nothing is known but its pause.
pub(crate) fn bare_cluster(paused: Option<bool>) -> Cluster {
    Cluster::new("c1", &capi::cluster_resource("v1beta2"), ClusterSpec { paused, ..ClusterSpec::default() })
}

pub(crate) fn names() -> Names {
    Names {
        hostname: "host-1".into(),
        machine: "worker-1".into(),
        namespace: "default".into(),
        uuid: "uid-of-host-1".into(),
        provider_id: PROVIDER_ID.into(),
    }
}

/// A Node with these labels; without a providerID where that is empty.
pub(crate) fn node(name: &str, provider_id: &str, labels: &[(&str, &str)]) -> NodeFacts {
    NodeFacts {
        is_deleting: false,
        name: name.to_owned(),
        uid: None,
        provider_id: (!provider_id.is_empty()).then(|| provider_id.to_owned()),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    }
}

/// The demand of [`machine`], which has chosen `host-1`.
pub(crate) fn demand() -> Demand {
    Demand {
        owned_hosts: vec![],
        machine: MachineKey {
            kind: kind::BAREMETAL_MACHINE,
            namespace: "default".into(),
            name: "worker-1".into(),
            uid: Uid::parse("uid-of-worker-1"),
        },
        host: HostName::parse("host-1"),
        provider_id: None,
        has_finalizer: true,
        retry_clean: false,
        release_without_clean: false,
        abandon_after: None,
        left_node: None,
        hold: None,
        want: Want::Node(Box::new(NodeDemand {
            machine: "worker-1".into(),
            cluster: "c1".into(),
            pool: "workers".into(),
            wish: Wish::default(),
            is_listed: true,
            candidate: Some(Ok(HostName::parse("host-2").unwrap())),
            bootstrap_secret: Some("join".into()),
            bootstrap_edit: BootstrapEdit::Unchanged,
            meta_data_secret: None,
            network_data_secret: None,
            image: Ok(image()),
            registry_secret: None,
            names: Some(names()),
            other_ids: vec![],
            link: None,
        })),
    }
}

pub(crate) fn running(demand: Demand) -> Demand {
    Demand { provider_id: ProviderId::parse(PROVIDER_ID), ..demand }
}

pub(crate) fn deleted(demand: Demand) -> Demand {
    Demand { want: Want::Release, ..demand }
}

pub(crate) fn image() -> Image {
    Image::parse("registry.example/os:v1").unwrap()
}

pub(crate) fn bootstrap() -> Secret {
    Secret::new(b"#cloud-config\nruncmd: [canary]\n".to_vec())
}

/// Every part of it has another value.
pub(crate) fn registry_access() -> RegistryAccess {
    RegistryAccess {
        docker_config: Some(Secret::new(b"{\"auths\":{}}".to_vec())),
        authorities: Some("pem".into()),
        https_proxy: Some(Secret::new(b"http://proxy:1".to_vec())),
        http_proxy: Some(Secret::new(b"http://proxy:2".to_vec())),
        no_proxy: Some("10.0.0.0/8".into()),
    }
}

pub(crate) fn reprovision() -> PlanInputs {
    PlanInputs::Reprovision(Reprovision {
        image: image(),
        registry: None,
        user_data: bootstrap(),
        network: HostNetwork { network_config: Some("version: 2\n".into()), ..HostNetwork::default() },
        names: names(),
        meta_data: BTreeMap::new(),
    })
}

pub(crate) fn clean() -> PlanInputs {
    PlanInputs::Clean(Clean { network: HostNetwork::default() })
}
