//! The internal endpoint of a cluster: one duty for each control-plane host, and the conditions
//! that show the progress of the hosts.
//!
//! The hosts elect the holder of the address among themselves. This module only decides which
//! hosts are members, at which addresses and in which order.

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
use coordinator_api::object::Key;
use ipnet::IpNet;
use jiff::Timestamp;
use kube::ResourceExt as _;
use proto::v1alpha1 as wire;

pub use conditions::{find_holder, holds_endpoint, ignored_condition, is_other_endpoint, project_conditions};
pub use member::{DeviceProblem, find_address};
use new_members::{NewMemberWait, hold_new_members};

/// Router id of a cluster that names none. VRRP allows 1 to 255.
const DEFAULT_ROUTER_ID: i32 = 51;
/// Assumed prefix lengths of the network of a cluster without hosts, for IPv4 and IPv6.
const USUAL_PREFIXES: (u8, u8) = (24, 64);

/// A control-plane machine with a host, reduced to the inputs of its duty.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Name of the `MachineInventory`.
    pub host: &'a str,
    /// Name of the machine, and when it was created.
    pub machine: (&'a str, Option<Timestamp>),
    /// The newest report of the host, else the report of its registration.
    pub network: Option<&'a ObservedNetwork>,
    /// `networkDevice` of the pool member, else of the cluster.
    pub network_device: Option<&'a str>,
    /// The announced duty and its state.
    pub known: Option<&'a LoadBalancerStatus>,
    /// Generation of the duty that the host states to carry.
    pub carried_generation: i64,
    /// A duty reaches the host now.
    pub is_attached: bool,
}

impl Candidate<'_> {
    /// Sort key with the oldest machine first.
    fn age(&self) -> (Timestamp, String) {
        (self.machine.1.unwrap_or(Timestamp::MAX), self.machine.0.to_owned())
    }
}

/// The endpoint of a cluster whose hosts hold its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Internal {
    pub address: IpAddr,
    pub port: i32,
    pub router_id: i32,
}

impl Internal {
    /// `None` if the load balancer is external, or its host is no IP address.
    pub fn parse(balancer: &LoadBalancer) -> Option<Self> {
        let address = balancer.host.parse().ok().filter(|_| balancer.kind == LoadBalancerType::Internal)?;
        let router_id = balancer.vrid.filter(|id| (1..=255).contains(id)).unwrap_or(DEFAULT_ROUTER_ID);
        Some(Self { address, port: balancer.port, router_id })
    }

    pub fn of_cluster(cluster: &BaremetalCluster) -> Option<Self> {
        Self::parse(cluster.spec.control_plane_load_balancer.as_ref()?)
    }
}

/// The members of an endpoint, and the problems to show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Members in the order of their precedence.
    pub members: Vec<Member>,
    /// Hosts with an unusable network. A former member keeps its place.
    pub problems: Vec<(String, DeviceProblem)>,
    /// A cluster that has the same address and port before this one.
    pub address_taken: Option<String>,
    /// Clusters in the same network with the same router id.
    pub router_id_shared: Vec<String>,
    /// Reason why the former router id stays in use.
    pub router_id_waits: Option<RouterIdWait>,
    /// Reason why a host is not a member yet.
    pub new_member_waits: Option<NewMemberWait>,
}

/// A candidate with a place among the members.
struct Placed<'a> {
    candidate: &'a Candidate<'a>,
    address: IpAddr,
    interface: &'a str,
}

/// A member that is not attached and would not hear members with another router id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterIdWait {
    pub host: String,
    /// The router id of its newest duty.
    pub router_id: i32,
}

/// A host that can hold the address.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub host: String,
    pub duty: LoadBalancerDuty,
    /// The duty differs from the announced one.
    pub is_new: bool,
}

