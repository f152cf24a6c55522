//! Which address of an `IPPool` a claim is given.
//!
//! The name of an `IPAddress` follows from its address: the claim that creates it first
//! has it. What is chosen here is only the next name to try.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use coordinator_api::metal3::ipam::{
    AddressRange, AllocationStrategy, IPAddress, IPAddressSpec, IPPool, IPPoolSpec,
};
use coordinator_api::metal3::{ObjectRef, names};
use ipnet::IpNet;
use kube::ResourceExt;
use sha2::{Digest as _, Sha256};

mod address_claim;
mod claim;
#[cfg(test)]
mod tests;

pub use address_claim::{
    AddressClaimStep, Situation as AddressClaimSituation, decide_address_claim, is_ours,
    refuse as refuse_address_claim,
};
pub use claim::{ClaimStep, decide_claim, project_pool};

/// What an address was given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// Metal3's.
    Claim,
    /// Cluster API's.
    AddressClaim,
}

impl ClaimKind {
    /// Name of the kind.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "IPClaim",
            Self::AddressClaim => "IPAddressClaim",
        }
    }

    /// Of the claim that an address names.
    #[must_use]
    pub fn of(address: &IPAddress) -> Self {
        let kind = address.spec.claim.kind.as_deref();
        if kind == Some(Self::AddressClaim.as_str()) { Self::AddressClaim } else { Self::Claim }
    }
}

/// Whether the address was given to that claim. Names decide: UIDs change with a
/// restore. Claims of both kinds may have one name.
#[must_use]
pub fn is_held_by(address: &IPAddress, kind: ClaimKind, claim: &str, pool: &str) -> bool {
    let spec = &address.spec;
    ClaimKind::of(address) == kind && spec.claim.name == claim && spec.pool.name == pool
}

/// The address that a claim of either kind has recorded as its own.
#[must_use]
pub fn chosen_address(claim: &impl ResourceExt) -> Option<IpAddr> {
    claim.annotations().get(names::CHOSEN_ADDRESS)?.parse().ok()
}

/// Whether nothing but this finalizer holds a claim: whatever else does may use the address.
fn is_held_by_alone(claim: &impl ResourceExt, finalizer: &str) -> bool {
    let finalizers = claim.finalizers();
    !finalizers.is_empty() && finalizers.iter().all(|name| name == finalizer)
}

/// The pool that a claim names, from which a new claim (`is_new`) can be given an address.
///
/// # Errors
/// Why it can be given none, as a sentence.
fn find_pool<'a>(pool: Option<&'a IPPool>, name: &str, is_new: bool) -> Result<(&'a IPPool, Pool), String> {
    let pool = pool.ok_or_else(|| format!("no IPPool {name} in this namespace: create it"))?;
    let parsed = Pool::parse(&pool.spec).map_err(|error| format!("IPPool {name} cannot be used: {error}"))?;
    if is_new && pool.metadata.deletion_timestamp.is_some() {
        return Err(format!("IPPool {name} is in deletion: create the claim for another pool"));
    }
    Ok((pool, parsed))
}

/// A pool, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    ranges: Vec<Range>,
    /// By name of the claim.
    pre_allocations: BTreeMap<String, IpAddr>,
    strategy: AllocationStrategy,
}

/// Consecutive addresses of one family, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    first: IpAddr,
    last: IpAddr,
    prefix: Option<i32>,
    gateway: Option<IpAddr>,
    dns_servers: Vec<IpAddr>,
}

/// A pool that no address can be taken from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    #[error("{field}: {value:?} is not {wanted}: correct it")]
    Value { field: String, value: String, wanted: &'static str },
    #[error("spec.pools[{index}] has neither start nor subnet: add one of them")]
    Unbounded { index: usize },
    #[error("spec.pools[{index}] is empty: start is above end, or outside of subnet: correct them")]
    Empty { index: usize },
    #[error("spec.preAllocations[{claim}]: {address} is in no range: correct it, or add a range")]
    OutOfBounds { claim: String, address: IpAddr },
    #[error("spec.preAllocations[{claim}]: {address} is kept for another claim too: correct one of them")]
    Duplicate { claim: String, address: IpAddr },
}

