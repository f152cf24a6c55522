//! Hosts, and the machines that use them.

use std::collections::BTreeSet;

use coordinator_api::capi::{self, ClusterStatus};
use coordinator_api::conditions::Reason;
use coordinator_api::metal3::cluster::Metal3Cluster;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::{Metal3Machine, Metal3MachineTemplate};
use coordinator_api::metal3::remediation::Metal3Remediation;
use coordinator_api::names::{kind, label};
use coordinator_core::metal3::host::{keeping_cluster, named_inventory};
use coordinator_core::metal3::machine::{self, Choice, HostChange, HostRoster, HostWish};
use coordinator_core::problem::Severity;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{Inner, MachineFacts, Metal3Index, of_kind};
use crate::index::reservations::Reservations;
use crate::index::{Triggers, Wait, Wake};
use crate::key::{Key, Kind, Presence, find_owner};

impl Inner {
    fn update_roster(&mut self, key: &Key, host: &BareMetalHost, exists: bool) -> Option<HostChange> {
        let roster = self.rosters.entry(key.namespace.clone()).or_default();
        let change = roster.set_host(&key.name, exists.then_some(host));
        if roster.is_empty() {
            self.rosters.remove(&key.namespace);
        }
        change
    }

    fn set_wait(&mut self, machine: &Key, wait: Option<Wait<HostWish>>) {
        let known = wait.filter(|_| self.machines.contains_key(machine));
        self.waiting.set_wait(machine, known.map(|wait| (machine.in_namespace_of(""), wait)));
    }

    /// Wakes the machines that wait for a kept host, because it may be kept no longer.
    fn end_return(&mut self, host: &Key, group: &str) -> BTreeSet<Key> {
        self.waiting.wake_returns(&host.in_namespace_of(""), |wish| wish.is_of_group(group))
    }

    /// Wakes machines for a host, if it is available.
    fn offer_host(&mut self, host: &Key) -> BTreeSet<Key> {
        let roster = self.rosters.get(&host.namespace);
        let offered = roster.and_then(|roster| roster.find_offered(&host.name));
        let Some(offered) = offered else { return BTreeSet::new() };
        // The machines that do not get the host may take any host.
        self.waiting.wake_waiters(
            &host.in_namespace_of(""),
            |wish| wish.fits(offered.labels),
            |wish| match offered.kept_for {
                Some(group) if wish.is_of_group(group) && wish.fits(offered.labels) => Wake::All,
                _ => Wake::None,
            },
        )
    }

    /// A machine that names its host does not need another host that was reserved for it.
    fn note_choice(&mut self, machine: &Key, host: Option<&Key>) -> BTreeSet<Key> {
        match (host, self.reservations.host_of(machine)) {
            (Some(host), Some(reserved)) if host != reserved => self.release_reservation(machine),
            _ => BTreeSet::new(),
        }
    }

    /// Releases the reservation of a machine, and offers its host to others.
    fn release_reservation(&mut self, machine: &Key) -> BTreeSet<Key> {
        let host = self.reservations.release_machine(machine);
        host.map_or_else(BTreeSet::new, |host| self.offer_host(&host))
    }

    /// The data of claims, each of which has the name of its machine.
    fn data_of_claims<'a>(&self, claims: impl IntoIterator<Item = &'a Key>) -> Vec<Key> {
        claims.into_iter().filter_map(|claim| self.data_by_claim.get(claim).cloned()).collect()
    }

    fn infrastructures_of(&self, cluster: &Key) -> Vec<Key> {
        self.infrastructures.group_members(cluster).cloned().collect()
    }

    fn remediations_of<'a>(&self, machines: impl IntoIterator<Item = &'a Key>) -> BTreeSet<Key> {
        let owners = machines.into_iter().filter_map(|machine| self.machines.get(machine)?.owner.as_ref());
        owners.flat_map(|owner| self.remediations_by_owner.group_members(owner)).cloned().collect()
    }
}

/// Tells whether the plan of a host waits for a Secret.
fn waits_for_secret(host: &BareMetalHost) -> bool {
    let conditions = host.status.iter().flat_map(|status| &status.conditions);
    let reason = Reason::BootstrapWaiting.as_str();
    conditions.into_iter().any(|condition| condition.status == "False" && condition.reason == reason)
}

