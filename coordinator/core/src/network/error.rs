//! Errors of a network that cannot be replayed or rendered.

use std::net::IpAddr;

use coordinator_api::conditions::{Reason, join_text};
use ipnet::IpNet;

use crate::problem::Problem;

/// Why a network cannot be replayed or rendered. The display text is the cause alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error("{what}: {count} were sent, {max} are allowed")]
    TooMany { what: &'static str, count: usize, max: usize },
    #[error(
        "the network of the host has {bytes} bytes with {interfaces} interfaces and {connections} keyfiles, {max} are allowed"
    )]
    TooLarge { bytes: usize, max: usize, interfaces: usize, connections: usize },
    /// A value that is not `wanted`. The value is cut to 64 characters.
    #[error("{place}: {value:?} is no {wanted}")]
    Value { place: String, value: String, wanted: &'static str },
    #[error("{place}: {value} occurs twice")]
    Duplicate { place: String, value: String },
    /// A parent, master, member or primary that does not exist.
    #[error("interface {interface}: its {role} {missing} does not exist")]
    InterfaceMissing { interface: String, role: &'static str, missing: String },
    #[error("interface {interface} has no MAC address by which a configuration finds it")]
    MacMissing { interface: String },
    /// A frame of the VLAN does not fit the frame of its parent.
    #[error("interface {interface}: its MTU {mtu} is above {parent_mtu} of its parent {parent}")]
    Mtu { interface: String, mtu: i64, parent: String, parent_mtu: i64 },
    #[error("interface {interface}: the route to {destination} has the gateway {gateway} of another family")]
    Family { interface: String, destination: IpNet, gateway: IpAddr },
    #[error("interface {interface}: gateway {gateway} is in no subnet of its addresses")]
    GatewayUnreachable { interface: String, gateway: IpAddr },
    /// A parameter of a bond that only keyfiles have, or neither language.
    #[error("interface {interface}: network-config has no {parameter}")]
    Parameter { interface: String, parameter: String },
    #[error("the route to {destination} has no interface of the host")]
    RouteWithoutInterface { destination: IpNet },
    #[error("spec.network.configurator {configurator} is not supported")]
    Configurator { configurator: &'static str },
    #[error("spec.network.config is no network-config version 2")]
    NotVersion2,
    #[error(
        "spec.network.config has the placeholder {{{name}}}, for which spec.network.ipAddresses has no key"
    )]
    Placeholder { name: String },
    /// A keyfile that `NetworkManager` cannot read. Lines count from one.
    #[error("connection {connection}: line {line} is no section and no key with a value")]
    Keyfile { connection: String, line: usize },
    #[error("connection {connection}: [connection] has no {key}")]
    KeyMissing { connection: String, key: &'static str },
    #[error("spec.network.config has no keyfiles")]
    NoKeyfiles,
    #[error("the network-config cannot be written ({0})")]
    Render(String),
}

impl NetworkError {
    pub fn next_action(&self) -> String {
        let action = match self {
            Self::TooLarge { .. } => {
                "remove interfaces, routes and keyfiles that the live system does not need, and boot it again"
            }
            Self::TooMany { .. } => "use an agent of the coordinator's version",
            Self::InterfaceMissing { missing, .. } => return in_inventory(&format!("add {missing}")),
            Self::MacMissing { .. } => "add permanentMac to spec.observedNetwork, or set spec.network",
            Self::Mtu { parent, .. } => {
                return in_inventory(&format!("lower the MTU, or raise the MTU of {parent}"));
            }
            Self::GatewayUnreachable { .. } => {
                return in_inventory("add an address or a route that reaches the gateway");
            }
            Self::Parameter { .. } => {
                "if the host needs it, give its network as keyfiles in spec.network to an image with NetworkManager"
            }
            Self::RouteWithoutInterface { .. } => return in_inventory("name an interface of the route"),
            Self::Value { .. } | Self::Duplicate { .. } | Self::Family { .. } => {
                return in_inventory("correct it");
            }
            Self::Configurator { .. } => {
                "set it to none and write network-config version 2 in spec.network.config, set it to nmconnections and write keyfiles, or remove spec.network to replay the observed network"
            }
            Self::NotVersion2 => {
                "write a map with version: 2 (in netplan's own form, or below network:), or remove spec.network to replay the observed network"
            }
            Self::Placeholder { name } => return format!("add {name} to spec.network.ipAddresses"),
            Self::Keyfile { .. } => "correct the keyfile in the inventory",
            Self::KeyMissing { key, .. } => return format!("add {key} to the keyfile in the inventory"),
            Self::NoKeyfiles => {
                "write a map of names to NetworkManager keyfiles, or set spec.network.configurator to none for network-config version 2"
            }
            Self::Render(_) => "simplify spec.network.config",
        };
        action.to_owned()
    }

    /// Cause and next action, for a log line or a list.
    pub fn text(&self) -> String {
        join_text(&self.to_string(), &self.next_action())
    }

    pub fn problem(&self) -> Problem {
        Problem::new(Reason::NetworkInvalid, self.to_string(), self.next_action())
    }
}

fn in_inventory(action: &str) -> String {
    format!("{action} in the inventory, where spec.network takes precedence over spec.observedNetwork")
}
