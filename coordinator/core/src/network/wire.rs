//! The report of an agent as a field of the inventory.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use coordinator_api::network::{
    ObservedBond, ObservedInterface, ObservedNetwork, ObservedRoute, ObservedVlan,
};
use proto::{limits, v1alpha1 as wire};

use super::connections::check_connection;
use super::{
    NetworkError, bad_value, bond, check_domain, check_name, interface_path, is_special, missing_value,
    parse_address, parse_destination, parse_mac, parse_net, parse_vlan_id,
};

/// Bound of the resolvers and of the search domains of a host.
const NAMES: usize = 32;
/// Bound of all keyfiles of a host, in bytes.
const CONNECTIONS_BYTES: usize = 256 * 1024;
/// Bound of the addresses of an interface.
const ADDRESSES: usize = 256;
/// Targets of a bond's ARP requests that the kernel takes.
const ARP_TARGETS: usize = 16;
/// Bound of the errors that are kept of one report.
const DROPPED: usize = 16;

/// Bound of the text about one error.
const PART_CHARACTERS: usize = 200;

/// Largest network of a host as it is stored, in bytes: every replica keeps those of all hosts, and a
/// new host brings one without approval.
const STORED_BYTES: usize = 32 * 1024;

/// Refuses a network that is larger than what is stored of a host.
pub fn check_size(network: &ObservedNetwork) -> Result<(), NetworkError> {
    let bytes = serde_json::to_vec(network).map_or(usize::MAX, |text| text.len());
    if bytes <= STORED_BYTES {
        return Ok(());
    }
    Err(NetworkError::TooLarge {
        bytes,
        max: STORED_BYTES,
        interfaces: network.interfaces.len(),
        connections: network.connections.len(),
    })
}

/// A reported network in canonical form: lower-case MAC addresses, no link-local address, and
/// no resolver on the host itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    pub network: ObservedNetwork,
    /// Items that were left out because they cannot be replayed. A host is not refused for
    /// its network, because the network is not its identity.
    pub dropped: Vec<NetworkError>,
}

/// Converts a report, without the items that a replay would refuse.
pub fn parse_observed(reported: wire::ObservedNetwork) -> Observation {
    let mut dropped = Dropped(vec![]);
    let mut interfaces = dropped.keep_interfaces(reported.interfaces);
    dropped.remove_dangling(&mut interfaces);
    let names: BTreeSet<_> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
    let routes =
        dropped.keep_valid("routes", reported.routes, limits::ROUTES, |route| convert_route(route, &names));
    let mut servers = dropped
        .keep_valid("dnsServers", reported.dns_servers, NAMES, |server| parse_address("dnsServers", &server));
    servers.retain(|server| !server.is_loopback());
    let search_domains = dropped.keep_valid("searchDomains", reported.search_domains, NAMES, |domain| {
        check_domain(&domain).map(|()| domain)
    });
    let network = ObservedNetwork {
        routes,
        dns_servers: servers.iter().map(ToString::to_string).collect(),
        search_domains,
        connections: dropped.keep_connections(reported.connections),
        interfaces,
        not_replayed: dropped.0.iter().map(describe_part).collect(),
    };
    Observation { network, dropped: dropped.0 }
}

/// A part that is not replayed, as a line of bounded length: its values come from a host.
fn describe_part(error: &NetworkError) -> String {
    let text = error.to_string();
    text.chars().filter(|character| !character.is_control()).take(PART_CHARACTERS).collect()
}

/// Errors of the items that were left out, up to a bound.
struct Dropped(Vec<NetworkError>);

impl Dropped {
    fn push_error(&mut self, error: NetworkError) {
        if self.0.len() < DROPPED {
            self.0.push(error);
        }
    }

    fn keep_bounded<T>(&mut self, what: &'static str, mut list: Vec<T>, max: usize) -> Vec<T> {
        if list.len() > max {
            self.push_error(NetworkError::TooMany { what, count: list.len(), max });
            list.truncate(max);
        }
        list
    }

    fn keep_valid<T, U>(
        &mut self,
        what: &'static str,
        list: Vec<T>,
        max: usize,
        convert: impl Fn(T) -> Result<U, NetworkError>,
    ) -> Vec<U> {
        let list = self.keep_bounded(what, list, max).into_iter();
        list.filter_map(|item| convert(item).map_err(|error| self.push_error(error)).ok()).collect()
    }

