//! Who holds the address of a cluster's internal endpoint: one duty for each
//! control-plane host, and the conditions that show how far the hosts are.
//!
//! The hosts decide among themselves which of them holds the address; here is
//! only decided who takes part, at which address and in which order.

mod conditions;
mod member;
mod new_members;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use coordinator_api::cluster::{BaremetalCluster, LoadBalancer, LoadBalancerType};
use coordinator_api::inventory::{LoadBalancerDuty, LoadBalancerStatus};
use coordinator_api::network::ObservedNetwork;
use ipnet::IpNet;
use jiff::Timestamp;
use kube::ResourceExt as _;
use proto::v1alpha1 as wire;

pub use conditions::{find_holder, holds_endpoint, ignored_condition, is_other_endpoint, project_conditions};
pub use member::{DeviceProblem, find_address};
use new_members::{NewMemberWait, hold_new_members};

/// Router id of a cluster that names none: VRRP has 1 to 255.
const DEFAULT_ROUTER_ID: i32 = 51;
/// Hosts whose networks differ share no broadcast domain; of clusters without
/// hosts the usual size of one is assumed.
const USUAL_PREFIXES: (u8, u8) = (24, 64);

/// A control-plane machine with a host, as far as its duty depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Name of the `MachineInventory`.
    pub host: &'a str,
    /// Name of the machine, and when it was created.
    pub machine: (&'a str, Option<Timestamp>),
    /// What the host reported last, else what it registered with.
    pub network: Option<&'a ObservedNetwork>,
    /// `networkDevice` of the pool's member, else of the cluster.
    pub network_device: Option<&'a str>,
    /// The duty that was announced to it, and how far it is.
    pub known: Option<&'a LoadBalancerStatus>,
    /// Generation of the duty that it stated to carry.
    pub carried_generation: i64,
    /// Whether a duty reaches it now.
    pub is_attached: bool,
}

impl Candidate<'_> {
    /// The oldest machine is first.
    fn age(&self) -> (Timestamp, String) {
        (self.machine.1.unwrap_or(Timestamp::MAX), self.machine.0.to_owned())
    }
}

/// The load balancer of a cluster whose hosts are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Internal {
    pub address: IpAddr,
    pub port: i32,
    pub router_id: i32,
}

impl Internal {
    /// `None` where the load balancer is outside the cluster, or its host is no
    /// IP address.
    pub fn parse(balancer: &LoadBalancer) -> Option<Self> {
        let address = balancer.host.parse().ok().filter(|_| balancer.kind == LoadBalancerType::Internal)?;
        let router_id = balancer.vrid.filter(|id| (1..=255).contains(id)).unwrap_or(DEFAULT_ROUTER_ID);
        Some(Self { address, port: balancer.port, router_id })
    }

    pub fn of_cluster(cluster: &BaremetalCluster) -> Option<Self> {
        Self::parse(cluster.spec.control_plane_load_balancer.as_ref()?)
    }
}

/// What is due for a load balancer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The members, in the order in which they take over.
    pub members: Vec<Member>,
    /// Hosts that cannot be members; one that is keeps its former place.
    pub problems: Vec<(String, DeviceProblem)>,
    /// An older cluster that has the same address and port.
    pub address_taken: Option<String>,
    /// Clusters of the same network with the same router id.
    pub router_id_shared: Vec<String>,
    /// The router id stays the former one until this host can be told another.
    pub router_id_waits: Option<RouterIdWait>,
    /// A host that is no member yet: one that is away does not know it.
    pub new_member_waits: Option<NewMemberWait>,
}

/// A candidate that has a place among the members.
struct Placed<'a> {
    candidate: &'a Candidate<'a>,
    address: IpAddr,
    interface: &'a str,
}

/// A member that would not hear the others while they use another router id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterIdWait {
    pub host: String,
    /// The router id that it knows.
    pub router_id: i32,
}

/// A host that takes part.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub host: String,
    pub duty: LoadBalancerDuty,
    /// It differs from the one that was announced.
    pub is_new: bool,
}

