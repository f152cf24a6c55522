//! The kernel before the host carried a node: links, addresses, routes, rules, tables and devices of
//! the host itself.
//!
//! Everything that appears while the host carries a node belongs to programs of the cluster, as a virtual IP
//! of kube-vip or the routes of a CNI plugin. It is not reported as the network of the host, and a
//! clean removes it. The kernel alone does not tell the difference: flannel adds its routes as an
//! operator does.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use proto::v1alpha1::{Interface, ObservedNetwork, Route};
use serde::{Deserialize, Serialize};

use super::{connections, seed};
use crate::ground::durable;
use crate::ground::failure::Failure;
use crate::ground::paths::{Root, read_or_empty};

/// An item in the kernel, by the names that stay the same over a boot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KernelItem {
    /// The name of a virtual link.
    Link(String),
    Address {
        /// Address with the length of its prefix.
        address: String,
        link: String,
    },
    Route {
        /// The destination, after the word for packets that are not forwarded.
        destination: String,
        /// Empty for a route without a gateway.
        gateway: String,
        /// Empty for a route that drops packets.
        link: String,
        table: u32,
    },
    Rule {
        priority: u32,
        table: u32,
        mark: u32,
    },
    /// Family and name of a table of nftables.
    FilterTable(String),
    /// Name of a table of the older iptables.
    LegacyTable(String),
    /// Protocol and address of a virtual service of IPVS.
    VirtualService(String),
    /// A network namespace that has a name.
    Namespace(String),
    Device(String),
    /// A name in the file system of BPF.
    Program(String),
}

/// The main table of routes.
pub const MAIN_TABLE: u32 = 254;

impl fmt::Display for KernelItem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(name) => write!(formatter, "link {name}"),
            Self::Address { address, link } => write!(formatter, "address {address} of {link}"),
            Self::Route { destination, gateway, link, table } => {
                write!(formatter, "route {destination}")?;
                for (word, value) in [("via", gateway), ("by", link)] {
                    if !value.is_empty() {
                        write!(formatter, " {word} {value}")?;
                    }
                }
                if *table == MAIN_TABLE { Ok(()) } else { write!(formatter, " in table {table}") }
            }
            Self::Rule { priority, table, .. } => write!(formatter, "rule {priority} to table {table}"),
            Self::FilterTable(name) => write!(formatter, "table {name} of nftables"),
            Self::LegacyTable(name) => write!(formatter, "table {name} of iptables"),
            Self::VirtualService(name) => write!(formatter, "service {name} of IPVS"),
            Self::Namespace(name) => write!(formatter, "network namespace {name}"),
            Self::Device(name) => write!(formatter, "device {name}"),
            Self::Program(name) => write!(formatter, "BPF program {name}"),
        }
    }
}

/// The addresses and routes of a report that neither DHCP nor a router gave.
pub fn list_configured(network: &ObservedNetwork) -> BTreeSet<KernelItem> {
    let addresses = network.interfaces.iter().flat_map(|interface| {
        let fixed = interface.addresses.iter().filter(|own| !interface.dynamic_addresses.contains(own));
        fixed.map(|address| address_item(address, &interface.name))
    });
    let routes = network.routes.iter().filter(|route| !route.dynamic);
    addresses.chain(routes.map(route_item)).collect()
}

fn address_item(address: &str, link: &str) -> KernelItem {
    KernelItem::Address { address: address.to_owned(), link: link.to_owned() }
}

