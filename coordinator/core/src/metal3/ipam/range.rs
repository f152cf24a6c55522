//! The ranges of an `IPPool`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use coordinator_api::metal3::ipam::{AddressRange, AllocationStrategy, IPPoolSpec};
use ipnet::IpNet;

use super::PoolError;

/// Consecutive addresses of one family, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: IpAddr,
    pub(super) last: IpAddr,
    pub(super) prefix: Option<i32>,
    pub(super) gateway: Option<IpAddr>,
    pub(super) dns_servers: Vec<IpAddr>,
}

impl Range {
    pub(super) fn parse(index: usize, range: &AddressRange, spec: &IPPoolSpec) -> Result<Self, PoolError> {
        let field = |name: &str| format!("spec.pools[{index}].{name}");
        let start = parse_optional(&field("start"), range.start.as_deref())?;
        let end = parse_optional(&field("end"), range.end.as_deref())?;
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
        if end.is_none() && subnet.is_none() && spec.allocation_strategy == AllocationStrategy::Random {
            return Err(PoolError::Endless { index });
        }
        let is_mixed = end.is_some_and(|end| end.is_ipv4() != first.is_ipv4());
        if is_mixed || first > last || !is_inside {
            return Err(PoolError::Empty { index });
        }
        let gateway = match parse_optional(&field("gateway"), range.gateway.as_deref())? {
            Some(gateway) => Some(gateway),
            None => spec.gateway.as_deref().map(|text| parse_address("spec.gateway", text)).transpose()?,
        };
        let (servers, place) = if range.dns_servers.is_empty() {
            (&spec.dns_servers, "spec.dnsServers".to_owned())
        } else {
            (&range.dns_servers, field("dnsServers"))
        };
        let subnet_prefix = subnet.map(|subnet| i32::from(subnet.prefix_len()));
        let prefix = range.prefix.or(spec.prefix).or(subnet_prefix);
        if let Some(prefix) = prefix.filter(|prefix| first.is_ipv4() && *prefix > 32) {
            return Err(PoolError::Prefix { index, prefix });
        }
        Ok(Self {
            first,
            last,
            prefix,
            gateway,
            dns_servers: servers.iter().map(|text| parse_address(&place, text)).collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && (self.first..=self.last).contains(&address)
    }

    /// An address is in both ranges.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.first) || other.contains(self.first)
    }

    /// Each address once, from the one that `seed` selects.
    pub(super) fn addresses_from(&self, seed: u128) -> impl Iterator<Item = IpAddr> + '_ {
        let span = to_number(self.last) - to_number(self.first);
        let start = if span == u128::MAX { seed } else { seed % (span + 1) };
        let steps = (start..=span).chain(0..start);
        steps.filter_map(|step| offset(self.first, step))
    }
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

fn parse_optional(field: &str, text: Option<&str>) -> Result<Option<IpAddr>, PoolError> {
    text.filter(|text| !text.is_empty()).map(|text| parse_address(field, text)).transpose()
}

pub(super) fn parse_address(field: &str, text: &str) -> Result<IpAddr, PoolError> {
    text.parse().map_err(|_| bad_value(field, text, "an IP address"))
}

fn parse_net(field: &str, text: &str) -> Result<IpNet, PoolError> {
    text.parse().map_err(|_| bad_value(field, text, "a network with a prefix length"))
}

fn bad_value(field: &str, text: &str, wanted: &'static str) -> PoolError {
    PoolError::Value { field: field.to_owned(), value: text.chars().take(64).collect(), wanted }
}