/// The network of the address: that of the members, else one of the usual size.
pub fn find_network(internal: Internal, candidates: &[Candidate<'_>]) -> Option<IpNet> {
    member::find_network(candidates, internal.address).or_else(|| {
        let prefix = if internal.address.is_ipv4() { USUAL_PREFIXES.0 } else { USUAL_PREFIXES.1 };
        Some(IpNet::new(internal.address, prefix).ok()?.trunc())
    })
}

/// Decides who takes part. `neighbours` are the clusters that may have its address or
/// its router id; others do no harm.
pub fn decide_members(
    cluster: &BaremetalCluster,
    internal: Internal,
    candidates: &[Candidate<'_>],
    neighbours: &[Arc<BaremetalCluster>],
) -> Decision {
    let mut decision = Decision {
        address_taken: find_older(cluster, internal, neighbours),
        router_id_shared: find_shared(cluster, internal, candidates, neighbours),
        ..Decision::default()
    };
    let mut ordered: Vec<_> = candidates.iter().collect();
    ordered.sort_by_key(|candidate| candidate.age());
    let mut placed = place_candidates(&ordered, internal, &mut decision.problems);
    if decision.address_taken.is_some() {
        return decision;
    }
    decision.new_member_waits = hold_new_members(&mut placed, internal);
    decision.router_id_waits = find_router_id_wait(internal, placed.iter().map(|placed| placed.candidate));
    let router_id = decision.router_id_waits.as_ref().map_or(internal.router_id, |wait| wait.router_id);
    let addresses: Vec<String> = placed.iter().map(|placed| placed.address.to_string()).collect();
    for (position, Placed { candidate, interface, .. }) in placed.iter().enumerate() {
        let duty = LoadBalancerDuty {
            generation: 0,
            cluster: cluster.name_any(),
            address: internal.address.to_string(),
            port: internal.port,
            vrid: router_id,
            interface: (*interface).to_owned(),
            members: addresses.clone(),
            position: i32::try_from(position).unwrap_or_default(),
            // kubeadm init reaches its own API server by the address.
            holds_first: placed.len() == 1,
        };
        decision.members.push(renumber(candidate, duty));
    }
    decision
}

/// A place for each candidate that has an address; the others keep former ones that are free.
fn place_candidates<'a>(
    ordered: &[&'a Candidate<'a>],
    internal: Internal,
    problems: &mut Vec<(String, DeviceProblem)>,
) -> Vec<Placed<'a>> {
    let mut taken = BTreeSet::new();
    let mut assessed = Vec::new();
    for candidate in ordered {
        let found = member::find_address(candidate.network, candidate.network_device, internal.address);
        let interface = candidate.network_device.unwrap_or_default();
        assessed.push(match found {
            Ok(address) if !taken.insert(address) => Err(DeviceProblem::AddressShared(address)),
            Ok(address) => Ok(Placed { candidate, address, interface }),
            Err(problem) => Err(problem),
        });
    }
    let mut placed = Vec::new();
    for (candidate, place) in ordered.iter().zip(assessed) {
        match place {
            Ok(place) => placed.push(place),
            Err(problem) => {
                let is_shared = matches!(problem, DeviceProblem::AddressShared(_));
                problems.push((candidate.host.to_owned(), problem));
                let former = find_former_place(candidate, internal).filter(|_| !is_shared);
                placed.extend(former.filter(|place| taken.insert(place.address)));
            }
        }
    }
    placed
}

/// The place of a member that has one, while another one cannot be used: a name that is mistyped
/// takes the endpoint of no cluster away. A host that lost its interface holds nothing by itself.
fn find_former_place<'a>(candidate: &'a Candidate<'a>, internal: Internal) -> Option<Placed<'a>> {
    let duty = &candidate.known?.duty;
    let own = duty.members.get(usize::try_from(duty.position).ok()?)?;
    let address = own.parse().ok().filter(|_| duty.address == internal.address.to_string())?;
    Some(Placed { candidate, address, interface: &duty.interface })
}

