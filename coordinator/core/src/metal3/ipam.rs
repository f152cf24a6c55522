//! Allocation of an address of an `IPPool` to a claim.
//!
//! The name of an `IPAddress` is derived from its address, so that the claim that creates it
//! first has the address. This module only chooses the next name to try.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use coordinator_api::metal3::ipam::{AllocationStrategy, IPAddress, IPAddressSpec, IPPool, IPPoolSpec};
use coordinator_api::metal3::{ObjectRef, names};
use coordinator_api::names::kind;
use kube::ResourceExt;
use sha2::{Digest as _, Sha256};

mod address_claim;
mod claim;
mod range;
#[cfg(test)]
mod tests;

pub use address_claim::{
    AddressClaimStep, Situation as AddressClaimSituation, decide_address_claim, is_ours,
    refuse as refuse_address_claim,
};
use range::{Range, parse_address};

pub use claim::{ClaimStep, decide_claim, labels_of_pool, project_pool};

/// Kind of the claim that holds an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// `IPClaim` of Metal3.
    Claim,
    /// `IPAddressClaim` of Cluster API.
    AddressClaim,
}

impl ClaimKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claim => kind::IP_CLAIM,
            Self::AddressClaim => kind::IP_ADDRESS_CLAIM,
        }
    }

    /// Kind of the claim that an address names.
    pub fn of(address: &IPAddress) -> Self {
        let kind = address.spec.claim.kind.as_deref();
        if kind == Some(Self::AddressClaim.as_str()) { Self::AddressClaim } else { Self::Claim }
    }
}

/// The claim holds the address. Names are compared, because UIDs change with a restore, and
/// kinds, because claims of both kinds may have the same name.
pub fn is_held_by(address: &IPAddress, kind: ClaimKind, claim: &str, pool: &str) -> bool {
    let spec = &address.spec;
    ClaimKind::of(address) == kind && spec.claim.name == claim && spec.pool.name == pool
}

/// The address that a claim of either kind has chosen.
pub fn chosen_address(claim: &impl ResourceExt) -> Option<IpAddr> {
    claim.annotations().get(names::CHOSEN_ADDRESS)?.parse().ok()
}

/// Only this finalizer holds the claim. The owner of another finalizer may still use the address.
fn is_held_by_alone(claim: &impl ResourceExt, finalizer: &str) -> bool {
    let finalizers = claim.finalizers();
    !finalizers.is_empty() && finalizers.iter().all(|name| name == finalizer)
}

/// The pool of a claim, or a sentence that says why it cannot be used. A new claim (`is_new`)
/// gets no address of a pool in deletion.
fn find_pool<'a>(pool: Option<&'a IPPool>, name: &str, is_new: bool) -> Result<(&'a IPPool, Pool), String> {
    let pool = pool.ok_or_else(|| format!("no IPPool {name} in this namespace: create it"))?;
    let (parsed, error) = Pool::parse_usable(&pool.spec);
    if let Some(error) = error.filter(|_| parsed.ranges.is_empty()) {
        return Err(format!("IPPool {name} cannot be used: {error}"));
    }
    if is_new && pool.metadata.deletion_timestamp.is_some() {
        return Err(format!("IPPool {name} is in deletion: create the claim for another pool"));
    }
    Ok((pool, parsed))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    ranges: Vec<Range>,
    /// Reserved addresses by the names of their claims.
    pre_allocations: BTreeMap<String, IpAddr>,
    /// Routers and DNS servers, also those of values that ranges override and of ranges that are not valid.
    servers: BTreeSet<IpAddr>,
    strategy: AllocationStrategy,
}

/// Why a pool cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    #[error("{field}: {value:?} is not {wanted}: correct the IPPool")]
    Value { field: String, value: String, wanted: &'static str },
    #[error("spec.pools[{index}] has neither start nor subnet: add one of them")]
    Unbounded { index: usize },
    #[error("spec.pools[{index}] is empty, because start is above end or outside of subnet: correct them")]
    Empty { index: usize },
    #[error("spec.pools[{index}] has no end, which allocationStrategy random needs: add end or subnet")]
    Endless { index: usize },
    #[error("spec.pools[{index}]: prefix {prefix} is longer than an IPv4 address: correct the prefix")]
    Prefix { index: usize, prefix: i32 },
    #[error("spec.pools[{first}] and spec.pools[{second}] share addresses: correct one of them")]
    Overlap { first: usize, second: usize },
    #[error("{address} of claim {claim} is in no range: add a range with it, or delete the claim")]
    InUse { claim: String, address: IpAddr },
    #[error("spec.preAllocations[{claim}]: {address} is in no range: correct the address, or add a range")]
    OutOfBounds { claim: String, address: IpAddr },
    #[error("spec.preAllocations[{claim}]: {address} is reserved for another claim too: correct one of them")]
    Duplicate { claim: String, address: IpAddr },
}

