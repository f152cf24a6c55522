//! A host of the control plane that is lost for good is replaced as docs/replace.md says.

use anyhow::Context as _;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::annotation;
use kube::{Api, ResourceExt as _};

use super::{ClusterOfHosts, DEADLINE, hosts};
use crate::commands::run_with_input;
use crate::lifecycle::{NAMESPACE, is_free};
use crate::replicas::find_binary;
use crate::requests::retry;
use crate::watching::until;

impl ClusterOfHosts<'_> {
    /// Cuts the power of a control plane for good, has its machine replaced on another host, and gives the power back.
    pub async fn replace_lost(&mut self) -> anyhow::Result<()> {
        let lost = *self.members.last().context("there is no control plane")?;
        self.progress.step(&format!("host {lost} is lost for good"));
        self.hosts.set_power(lost, false).await?;
        self.hosts.register(&[hosts::REPLACEMENT]).await?;
        self.progress.step(&format!("host {lost} is given up: Cluster API makes another control plane"));
        let name = self.hosts.inventory(lost)?.to_owned();
        let inventories: Api<MachineInventory> = Api::namespaced(self.client().clone(), NAMESPACE);
        let inventory = retry("read an inventory", async || inventories.get(&name).await).await?;
        let owner = inventory.annotations().get(annotation::OWNER_BAREMETAL_MACHINE);
        let owner = owner.context("the lost host has no machine")?;
        self.run_plugin(&["release", &name, "--yes"]).await?;
        let machines: Api<BaremetalMachine> = Api::namespaced(self.client().clone(), NAMESPACE);
        until(&machines, owner, DEADLINE, |machine| machine.metadata.deletion_timestamp.is_some()).await?;
        self.run_plugin(&["release", &name, "--without-clean", "--yes"]).await?;
        self.await_available(self.release, self.release).await?;
        self.progress.step(&format!("host {lost} returns, is cleaned and available"));
        self.hosts.set_power(lost, true).await?;
        until(&inventories, &name, DEADLINE, is_free).await?;
        self.proven
            .push("a lost control plane was replaced, and its host was cleaned when it returned".to_owned());
        Ok(())
    }

    async fn run_plugin(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let plugin = find_binary("kubectl-baremetal", "kubectl-baremetal")?;
        let kubeconfig = self.site.management.control_plane.admin_kubeconfig().display().to_string();
        let arguments = [&["--kubeconfig", &kubeconfig], arguments].concat();
        run_with_input(&plugin, &arguments, "").await
    }
}