/// Members with different router ids do not hear each other, and each of them holds the address:
/// the change begins when all members can be told.
fn find_router_id_wait<'a>(
    internal: Internal,
    members: impl Iterator<Item = &'a Candidate<'a>> + Clone,
) -> Option<RouterIdWait> {
    let known = |candidate: &Candidate<'_>| {
        let duty = candidate.known.map(|known| &known.duty).filter(|duty| !duty.address.is_empty());
        duty.map(|duty| duty.vrid)
    };
    let has_begun = members.clone().any(|candidate| known(candidate) == Some(internal.router_id));
    let mut away = members.filter(|candidate| !candidate.is_attached && !has_begun);
    away.find_map(|candidate| {
        let router_id = known(candidate)?;
        Some(RouterIdWait { host: candidate.host.to_owned(), router_id })
    })
}

/// The same duty keeps its generation; another one gets the next. One that the
/// host carries and the status lost is replaced by a newer one.
fn renumber(candidate: &Candidate<'_>, duty: LoadBalancerDuty) -> Member {
    let announced = candidate.known.map(|known| &known.duty);
    let same = |announced: &&LoadBalancerDuty| {
        announced.generation >= candidate.carried_generation
            && **announced == LoadBalancerDuty { generation: announced.generation, ..duty.clone() }
    };
    let host = candidate.host.to_owned();
    if let Some(announced) = announced.filter(same) {
        return Member { host, duty: announced.clone(), is_new: false };
    }
    let newest = announced.map_or(0, |announced| announced.generation).max(candidate.carried_generation);
    Member { host, duty: LoadBalancerDuty { generation: newest.saturating_add(1), ..duty }, is_new: true }
}

/// The empty duty for a host that is no member any more; `None` where it has
/// none.
pub fn end_duty(known: Option<&LoadBalancerStatus>, carried_generation: i64) -> Option<LoadBalancerDuty> {
    let announced = &known.filter(|known| !known.duty.address.is_empty())?.duty;
    let generation = announced.generation.max(carried_generation).saturating_add(1);
    Some(LoadBalancerDuty { generation, ..LoadBalancerDuty::default() })
}

/// The message that carries a duty; `None` where its numbers are none.
pub fn message_of(duty: &LoadBalancerDuty) -> Option<wire::LoadBalancerDuty> {
    Some(wire::LoadBalancerDuty {
        generation: u64::try_from(duty.generation).ok().filter(|generation| *generation > 0)?,
        address: duty.address.clone(),
        port: u32::try_from(duty.port).ok()?,
        router_id: u32::try_from(duty.vrid).ok()?,
        interface: duty.interface.clone(),
        members: duty.members.clone(),
        position: u32::try_from(duty.position).ok()?,
        holds_first: duty.holds_first,
    })
}

fn age(cluster: &BaremetalCluster) -> (Option<Timestamp>, String, String) {
    let created = cluster.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (created, cluster.namespace().unwrap_or_default(), cluster.name_any())
}

fn full_name(cluster: &BaremetalCluster) -> String {
    format!("{}/{}", cluster.namespace().unwrap_or_default(), cluster.name_any())
}

fn is_same(one: &BaremetalCluster, other: &BaremetalCluster) -> bool {
    one.namespace() == other.namespace() && one.name_any() == other.name_any()
}

fn find_older(
    cluster: &BaremetalCluster,
    internal: Internal,
    neighbours: &[Arc<BaremetalCluster>],
) -> Option<String> {
    let mut older = neighbours.iter().filter(|other| !is_same(cluster, other) && age(other) < age(cluster));
    let taken = older.find(|other| {
        let found = Internal::of_cluster(other);
        found.is_some_and(|found| found.address == internal.address && found.port == internal.port)
    });
    taken.map(|other| full_name(other))
}

fn find_shared(
    cluster: &BaremetalCluster,
    internal: Internal,
    candidates: &[Candidate<'_>],
    neighbours: &[Arc<BaremetalCluster>],
) -> Vec<String> {
    let network = find_network(internal, candidates);
    let shared = neighbours.iter().filter(|other| !is_same(cluster, other)).filter(|other| {
        Internal::of_cluster(other).is_some_and(|found| {
            found.router_id == internal.router_id
                && network.is_some_and(|network| network.contains(&found.address))
        })
    });
    let mut names: Vec<_> = shared.map(|other| full_name(other)).collect();
    names.sort_unstable();
    names
}