    fn keep_interfaces(&mut self, given: Vec<wire::Interface>) -> Vec<ObservedInterface> {
        let mut names = BTreeSet::new();
        let mut interfaces = vec![];
        for interface in self.keep_bounded("interfaces", given, limits::INTERFACES) {
            match self.convert_interface(interface) {
                Ok(found) if names.insert(found.name.clone()) => interfaces.push(found),
                Ok(found) => {
                    let place = "interfaces".to_owned();
                    self.push_error(NetworkError::Duplicate { place, value: found.name });
                }
                Err(error) => self.push_error(error),
            }
        }
        interfaces
    }

    /// An invalid address alone is left out; any other invalid value rejects the interface.
    fn convert_interface(&mut self, given: wire::Interface) -> Result<ObservedInterface, NetworkError> {
        check_name(&given.name)?;
        let place = interface_path(&given.name);
        if !["", "bond", "vlan", "bridge"].contains(&given.kind.as_str()) {
            return Err(bad_value(&place, &given.kind, "kind (bond, vlan, bridge or nothing)"));
        }
        let addresses = self.keep_addresses(&place, given.addresses);
        let mut dynamic_addresses = self.keep_addresses(&place, given.dynamic_addresses);
        dynamic_addresses.retain(|address| addresses.contains(address));
        Ok(ObservedInterface {
            mac: parse_mac(&place, Some(&given.mac))?,
            permanent_mac: parse_mac(&place, Some(&given.permanent_mac))?,
            mtu: optional_number(given.mtu),
            addresses,
            dynamic_addresses,
            kind: optional_text(given.kind),
            master: optional_text(given.master),
            dhcp4: given.dhcp4,
            dhcp6: given.dhcp6,
            accept_ra: given.accept_ra,
            bond: given.bond.map(|bond| self.convert_bond(&given.name, bond)).transpose()?,
            vlan: given.vlan.map(|vlan| convert_vlan(&place, vlan)).transpose()?,
            name: given.name,
        })
    }

    /// A parameter that network-config does not have is named; an invalid value rejects the interface.
    fn convert_bond(&mut self, interface: &str, given: wire::Bond) -> Result<ObservedBond, NetworkError> {
        for parameter in given.unsupported {
            let is_text = parameter.len() <= 64 && !parameter.bytes().any(|byte| byte.is_ascii_control());
            let parameter = if is_text { parameter } else { "odd parameter".to_owned() };
            self.push_error(NetworkError::Parameter { interface: interface.to_owned(), parameter });
        }
        let bond = ObservedBond {
            mode: given.mode,
            miimon: optional_number(given.miimon),
            lacp_rate: optional_text(given.lacp_rate),
            transmit_hash_policy: optional_text(given.transmit_hash_policy),
            primary: optional_text(given.primary),
            up_delay: optional_number(given.up_delay),
            down_delay: optional_number(given.down_delay),
            primary_reselect: optional_text(given.primary_reselect),
            ad_select: optional_text(given.ad_select),
            min_links: optional_number(given.min_links),
            arp_interval: optional_number(given.arp_interval),
            arp_ip_targets: given.arp_ip_targets,
            arp_validate: optional_text(given.arp_validate),
            arp_all_targets: optional_text(given.arp_all_targets),
            fail_over_mac: optional_text(given.fail_over_mac),
            gratuitous_arp: given.gratuitous_arp.map(i64::from),
            resend_igmp: given.resend_igmp.map(i64::from),
            packets_per_member: given.packets_per_member.map(i64::from),
            learn_packet_interval: optional_number(given.learn_packet_interval),
            all_members_active: given.all_members_active,
        };
        check_bond(&interface_path(interface), &bond)?;
        for set in bond::list_parameters(&bond).into_iter().filter(|set| set.name.is_none()) {
            let parameter = format!("{}={}", set.key, set.value);
            self.push_error(NetworkError::Parameter { interface: interface.to_owned(), parameter });
        }
        Ok(bond)
    }

