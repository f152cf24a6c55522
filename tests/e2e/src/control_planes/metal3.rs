//! Hosts, data and addresses of a cluster by the kinds of Metal3.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use coordinator_api::metal3::data::{Metal3Data, Metal3DataClaim};
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::ipam::{IPAddress, IPClaim};
use coordinator_api::metal3::machine::Metal3Machine;
use coordinator_api::metal3::names::HOST_OF_MACHINE;
use coordinator_api::names::annotation;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{CONTROL_PLANE_LABEL, Cluster};
use crate::environment::Environment;
use crate::fleet::Fleet;
use crate::lifecycle::NAMESPACE;
use crate::requests::retry;
use crate::watching::until;

const DEADLINE: Duration = Duration::from_mins(2);
/// The pool of the manifest.
const POOL: &str = "provisioning";

/// The kinds whose changes are worth a line.
pub fn kinds() -> [kube::core::ApiResource; 3] {
    use kube::core::ApiResource;
    [
        ApiResource::erase::<BareMetalHost>(&()),
        ApiResource::erase::<Metal3Machine>(&()),
        ApiResource::erase::<Metal3Data>(&()),
    ]
}

/// Applies a `BareMetalHost` `node-N` for each inventory; the first one is for
/// control planes, the others are for workers.
///
/// # Errors
/// When one does not become available.
pub async fn apply_hosts(environment: &Environment, inventories: &[String]) -> anyhow::Result<()> {
    for (number, inventory) in inventories.iter().enumerate() {
        let host = json!({
            "apiVersion": "metal3.io/v1alpha1",
            "kind": "BareMetalHost",
            "metadata": {
                "name": format!("node-{number}"),
                "namespace": NAMESPACE,
                "labels": { "role": if number == 0 { "control-plane" } else { "worker" } },
                "annotations": { annotation::MACHINE_INVENTORY: inventory },
            },
            "spec": { "online": true },
        });
        environment.management.apply(&host.to_string()).await?;
    }
    let api: Api<BareMetalHost> = Api::namespaced(environment.management.admin.clone(), NAMESPACE);
    for number in 0..inventories.len() {
        until(&api, &format!("node-{number}"), DEADLINE, is_available).await?;
    }
    Ok(())
}

fn is_available(host: &BareMetalHost) -> bool {
    let status = host.status.as_ref();
    status.is_some_and(|status| status.provisioning.state == "available" && status.error_message.is_empty())
        && host.spec.consumer_ref.is_none()
        && host.spec.image.is_none()
}