/// Why a claim gets no address. The first words are those of Metal3.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "Exhausted IP Pools: no free address: add a range to the IPPool, or delete claims that are not needed"
    )]
    Exhausted,
    #[error("Invalid ipAddress annotation {0:?}: not a valid IP address: correct or remove it")]
    BadRequest(String),
    #[error(
        "Requested IP not available: {0} is in use, kept for another claim, or in no range: correct or remove the annotation ipAddress"
    )]
    NotAvailable(IpAddr),
    #[error(
        "PreAllocation and requested ip address are conflicting: {0} is kept for this claim: remove the annotation ipAddress"
    )]
    Conflicting(IpAddr),
    #[error(
        "{0} is kept for this claim and in use by another one: delete that claim, or change spec.preAllocations of the IPPool"
    )]
    PreAllocatedInUse(IpAddr),
    #[error(
        "Exhausted IP Pools: {address} is free, but host {host} still uses it as the machine that it was: add a range to the IPPool, or let that host become a node again"
    )]
    UsedByHost { address: IpAddr, host: String },
}

impl Pool {
    /// # Errors
    /// [`PoolError`], which names the field and the next action.
    pub fn parse(spec: &IPPoolSpec) -> Result<Self, PoolError> {
        let ranges = spec.pools.iter().enumerate().map(|(index, range)| Range::parse(index, range, spec));
        let ranges: Vec<_> = ranges.collect::<Result<_, _>>()?;
        let mut pre_allocations = BTreeMap::new();
        for (claim, address) in &spec.pre_allocations {
            let address = parse_address(&format!("spec.preAllocations[{claim}]"), address)?;
            if pre_allocations.values().any(|other| *other == address) {
                return Err(PoolError::Duplicate { claim: claim.clone(), address });
            }
            if !ranges.iter().any(|range: &Range| range.contains(address)) {
                return Err(PoolError::OutOfBounds { claim: claim.clone(), address });
            }
            pre_allocations.insert(claim.clone(), address);
        }
        Ok(Self { ranges, pre_allocations, strategy: spec.allocation_strategy })
    }