    fn keep_addresses(&mut self, place: &str, given: Vec<String>) -> Vec<String> {
        let what = "addresses of an interface";
        let mut nets = self.keep_valid(what, given, ADDRESSES, |address| parse_net(place, &address));
        nets.retain(|net| !is_special(net.addr()));
        let mut seen = BTreeSet::new();
        nets.iter().filter(|net| seen.insert(**net)).map(ToString::to_string).collect()
    }

    /// Removes VLANs without parent, and names of masters that are not reported.
    fn remove_dangling(&mut self, interfaces: &mut Vec<ObservedInterface>) {
        loop {
            let names: BTreeSet<_> = interfaces.iter().map(|interface| interface.name.clone()).collect();
            let before = interfaces.len();
            interfaces.retain(|given| {
                let link = given.vlan.as_ref().map(|vlan| &vlan.link).filter(|link| !names.contains(*link));
                if let Some(link) = link {
                    self.push_error(missing_value(&given.name, "parent", link));
                }
                link.is_none()
            });
            for given in interfaces.iter_mut() {
                if let Some(master) = given.master.take_if(|master| !names.contains(master)) {
                    self.push_error(missing_value(&given.name, "master", &master));
                }
            }
            if interfaces.len() == before {
                return;
            }
        }
    }

    /// Keeps whole keyfiles in the order of their names, until the bound is reached.
    fn keep_connections(&mut self, connections: HashMap<String, String>) -> BTreeMap<String, String> {
        let mut bytes = 0;
        let mut kept = BTreeMap::new();
        for (name, text) in connections.into_iter().collect::<BTreeMap<_, _>>() {
            bytes += name.len() + text.len();
            if bytes > CONNECTIONS_BYTES {
                let what = "bytes of connections";
                self.push_error(NetworkError::TooMany { what, count: bytes, max: CONNECTIONS_BYTES });
                break;
            }
            match check_connection(&name, &text) {
                Ok(()) => drop(kept.insert(name, text)),
                Err(error) => self.push_error(error),
            }
        }
        kept
    }
}

fn check_bond(place: &str, bond: &ObservedBond) -> Result<(), NetworkError> {
    if bond.arp_ip_targets.len() > ARP_TARGETS {
        let count = bond.arp_ip_targets.len();
        return Err(NetworkError::TooMany { what: "ARP targets of a bond", count, max: ARP_TARGETS });
    }
    bond.arp_ip_targets.iter().try_for_each(|target| parse_address(place, target).map(drop))?;
    let texts = bond::list_parameters(bond).into_iter().filter_map(|set| match set.value {
        bond::Value::Text(text) => Some(text),
        bond::Value::Number(_) | bond::Value::List(_) | bond::Value::Flag(_) => None,
    });
    let is_odd = |text: &String| text.len() > 32 || !text.bytes().all(|byte| byte.is_ascii_graphic());
    match texts.into_iter().find(is_odd) {
        Some(text) => Err(bad_value(place, &text, "parameter of a bond")),
        None => Ok(()),
    }
}

fn convert_vlan(place: &str, given: wire::Vlan) -> Result<ObservedVlan, NetworkError> {
    Ok(ObservedVlan { id: parse_vlan_id(place, &given.id.to_string())?, link: given.link })
}

fn convert_route(given: wire::Route, names: &BTreeSet<&str>) -> Result<ObservedRoute, NetworkError> {
    let destination = parse_destination("routes", &given.destination)?;
    if !names.contains(given.interface.as_str()) {
        return Err(NetworkError::RouteWithoutInterface { destination });
    }
    let gateway =
        optional_text(given.gateway).map(|gateway| parse_address("routes", &gateway)).transpose()?;
    let has_gateway = gateway.is_some();
    Ok(ObservedRoute {
        destination: destination.to_string(),
        gateway: gateway.map(|gateway| gateway.to_string()),
        interface: Some(given.interface),
        metric: optional_number(given.metric),
        dynamic: given.dynamic,
        on_link: given.on_link && has_gateway,
    })
}

/// An absent text is empty on the wire.
fn optional_text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// An absent number is 0 on the wire.
fn optional_number(number: u32) -> Option<i64> {
    (number != 0).then(|| i64::from(number))
}
