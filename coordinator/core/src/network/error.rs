//! Why a network cannot be taken or rendered.

use std::net::IpAddr;

use ipnet::IpNet;

/// Why a network cannot be taken or rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// More than the contract allows.
    #[error("{what}: {count} were sent, {max} are allowed: use an agent of the coordinator's version")]
    TooMany {
        what: &'static str,
        /// How many there are.
        count: usize,
        /// See [`proto::limits`].
        max: usize,
    },
    /// A value that is not what its field holds.
    #[error(
        "{place}: {value:?} is no {wanted}: correct it in the inventory, where spec.network wins over spec.observedNetwork"
    )]
    Value {
        /// The interface, or the list.
        place: String,
        /// As it came, cut to 64 characters.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// A value occurs twice.
    #[error(
        "{place}: {value} occurs twice: remove one of them in the inventory, where spec.network wins over spec.observedNetwork"
    )]
    Duplicate {
        /// The interface, or the list.
        place: String,
        value: String,
    },
    /// An interface names one that is not there.
    #[error(
        "interface {interface}: its {role} {missing} is not there: add it in the inventory, where spec.network wins over spec.observedNetwork"
    )]
    InterfaceMissing {
        interface: String,
        /// Parent, master, member or primary.
        role: &'static str,
        missing: String,
    },
    /// An interface without the address that it is found by.
    #[error(
        "interface {interface}: it has no MAC address, so that no configuration can find it: add permanentMac to spec.observedNetwork, or set spec.network"
    )]
    MacMissing { interface: String },
    /// A frame of the VLAN would not fit its parent.
    #[error(
        "interface {interface}: its MTU {mtu} is above {parent_mtu} of its parent {parent}: lower it in the inventory, or raise the parent's"
    )]
    Mtu { interface: String, mtu: i64, parent: String, parent_mtu: i64 },
    /// Destination and gateway are not both IPv4 or both IPv6.
    #[error(
        "interface {interface}: the route to {destination} has a gateway of the other family, {gateway}: correct it in the inventory, where spec.network wins over spec.observedNetwork"
    )]
    Family {
        /// Where the route leaves.
        interface: String,
        destination: IpNet,
        gateway: IpAddr,
    },
    /// No address of the interface shares a subnet with the gateway.
    #[error(
        "interface {interface}: gateway {gateway} is outside every subnet of its addresses: add an address or a route that reaches it in the inventory, where spec.network wins over spec.observedNetwork"
    )]
    GatewayUnreachable {
        /// Where the route leaves.
        interface: String,
        gateway: IpAddr,
    },
    /// A route that leaves by no interface, or by one that is not there.
    #[error(
        "the route to {destination} leaves by no interface of the host: name one in the inventory, where spec.network wins over spec.observedNetwork"
    )]
    RouteWithoutInterface { destination: IpNet },
    /// An explicit network in a language that is not spoken here.
    #[error(
        "spec.network.configurator {configurator} cannot be rendered: set it to none and give network-config version 2 in spec.network.config, or to nmconnections and give keyfiles, or remove spec.network to replay the observed network"
    )]
    Configurator { configurator: &'static str },
    /// An explicit network that is no network-config version 2.
    #[error(
        "spec.network.config is no network-config version 2: give a map with version: 2 (netplan's own form, or below network:), or remove spec.network to replay the observed network"
    )]
    NotVersion2,
    /// A `{name}` without a value.
    #[error("spec.network.config names {{{name}}}, and spec.network.ipAddresses has no such key: add it")]
    Placeholder { name: String },
    /// A keyfile that `NetworkManager` would not read.
    #[error(
        "connection {connection}: line {line} is no section and no key with a value: correct the keyfile in the inventory"
    )]
    Keyfile {
        connection: String,
        /// The first is 1.
        line: usize,
    },
    /// A keyfile without what says what it is for.
    #[error("connection {connection}: [connection] has no {key}: add it to the keyfile in the inventory")]
    KeyMissing { connection: String, key: &'static str },
    /// Keyfiles that are no map of texts.
    #[error(
        "spec.network.config holds no keyfiles: give a map of names to NetworkManager keyfiles, or set spec.network.configurator to none for network-config version 2"
    )]
    NoKeyfiles,
    /// Cannot be written as YAML.
    #[error("the network-config cannot be written ({0}): simplify spec.network.config")]
    Render(String),
}