/// Why a claim gets no address. The texts begin with the words of Metal3.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "Exhausted IP Pools: no free address: add a range to the IPPool, or delete claims that are not needed"
    )]
    Exhausted,
    #[error("Invalid ipAddress annotation {0:?}: not a valid IP address: correct or remove it")]
    BadRequest(String),
    #[error(
        "Requested IP not available: {0} is in use, reserved for another claim, a gateway, a DNS server, or in no range: correct or remove the annotation ipAddress"
    )]
    NotAvailable(IpAddr),
    #[error(
        "PreAllocation and requested ip address are conflicting: {0} is reserved for this claim: remove the annotation ipAddress"
    )]
    Conflicting(IpAddr),
    #[error(
        "{0} is reserved for this claim and in use by another one: delete that claim, or change spec.preAllocations of the IPPool"
    )]
    PreAllocatedInUse(IpAddr),
    #[error(
        "Exhausted IP Pools: {address} is free, but host {host} still uses it as its last machine did: add a range to the IPPool, or provision that host again"
    )]
    UsedByHost { address: IpAddr, host: String },
    #[error(
        "Requested IP not available: host {host} runs a node with {address}: remove that node, or request another address"
    )]
    UsedByNode { address: IpAddr, host: String },
}

/// The hosts of other machines that report an address.
pub struct HostUse<'a> {
    /// Any such host.
    pub used_by: &'a dyn Fn(IpAddr) -> Option<String>,
    /// Such a host that runs a node.
    pub node_of: &'a dyn Fn(IpAddr) -> Option<String>,
}

/// The machine of a node may have been removed by force, and with it the claim on the address.
fn free_of_nodes(address: IpAddr, node_of: Option<String>) -> Result<IpAddr, Refusal> {
    node_of.map_or(Ok(address), |host| Err(Refusal::UsedByNode { address, host }))
}

impl Pool {
    /// # Errors
    /// The first entry that is not valid.
    pub fn parse(spec: &IPPoolSpec) -> Result<Self, PoolError> {
        match Self::parse_usable(spec) {
            (pool, None) => Ok(pool),
            (_, Some(error)) => Err(error),
        }
    }

