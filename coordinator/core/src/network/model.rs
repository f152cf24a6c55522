//! The intended network of a host as devices, which are checked against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use coordinator_api::network::{AddressSources, ObservedBond};
use ipnet::IpNet;

use super::{NetworkError, interface_path, is_special, missing_value};

/// Default MTU of Ethernet.
pub(super) const DEFAULT_MTU: i64 = 1500;

/// All configured devices by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    pub(super) devices: BTreeMap<String, Device>,
}

#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) kind: Kind,
    /// Static addresses.
    pub(super) addresses: Vec<IpNet>,
    pub(super) sources: AddressSources,
    pub(super) mtu: Option<i64>,
    pub(super) routes: Vec<Route>,
    pub(super) dns_servers: Vec<IpAddr>,
    pub(super) search_domains: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// A card is found by its permanent address if that is known, else by its name.
    Ethernet {
        mac: Option<String>,
    },
    Bond {
        mac: Option<String>,
        members: Vec<String>,
        parameters: Box<ObservedBond>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) destination: IpNet,
    pub(super) gateway: Option<IpAddr>,
    pub(super) metric: Option<i64>,
    /// The gateway is reached on the link, also if it is in no subnet.
    pub(super) on_link: bool,
}

impl Route {
    /// A route to a gateway on the link. All renderers of cloud-init, netplan and `NetworkManager`
    /// have it, while the flag of the route itself is dropped by the renderer for networkd.
    fn to_gateway(gateway: IpAddr) -> Self {
        Self { destination: gateway.into(), gateway: None, metric: None, on_link: false }
    }
}

impl Kind {
    /// The devices below this one.
    pub(super) fn lower_devices(&self) -> &[String] {
        match self {
            Self::Ethernet { .. } => &[],
            Self::Bond { members, .. } | Self::Bridge { members, .. } => members,
            Self::Vlan { link, .. } => std::slice::from_ref(link),
        }
    }
}

impl Device {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            addresses: Vec::new(),
            sources: AddressSources::default(),
            mtu: None,
            routes: Vec::new(),
            dns_servers: Vec::new(),
            search_domains: Vec::new(),
        }
    }

    /// Addresses of the device are configured or assigned.
    pub(super) fn is_addressed(&self) -> bool {
        self.sources.is_any() || !self.addresses.is_empty()
    }

    fn is_configured(&self) -> bool {
        !matches!(self.kind, Kind::Ethernet { .. }) || self.is_addressed() || !self.routes.is_empty()
    }

    /// Subnets for routes over IPv4 and over IPv6; `None` if addresses of the family are
    /// assigned, because their subnets are unknown.
    pub(super) fn static_subnets(&self) -> [Option<Vec<IpNet>>; 2] {
        let is_assigned = [self.sources.dhcp4, self.sources.assigns_ipv6()];
        is_assigned
            .map(|is_assigned| (!is_assigned).then(|| self.addresses.iter().map(IpNet::trunc).collect()))
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

    /// Leaves unconfigured cards that no other device uses to the image, because the boot
    /// waits for the link of each configured card.
    pub(super) fn drop_unused(&mut self) {
        let lower = self.devices.values().flat_map(|device| device.kind.lower_devices());
        let used: BTreeSet<String> = lower.cloned().collect();
        self.devices.retain(|name, device| device.is_configured() || used.contains(name));
    }

    /// Checks the devices together.
    pub(super) fn check(&self) -> Result<(), NetworkError> {
        self.check_lower_devices()?;
        self.check_uniqueness()?;
        self.check_mtus()
    }

    fn check_uniqueness(&self) -> Result<(), NetworkError> {
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

    /// A frame of a VLAN has to fit the frame of its parent, as both are rendered.
    fn check_mtus(&self) -> Result<(), NetworkError> {
        let mtu_of = |name: &str| self.devices.get(name).and_then(|device| device.mtu).unwrap_or(DEFAULT_MTU);
        for (name, device) in &self.devices {
            let Kind::Vlan { link, .. } = &device.kind else { continue };
            let (mtu, parent_mtu) = (mtu_of(name), mtu_of(link));
            if mtu > parent_mtu {
                let (interface, parent) = (name.clone(), link.clone());
                return Err(NetworkError::Mtu { interface, mtu, parent, parent_mtu });
            }
        }
        Ok(())
    }

    /// Every device below another one has to exist, and no device may be below itself.
    fn check_lower_devices(&self) -> Result<(), NetworkError> {
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

/// Leaves out routes that the addresses imply, and refuses a route that cannot carry a packet,
/// because cloud-init drops such a route silently. `subnets` are the subnets of the interface
/// for IPv4 and IPv6, as in [`Device::static_subnets`].
pub(super) fn check_routes(
    interface: &str,
    subnets: &[Option<Vec<IpNet>>; 2],
    routes: Vec<Route>,
) -> Result<Vec<Route>, NetworkError> {
    let on_link = routes.iter().filter(|route| route.gateway.is_none()).map(|route| route.destination);
    let on_link: Vec<IpNet> = on_link.collect();
    let mut kept: Vec<Route> = Vec::new();
    for route in routes {
        let destination = route.destination;
        let subnets = subnets[usize::from(destination.addr().is_ipv6())].as_ref();
        let special = destination.prefix_len() > 0 && is_special(destination.addr());
        let implied = route.gateway.is_none() && subnets.is_some_and(|nets| nets.contains(&destination));
        if special || implied || kept.contains(&route) {
            continue;
        }
        if let Some(gateway) = route.gateway {
            if gateway.is_ipv4() != destination.addr().is_ipv4() {
                return Err(NetworkError::Family { interface: interface.to_owned(), destination, gateway });
            }
            let mut nets = on_link.iter().chain(subnets.into_iter().flatten());
            let is_reached = nets.any(|net| net.prefix_len() > 0 && net.contains(&gateway));
            if subnets.is_some() && !is_reached && !is_special(gateway) {
                let to_gateway = Route::to_gateway(gateway);
                match route.on_link {
                    true if kept.contains(&to_gateway) => {}
                    true => kept.push(to_gateway),
                    false => {
                        let interface = interface.to_owned();
                        return Err(NetworkError::GatewayUnreachable { interface, gateway });
                    }
                }
            }
        }
        kept.push(Route { on_link: false, ..route });
    }
    Ok(kept)
}
