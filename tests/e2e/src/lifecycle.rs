//! The story, act by act.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use control_plane::audit::{Counts, Mark};
use coordinator_api::capi;
use coordinator_api::conditions::{Type, is_true};
use coordinator_api::inventory::{AllocationState, MachineInventory};
use coordinator_api::machine::{BaremetalMachine, Phase};
use coordinator_api::seed_image::{SeedImage, SeedImageState};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::manifests::{self, fill};
use crate::metal::{Image, Metal, Qemu};
use crate::progress::Progress;
use crate::stage::Stage;
use crate::watching::until;

const NAMESPACE: &str = "default";
/// Keys of the catalog: both images carry the same Kubernetes.
const VERSIONS: [&str; 2] = ["v1.36.3", "v1.36.3-2"];

/// What was proven.
#[derive(Debug)]
pub struct Proof {
    /// One line each.
    pub proven: Vec<String>,
    /// What the coordinator asked the API server for, from registration to the
    /// host's return to its pool.
    pub lifecycle: Counts,
}

/// Plays the story with `metal` on `stage`.
pub struct Play<'a> {
    stage: &'a Stage,
    metal: &'a mut Metal,
    progress: Arc<Progress>,
    proven: Vec<String>,
}

impl<'a> Play<'a> {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(stage: &'a Stage, metal: &'a mut Metal, progress: Arc<Progress>) -> Self {
        Self { stage, metal, progress, proven: vec![] }
    }

    /// All acts, from the seed ISO made of `base` to a Node, back, and a Node
    /// again.
    ///
    /// # Errors
    /// Whatever is not as the story says, and what was seen last.
    pub async fn all(mut self, base: &str) -> anyhow::Result<Proof> {
        let iso = self.seed(base).await?;
        let mark = self.stage.mark()?;
        let inventory = self.register(&iso).await?;
        self.cluster(&inventory).await?;
        let first = self.node(&inventory, 0).await?;
        self.give_back(&inventory).await?;
        self.remove(&first).await?;
        let lifecycle = self.counted(mark).await?;
        self.again(&inventory, &first).await?;
        self.progress.end();
        Ok(Proof { proven: self.proven, lifecycle })
    }

    /// The virtual machine, where the host is one.
    ///
    /// # Errors
    /// When it is simulated.
    pub fn qemu(&mut self) -> anyhow::Result<&mut Qemu> {
        match self.metal {
            Metal::Qemu(host) => Ok(host),
            Metal::Simulated(_) => anyhow::bail!("the host is simulated"),
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.stage.admin.clone(), NAMESPACE)
    }

    fn prove(&mut self, what: impl Into<String>) {
        self.proven.push(what.into());
    }

    /// A registration and a seed image become an ISO, downloaded and verified.
    ///
    /// # Errors
    /// Whatever is not as the story says.
    pub async fn seed(&mut self, base: &str) -> anyhow::Result<PathBuf> {
        self.progress.step("a MachineRegistration and a SeedImage become an ISO");
        self.stage.apply(&fill(manifests::REGISTRATION, &[("DEVICE", self.metal.device())])).await?;
        let mac = self.metal.static_mac();
        self.stage.apply(&fill(manifests::SEED_IMAGE, &[("BASE", base), ("MAC", &mac)])).await?;
        let ready = |image: &SeedImage| {
            image.status.as_ref().is_some_and(|status| {
                status.state == Some(SeedImageState::Completed)
                    && is_true(&status.conditions, Type::Ready)
                    && is_true(&status.conditions, Type::SeedImageReady)
            })
        };
        let image = until(&self.api::<SeedImage>(), "lab", Duration::from_mins(2), ready).await?;
        let status = image.status.context("a SeedImage without status")?;
        self.progress.step("the ISO is downloaded and its checksum verified");
        let iso = self.stage.directory.path().join("seed.iso");
        let sum = iso.with_extension("iso.sha256");
        self.stage.download(&status.download_url.context("no downloadURL")?, &iso).await?;
        self.stage.download(&status.checksum_url.context("no checksumURL")?, &sum).await?;
        verify(&iso, &sum).await?;
        self.prove("the seed ISO is served with its checksum");
        Ok(iso)
    }