    /// The pool without the entries that are not valid, and the first of their errors. One of them keeps
    /// no claim from an address of another range.
    pub fn parse_usable(spec: &IPPoolSpec) -> (Self, Option<PoolError>) {
        let (mut ranges, mut pre_allocations, mut failed) = (vec![], BTreeMap::new(), None);
        for (index, range) in spec.pools.iter().enumerate() {
            match Range::parse(index, range, spec) {
                Ok(range) => ranges.push(range),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        for (claim, address) in &spec.pre_allocations {
            let parsed =
                parse_address(&format!("spec.preAllocations[{claim}]"), address).and_then(|address| {
                    if pre_allocations.values().any(|other| *other == address) {
                        return Err(PoolError::Duplicate { claim: claim.clone(), address });
                    }
                    if !ranges.iter().any(|range: &Range| range.contains(address)) {
                        return Err(PoolError::OutOfBounds { claim: claim.clone(), address });
                    }
                    Ok(address)
                });
            match parsed {
                Ok(address) => {
                    pre_allocations.insert(claim.clone(), address);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let servers = list_servers(spec);
        (Self { ranges, pre_allocations, servers, strategy: spec.allocation_strategy }, failed)
    }

    /// Checks a usable pool for addresses whose prefix and gateway are ambiguous or unknown.
    pub fn check(&self, used: &[(IpAddr, String)]) -> Result<(), PoolError> {
        for (second, range) in self.ranges.iter().enumerate() {
            if let Some(first) = self.ranges[..second].iter().position(|other| other.overlaps(range)) {
                return Err(PoolError::Overlap { first, second });
            }
        }
        let outside =
            used.iter().filter(|(address, _)| !self.ranges.iter().any(|range| range.contains(*address)));
        match outside.min() {
            Some((address, claim)) => Err(PoolError::InUse { claim: claim.clone(), address: *address }),
            None => Ok(()),
        }
    }

    /// Chooses the address of the claim with the name `claim`, which may request one. Without a
    /// request, addresses that other hosts use are left out, because a cleaned host keeps the network
    /// of its last machine until it is provisioned again. With one, the address of a node is refused.
    pub fn choose_address(
        &self,
        claim: &str,
        requested: Option<&str>,
        is_taken: impl Fn(IpAddr) -> bool,
        hosts: &HostUse<'_>,
    ) -> Result<IpAddr, Refusal> {
        let HostUse { used_by, node_of } = hosts;
        let requested = requested
            .map(|text| text.parse::<IpAddr>().map_err(|_| Refusal::BadRequest(text.to_owned())))
            .transpose()?;
        let kept = self.pre_allocations.get(claim).copied();
        let is_free = |address| {
            !is_taken(address) && !self.is_kept_for_other(claim, address) && !self.servers.contains(&address)
        };
        match (kept, requested) {
            (Some(kept), Some(requested)) if kept != requested => Err(Refusal::Conflicting(kept)),
            (Some(kept), _) if is_taken(kept) => Err(Refusal::PreAllocatedInUse(kept)),
            (Some(kept), _) => free_of_nodes(kept, node_of(kept)),
            (None, Some(requested)) => {
                let is_in_range = self.ranges.iter().any(|range| range.contains(requested));
                if is_in_range && is_free(requested) {
                    free_of_nodes(requested, node_of(requested))
                } else {
                    Err(Refusal::NotAvailable(requested))
                }
            }
            (None, None) => {
                let unused = self.find_free(claim, |address| is_free(address) && used_by(address).is_none());
                unused.ok_or_else(|| {
                    let used = self.find_free(claim, is_free);
                    let used = used.and_then(|address| Some((address, used_by(address)?)));
                    used.map_or(Refusal::Exhausted, |(address, host)| Refusal::UsedByHost { address, host })
                })
            }
        }
    }

    fn is_kept_for_other(&self, claim: &str, address: IpAddr) -> bool {
        self.pre_allocations.iter().any(|(name, kept)| *kept == address && name != claim)
    }

    fn find_free(&self, claim: &str, is_free: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        match self.strategy {
            AllocationStrategy::Sequential => {
                self.ranges.iter().find_map(|range| range.addresses_from(0).find(|address| is_free(*address)))
            }
            AllocationStrategy::Random => {
                let digest = Sha256::digest(claim.as_bytes());
                let mut seed = [0; 16];
                seed.copy_from_slice(&digest[..16]);
                let seed = u128::from_be_bytes(seed);
                let mut ranges: Vec<_> = self.ranges.iter().collect();
                let start = usize::try_from(seed % (ranges.len().max(1) as u128)).unwrap_or_default();
                ranges.rotate_left(start);
                ranges
                    .into_iter()
                    .find_map(|range| range.addresses_from(seed).find(|address| is_free(*address)))
            }
        }
    }

    /// The object of `address`. An address that is in no range any more has the values of the pool.
    pub fn describe_address(&self, pool: &IPPool, claim: &str, address: IpAddr) -> IPAddress {
        let namespace = pool.namespace().unwrap_or_default();
        let range = self.ranges.iter().find(|range| range.contains(address));
        let text = |address: &IpAddr| address.to_string();
        let mut object = IPAddress::new(
            &address_name(&pool.spec.name_prefix, address),
            IPAddressSpec {
                claim: ObjectRef::within(&namespace, claim),
                pool: ObjectRef::within(&namespace, &pool.name_any()),
                prefix: range.map_or(pool.spec.prefix, |range| range.prefix),
                gateway: range.map_or(pool.spec.gateway.clone(), |range| range.gateway.as_ref().map(text)),
                address: address.to_string(),
                dns_servers: range.map_or(pool.spec.dns_servers.clone(), |range| {
                    range.dns_servers.iter().map(text).collect()
                }),
            },
        );
        object.metadata.labels.clone_from(&pool.metadata.labels);
        object.metadata.finalizers = Some(vec![names::ADDRESS_FINALIZER.to_owned()]);
        object
    }
}

/// The addresses of routers and DNS servers that a pool names. A pre-allocation may name one of them too,
/// because an operator knows the host that is the server.
fn list_servers(spec: &IPPoolSpec) -> BTreeSet<IpAddr> {
    let of_ranges = spec.pools.iter().flat_map(|range| range.gateway.iter().chain(&range.dns_servers));
    let named = spec.gateway.iter().chain(&spec.dns_servers).chain(of_ranges);
    named.filter_map(|address| address.parse().ok()).collect()
}

/// Metal3's name of an address.
pub fn address_name(prefix: &str, address: IpAddr) -> String {
    let text = address.to_string().replace(['.', ':'], "-");
    format!("{prefix}-{text}").trim_end_matches('-').to_owned()
}
