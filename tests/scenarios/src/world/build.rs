//! What a world is made of.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{LazyLock, Mutex};

use fake_apiserver::{FakeApi, GarbageCollection, Kind, OwnerReferences, Rules, read_policies};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::{COORDINATOR, World};
use crate::coordinator::{FrontDoors, Site};
use crate::history::History;
use crate::host_effects::Disks;
use crate::log::Log;
use crate::network::Network;
use crate::token_search::TokenSearch;

/// The version of Cluster API where a scenario asks for no other.
const NEWEST: &str = "v1beta2";

/// Of coordinators that serve no kind of Metal3.
const RIGHTS: &str = concat!(
    include_str!("../../../../coordinator/config/rbac.yaml"),
    "---\n",
    include_str!("../../../../coordinator/config/all-namespaces.yaml")
);
/// What is applied in addition for `BareMetalHost` alone.
const HOST_RIGHTS: &str =
    concat!("\n---\n", include_str!("../../../../coordinator/config/metal3/hosts.yaml"));
/// What is applied in addition for the Metal3 kinds.
const METAL3_RIGHTS: &str = concat!(
    "\n---\n",
    include_str!("../../../../coordinator/config/metal3/rbac.yaml"),
    "---\n",
    include_str!("../../../../coordinator/config/metal3/all-namespaces.yaml")
);

/// What is applied with the kinds of Metal3, in either mode.
const METAL3_POLICIES: &str = include_str!("../../../../coordinator/config/metal3/policy.yaml");

// Made once: schemas and rights of every world are the same.
static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| kinds_of(&coordinator_api::crds::all()));
static METAL3_KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| kinds_of(&coordinator_api::metal3::crds()));
static BOUND_POLICIES: LazyLock<Vec<Value>> = LazyLock::new(|| read_policies(RIGHTS));
static BOUND_METAL3_POLICIES: LazyLock<Vec<Value>> = LazyLock::new(|| read_policies(METAL3_POLICIES));
static RULES: LazyLock<Rules> = LazyLock::new(|| rules_of(""));
static HOST_RULES: LazyLock<Rules> = LazyLock::new(|| rules_of(HOST_RIGHTS));
static METAL3_RULES: LazyLock<Rules> = LazyLock::new(|| rules_of(METAL3_RIGHTS));

fn kinds_of(definitions: &[CustomResourceDefinition]) -> Vec<Kind> {
    definitions.iter().flat_map(Kind::from_crd).collect()
}

/// The coordinators may do what is installed with them, and no more.
pub(super) fn rules_of(more: &str) -> Rules {
    Rules::of_service_account(&format!("{RIGHTS}{more}"), "baremetal-system", "baremetal-coordinator")
        .unwrap()
}

/// An API server with the kinds of ours, and of Cluster API at one version.
fn serve_kinds(front_doors: FrontDoors, cluster_api: &str) -> FakeApi {
    let fake = FakeApi::new();
    let metal3 = METAL3_KINDS.iter().filter(|_| front_doors != FrontDoors::Baremetal);
    KINDS.iter().chain(metal3).for_each(|kind| fake.register(kind.clone()));
    for (group, version, kind, plural) in [
        ("cluster.x-k8s.io", cluster_api, "Machine", "machines"),
        ("cluster.x-k8s.io", cluster_api, "Cluster", "clusters"),
        ("controlplane.cluster.x-k8s.io", cluster_api, "KubeadmControlPlane", "kubeadmcontrolplanes"),
        ("ipam.cluster.x-k8s.io", NEWEST, "IPAddressClaim", "ipaddressclaims"),
        ("ipam.cluster.x-k8s.io", NEWEST, "IPAddress", "ipaddresses"),
    ] {
        fake.register(Kind::namespaced(group, version, kind, plural).with_status());
    }
    let metal3 = BOUND_METAL3_POLICIES.iter().filter(|_| front_doors != FrontDoors::Baremetal);
    for policy in BOUND_POLICIES.iter().chain(metal3) {
        fake.put_back(policy.clone(), OwnerReferences::Drop).unwrap();
    }
    fake.garbage_collection(GarbageCollection::Immediate);
    fake
}

/// Directory of the hosts, where there is one.
pub const MEMORY: &str = "/dev/shm";

/// Every write of an agent is flushed: on a disk that is all the time there is.
fn make_directory() -> tempfile::TempDir {
    let memory = Path::new(MEMORY);
    let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    directory.unwrap()
}

impl World {
    /// An API server and one coordinator.
    pub async fn new() -> Self {
        Self::without_coordinator().run().await
    }

    /// An API server with all kinds, and no coordinator.
    pub fn without_coordinator() -> Self {
        Self::serving(FrontDoors::Baremetal, NEWEST)
    }

    /// As [`World::new`], where Cluster API is served at this version alone.
    pub async fn with_cluster_api(version: &'static str) -> Self {
        Self::serving(FrontDoors::Baremetal, version).run().await
    }

    /// As [`World::new`], and coordinators also serve the Metal3 kinds.
    pub async fn with_metal3() -> Self {
        Self::serving(FrontDoors::WithMetal3, NEWEST).run().await
    }

    /// As [`World::new`], and coordinators also serve `BareMetalHost`.
    pub async fn with_bare_metal_hosts() -> Self {
        Self::serving(FrontDoors::WithBareMetalHosts, NEWEST).run().await
    }

    /// The same where the baremetal-operator's own definition of the kind is installed.
    pub async fn with_foreign_hosts(definition: &CustomResourceDefinition) -> Self {
        let world = Self::serving(FrontDoors::WithBareMetalHosts, NEWEST);
        world.fake.register_crd(definition);
        world.run().await
    }

    async fn run(self) -> Self {
        self.start_coordinator(COORDINATOR);
        self.wait_idle().await;
        self
    }

    fn serving(front_doors: FrontDoors, cluster_api: &'static str) -> Self {
        let log = Log::default();
        let caught = log.catch();
        let fake = serve_kinds(front_doors, cluster_api);
        let directory = make_directory();
        let network = Network::default();
        let site = Site::new(fake.clone(), network.clone(), directory.path(), front_doors);
        let history = History::of_hosts(Disks { directory: directory.path().to_owned() });
        let tokens = TokenSearch::default();
        let (noted, learned) = (history.clone(), tokens.clone());
        fake.observe(move |(resource, _, name), now| {
            noted.observe(resource, name, now);
            learned.observe(resource, now);
        });
        let rules = match front_doors {
            FrontDoors::Baremetal => &*RULES,
            FrontDoors::WithMetal3 => &*METAL3_RULES,
            FrontDoors::WithBareMetalHosts => &*HOST_RULES,
        };
        Self {
            operator: fake.client("operator"),
            fake,
            cluster_api,
            hosts: BTreeMap::new(),
            coordinators: Mutex::default(),
            stops: Mutex::default(),
            rules: rules.clone(),
            workload: site.workload.clone(),
            site,
            finds_nodes: AtomicBool::new(true),
            network,
            tokens,
            allows_custom_plans: false,
            planned_fault: None,
            directory,
            history,
            ran: Mutex::default(),
            is_checked: false,
            allows_unmet_faults: false,
            log,
            _caught: caught,
        }
    }
}