/// The Cluster of a `Metal3Cluster`.
pub(crate) fn cluster_of_infrastructure(infrastructure: &Metal3Cluster) -> Option<Key> {
    let owner = find_owner(infrastructure, kind::CLUSTER);
    owner.or_else(|| {
        let labelled = infrastructure.labels().get(label::CLUSTER_NAME)?;
        Some(Key::of(infrastructure).in_namespace_of(labelled))
    })
}

/// The annotation of cloned objects, with the name of the template.
const CLONED_FROM: &str = "cluster.x-k8s.io/cloned-from-name";

/// The template that a machine was cloned from.
pub(crate) fn template_of_machine(machine: &Metal3Machine) -> Option<Key> {
    machine.annotations().get(CLONED_FROM).map(|name| Key::of(machine).in_namespace_of(name))
}

/// Hosts, and the machines that use them.
impl Metal3Index {
    /// A host concerns the machine that uses it. If it can be chosen now, it also concerns machines
    /// that wait. Public for the benchmark of the index.
    pub fn apply_host(&self, host: &BareMetalHost, presence: Presence) -> Triggers {
        let key = Key::of(host);
        let exists = presence == Presence::Exists;
        let inventory =
            named_inventory(host).filter(|_| exists).map(|name| key.in_namespace_of(name.as_str()));
        let mut inner = self.write_inner();
        let old = inner.hosts_by_inventory.set_group(&key, inventory.as_ref());
        let change = inner.update_roster(&key, host, exists);
        let keeper = keeping_cluster(host).filter(|_| exists).map(|cluster| key.in_namespace_of(cluster));
        inner.kept_by_cluster.set_group(&key, keeper.as_ref());
        let mut machines: BTreeSet<_> = inner.machines_by_host.group_members(&key).cloned().collect();
        let remediations = inner.remediations_of(&machines);
        let consumer =
            host.spec.consumer_ref.as_ref().filter(|consumer| consumer.kind == kind::METAL3_MACHINE);
        let is_used = consumer.is_some();
        machines.extend(consumer.map(|consumer| key.in_namespace_of(&consumer.name)));
        // No watch tells that a rendered Secret is missing, but a host that needs the Secret does.
        let data = if waits_for_secret(host) { inner.data_of_claims(&machines) } else { vec![] };
        if host.spec.consumer_ref.is_some() || !exists {
            inner.reservations.release_host(&key);
        }
        if let Some(change) = change {
            machines.extend(inner.offer_host(&key));
            machines.extend(change.was_of_machine.map(|machine| key.in_namespace_of(&machine)));
            // The machines that did not get the host were woken when it became available.
            let ended = change.was_kept_for.filter(|_| !is_used);
            machines.extend(ended.into_iter().flat_map(|group| inner.end_return(&key, &group)));
        }
        // The inventory of the host may have other hosts that name it.
        let beside: Vec<_> = [&old, &inventory]
            .into_iter()
            .flatten()
            .flat_map(|inventory| {
                inner.hosts_by_inventory.group_members(inventory).cloned().collect::<Vec<_>>()
            })
            .collect();
        let hosts = of_kind(Kind::BareMetalHost, beside).chain([(Kind::BareMetalHost, key)]);
        let subjects =
            hosts.chain(of_kind(Kind::Metal3Machine, machines)).chain(of_kind(Kind::Metal3Data, data));
        let mut triggers =
            subjects.chain(of_kind(Kind::Metal3Remediation, remediations)).collect::<Triggers>();
        // The host held the claim of its inventory.
        triggers.add(Kind::MachineInventory, old.filter(|_| !exists));
        triggers
    }

