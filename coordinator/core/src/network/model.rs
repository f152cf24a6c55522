//! The network that a host is to have, as devices that are known to work
//! together.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use coordinator_api::network::ObservedBond;
use ipnet::IpNet;

use super::{NetworkError, interface_path, is_special, missing_value};

/// Default MTU of Ethernet.
pub(super) const DEFAULT_MTU: i64 = 1500;

/// Everything that is configured, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    pub(super) devices: BTreeMap<String, Device>,
}

#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) kind: Kind,
    /// Static ones only.
    pub(super) addresses: Vec<IpNet>,
    pub(super) dhcp4: bool,
    pub(super) dhcp6: bool,
    pub(super) accept_ra: bool,
    pub(super) mtu: Option<i64>,
    pub(super) routes: Vec<Route>,
    pub(super) dns_servers: Vec<IpAddr>,
    pub(super) search_domains: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Found by its permanent address, where it is known, else by its name.
    Ethernet {
        mac: Option<String>,
    },
    Bond {
        mac: Option<String>,
        members: Vec<String>,
        parameters: ObservedBond,
    },
    Bridge {
        mac: Option<String>,
        members: Vec<String>,
        stp: Option<bool>,
    },
    Vlan {
        id: i64,
        link: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) destination: IpNet,
    pub(super) gateway: Option<IpAddr>,
    pub(super) metric: Option<i64>,
}

impl Kind {
    /// The devices that this one stands on.
    pub(super) fn lower_devices(&self) -> &[String] {
        match self {
            Self::Ethernet { .. } => &[],
            Self::Bond { members, .. } | Self::Bridge { members, .. } => members,
            Self::Vlan { link, .. } => std::slice::from_ref(link),
        }
    }
}

impl Device {
    /// Without any address of its own.
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            addresses: Vec::new(),
            dhcp4: false,
            dhcp6: false,
            accept_ra: false,
            mtu: None,
            routes: Vec::new(),
            dns_servers: Vec::new(),
            search_domains: Vec::new(),
        }
    }

    pub(super) fn is_dynamic(&self) -> bool {
        self.dhcp4 || self.dhcp6 || self.accept_ra
    }

    fn is_configured(&self) -> bool {
        let card = matches!(self.kind, Kind::Ethernet { .. });
        !card || self.is_dynamic() || !self.addresses.is_empty() || !self.routes.is_empty()
    }
}

impl Network {
    /// Members of bonds and bridges, with the names of their masters.
    pub(super) fn masters(&self) -> BTreeMap<&str, &str> {
        let mut masters = BTreeMap::new();
        for (name, device) in &self.devices {
            if let Kind::Bond { members, .. } | Kind::Bridge { members, .. } = &device.kind {
                masters.extend(members.iter().map(|member| (member.as_str(), name.as_str())));
            }
        }
        masters
    }

    /// An interface without configuration that no other device uses is left to
    /// the image: naming it would make the boot wait for its link.
    pub(super) fn drop_unused(&mut self) {
        let lower = self.devices.values().flat_map(|device| device.kind.lower_devices());
        let used: BTreeSet<String> = lower.cloned().collect();
        self.devices.retain(|name, device| device.is_configured() || used.contains(name));
    }

    pub(super) fn check_uniqueness(&self) -> Result<(), NetworkError> {
        let mut seen = BTreeSet::new();
        for (name, device) in &self.devices {
            let mac = match &device.kind {
                Kind::Ethernet { mac } => mac.clone(),
                Kind::Bond { .. } | Kind::Bridge { .. } | Kind::Vlan { .. } => None,
            };
            let addresses = device.addresses.iter().map(|address| address.addr().to_string());
            for value in mac.into_iter().chain(addresses) {
                if !seen.insert(value.clone()) {
                    return Err(NetworkError::Duplicate { place: interface_path(name), value });
                }
            }
        }
        Ok(())
    }

    /// A frame of a VLAN has to fit its parent.
    pub(super) fn check_mtus(&self, mtu: impl Fn(&str) -> i64) -> Result<(), NetworkError> {
        for (name, device) in &self.devices {
            let Kind::Vlan { link, .. } = &device.kind else { continue };
            if mtu(name) > mtu(link) {
                return Err(NetworkError::Mtu {
                    interface: name.clone(),
                    mtu: mtu(name),
                    parent: link.clone(),
                    parent_mtu: mtu(link),
                });
            }
        }
        Ok(())
    }

    /// Devices stand on devices that are there, and in the end on hardware.
    pub(super) fn check_lower_devices(&self) -> Result<(), NetworkError> {
        for (name, device) in &self.devices {
            let role = if matches!(device.kind, Kind::Vlan { .. }) { "parent" } else { "member" };
            let mut below: Vec<_> = device.kind.lower_devices().iter().collect();
            let mut seen = BTreeSet::new();
            while let Some(lower) = below.pop() {
                let found = self.devices.get(lower).filter(|_| lower != name);
                let found = found.ok_or_else(|| missing_value(name, role, lower))?;
                if seen.insert(lower) {
                    below.extend(found.kind.lower_devices());
                }
            }
        }
        Ok(())
    }
}

/// Leaves out what addresses imply, and refuses what could never carry a
/// packet: cloud-init would drop such a route without a word. `subnets` are
/// those of the interface, `None` where DHCP or a router will say.
pub(super) fn check_routes(
    interface: &str,
    subnets: [Option<&[IpNet]>; 2],
    routes: Vec<Route>,
) -> Result<Vec<Route>, NetworkError> {
    let on_link: Vec<_> =
        routes.iter().filter(|route| route.gateway.is_none()).map(|route| route.destination).collect();
    let mut kept: Vec<Route> = Vec::new();
    for route in routes {
        let destination = route.destination;
        let subnets = subnets[usize::from(destination.addr().is_ipv6())];
        let special = destination.prefix_len() > 0 && is_special(destination.addr());
        let implied = route.gateway.is_none() && subnets.is_some_and(|nets| nets.contains(&destination));
        if special || implied || kept.contains(&route) {
            continue;
        }
        if let Some(gateway) = route.gateway {
            if gateway.is_ipv4() != destination.addr().is_ipv4() {
                return Err(NetworkError::Family { interface: interface.to_owned(), destination, gateway });
            }
            let beside = |net: &IpNet| net.prefix_len() > 0 && net.contains(&gateway);
            let is_reached = subnets.is_none_or(|nets| nets.iter().any(beside));
            if !is_reached && !on_link.iter().any(beside) && !is_special(gateway) {
                return Err(NetworkError::GatewayUnreachable { interface: interface.to_owned(), gateway });
            }
        }
        kept.push(route);
    }
    Ok(kept)
}