    /// A host boots the ISO, registers, installs, and attaches.
    ///
    /// # Errors
    /// Whatever is not as the story says.
    pub async fn register(&mut self, iso: &std::path::Path) -> anyhow::Result<MachineInventory> {
        self.progress.step("a host boots the ISO, registers, installs, and attaches");
        self.metal.boot(iso).await?;
        let name = self.metal.inventory();
        let api = self.api::<MachineInventory>();
        let patience = self.metal.patience();
        let registered = until(&api, &name, patience, |inventory| {
            inventory.plan().is_some_and(|plan| plan.secret_ref.is_some())
        })
        .await?;
        let spec = &registered.spec;
        ensure!(spec.tpm_hash.as_ref().is_some_and(|hash| hash.len() == 64), "no tpmHash: {spec:?}");
        ensure!(registered.labels().contains_key("lab/serial"), "no label from the template");
        ensure!(registered.annotations().contains_key("lab/manufacturer"), "no annotation from the template");
        ensure!(spec.observed_network.is_some(), "no observedNetwork");
        let secret = self.api::<Secret>().get(&name).await?;
        ensure!(
            secret.type_.as_deref() == Some("elemental.cattle.io/plan"),
            "the plan Secret has type {:?}",
            secret.type_
        );
        self.prove(format!("the host registered as {name}, with facts and network"));
        let ready =
            until(&api, &name, patience, |inventory| is_true(inventory.conditions(), Type::Ready)).await?;
        ensure!(is_true(ready.conditions(), Type::Installed), "Ready before Installed");
        self.metal.check_network().await?;
        self.prove("the installed system attached with its own certificate");
        Ok(ready)
    }

    /// Pool, cluster, template and `MachineDeployment` are applied.
    ///
    /// # Errors
    /// Whatever is not as the story says.
    pub async fn cluster(&mut self, inventory: &MachineInventory) -> anyhow::Result<()> {
        self.progress.step("pool, cluster, template and MachineDeployment are applied");
        let kubeconfig = self.stage.workload.kubeconfig_secret(NAMESPACE, "lab")?;
        self.api::<Secret>().create(&PostParams::default(), &kubeconfig).await?;
        let join = json!({
            "metadata": { "name": "lab-join" },
            "type": "cluster.x-k8s.io/secret",
            "stringData": { "value": self.stage.workload.join_config(), "format": "cloud-config" },
        });
        self.api::<Secret>().create(&PostParams::default(), &serde_json::from_value(join)?).await?;
        let [v1, v2] = self.metal.images();
        let endpoint = self.stage.workload.endpoint();
        let values = [
            ("V1", VERSIONS[0]),
            ("V2", VERSIONS[1]),
            ("IMAGE1", &v1.catalog),
            ("IMAGE2", &v2.catalog),
            ("HOST", &inventory.name_any()),
            ("ENDPOINT_HOST", &endpoint.ip().to_string()),
            ("ENDPOINT_PORT", &endpoint.port().to_string()),
        ];
        self.stage.apply(&fill(manifests::CLUSTER, &values)).await
    }

    /// The host becomes a node with the image at `index` of the catalog.
    ///
    /// # Errors
    /// Whatever is not as the story says.
    pub async fn node(&mut self, inventory: &MachineInventory, index: usize) -> anyhow::Result<Node> {
        self.progress.step("the host is claimed, reprovisioned, rebooted, and joins");
        let name = inventory.name_any();
        let image: Image = self.metal.images()[index].clone();
        let machine = self.running().await?;
        let provider_id = format!("baremetal:///{name}");
        ensure!(
            machine.spec.provider_id.as_ref() == Some(&provider_id),
            "providerID is {:?}",
            machine.spec.provider_id
        );
        let status = machine.status.clone().context("a machine without status")?;
        ensure!(status.ready && status.provider_id == machine.spec.provider_id, "{status:?}");
        let done = status.initialization.as_ref().and_then(|done| done.provisioned);
        ensure!(done == Some(true), "{status:?}");
        let host = self
            .api::<MachineInventory>()
            .get(&name)
            .await?
            .status
            .and_then(|status| status.host)
            .unwrap_or_default();
        let told: Vec<_> = status.addresses.iter().map(|known| known.address.clone()).collect();
        let all = host.addresses.iter().chain([&host.hostname]).all(|address| told.contains(address));
        let real = matches!(self.metal, Metal::Qemu(_));
        ensure!(
            all && (!real || told.len() > 1),
            "the host is at {:?}, the machine says {told:?}",
            host.addresses
        );
        ensure!(host.image == image.runs, "the host runs {}, wanted {}", host.image, image.runs);
        self.prove(format!("Applied was observed: the host runs {}", host.image));
        let owner = machine.owner_references().first().map(|owner| owner.name.clone()).context("no owner")?;
        let node = self.linked(&owner, &provider_id).await?;
        let label = node.labels().get("metal3.io/uuid").cloned().unwrap_or_default();
        ensure!(Some(&label) == inventory.uid().as_ref(), "metal3.io/uuid is {label:?}");
        ensure!(node.name_any() == owner, "the node is named {}, the Machine {owner}", node.name_any());
        self.prove(format!(
            "Node {} has our providerID and label, and the Machine its nodeRef",
            node.name_any()
        ));
        self.metal.check_name(&node.name_any()).await?;
        self.metal.check_network().await?;
        self.prove("the network is as before: static is static, DHCP is DHCP");
        Ok(node)
    }

