//! The lifecycle of one host: registered, claimed, a Node, cleaned, and a Node
//! again.

mod metal3;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use control_plane::apply;
use control_plane::audit::{Counts, Mark};
use coordinator_api::capi;
use coordinator_api::conditions::{Reason, Type, find_condition, is_true};
use coordinator_api::inventory::{AllocationState, MachineInventory, PlanState, PlanType};
use coordinator_api::machine::{BaremetalMachine, Phase};
use coordinator_api::registration::MachineRegistration;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::environment::{Environment, Management};
use crate::host::{self, GuestHost, Host, Image};
use crate::manifests::{self, fill};
use crate::progress::Progress;
use crate::requests::retry;
use crate::seed::{self, Seed};
use crate::watching::{until, until_all};

/// Namespace of everything that the lifecycle needs.
pub const NAMESPACE: &str = "default";
/// Keys of the catalog: both images carry the same Kubernetes.
const VERSIONS: [&str; 2] = ["v1.36.3", "v1.36.3-2"];
/// How long Cluster API may take to find a Node.
const LINK_DEADLINE: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub struct Proof {
    pub proven: Vec<String>,
    /// What the coordinator asked the API server for, from registration to the
    /// host's return to its pool.
    pub lifecycle: Counts,
}

/// The lifecycle of `host` in `environment`.
pub struct Lifecycle<'a> {
    environment: &'a Environment,
    host: &'a mut dyn Host,
    progress: Arc<Progress>,
    proven: Vec<String>,
}

impl<'a> Lifecycle<'a> {
    /// Nothing has happened yet.
    pub fn new(environment: &'a Environment, host: &'a mut dyn Host, progress: Arc<Progress>) -> Self {
        Self { environment, host, progress, proven: vec![] }
    }

    /// All steps, from the seed ISO based on `base` to a Node, back, and a Node
    /// again.
    ///
    /// # Errors
    /// Whatever is not as it should be, and what was seen last.
    pub async fn run(mut self, base: &str) -> anyhow::Result<Proof> {
        let iso = self.create_seed(base).await?;
        let mark = self.environment.management.mark()?;
        let inventory = self.register(&iso).await?;
        self.apply_cluster(&[inventory.name_any()], 1).await?;
        let first = self.await_node(&inventory, 0).await?;
        self.scale_down(&inventory).await?;
        self.check_node_is_gone(&first).await?;
        let lifecycle = self.count_requests(mark).await?;
        self.provision_again(&inventory, &first).await?;
        self.progress.end();
        Ok(Proof { proven: self.proven, lifecycle })
    }

    /// The guest, where the host is one.
    ///
    /// # Errors
    /// When it is simulated.
    pub fn guest(&mut self) -> anyhow::Result<&mut GuestHost> {
        self.host.guest()
    }