    pub(crate) fn apply_machine(&self, machine: &Metal3Machine, presence: Presence) -> Triggers {
        let key = Key::of(machine);
        let facts = (presence == Presence::Exists).then(|| MachineFacts {
            host: machine::named_host(machine).map(|name| key.in_namespace_of(name)),
            cluster: machine.labels().get(label::CLUSTER_NAME).map(|name| key.in_namespace_of(name)),
            owner: find_owner(machine, kind::MACHINE),
            generation: machine.metadata.generation,
        });
        let mut inner = self.write_inner();
        let old = match &facts {
            Some(facts) => inner.machines.insert(key.clone(), facts.clone()),
            None => inner.machines.remove(&key),
        };
        let restored = old.is_none().then(|| key.clone());
        let (old, new) = (old.unwrap_or_default(), facts.clone().unwrap_or_default());
        inner.machines_by_host.replace_group(old.host.as_ref(), new.host.as_ref(), &key);
        inner.machines_by_cluster.replace_group(old.cluster.as_ref(), new.cluster.as_ref(), &key);
        let template = template_of_machine(machine).filter(|_| facts.is_some());
        inner.machines_by_template.set_group(&key, template.as_ref());
        if facts.is_some() {
            let woken = inner.note_choice(&key, new.host.as_ref());
            let remediations = inner.remediations_of([&key]);
            // The data of the machine may have waited for its host or for its Machine. After a
            // change of the spec the Secrets are looked for, as in CAPM3.
            let data = if old == new { vec![] } else { inner.data_of_claims([&key]) };
            let subjects =
                of_kind(Kind::Metal3Remediation, remediations).chain(of_kind(Kind::Metal3Data, data));
            return subjects
                .chain(of_kind(Kind::Metal3DataClaim, restored))
                .chain(of_kind(Kind::Metal3Machine, woken))
                .chain([(Kind::Metal3Machine, key)])
                .collect();
        }
        inner.waiting.set_wait(&key, None);
        let mut woken = inner.release_reservation(&key);
        if woken.is_empty() && old.host.is_none() {
            // The machine may have been woken for a host that is still free.
            let next = inner.waiting.wake_waiters(&key.in_namespace_of(""), |_| true, |_| Wake::None);
            woken.extend(next);
        }
        let woken = of_kind(Kind::Metal3Machine, woken);
        // The Metal3Cluster may be deleted after the last machine of its Cluster.
        let infrastructures = old.cluster.map(|cluster| inner.infrastructures_of(&cluster));
        let infrastructures = of_kind(Kind::Metal3Cluster, infrastructures.into_iter().flatten());
        // A claim on data has the name of its machine, and is an orphan if the machine was removed by force.
        let claim = inner.indexes.has_claim(&key).then_some((Kind::Metal3DataClaim, key));
        infrastructures.chain(woken).chain(claim).collect()
    }

    /// A template concerns the machines that were cloned from it.
    pub(crate) fn apply_machine_template(&self, template: &Metal3MachineTemplate, _: Presence) -> Triggers {
        let inner = self.read_inner();
        let machines: Vec<_> =
            inner.machines_by_template.group_members(&Key::of(template)).cloned().collect();
        Triggers::of(Kind::Metal3Machine, machines)
    }

    /// A Machine of Cluster API concerns its infrastructure machine, and its remediation.
    pub(crate) fn apply_owner(&self, owner: &capi::Machine) -> Triggers {
        let (key, reference) = (Key::of(owner), &owner.spec.infrastructure_ref);
        if reference.kind != kind::METAL3_MACHINE {
            return Triggers::default();
        }
        let remediations: Vec<_> =
            self.read_inner().remediations_by_owner.group_members(&key).cloned().collect();
        let machine = (Kind::Metal3Machine, key.in_namespace_of(&reference.name));
        of_kind(Kind::Metal3Remediation, remediations).chain([machine]).collect()
    }

    /// A remediation concerns itself alone.
    pub(crate) fn apply_remediation(&self, remediation: &Metal3Remediation, presence: Presence) -> Triggers {
        let key = Key::of(remediation);
        let owner = find_owner(remediation, kind::MACHINE).filter(|_| presence == Presence::Exists);
        self.write_inner().remediations_by_owner.set_group(&key, owner.as_ref());
        Triggers::of(Kind::Metal3Remediation, [key])
    }

    /// A Cluster concerns its infrastructure, and its machines if a fact changed that they depend
    /// on. When its pause ends, it concerns all objects of the Cluster.
    pub(crate) fn apply_cluster(&self, cluster: &capi::Cluster, presence: Presence) -> Triggers {
        let key = Key::of(cluster);
        let reference = cluster.spec.infrastructure_ref.as_ref();
        let infrastructure = reference.filter(|reference| reference.kind == "Metal3Cluster");
        let infrastructure =
            infrastructure.map(|reference| (Kind::Metal3Cluster, key.in_namespace_of(&reference.name)));
        let is_paused = presence == Presence::Exists && cluster.spec.paused == Some(true);
        let mut inner = self.write_inner();
        let resumed = inner.clusters.apply_cluster(&key, is_paused);
        let status = cluster.status.as_ref();
        let facts = (
            status.is_some_and(ClusterStatus::is_infrastructure_provisioned),
            status.is_some_and(ClusterStatus::is_control_plane_initialized),
        );
        if !inner.seen.clusters.note_change(cluster, presence, facts) {
            return infrastructure.into_iter().chain(resumed).collect();
        }
        let machines = inner.machines_by_cluster.group_members(&key);
        let used = machines.clone().filter_map(|machine| inner.machines.get(machine)?.host.clone());
        let hosts: Vec<_> = used.chain(inner.kept_by_cluster.group_members(&key).cloned()).collect();
        let machines: Vec<_> = machines.cloned().collect();
        let remediations = inner.remediations_of(&machines);
        let subjects = of_kind(Kind::Metal3Machine, machines).chain(of_kind(Kind::BareMetalHost, hosts));
        let beside = of_kind(Kind::Metal3Remediation, remediations).chain(resumed);
        subjects.chain(beside).chain(infrastructure).collect()
    }