    /// The one `BaremetalMachine`, once it runs.
    ///
    /// # Errors
    /// Whatever is not as the story says.
    pub async fn running(&self) -> anyhow::Result<BaremetalMachine> {
        let api = self.api::<BaremetalMachine>();
        let end = tokio::time::Instant::now() + self.metal.patience();
        loop {
            let machines = api.list(&ListParams::default()).await?.items;
            let alive = machines.into_iter().find(|machine| machine.metadata.deletion_timestamp.is_none());
            let phase =
                alive.as_ref().and_then(|machine| machine.status.as_ref()).and_then(|status| status.phase);
            match (alive, phase) {
                (Some(machine), Some(Phase::Running))
                    if machine.spec.provider_id.is_some()
                        && machine.status.as_ref().is_some_and(|status| status.ready) =>
                {
                    return Ok(machine);
                }
                (Some(machine), Some(Phase::Failed)) => {
                    anyhow::bail!("the machine failed: {:#?}", machine.status)
                }
                (alive, _) if tokio::time::Instant::now() > end => {
                    anyhow::bail!(
                        "no machine runs; last seen: {:#?}",
                        alive.and_then(|machine| machine.status)
                    )
                }
                _ => tokio::time::sleep(Duration::from_millis(500)).await,
            }
        }
    }