    fn management(&self) -> &Management {
        &self.environment.management
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.management().admin.clone(), NAMESPACE)
    }

    fn record_proof(&mut self, what: impl Into<String>) {
        self.proven.push(what.into());
    }

    /// A registration and a seed image become an ISO, downloaded and verified.
    pub async fn create_seed(&mut self, base: &str) -> anyhow::Result<PathBuf> {
        let seed = Seed { namespace: NAMESPACE, base };
        let iso = seed::create(self.environment, seed, self.host, &self.progress).await?;
        self.record_proof("the seed ISO is served with its checksum");
        Ok(iso)
    }

    /// A host boots the ISO, registers, installs, and attaches.
    pub async fn register(&mut self, iso: &Path) -> anyhow::Result<MachineInventory> {
        self.progress.step("a host boots the ISO, registers, installs, and attaches");
        self.host.boot(iso).await?;
        let name = self.host.inventory();
        let api = self.api::<MachineInventory>();
        let limit = self.host.limit();
        let registered = until(&api, &name, limit, |inventory| {
            inventory.plan().is_some_and(|plan| plan.secret_ref.is_some())
        })
        .await?;
        let spec = &registered.spec;
        ensure!(spec.tpm_hash.as_ref().is_some_and(|hash| hash.len() == 64), "no tpmHash: {spec:?}");
        ensure!(registered.labels().contains_key("lab/serial"), "no label from the template");
        ensure!(registered.annotations().contains_key("lab/manufacturer"), "no annotation from the template");
        ensure!(spec.observed_network.is_some(), "no observedNetwork");
        let secrets = self.api::<Secret>();
        let secret = retry("read the plan Secret", async || secrets.get(&name).await).await?;
        ensure!(
            secret.type_.as_deref() == Some("elemental.cattle.io/plan"),
            "the plan Secret has type {:?}",
            secret.type_
        );
        let held = if self.host.has_tpm() { "its TPM" } else { "a software key" };
        self.record_proof(format!("the host registered as {name} by {held}, with facts and network"));
        let ready = await_attached(&api, &name, limit).await?;
        ensure!(is_true(ready.conditions(), Type::Installed), "Ready before Installed");
        let shown = find_condition(ready.conditions(), Type::IdentityVerified).map(|one| one.reason.as_str());
        let class = if self.host.has_tpm() { Reason::Unverified } else { Reason::Emulated };
        ensure!(shown == Some(class.as_str()), "the identity is shown as {shown:?}");
        self.host.check_network().await?;
        self.record_proof("the installed system attached with its own certificate");
        Ok(ready)
    }

    /// Pool, cluster, template and `MachineDeployment` are applied.
    pub async fn apply_cluster(&mut self, members: &[String], replicas: usize) -> anyhow::Result<()> {
        self.progress.step("pool, cluster, template and MachineDeployment are applied");
        let members: Vec<_> = members.iter().map(|member| json!({ "name": member })).collect();
        let values = [("MEMBERS", json!(members).to_string()), ("REPLICAS", replicas.to_string())];
        self.apply_manifest(manifests::CLUSTER, &values).await
    }

    /// With what every cluster of the lifecycle has.
    async fn apply_manifest(&self, manifest: &str, more: &[(&str, String)]) -> anyhow::Result<()> {
        let workload = &self.environment.workload;
        let join = json!({
            "metadata": { "name": "lab-join" },
            "type": "cluster.x-k8s.io/secret",
            "stringData": { "value": workload.join_config(), "format": "cloud-config" },
        });
        let kubeconfig = workload.kubeconfig_secret(NAMESPACE, "lab")?;
        self.management().apply_secret(NAMESPACE, kubeconfig).await?;
        self.management().apply_secret(NAMESPACE, serde_json::from_value(join)?).await?;
        let [v1, v2] = self.host.images();
        let endpoint = workload.endpoint();
        let (host, port) = (endpoint.ip().to_string(), endpoint.port().to_string());
        let mut values = vec![
            ("V1", VERSIONS[0]),
            ("V2", VERSIONS[1]),
            ("IMAGE1", &v1.catalog),
            ("IMAGE2", &v2.catalog),
            ("ENDPOINT_HOST", &host),
            ("ENDPOINT_PORT", &port),
        ];
        values.extend(more.iter().map(|(name, value)| (*name, value.as_str())));
        self.management().apply(&fill(manifest, &values)).await?;
        self.initialize_control_plane().await
    }

    /// Records what a control-plane provider would: until then Cluster API does
    /// not watch the Nodes of the cluster, and misses one that registers late.
    async fn initialize_control_plane(&self) -> anyhow::Result<()> {
        let api = cluster_api(&self.management().admin, "Cluster");
        let initialized = json!({
            "apiVersion": format!("{}/v1beta2", capi::GROUP),
            "kind": "Cluster",
            "status": {
                "initialization": { "controlPlaneInitialized": true },
                "conditions": [{
                    "type": "ControlPlaneInitialized",
                    "status": "True",
                    "reason": "Initialized",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        });
        let params = PatchParams::apply(apply::FIELD_MANAGER).force();
        let patch = Patch::Apply(&initialized);
        retry("initialize the control plane", async || api.patch_status("lab", &params, &patch).await)
            .await?;
        Ok(())
    }

    /// The host becomes a node with the image at `index` of the catalog.
    pub async fn await_node(&mut self, inventory: &MachineInventory, index: usize) -> anyhow::Result<Node> {
        self.progress.step("the host is claimed, reprovisioned, rebooted, and joins");
        let name = inventory.name_any();
        let image: Image = self.host.images()[index].clone();
        let machine = self.await_machine().await?;
        let provider_id = format!("baremetal:///{name}");
        ensure!(
            machine.spec.provider_id.as_ref() == Some(&provider_id),
            "providerID is {:?}",
            machine.spec.provider_id
        );
        self.check_status(&name, &machine, &image).await?;
        self.record_proof(format!("Applied was observed: the host runs {}", image.runs));
        let owner = machine.owner_references().first().map(|owner| owner.name.clone()).context("no owner")?;
        let nodes = self.environment.workload.nodes();
        let node_ref = await_node_ref(&self.management().admin, &owner).await?;
        let node = nodes.await?.into_iter().find(|node| node.name_any() == node_ref);
        let node = node.context("nodeRef names no Node")?;
        let stated = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        ensure!(stated == Some(&*provider_id), "the Node has providerID {stated:?}");
        let label = node.labels().get("metal3.io/uuid").cloned().unwrap_or_default();
        ensure!(Some(&label) == inventory.uid().as_ref(), "metal3.io/uuid is {label:?}");
        ensure!(node.name_any() == name, "the node is named {}, the inventory {name}", node.name_any());
        self.record_proof(format!(
            "Node {} has our providerID and label, and the Machine its nodeRef",
            node.name_any()
        ));
        self.host.check_name(&name).await?;
        self.host.check_network().await?;
        self.record_proof("the network is as before: static is static, DHCP is DHCP");
        Ok(node)
    }

    /// What the machine shows of its host.
    async fn check_status(
        &self,
        inventory: &str,
        machine: &BaremetalMachine,
        image: &Image,
    ) -> anyhow::Result<()> {
        let inventories = self.api::<MachineInventory>();
        let found = retry("read the inventory", async || inventories.get(inventory).await).await?;
        let host = found.status.and_then(|status| status.host).unwrap_or_default();
        // An address that the host reports late follows.
        let shows_all = |machine: &BaremetalMachine| {
            let known = machine.status.iter().flat_map(|status| &status.addresses);
            let shown: Vec<_> = known.map(|known| &known.address).collect();
            host.addresses.iter().chain([&host.hostname]).all(|address| shown.contains(&address))
        };
        let machines = self.api::<BaremetalMachine>();
        let machine = until(&machines, &machine.name_any(), self.host.limit(), shows_all).await?;
        let status = machine.status.context("a machine without status")?;
        ensure!(status.ready && status.provider_id == machine.spec.provider_id, "{status:?}");
        let done = status.initialization.as_ref().and_then(|done| done.provisioned);
        ensure!(done == Some(true), "{status:?}");
        ensure!(!self.host.is_real() || status.addresses.len() > 1, "the host is at {:?}", host.addresses);
        ensure!(host.image == image.runs, "the host runs {}, wanted {}", host.image, image.runs);
        Ok(())
    }

    /// The one `BaremetalMachine`, once it runs.
    ///
    /// # Errors
    /// When it fails or the deadline passes.
    pub async fn await_machine(&self) -> anyhow::Result<BaremetalMachine> {
        let limit = self.host.limit();
        until_all(&self.api::<BaremetalMachine>(), watcher::Config::default(), limit, |machines| {
            let machine = machines.values().find(|machine| machine.metadata.deletion_timestamp.is_none());
            let Some(machine) = machine else { return Ok(None) };
            let status = machine.status.clone().unwrap_or_default();
            ensure!(status.phase != Some(Phase::Failed), "the machine failed: {status:#?}");
            Ok(is_running(machine).then(|| machine.clone()))
        })
        .await
    }

    /// They admit any host, and no disk ever holds one.
    async fn list_registration_tokens(&self) -> anyhow::Result<Vec<host::Secret>> {
        let registrations = self.api::<MachineRegistration>().list(&ListParams::default()).await?;
        let tokens = registrations.items.into_iter().filter_map(|found| found.status?.registration_token);
        Ok(tokens.map(|text| host::Secret { what: "the token of the registration", text }).collect())
    }

    /// The machine goes: the host is cleaned and released.
    pub async fn scale_down(&mut self, inventory: &MachineInventory) -> anyhow::Result<()> {
        self.progress.step("the MachineDeployment is scaled to 0: the host is cleaned and released");
        let token = self.environment.workload.bootstrap_token();
        let mut secrets = self.host.note_secrets(token).await?;
        if !secrets.is_empty() {
            secrets.extend(self.list_registration_tokens().await?);
        }
        self.scale(json!({ "spec": { "replicas": 0 } })).await?;
        self.await_release(inventory).await?;
        self.host.check_clean(token, &secrets).await?;
        self.host.check_network().await?;
        self.record_proof(
            "released: no credential or workload of the node is left, the host is up and attached",
        );
        if !secrets.is_empty() {
            let names: Vec<_> = secrets.iter().map(|secret| secret.what).collect();
            self.record_proof(format!("no byte of the disk holds {}", names.join(" or ")));
        }
        Ok(())
    }

    /// Waits until the host was cleaned and no machine holds it.
    ///
    /// # Errors
    /// When that does not come.
    pub async fn await_release(&self, inventory: &MachineInventory) -> anyhow::Result<()> {
        let api = self.api::<MachineInventory>();
        until(&api, &inventory.name_any(), self.host.limit(), is_free).await?;
        Ok(())
    }

    /// Deletes the Cluster and waits until all of it is gone.
    ///
    /// # Errors
    /// When it stays.
    pub async fn delete_cluster(&self) -> anyhow::Result<()> {
        self.progress.step("the Cluster is deleted, and everything in it goes");
        let api = cluster_api(&self.management().admin, "Cluster");
        retry("delete the Cluster", async || match api.delete("lab", &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answer => answer.map(drop),
        })
        .await?;
        let is_empty = |objects: &std::collections::BTreeMap<String, DynamicObject>| {
            Ok(objects.is_empty().then_some(()))
        };
        until_all(&api, watcher::Config::default(), self.host.limit(), is_empty).await?;
        let machines = self.api::<BaremetalMachine>();
        let left = retry("list machines", async || machines.list(&ListParams::default()).await).await?.items;
        ensure!(left.is_empty(), "machines are left: {left:#?}");
        Ok(())
    }

    /// Cluster API deletes the Node of a Machine only where the Cluster has a
    /// control plane of its own; here it has none, so the coordinator does, before
    /// it releases the host.
    ///
    /// # Errors
    /// When it is left.
    pub async fn check_node_is_gone(&mut self, node: &Node) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.environment.workload.control_plane().admin().await?);
        let name = node.name_any();
        let left = retry("get the Node", async || nodes.get_opt(&name).await).await?;
        ensure!(left.is_none(), "the released host left its Node {name}");
        self.record_proof(format!("the Node {name} of the released host is gone"));
        Ok(())
    }

    async fn provision_again(&mut self, inventory: &MachineInventory, first: &Node) -> anyhow::Result<()> {
        self.progress.step("scaled to 1 with another version: the same host comes back with another image");
        self.scale(json!({ "spec": { "replicas": 1, "template": { "spec": { "version": VERSIONS[1] } } } }))
            .await?;
        let second = self.await_node(inventory, 1).await?;
        ensure!(second.uid() != first.uid(), "the Node is the former one");
        self.record_proof(format!("the same host is a new Node {} now", second.name_any()));
        Ok(())
    }

    /// Changes the `MachineDeployment`.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn scale(&self, patch: serde_json::Value) -> anyhow::Result<()> {
        let api = cluster_api(&self.management().admin, "MachineDeployment");
        let patch = Patch::Merge(patch);
        retry("scale the MachineDeployment", async || {
            api.patch("workers", &PatchParams::default(), &patch).await
        })
        .await?;
        Ok(())
    }

    /// Counts until a request of our own, sent after the last of the
    /// coordinator's, is in the audit log: a line can be written a moment after
    /// its answer.
    async fn count_requests(&self, since: Mark) -> anyhow::Result<Counts> {
        let mut counts = self.management().counts(since)?;
        for round in 0..100 {
            let marker = format!("quiet-{round}");
            let secrets = self.api::<Secret>();
            retry("send a marker", async || secrets.get_opt(&marker).await).await?;
            self.await_audit_line(&marker).await?;
            let next = self.management().counts(since)?;
            if next.writes == counts.writes && next.gets == counts.gets {
                return Ok(next);
            }
            counts = next;
        }
        anyhow::bail!("the coordinator sends requests without end: {counts:#?}")
    }

    async fn await_audit_line(&self, text: &str) -> anyhow::Result<()> {
        let path = self.management().control_plane.audit().path().to_owned();
        let found = tokio::time::timeout(Duration::from_mins(1), async {
            while !tokio::fs::read_to_string(&path).await?.contains(text) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok::<_, std::io::Error>(())
        });
        found.await.context("the audit log lacks a request that was answered")??;
        Ok(())
    }
}