    /// A `Metal3Cluster` concerns the machines of the Cluster that owns it.
    pub(crate) fn apply_infrastructure(
        &self,
        infrastructure: &Metal3Cluster,
        presence: Presence,
    ) -> Triggers {
        let key = Key::of(infrastructure);
        let cluster = cluster_of_infrastructure(infrastructure);
        let cluster = cluster.filter(|_| presence == Presence::Exists);
        let former = self.write_inner().infrastructures.set_group(&key, cluster.as_ref());
        let machines = cluster.or(former).map(|cluster| self.machines_of_cluster(&cluster));
        let machines = of_kind(Kind::Metal3Machine, machines.into_iter().flatten());
        machines.chain([(Kind::Metal3Cluster, key)]).collect()
    }

    /// Machines may wait for an entry of the image catalog.
    pub(crate) fn apply_catalog(&self) -> Triggers {
        Triggers::of(Kind::Metal3Machine, self.read_inner().waiting.find_catalog_waiters())
    }

    pub fn machines_of_cluster(&self, cluster: &Key) -> Vec<Key> {
        self.read_inner().machines_by_cluster.group_members(cluster).cloned().collect()
    }

    /// Names of the hosts that belong to a machine by their consumer, their node or their claim, sorted.
    /// One of them may not exist, because its inventory outlives it.
    pub(crate) fn hosts_of_machine(&self, machine: &Key) -> Vec<String> {
        let inner = self.read_inner();
        let roster = inner.rosters.get(&machine.namespace);
        let hosts = roster.into_iter().flat_map(|roster| roster.hosts_of_machine(&machine.name));
        let hosts: BTreeSet<_> = hosts.chain(inner.stated_hosts.hosts_of(machine)).collect();
        hosts.into_iter().cloned().collect()
    }

    /// Sets the wait of a machine. The wait is [`Wait::Decision`] before the stores are read, so
    /// that no event is missed.
    pub(crate) fn set_wait(&self, machine: &Key, wait: Option<Wait<HostWish>>) {
        self.write_inner().set_wait(machine, wait);
    }

    /// Reserves the chosen host until it is claimed. Public for the benchmark of the index.
    pub fn choose_host(&self, machine: &Metal3Machine, owner: &capi::Machine, now: Timestamp) -> Choice {
        let key = Key::of(machine);
        let mut inner = self.write_inner();
        let is_reserved = |host: &str| inner.reservations.is_taken(&key.in_namespace_of(host), &key);
        let empty = HostRoster::default();
        let roster = inner.rosters.get(&key.namespace).unwrap_or(&empty);
        let chosen = roster.choose_host(machine, owner, &is_reserved, now);
        if let Err(blocker) = &chosen
            && blocker.problem.reason == Reason::NoHostAvailable
        {
            let wish = HostWish::of_machine(machine, owner);
            let is_kept = blocker.severity == Severity::Waiting;
            inner.set_wait(&key, Some(if is_kept { Wait::Return(wish) } else { Wait::Host(wish) }));
        }
        let host = chosen?;
        let host_key = key.in_namespace_of(&host);
        // A host that names the machine already belongs to it, whichever machine reserved the host
        // here.
        inner.reservations.release_host(&host_key);
        inner.reservations.insert_reservation(&host_key, &key);
        Ok(host)
    }

    /// Releases every reservation, because another replica led meanwhile.
    pub(crate) fn release_all(&self) {
        self.write_inner().reservations = Reservations::default();
    }

    /// Releases the reservation of a machine, and offers its host to others.
    pub(crate) fn release_host(&self, machine: &Key) -> Triggers {
        Triggers::of(Kind::Metal3Machine, self.write_inner().release_reservation(machine))
    }
}