    /// The Node of a Machine, once Cluster API has found it.
    async fn linked(&self, machine: &str, provider_id: &str) -> anyhow::Result<Node> {
        let machines: Api<DynamicObject> =
            Api::namespaced_with(self.stage.admin.clone(), NAMESPACE, &capi::machine("v1beta2"));
        let end = tokio::time::Instant::now() + Duration::from_mins(5);
        loop {
            let seen = machines.get(machine).await?;
            if let Some(name) = seen.data["status"]["nodeRef"]["name"].as_str() {
                let nodes = self.stage.workload.nodes().await?;
                let node = nodes
                    .into_iter()
                    .find(|node| node.name_any() == name)
                    .context("nodeRef names no Node")?;
                let said = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
                ensure!(said == Some(provider_id), "the Node says {said:?}");
                return Ok(node);
            }
            ensure!(
                tokio::time::Instant::now() < end,
                "the Machine has no nodeRef: {:#}",
                seen.data["status"]
            );
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// The machine goes: the host is cleaned and released.
    ///
    /// # Errors
    /// Whatever is not as the story says.
    pub async fn give_back(&mut self, inventory: &MachineInventory) -> anyhow::Result<()> {
        self.progress.step("the MachineDeployment is scaled to 0: the host is cleaned and released");
        let machines = self.api::<BaremetalMachine>().list(&ListParams::default()).await?.items;
        let machine = machines.first().context("there is no machine to delete")?.name_any();
        // Watched from before: a fast host is clean in no time.
        let scale = self.scale(json!({ "spec": { "replicas": 0 } }));
        tokio::try_join!(self.prepares(&machine), scale)?;
        self.free(inventory).await?;
        self.metal.check_clean().await?;
        self.metal.check_network().await?;
        self.prove("released: no credential or workload of the node is left, the host is up and attached");
        Ok(())
    }

    /// Waits until the host was cleaned and nobody holds it.
    ///
    /// # Errors
    /// When that does not come.
    pub async fn free(&self, inventory: &MachineInventory) -> anyhow::Result<()> {
        let name = inventory.name_any();
        let free = |inventory: &MachineInventory| {
            inventory.claim().is_none()
                && inventory.allocation_state() == AllocationState::Available
                && is_true(inventory.conditions(), Type::Ready)
                && inventory
                    .plan()
                    .and_then(|plan| plan.id.as_ref())
                    .is_some_and(|id| id.starts_with("clean-"))
        };
        until(&self.api::<MachineInventory>(), &name, self.metal.patience(), free).await?;
        Ok(())
    }

    /// Deletes the Cluster and waits until all of it is gone.
    ///
    /// # Errors
    /// When it stays.
    pub async fn delete_cluster(&self) -> anyhow::Result<()> {
        self.progress.step("the Cluster is deleted, and everything in it goes");
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(capi::GROUP, "v1beta2", "Cluster"));
        let api: Api<DynamicObject> = Api::namespaced_with(self.stage.admin.clone(), NAMESPACE, &kind);
        api.delete("lab", &DeleteParams::default()).await?;
        let end = tokio::time::Instant::now() + self.metal.patience();
        while let Some(cluster) = api.get_opt("lab").await? {
            let late = tokio::time::Instant::now() > end;
            ensure!(!late, "the Cluster stays: {:#}", cluster.data["status"]["conditions"]);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let machines = self.api::<BaremetalMachine>().list(&ListParams::default()).await?.items;
        ensure!(machines.is_empty(), "machines are left: {machines:#?}");
        Ok(())
    }

    /// The machine that goes says so.
    async fn prepares(&self, machine: &str) -> anyhow::Result<()> {
        let preparing = |machine: &BaremetalMachine| {
            machine.status.as_ref().is_some_and(|status| status.phase == Some(Phase::Preparing))
        };
        let api = self.api::<BaremetalMachine>();
        until(&api, machine, self.metal.patience(), preparing).await.map(drop)
    }

    /// Cluster API deletes the Node of a Machine only where the Cluster has a
    /// control plane of its own; here it has none, so its owner does.
    ///
    /// # Errors
    /// Whatever is not as the story says.
    pub async fn remove(&self, node: &Node) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.stage.workload.control_plane().admin().await?);
        nodes.delete(&node.name_any(), &DeleteParams::default()).await?;
        self.progress.detail("the Node object is deleted by the owner of the workload cluster");
        Ok(())
    }

    async fn again(&mut self, inventory: &MachineInventory, first: &Node) -> anyhow::Result<()> {
        self.progress.step("scaled to 1 with another version: the same host comes back with another image");
        self.scale(json!({ "spec": { "replicas": 1, "template": { "spec": { "version": VERSIONS[1] } } } }))
            .await?;
        let second = self.node(inventory, 1).await?;
        ensure!(second.name_any() != first.name_any(), "the host kept the name of its former node");
        self.prove(format!("the same host is Node {} now", second.name_any()));
        Ok(())
    }

    /// Changes the `MachineDeployment`.
    ///
    /// # Errors
    /// Whatever is not as the story says.
    pub async fn scale(&self, patch: serde_json::Value) -> anyhow::Result<()> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(capi::GROUP, "v1beta2", "MachineDeployment"));
        let api: Api<DynamicObject> = Api::namespaced_with(self.stage.admin.clone(), NAMESPACE, &kind);
        api.patch("workers", &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Waits for the audit log to settle: a line may come just after the answer.
    async fn counted(&self, since: Mark) -> anyhow::Result<Counts> {
        let mut counts = self.stage.counts(since)?;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let again = self.stage.counts(since)?;
            if again.writes == counts.writes {
                return Ok(again);
            }
            counts = again;
        }
    }
}

async fn verify(iso: &std::path::Path, sum: &std::path::Path) -> anyhow::Result<()> {
    let wanted = tokio::fs::read_to_string(sum).await?;
    let output = tokio::process::Command::new("sha256sum").arg(iso).output().await?;
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    let word = |text: &str| text.split_whitespace().next().unwrap_or_default().to_owned();
    ensure!(word(&wanted) == word(&found), "checksum {found}, wanted {wanted}");
    Ok(())
}
