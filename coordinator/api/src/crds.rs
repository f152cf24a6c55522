//! The definitions as they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::cluster::BaremetalCluster;
use crate::inventory::MachineInventory;
use crate::machine::BaremetalMachine;
use crate::names::{INFRASTRUCTURE_GROUP, label};
use crate::pool::MachineInventoryPool;
use crate::registration::MachineRegistration;
use crate::seed_image::SeedImage;
use crate::template::BaremetalMachineTemplate;

/// Labels by which Cluster API finds which of our versions speaks which of
/// its contracts: one version of ours speaks both.
const CONTRACTS: [&str; 2] = ["cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2"];

/// Every definition, those of registration first.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        MachineRegistration::crd(),
        SeedImage::crd(),
        MachineInventory::crd(),
        MachineInventoryPool::crd(),
        BaremetalCluster::crd(),
        BaremetalMachine::crd(),
        BaremetalMachineTemplate::crd(),
    ];
    for crd in &mut crds {
        let labels = crd.metadata.labels.get_or_insert_default();
        labels.insert(label::CLUSTERCTL.to_owned(), String::new());
        labels.insert(label::CLUSTERCTL_MOVE.to_owned(), String::new());
        if crd.spec.group == INFRASTRUCTURE_GROUP {
            for contract in CONTRACTS {
                labels.insert(contract.to_owned(), crate::names::VERSION.to_owned());
            }
        }
    }
    crds
}

/// A definition as YAML.
///
/// # Errors
/// Never for the definitions of [`all`].
pub fn yaml(crd: &CustomResourceDefinition) -> Result<String, serde_norway::Error> {
    serde_norway::to_string(crd)
}