fn route_item(route: &Route) -> KernelItem {
    KernelItem::Route {
        destination: route.destination.clone(),
        gateway: route.gateway.clone(),
        link: route.interface.clone(),
        table: MAIN_TABLE,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Record {
    /// Absent: the host carried a node whenever this agent looked.
    items: Option<BTreeSet<KernelItem>>,
    /// The boot in which the host was last seen with a node.
    node_boot: String,
}

/// The host's own part of the kernel, in a boot in which the host carried a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnItems {
    /// `None`: it was never recorded.
    recorded: Option<BTreeSet<KernelItem>>,
    /// The words of the network that the seed or `NetworkManager` configures.
    named: BTreeSet<String>,
}

impl OwnItems {
    pub fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// Everything is the host's if nothing was recorded, because nothing is known to be the cluster's.
    pub fn contains(&self, item: &KernelItem) -> bool {
        self.recorded.as_ref().is_none_or(|recorded| recorded.contains(item)) || self.is_named(item)
    }

    /// The plan that made the node may have brought another network, which no record has.
    fn is_named(&self, item: &KernelItem) -> bool {
        let has = |text: &str| self.named.contains(text);
        let has_address = |text: &str| has(text.split('/').next().unwrap_or(text));
        match item {
            KernelItem::Link(name) => has(name),
            KernelItem::Address { address, .. } => has_address(address),
            KernelItem::Route { destination, gateway, .. } => {
                has_address(if gateway.is_empty() { destination } else { gateway })
            }
            KernelItem::Rule { priority, table, .. } => has(&priority.to_string()) || has(&table.to_string()),
            _ => false,
        }
    }

    /// Leaves out what the cluster added.
    pub fn filter_network(&self, network: &mut ObservedNetwork) {
        for interface in &mut network.interfaces {
            let Interface { name, addresses, dynamic_addresses, .. } = interface;
            addresses.retain(|address| {
                dynamic_addresses.contains(address) || self.contains(&address_item(address, name))
            });
        }
        network.routes.retain(|route| route.dynamic || self.contains(&route_item(route)));
    }
}

/// The host's own items if the host carried a node in this boot, `None` if everything is its own.
pub fn own_items(root: &Root, boot: &str) -> Option<OwnItems> {
    let record = read(root).unwrap_or_else(|_| Record { node_boot: boot.to_owned(), items: None });
    (record.node_boot == boot).then(|| OwnItems { recorded: record.items, named: list_named(root) })
}

/// Records that the host carries a node in this boot.
pub fn mark_node(root: &Root, boot: &str) -> Result<(), Failure> {
    let record = match read(root) {
        Ok(record) if record.node_boot == boot => return Ok(()),
        Ok(record) => Record { node_boot: boot.to_owned(), ..record },
        // Only another boot shows what the host has of its own.
        Err(_) => Record { node_boot: boot.to_owned(), items: None },
    };
    durable::write_json(&root.state().before_node(), &record)
}

/// Records what the kernel holds while the host carries no node. In a boot in which it carried one
/// nothing is recorded, because a part may be the former node's.
pub fn record_items(root: &Root, boot: &str, items: BTreeSet<KernelItem>) -> Result<(), Failure> {
    let Ok(record) = read(root) else { return mark_node(root, boot) };
    if record.node_boot == boot || record.items.as_ref() == Some(&items) {
        return Ok(());
    }
    durable::write_json(&root.state().before_node(), &Record { items: Some(items), ..record })
}

fn read(root: &Root) -> Result<Record, Failure> {
    let path = root.state().before_node();
    let Some(bytes) = durable::read(&path)? else { return Ok(Record::default()) };
    serde_json::from_slice(&bytes).map_err(|error| {
        tracing::warn!(%error, "the record of the host's own network is damaged, a reboot makes another");
        Failure::input_output(error.to_string(), "reboot the host")
    })
}

/// Words of the network-config, of `network_data.json` and of `NetworkManager`'s connections.
fn list_named(root: &Root) -> BTreeSet<String> {
    let seeds = [root.nocloud_seed(), root.state().seed()];
    let names = [seed::NETWORK_CONFIG, seed::NETWORK_DATA];
    let files = seeds.iter().flat_map(|seed| names.map(|name| seed.join(name)));
    let mut texts: Vec<_> = files.map(read_or_empty).collect();
    let connections = std::fs::read_dir(root.connections()).into_iter().flatten().flatten();
    let connections = connections.map(|entry| entry.path());
    let connections = connections.filter(|path| connections::connection_name(path).is_some());
    texts.extend(connections.map(read_or_empty));
    texts.iter().flat_map(|text| list_words(text)).collect()
}

fn list_words(text: &str) -> Vec<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_.:-".contains(letter);
    let words = text.split(|letter| !is_part(letter)).filter(|word| !word.is_empty());
    let trimmed = |word: &str| {
        let word = word.trim_end_matches(':');
        // Addresses of IPv6 have more than one form.
        word.parse::<IpAddr>().map_or_else(|_| word.to_owned(), |address| address.to_string())
    };
    words
        .flat_map(|word| {
            let address = word.parse::<IpAddr>().ok().map(|address| address.to_string());
            [Some(trimmed(word)), address].into_iter().flatten()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAMAGED: &str = "{";

    fn address(address: &str) -> KernelItem {
        address_item(address, "eno1")
    }

    fn items(texts: &[&str]) -> BTreeSet<KernelItem> {
        texts.iter().map(|text| address(text)).collect()
    }

    fn host() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        std::fs::create_dir_all(root.state().path()).unwrap();
        (directory, root)
    }

    #[test]
    fn a_boot_with_a_node_records_nothing() {
        let (_directory, root) = host();
        record_items(&root, "1", items(&["10.0.0.1/24"])).unwrap();
        assert_eq!(own_items(&root, "1"), None, "everything is the host's");
        mark_node(&root, "2").unwrap();
        record_items(&root, "2", items(&["10.0.0.1/24", "10.0.0.100/32"])).unwrap();
        let own = own_items(&root, "2").unwrap();
        assert!(own.contains(&address("10.0.0.1/24")) && !own.contains(&address("10.0.0.100/32")));
        record_items(&root, "3", items(&["10.0.0.2/24"])).unwrap();
        assert_eq!(own_items(&root, "3"), None, "another boot has nothing of the node");
        mark_node(&root, "3").unwrap();
        assert!(!own_items(&root, "3").unwrap().contains(&address("10.0.0.1/24")), "it has moved");
    }

    #[test]
    fn an_unknown_past_takes_nothing_away() {
        let (_directory, root) = host();
        mark_node(&root, "1").unwrap();
        let own = own_items(&root, "1").unwrap();
        assert!(!own.is_recorded() && own.contains(&address("10.0.0.100/32")));
        std::fs::write(root.state().before_node(), DAMAGED).unwrap();
        assert!(!own_items(&root, "2").unwrap().is_recorded());
        record_items(&root, "2", items(&["10.0.0.1/24"])).unwrap();
        assert!(!own_items(&root, "2").unwrap().is_recorded(), "it may be the former node's");
        record_items(&root, "3", items(&["10.0.0.1/24"])).unwrap();
        assert_eq!(own_items(&root, "3"), None, "one reboot makes another record");
    }

    #[test]
    fn what_the_seed_names_is_the_hosts() {
        let (_directory, root) = host();
        record_items(&root, "1", items(&["10.0.0.1/24"])).unwrap();
        mark_node(&root, "2").unwrap();
        let config = "network:\n  ethernets:\n    eno1:\n      addresses: [10.0.1.7/24, 'fd00:0::7/64']\n      \
                      routes: [{to: default, via: 10.0.1.1}]\n  vlans:\n    eno1.20: {id: 20, link: eno1}\n";
        root.put("/var/lib/cloud/seed/nocloud/network-config", config);
        root.put(
            "/etc/NetworkManager/system-connections/a.nmconnection",
            "[ipv4]\naddress1=10.0.2.7/24,10.0.2.1\n",
        );
        let own = own_items(&root, "2").unwrap();
        let route = |destination: &str, gateway: &str| {
            route_item(&Route {
                destination: destination.into(),
                gateway: gateway.into(),
                interface: "eno1".into(),
                ..Route::default()
            })
        };
        for (item, want) in [
            (address("10.0.1.7/24"), true),
            (address("10.0.2.7/24"), true),
            (address("fd00::7/64"), true),
            (address("10.0.1.70/24"), false),
            (address("10.0.1.100/32"), false),
            (route("0.0.0.0/0", "10.0.1.1"), true),
            (route("10.244.1.0/24", "10.0.1.8"), false),
            (KernelItem::Link("eno1.20".into()), true),
            (KernelItem::Link("cni0".into()), false),
            (KernelItem::FilterTable("ip kube-proxy".into()), false),
        ] {
            assert_eq!(own.contains(&item), want, "{item}");
        }
    }

    #[test]
    fn leases_stay_in_a_filtered_report() {
        let (_directory, root) = host();
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let interface = |addresses: &[&str], dynamic: &[&str]| Interface {
            name: "eno1".into(),
            addresses: texts(addresses),
            dynamic_addresses: texts(dynamic),
            ..Interface::default()
        };
        let route = |destination: &str, dynamic| Route {
            destination: destination.into(),
            interface: "eno1".into(),
            dynamic,
            ..Route::default()
        };
        let before = ObservedNetwork {
            interfaces: vec![interface(&["10.0.0.1/32"], &[])],
            routes: vec![route("10.9.0.0/16", false)],
            ..ObservedNetwork::default()
        };
        record_items(&root, "1", list_configured(&before)).unwrap();
        mark_node(&root, "1").unwrap();
        let mut seen = ObservedNetwork {
            interfaces: vec![interface(&["10.0.0.1/32", "10.0.0.100/32", "10.1.0.9/24"], &["10.1.0.9/24"])],
            routes: vec![
                route("10.9.0.0/16", false),
                route("10.244.1.0/24", false),
                route("0.0.0.0/0", true),
            ],
            ..ObservedNetwork::default()
        };
        own_items(&root, "1").unwrap().filter_network(&mut seen);
        assert_eq!(seen.interfaces[0].addresses, ["10.0.0.1/32", "10.1.0.9/24"]);
        let left: Vec<_> = seen.routes.iter().map(|route| route.destination.as_str()).collect();
        assert_eq!(left, ["10.9.0.0/16", "0.0.0.0/0"]);
    }
}
