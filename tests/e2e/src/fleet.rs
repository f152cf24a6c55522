//! Several simulated hosts of one pool: some carry a node, the others are free.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use coordinator_api::conditions::{Reason, Type, find_condition};
use coordinator_api::inventory::{MachineInventory, SessionStatus};
use coordinator_api::machine::BaremetalMachine;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};

use crate::environment::Environment;
use crate::history::Expected;
use crate::host::{Disk, Host as _, Simulated};
use crate::lifecycle::{Lifecycle, NAMESPACE, await_attached, await_node_ref, is_running};
use crate::progress::Progress;
use crate::requests::retry;
use crate::watching::{until, until_all};

const DEADLINE: Duration = Duration::from_mins(4);

/// One host and what it must stay.
struct Member {
    name: String,
    disk: Disk,
    effects: Vec<String>,
    /// The node on its disk.
    node: Option<(Vec<u8>, Vec<u8>)>,
    /// Names of the infrastructure machine and the Machine that hold it.
    owner: Option<(String, String)>,
    generation: i64,
}

/// The hosts; they run until it is dropped.
pub struct Fleet {
    hosts: Vec<Simulated>,
    members: Vec<Member>,
}

impl Fleet {
    /// `count` hosts register; as many as `nodes` become nodes of the cluster
    /// `lab`.
    pub async fn start(
        environment: &Environment,
        progress: &Arc<Progress>,
        base: &str,
        (count, nodes): (u8, usize),
    ) -> anyhow::Result<Self> {
        let mut fleet = Self::register(environment, progress, base, count).await?;
        let names = fleet.names();
        let first = fleet.hosts.first_mut().context("a fleet without hosts")?;
        let mut lifecycle = Lifecycle::new(environment, first, progress.clone());
        lifecycle.apply_cluster(&names, nodes).await?;
        progress.step("the machines run");
        let client = &environment.management.admin;
        for machine in await_machines(client, nodes).await? {
            await_node_ref(client, &machine.name_any()).await?;
        }
        fleet.record(client).await?;
        Ok(fleet)
    }

    /// `count` hosts register, install and attach.
    pub async fn register(
        environment: &Environment,
        progress: &Arc<Progress>,
        base: &str,
        count: u8,
    ) -> anyhow::Result<Self> {
        let mut fleet = Self { hosts: vec![], members: vec![] };
        for number in 1..=count {
            let host = Simulated::new(environment.workload.clone(), number)?;
            fleet.add(host);
        }
        let (first, others) = fleet.hosts.split_first_mut().context("a fleet without hosts")?;
        let mut lifecycle = Lifecycle::new(environment, first, progress.clone());
        let iso = lifecycle.create_seed(base).await?;
        lifecycle.register(&iso).await?;
        boot_all(others, &iso).await?;
        let client = &environment.management.admin;
        let inventories: Api<MachineInventory> = Api::namespaced(client.clone(), NAMESPACE);
        for member in &fleet.members {
            await_attached(&inventories, &member.name, DEADLINE).await?;
        }
        Ok(fleet)
    }

    /// The inventories of its hosts.
    pub fn names(&self) -> Vec<String> {
        self.members.iter().map(|member| member.name.clone()).collect()
    }

    /// The inventories of the hosts on whose disks `text` is.
    ///
    /// # Errors
    /// When a disk cannot be read.
    pub fn find_text(&self, text: &str) -> anyhow::Result<Vec<String>> {
        let mut found = vec![];
        for Member { name, disk, .. } in &self.members {
            if !disk.find_text(text)?.is_empty() {
                found.push(name.clone());
            }
        }
        Ok(found)
    }

    /// The host with this inventory.
    ///
    /// # Errors
    /// When there is none.
    pub fn host(&mut self, name: &str) -> anyhow::Result<&mut Simulated> {
        let host = self.hosts.iter_mut().find(|host| host.inventory() == name);
        host.with_context(|| format!("no host has the inventory {name}"))
    }

    fn add(&mut self, host: Simulated) {
        let disk = host.disk();
        let name = host.inventory();
        self.members.push(Member { name, disk, effects: vec![], node: None, owner: None, generation: 0 });
        self.hosts.push(host);
    }

    /// Records what every host must stay.
    async fn record(&mut self, client: &Client) -> anyhow::Result<()> {
        let inventories: Api<MachineInventory> = Api::namespaced(client.clone(), NAMESPACE);
        for member in &mut self.members {
            let name = &member.name;
            let inventory = retry("read an inventory", async || inventories.get(name).await).await?;
            member.owner = inventory.claim().map(|claim| (claim.baremetal_machine, claim.machine));
            member.generation = inventory.plan().and_then(|plan| plan.generation).unwrap_or(0);
            member.effects = member.disk.effects();
            member.node = member.disk.node();
            ensure!(member.node.is_some() == member.owner.is_some(), "{name} carries no node of its owner");
        }
        Ok(())
    }

