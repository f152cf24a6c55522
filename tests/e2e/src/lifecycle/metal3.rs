//! The lifecycle by the kinds of Metal3.

use anyhow::{Context as _, ensure};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::ipam::IPAddress;
use coordinator_api::metal3::machine::Metal3Machine;
use coordinator_api::names::annotation;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::ListParams;
use kube::runtime::watcher;
use serde_json::json;

use super::{Lifecycle, NAMESPACE, Proof, VERSIONS, await_node_ref};
use crate::manifests;
use crate::requests::retry;
use crate::watching::{until, until_all};

/// The `BareMetalHost`.
const HOST: &str = "node-0";
/// The first address of the pool: it is given again once it is free.
const ADDRESS: &str = "10.77.0.50";

impl Lifecycle<'_> {
    /// All steps of [`Lifecycle::run`], with a `BareMetalHost` that names the inventory, a
    /// `Metal3MachineTemplate`, and an address of an `IPPool`.
    ///
    /// # Errors
    /// Whatever is not as it should be, and what was seen last.
    pub async fn run_metal3(mut self, base: &str) -> anyhow::Result<Proof> {
        let iso = self.create_seed(base).await?;
        let mark = self.environment.management.mark()?;
        let inventory = self.register(&iso).await?;
        let host = self.apply_host(&inventory).await?;
        self.apply_metal3_cluster(&host).await?;
        let first = self.await_metal3_node(&host, 0).await?;
        self.progress.step("the MachineDeployment is scaled to 0: the host is cleaned and available");
        let token = self.environment.workload.bootstrap_token();
        let secrets = self.host.note_secrets(token).await?;
        self.scale(json!({ "spec": { "replicas": 0 } })).await?;
        self.await_release(&inventory).await?;
        self.await_available().await?;
        self.host.check_clean(token, &secrets).await?;
        self.check_addresses_are_free().await?;
        self.check_node_is_gone(&first).await?;
        let lifecycle = self.count_requests(mark).await?;
        self.progress.step("scaled to 1 with another version: the same host comes back with another image");
        let template = json!({ "spec": { "version": VERSIONS[1] } });
        self.scale(json!({ "spec": { "replicas": 1, "template": template } })).await?;
        let second = self.await_metal3_node(&host, 1).await?;
        ensure!(second.uid() != first.uid(), "the Node is the former one");
        self.record_proof(format!("the same host is a new Node {} now", second.name_any()));
        self.progress.end();
        Ok(Proof { proven: self.proven, lifecycle })
    }

    async fn apply_host(&mut self, inventory: &MachineInventory) -> anyhow::Result<BareMetalHost> {
        self.progress.step("a BareMetalHost names the inventory, and is available");
        let host = json!({
            "apiVersion": "metal3.io/v1alpha1",
            "kind": "BareMetalHost",
            "metadata": {
                "name": HOST,
                "namespace": NAMESPACE,
                "annotations": { annotation::MACHINE_INVENTORY: inventory.name_any() },
            },
            "spec": { "online": true },
        });
        self.management().apply(&host.to_string()).await?;
        let host = self.await_available().await?;
        self.record_proof("the BareMetalHost is available, with the hardware that the host reported");
        Ok(host)
    }

    async fn await_available(&self) -> anyhow::Result<BareMetalHost> {
        let is_available = |host: &BareMetalHost| {
            let state = host.status.as_ref().map(|status| status.provisioning.state.as_str());
            state == Some("available") && host.spec.consumer_ref.is_none() && host.spec.image.is_none()
        };
        until(&self.api::<BareMetalHost>(), HOST, self.host.limit(), is_available).await
    }

    /// The second card is that with the static address of the seed.
    async fn apply_metal3_cluster(&self, host: &BareMetalHost) -> anyhow::Result<()> {
        self.progress.step("Metal3Cluster, templates, IPPool and MachineDeployment are applied");
        let hardware = host.status.as_ref().and_then(|status| status.hardware.clone());
        let nics = hardware.context("a host without hardware")?.nics;
        let fixed = self.host.static_mac();
        let card = |is_fixed: bool| {
            let nic = nics.iter().find(|nic| nic.mac.eq_ignore_ascii_case(&fixed) == is_fixed);
            nic.map(|nic| nic.name.clone()).with_context(|| format!("a card is missing: {nics:?}"))
        };
        let values = [("CARD1", card(false)?), ("CARD2", card(true)?)];
        self.apply_manifest(manifests::METAL3_WORKER, &values).await
    }

    /// The host becomes a node with the image at `index` of the catalog, and with the
    /// address of the pool.
    async fn await_metal3_node(&mut self, host: &BareMetalHost, index: usize) -> anyhow::Result<Node> {
        self.progress.step("the host is claimed, reprovisioned, rebooted, and joins");
        let limit = self.host.limit();
        let machines = self.api::<Metal3Machine>();
        let machine = until_all(&machines, watcher::Config::default(), limit, |machines| {
            let has_address = |machine: &&Metal3Machine| {
                let status = machine.status.clone().unwrap_or_default();
                status.ready && status.addresses.iter().any(|known| known.address == ADDRESS)
            };
            Ok(machines.values().find(has_address).cloned())
        })
        .await?;
        let provider_id = format!("metal3://{NAMESPACE}/{HOST}/{}", machine.name_any());
        ensure!(machine.spec.provider_id.as_ref() == Some(&provider_id), "{:?}", machine.spec);
        self.record_proof(format!("the Metal3Machine is ready and shows the address {ADDRESS}"));
        let owner = machine.owner_references().first().map(|owner| owner.name.clone()).context("no owner")?;
        let node_ref = await_node_ref(&self.management().admin, &owner).await?;
        let nodes = self.environment.workload.nodes().await?;
        let node = nodes.into_iter().find(|node| node.name_any() == node_ref);
        let node = node.context("nodeRef names no Node")?;
        let stated = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        ensure!(stated == Some(&*provider_id), "the Node has providerID {stated:?}");
        ensure!(node.labels().get("metal3.io/uuid") == host.uid().as_ref(), "{:?}", node.labels());
        ensure!(node.name_any() == HOST, "the node is named {}", node.name_any());
        self.record_proof(format!("Node {HOST} has the providerID of the names and the label of the UID"));
        self.host.check_name(HOST).await?;
        self.check_guest(index).await?;
        Ok(node)
    }

    /// What only the host itself knows.
    async fn check_guest(&mut self, index: usize) -> anyhow::Result<()> {
        let image = self.host.images()[index].clone();
        let guest = self.guest()?;
        let addresses = guest.inside("ip -o -4 address show scope global").await?;
        let routes = guest.inside("ip -4 route show").await?;
        for (what, wanted, seen) in [
            ("the address of the pool", format!("{ADDRESS}/24"), &addresses),
            ("the DHCP address", "10.0.2.15/24".to_owned(), &addresses),
            ("the route of the template", "10.79.0.0/16 via 10.77.0.2".to_owned(), &routes),
        ] {
            ensure!(seen.contains(&wanted), "{what} is missing in the host:\n{addresses}{routes}");
        }
        ensure!(!addresses.contains("10.77.0.10/"), "the address of the seed is left:\n{addresses}");
        let document = guest.inside("cat /var/lib/cloud/seed/nocloud/network_data.json").await?;
        ensure!(document.contains(ADDRESS), "network_data.json is not that of the template: {document}");
        let meta_data = guest.inside("cat /run/cloud-init/instance-data*.json").await?;
        for wanted in ["\"rack-position\": \"u10\"", &format!("\"provisioning-ip\": \"{ADDRESS}\"")] {
            ensure!(meta_data.contains(wanted), "cloud-init has no {wanted}");
        }
        let release = guest.inside("cat /etc/os-release").await?;
        ensure!(release.contains(&image.runs), "the host runs another image than {}:\n{release}", image.runs);
        self.record_proof(format!(
            "in the guest: address {ADDRESS} and route of the template, DHCP beside it, meta-data, image {}",
            image.runs
        ));
        Ok(())
    }

    async fn check_addresses_are_free(&mut self) -> anyhow::Result<()> {
        let addresses = self.api::<IPAddress>();
        let left =
            retry("list addresses", async || addresses.list(&ListParams::default()).await).await?.items;
        ensure!(left.is_empty(), "addresses are left: {left:?}");
        self.record_proof("released: nothing of the node is left, and its address is free");
        Ok(())
    }
}