/// The network of the address: the network of the members, else a network of the usual size.
pub fn find_network(internal: Internal, candidates: &[Candidate<'_>]) -> Option<IpNet> {
    member::find_network(candidates, internal.address).or_else(|| {
        let prefix = if internal.address.is_ipv4() { USUAL_PREFIXES.0 } else { USUAL_PREFIXES.1 };
        Some(IpNet::new(internal.address, prefix).ok()?.trunc())
    })
}

/// A cluster that may have the same address or router id.
#[derive(Clone, Debug)]
pub struct Neighbour {
    pub cluster: Arc<BaremetalCluster>,
    /// Hosts of it have a duty.
    pub has_duties: bool,
}

/// Tells whether hosts of a cluster have a duty, by the announced duties or, after a lost status, by the
/// hosts' own statements.
pub fn has_duties(candidates: &[Candidate<'_>]) -> bool {
    candidates.iter().any(|candidate| {
        let is_announced = candidate.known.is_some_and(|known| !known.duty.address.is_empty());
        is_announced || candidate.carried_generation > 0
    })
}

/// Decides the members. `neighbours` contains all clusters that may have the same address or
/// router id.
pub fn decide_members(
    cluster: &BaremetalCluster,
    internal: Internal,
    candidates: &[Candidate<'_>],
    neighbours: &[Neighbour],
) -> Decision {
    let precedence = (!has_duties(candidates), Key::of(cluster));
    let mut decision = Decision {
        address_taken: find_holding(internal, &precedence, neighbours),
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
            position: i32::try_from(position).unwrap_or(i32::MAX),
            // kubeadm init reaches its own API server at the address.
            holds_first: placed.len() == 1,
        };
        decision.members.push(renumber(candidate, duty));
    }
    decision
}

/// Gives a place to each candidate with an address. The other candidates keep their former
/// places, unless another candidate has the address.
fn place_candidates<'a>(
    ordered: &[&'a Candidate<'a>],
    internal: Internal,
    problems: &mut Vec<(String, DeviceProblem)>,
) -> Vec<Placed<'a>> {
    let mut taken = BTreeSet::new();
    let mut assessed = Vec::new();
    for candidate in ordered {
        let found = member::find_address(candidate.network, candidate.network_device, internal.address);
        let interface = candidate.network_device.unwrap_or("");
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

/// The former place of a member whose network is not usable now, so that a mistyped
/// `networkDevice` does not take the endpoint down. A host without the interface cannot hold the
/// address in any case.
fn find_former_place<'a>(candidate: &'a Candidate<'a>, internal: Internal) -> Option<Placed<'a>> {
    let duty = &candidate.known?.duty;
    let own = duty.members.get(usize::try_from(duty.position).ok()?)?;
    let address = own.parse().ok().filter(|_| duty.address == internal.address.to_string())?;
    Some(Placed { candidate, address, interface: &duty.interface })
}

/// Members with different router ids do not hear each other, so that each of them would hold the
/// address. Therefore the router id changes only while all members are attached.
fn find_router_id_wait<'a>(
    internal: Internal,
    members: impl Iterator<Item = &'a Candidate<'a>> + Clone,
) -> Option<RouterIdWait> {
    let has_begun = members.clone().any(|candidate| known_router_id(candidate) == Some(internal.router_id));
    let mut away = members.filter(|candidate| !candidate.is_attached && !has_begun);
    away.find_map(|candidate| {
        let router_id = known_router_id(candidate)?;
        Some(RouterIdWait { host: candidate.host.to_owned(), router_id })
    })
}

fn known_router_id(candidate: &Candidate<'_>) -> Option<i32> {
    candidate.known.map(|known| &known.duty).filter(|duty| !duty.address.is_empty()).map(|duty| duty.vrid)
}

/// An unchanged duty keeps its generation; a changed duty gets the next one. A duty that the host
/// carries but the status lost is replaced by a newer one.
fn renumber(candidate: &Candidate<'_>, duty: LoadBalancerDuty) -> Member {
    let host = candidate.host.to_owned();
    let announced = candidate.known.map(|known| &known.duty);
    if let Some(announced) = announced
        && announced.generation >= candidate.carried_generation
        && *announced == (LoadBalancerDuty { generation: announced.generation, ..duty.clone() })
    {
        return Member { host, duty: announced.clone(), is_new: false };
    }
    let newest = announced.map_or(0, |announced| announced.generation).max(candidate.carried_generation);
    Member { host, duty: LoadBalancerDuty { generation: newest.saturating_add(1), ..duty }, is_new: true }
}

/// The empty duty of a host that is no longer a member; `None` if the host has no duty.
pub fn end_duty(known: Option<&LoadBalancerStatus>, carried_generation: i64) -> Option<LoadBalancerDuty> {
    let announced = &known.filter(|known| !known.duty.address.is_empty())?.duty;
    let generation = announced.generation.max(carried_generation).saturating_add(1);
    Some(LoadBalancerDuty { generation, ..LoadBalancerDuty::default() })
}

/// The message that carries a duty; `None` if a number is out of range.
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

/// The cluster that has the address before this one: one whose hosts have duties comes first, then the
/// name decides. Times of creation are new after a restore, and would move the address of a running
/// cluster.
fn find_holding(
    internal: Internal,
    (has_none, own): &(bool, Key),
    neighbours: &[Neighbour],
) -> Option<String> {
    let others = neighbours.iter().map(|other| (!other.has_duties, Key::of(&*other.cluster), other));
    let mut before =
        others.filter(|(others_none, key, _)| key != own && (others_none, key) < (has_none, own));
    let (_, taken, _) = before.find(|(_, _, other)| {
        let found = Internal::of_cluster(&other.cluster);
        found.is_some_and(|found| found.address == internal.address && found.port == internal.port)
    })?;
    Some(taken.to_string())
}

fn find_shared(
    cluster: &BaremetalCluster,
    internal: Internal,
    candidates: &[Candidate<'_>],
    neighbours: &[Neighbour],
) -> Vec<String> {
    let network = find_network(internal, candidates);
    let shared = neighbours.iter().map(|other| &other.cluster).filter(|other| {
        Internal::of_cluster(other).is_some_and(|found| {
            found.router_id == internal.router_id
                && network.is_some_and(|network| network.contains(&found.address))
        })
    });
    let own = Key::of(cluster);
    let keys: BTreeSet<_> = shared.map(|other| Key::of(&**other)).filter(|key| *key != own).collect();
    keys.iter().map(ToString::to_string).collect()
}