    /// The address for the claim called `claim`, which may ask for one. Of those that
    /// nothing asks for, the ones that other hosts use (`used_by`) are left out: a host that
    /// was cleaned has the network of its last machine until it is a node again.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn choose_address(
        &self,
        claim: &str,
        requested: Option<&str>,
        is_taken: impl Fn(IpAddr) -> bool,
        used_by: impl Fn(IpAddr) -> Option<String>,
    ) -> Result<IpAddr, Refusal> {
        let requested = requested
            .map(|text| text.parse::<IpAddr>().map_err(|_| Refusal::BadRequest(text.to_owned())))
            .transpose()?;
        let kept = self.pre_allocations.get(claim).copied();
        let is_free = |address| !is_taken(address) && !self.is_kept_for_other(claim, address);
        match (kept, requested) {
            (Some(kept), Some(requested)) if kept != requested => Err(Refusal::Conflicting(kept)),
            (Some(kept), _) if is_taken(kept) => Err(Refusal::PreAllocatedInUse(kept)),
            (Some(kept), _) => Ok(kept),
            (None, Some(requested)) => {
                let is_in = self.ranges.iter().any(|range| range.contains(requested));
                if is_in && is_free(requested) {
                    Ok(requested)
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

    /// What is written for `address`.
    #[must_use]
    pub fn describe_address(&self, pool: &IPPool, claim: &str, address: IpAddr) -> IPAddress {
        let namespace = pool.namespace().unwrap_or_default();
        let range = self.ranges.iter().find(|range| range.contains(address));
        let text = |address: &IpAddr| address.to_string();
        let mut object = IPAddress::new(
            &address_name(&pool.spec.name_prefix, address),
            IPAddressSpec {
                claim: ObjectRef::within(&namespace, claim),
                pool: ObjectRef::within(&namespace, &pool.name_any()),
                prefix: range.and_then(|range| range.prefix),
                gateway: range.and_then(|range| range.gateway.as_ref().map(text)),
                address: address.to_string(),
                dns_servers: range
                    .map(|range| range.dns_servers.iter().map(text).collect())
                    .unwrap_or_default(),
            },
        );
        object.metadata.labels.clone_from(&pool.metadata.labels);
        object.metadata.finalizers = Some(vec![names::ADDRESS_FINALIZER.to_owned()]);
        object
    }
}

impl Range {
    fn parse(index: usize, range: &AddressRange, spec: &IPPoolSpec) -> Result<Self, PoolError> {
        let field = |name: &str| format!("spec.pools[{index}].{name}");
        let address = |name: &str, text: &Option<String>| {
            text.as_deref()
                .filter(|text| !text.is_empty())
                .map(|text| parse_address(&field(name), text))
                .transpose()
        };
        let (start, end) = (address("start", &range.start)?, address("end", &range.end)?);
        let subnet = range.subnet.as_deref().filter(|text| !text.is_empty());
        let subnet = subnet.map(|text| parse_net(&field("subnet"), text)).transpose()?;
        let first = match (start, subnet) {
            (Some(start), _) => start,
            // The host bits of the subnet are kept.
            (None, Some(subnet)) => offset(subnet.addr(), 1).ok_or(PoolError::Empty { index })?,
            (None, None) => return Err(PoolError::Unbounded { index }),
        };
        let bound = subnet.map_or_else(|| last_of(first), |subnet| subnet.broadcast());
        let last = end.map_or(bound, |end| end.min(bound));
        let is_inside = subnet.is_none_or(|subnet| subnet.contains(&first));
        let is_mixed = end.is_some_and(|end| end.is_ipv4() != first.is_ipv4());
        if is_mixed || first > last || !is_inside {
            return Err(PoolError::Empty { index });
        }
        let gateway = address("gateway", &range.gateway)?;
        let gateway_of_pool =
            || spec.gateway.as_deref().map(|text| parse_address("spec.gateway", text)).transpose();
        let (servers, place) = if range.dns_servers.is_empty() {
            (&spec.dns_servers, "spec.dnsServers".to_owned())
        } else {
            (&range.dns_servers, field("dnsServers"))
        };
        Ok(Self {
            first,
            last,
            prefix: range
                .prefix
                .or(spec.prefix)
                .or_else(|| subnet.map(|subnet| i32::from(subnet.prefix_len()))),
            gateway: gateway.map_or_else(gateway_of_pool, |gateway| Ok(Some(gateway)))?,
            dns_servers: servers.iter().map(|text| parse_address(&place, text)).collect::<Result<_, _>>()?,
        })
    }

    fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && (self.first..=self.last).contains(&address)
    }

    /// Every address once, beginning with the one that `seed` selects.
    fn addresses_from(&self, seed: u128) -> impl Iterator<Item = IpAddr> + '_ {
        let span = to_number(self.last) - to_number(self.first);
        let start = if span == u128::MAX { seed } else { seed % (span + 1) };
        let steps = (start..=span).chain(0..start);
        steps.filter_map(|step| offset(self.first, step))
    }
}

/// Metal3's name of an address.
#[must_use]
pub fn address_name(prefix: &str, address: IpAddr) -> String {
    let text = address.to_string().replace(['.', ':'], "-");
    format!("{prefix}-{text}").trim_end_matches('-').to_owned()
}

fn to_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn last_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::BROADCAST.into(),
        IpAddr::V6(_) => Ipv6Addr::from(u128::MAX).into(),
    }
}

fn offset(address: IpAddr, steps: u128) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => {
            let steps = u32::try_from(steps).ok()?;
            u32::from(address).checked_add(steps).map(|number| Ipv4Addr::from(number).into())
        }
        IpAddr::V6(address) => {
            u128::from(address).checked_add(steps).map(|number| Ipv6Addr::from(number).into())
        }
    }
}

fn parse_address(field: &str, text: &str) -> Result<IpAddr, PoolError> {
    text.parse().map_err(|_| bad_value(field, text, "an IP address"))
}

fn parse_net(field: &str, text: &str) -> Result<IpNet, PoolError> {
    text.parse().map_err(|_| bad_value(field, text, "a network with a prefix length"))
}

fn bad_value(field: &str, text: &str, wanted: &'static str) -> PoolError {
    PoolError::Value { field: field.to_owned(), value: text.chars().take(64).collect(), wanted }
}