impl Cluster<'_> {
    async fn list<K>(&self) -> anyhow::Result<Vec<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.environment.management.admin.clone(), NAMESPACE);
        Ok(retry("list objects", async || api.list(&ListParams::default()).await).await?.items)
    }

    /// Checks that each machine has data of its own and an address of its own, that
    /// its host carries that address and the host of no other machine does; the answer
    /// is the indexes in use. A host that was released keeps the network of its last
    /// machine until it is provisioned again.
    pub async fn check_data(&self, fleet: &Fleet) -> anyhow::Result<BTreeSet<i64>> {
        let hosts: Vec<BareMetalHost> = self.list().await?;
        let addresses: Vec<IPAddress> = self.list().await?;
        let data: BTreeMap<String, Metal3Data> =
            self.list().await?.into_iter().map(|data: Metal3Data| (data.name_any(), data)).collect();
        let machines: Vec<Metal3Machine> = self.list().await?;
        let find_host = |machine: &Metal3Machine| {
            let (_, name) = machine.annotations().get(HOST_OF_MACHINE)?.split_once('/')?;
            let host = hosts.iter().find(|host| host.name_any() == name)?;
            host.annotations().get(annotation::MACHINE_INVENTORY).cloned()
        };
        let used: BTreeSet<String> = machines.iter().filter_map(find_host).collect();
        let mut indexes = BTreeSet::new();
        for machine in &machines {
            let rendered = machine.status.as_ref().and_then(|status| status.rendered_data.as_ref());
            let rendered = rendered.and_then(|reference| data.get(&reference.name));
            let rendered = rendered.with_context(|| format!("no data of {machine:#?}"))?;
            ensure!(rendered.spec.claim.name == machine.name_any(), "{rendered:#?}");
            ensure!(indexes.insert(rendered.spec.index), "two machines have one index: {data:#?}");
            let claim = format!("{}-{POOL}", rendered.name_any());
            let address = addresses.iter().find(|address| address.spec.claim.name == claim);
            let address = address.with_context(|| format!("{claim} has none of {addresses:#?}"))?;
            let inventory = find_host(machine);
            let mut carriers = fleet.find_text(&format!("{}/24", address.spec.address))?;
            carriers.retain(|carrier| used.contains(carrier));
            ensure!(
                carriers.iter().eq(&inventory),
                "{} of {inventory:?} is on {carriers:?}",
                address.spec.address
            );
        }
        ensure!((data.len(), addresses.len()) == (machines.len(), machines.len()), "{data:#?}{addresses:#?}");
        Ok(indexes)
    }

    /// The hosts of the workers.
    ///
    /// # Errors
    /// When a worker has none.
    pub async fn worker_hosts(&self) -> anyhow::Result<BTreeSet<String>> {
        let machines: Vec<Metal3Machine> = self.list().await?;
        let workers = machines.iter().filter(|machine| !machine.labels().contains_key(CONTROL_PLANE_LABEL));
        let host = |machine: &Metal3Machine| machine.annotations().get(HOST_OF_MACHINE).cloned();
        workers.map(|machine| host(machine).with_context(|| format!("{machine:#?} has no host"))).collect()
    }

    /// How many `/` the providerID of each worker has after its scheme: none in the older
    /// form, two in the newer one.
    ///
    /// # Errors
    /// When a worker has none.
    pub async fn worker_id_forms(&self) -> anyhow::Result<BTreeSet<usize>> {
        let machines: Vec<Metal3Machine> = self.list().await?;
        let workers = machines.iter().filter(|machine| !machine.labels().contains_key(CONTROL_PLANE_LABEL));
        let form = |machine: &Metal3Machine| {
            let id = machine.spec.provider_id.as_deref().and_then(|id| id.strip_prefix("metal3://"));
            id.map(|id| id.matches('/').count()).with_context(|| format!("{machine:#?} has no providerID"))
        };
        workers.map(form).collect()
    }

    /// Checks that a host keeps the name of its inventory.
    ///
    /// # Errors
    /// When it does not.
    pub async fn check_inventory_is_kept(&self) -> anyhow::Result<()> {
        let api: Api<BareMetalHost> = Api::namespaced(self.environment.management.admin.clone(), NAMESPACE);
        for other in [serde_json::Value::Null, json!("another")] {
            let change = json!({ "metadata": { "annotations": { annotation::MACHINE_INVENTORY: other } } });
            let refused = api.patch("node-0", &PatchParams::default(), &Patch::Merge(change)).await;
            let message = refused.err().map(|error| error.to_string()).unwrap_or_default();
            ensure!(message.contains("delete the BareMetalHost"), "{other}: {message}");
        }
        Ok(())
    }

    /// Checks that nothing of the cluster is left, and waits until its hosts are
    /// available.
    pub async fn check_metal3_is_free(&self) -> anyhow::Result<()> {
        let api: Api<BareMetalHost> = Api::namespaced(self.environment.management.admin.clone(), NAMESPACE);
        for host in self.list::<BareMetalHost>().await? {
            until(&api, &host.name_any(), DEADLINE, is_available).await?;
        }
        let left = [
            names(&self.list::<Metal3Machine>().await?),
            names(&self.list::<Metal3DataClaim>().await?),
            names(&self.list::<Metal3Data>().await?),
            names(&self.list::<IPClaim>().await?),
            names(&self.list::<IPAddress>().await?),
        ];
        ensure!(left.iter().all(Vec::is_empty), "left: {left:?}");
        Ok(())
    }
}

fn names<K: kube::ResourceExt>(objects: &[K]) -> Vec<String> {
    objects.iter().map(kube::ResourceExt::name_any).collect()
}