    /// What every inventory must look like from now on.
    pub fn expected(&self) -> Vec<Expected> {
        let expected = |member: &Member| Expected {
            name: member.name.clone(),
            owner: member.owner.clone(),
            generation: member.generation,
        };
        self.members.iter().map(expected).collect()
    }

    /// Checks that no host did anything since it was recorded.
    pub fn check_untouched(&self) -> anyhow::Result<()> {
        for Member { name, disk, effects, node, .. } in &self.members {
            ensure!(disk.effects() == *effects, "{name} did {:#?}, before: {effects:#?}", disk.effects());
            ensure!(disk.node() == *node, "{name} lost its node");
        }
        Ok(())
    }

    /// Waits until every host is attached and has stated what it carries; the
    /// answer is the sessions, in the order of the hosts.
    ///
    /// # Errors
    /// When one is not.
    pub async fn await_sessions(&self, client: &Client) -> anyhow::Result<Vec<SessionStatus>> {
        let inventories: Api<MachineInventory> = Api::namespaced(client.clone(), NAMESPACE);
        let mut sessions = vec![];
        for member in &self.members {
            let provider_id = member.owner.as_ref().map(|_| format!("baremetal:///{}", member.name));
            let is_stated = |inventory: &MachineInventory| {
                read_session(inventory).is_some_and(|(_, carried)| carried == provider_id)
            };
            let inventory = until(&inventories, &member.name, DEADLINE, is_stated).await?;
            sessions.extend(read_session(&inventory).map(|(session, _)| session));
        }
        Ok(sessions)
    }

    /// Waits until the machines run as before: the same machines, with the same
    /// providerID on the same hosts.
    ///
    /// # Errors
    /// When they do not.
    pub async fn await_running(&self, client: &Client) -> anyhow::Result<()> {
        let owned: Vec<_> = self.members.iter().filter(|member| member.owner.is_some()).collect();
        for machine in await_machines(client, owned.len()).await? {
            let name = machine.name_any();
            let holds = |member: &&&Member| member.owner.as_ref().is_some_and(|(owner, _)| *owner == name);
            let member = owned.iter().find(holds).with_context(|| format!("{name} is a new machine"))?;
            let provider_id = format!("baremetal:///{}", member.name);
            ensure!(machine.spec.provider_id.as_ref() == Some(&provider_id), "{:?}", machine.spec);
            await_node_ref(client, &name).await?;
        }
        let inventories: Api<MachineInventory> = Api::namespaced(client.clone(), NAMESPACE);
        for member in &self.members {
            await_attached(&inventories, &member.name, DEADLINE).await?;
        }
        Ok(())
    }

    /// Waits until every machine is in deletion and held because its owner
    /// reference is stale.
    ///
    /// # Errors
    /// When one is not.
    pub async fn await_held(&self, client: &Client) -> anyhow::Result<()> {
        let machines: Api<BaremetalMachine> = Api::namespaced(client.clone(), NAMESPACE);
        for (name, _) in self.members.iter().filter_map(|member| member.owner.as_ref()) {
            let is_held = |machine: &BaremetalMachine| {
                let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice());
                let ready = find_condition(conditions.unwrap_or_default(), Type::Ready);
                machine.metadata.deletion_timestamp.is_some()
                    && ready.is_some_and(|ready| ready.reason == Reason::OwnerMismatch.as_str())
            };
            until(&machines, name, DEADLINE, is_held).await?;
        }
        Ok(())
    }
}

async fn boot_all(hosts: &mut [Simulated], iso: &Path) -> anyhow::Result<()> {
    for host in hosts {
        host.boot(iso).await?;
    }
    Ok(())
}

/// The open session, and the providerID of the node that the host states.
/// The process that serves the host now.
pub fn read_replica(inventory: &MachineInventory) -> Option<String> {
    let session = inventory.status.as_ref()?.host.as_ref()?.session.as_ref()?;
    session.ended.is_none().then(|| session.replica.clone())
}

fn read_session(inventory: &MachineInventory) -> Option<(SessionStatus, Option<String>)> {
    let host = inventory.status.as_ref()?.host.as_ref()?;
    let session = host.session.clone().filter(|session| session.ended.is_none())?;
    let carried = host.carried.as_ref()?;
    Some((session, carried.node.as_ref().map(|node| node.provider_id.clone())))
}

/// The machines, once exactly `count` exist and run.
async fn await_machines(client: &Client, count: usize) -> anyhow::Result<Vec<BaremetalMachine>> {
    let api: Api<BaremetalMachine> = Api::namespaced(client.clone(), NAMESPACE);
    until_all(&api, watcher::Config::default(), DEADLINE, |machines| {
        let all = machines.len() == count && machines.values().all(is_running);
        Ok(all.then(|| machines.values().cloned().collect()))
    })
    .await
}