/// Waits until the installed system of a host is attached and ready.
///
/// # Errors
/// When that does not come.
pub async fn await_attached(
    api: &Api<MachineInventory>,
    name: &str,
    limit: Duration,
) -> anyhow::Result<MachineInventory> {
    until(api, name, limit, |inventory| is_true(inventory.conditions(), Type::Ready)).await
}

/// The name of the Node of a Machine, once Cluster API has found it.
///
/// # Errors
/// When the deadline passes.
pub async fn await_node_ref(client: &Client, machine: &str) -> anyhow::Result<String> {
    let api = cluster_api(client, "Machine");
    let config = watcher::Config::default().fields(&format!("metadata.name={machine}"));
    until_all(&api, config, LINK_DEADLINE, |machines| {
        let name = machines.get(machine).and_then(|found| found.data["status"]["nodeRef"]["name"].as_str());
        Ok(name.map(str::to_owned))
    })
    .await
}

/// Objects of one of Cluster API's kinds.
pub fn cluster_api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(capi::GROUP, "v1beta2", kind));
    Api::namespaced_with(client.clone(), NAMESPACE, &kind)
}

/// Whether no machine holds a host, and the next one can.
pub fn is_available(inventory: &MachineInventory) -> bool {
    inventory.claim().is_none()
        && inventory.allocation_state() == AllocationState::Available
        && is_true(inventory.conditions(), Type::Ready)
}

/// Whether a host was cleaned and no machine holds it.
pub fn is_free(inventory: &MachineInventory) -> bool {
    let plan = inventory.plan();
    is_available(inventory)
        && plan.is_some_and(|plan| plan.kind == Some(PlanType::Clean))
        && plan.is_some_and(|plan| plan.state == Some(PlanState::Applied))
}

/// Whether a machine has a node and shows it.
pub fn is_running(machine: &BaremetalMachine) -> bool {
    let status = machine.status.as_ref();
    machine.spec.provider_id.is_some()
        && status.is_some_and(|status| status.phase == Some(Phase::Running) && status.ready)
}
