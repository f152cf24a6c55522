//! `spec.network`, which an operator writes and plans take over unchanged.

use std::collections::BTreeMap;
use std::net::IpAddr;

use coordinator_api::network::{Configurator, NetworkTemplate, ObservedNetwork};
use ipnet::IpNet;
use serde_json::Value;

use super::connections::{self, Translation};
use super::{HostNetwork, NetworkError, bad_value, render_network};

/// The network of a template; `None` if the template is empty.
pub(super) fn explicit_network(
    template: &NetworkTemplate,
    observed: Option<&ObservedNetwork>,
) -> Result<Option<HostNetwork>, NetworkError> {
    let Some(config) = template.config.as_ref().filter(|config| !is_empty(config)) else {
        return match template.configurator {
            Configurator::None => Ok(None),
            Configurator::Nmconnections => Err(NetworkError::NoKeyfiles),
            Configurator::Nmc => Err(NetworkError::Configurator { configurator: "nmc" }),
            Configurator::Nmstate => Err(NetworkError::Configurator { configurator: "nmstate" }),
        };
    };
    let mut config = config.clone();
    match template.configurator {
        Configurator::None => {
            check_version(&config)?;
            fill_value(&mut config, &template.ip_addresses)?;
            let text =
                crate::yaml::to_yaml(&config).map_err(|error| NetworkError::Render(error.to_string()))?;
            Ok(Some(HostNetwork { network_config: Some(text), ..HostNetwork::default() }))
        }
        Configurator::Nmconnections => {
            fill_value(&mut config, &template.ip_addresses)?;
            keyfile_network(&config, observed).map(Some)
        }
        Configurator::Nmc => Err(NetworkError::Configurator { configurator: "nmc" }),
        Configurator::Nmstate => Err(NetworkError::Configurator { configurator: "nmstate" }),
    }
}

fn check_version(config: &Value) -> Result<(), NetworkError> {
    let inner = config.get("network").unwrap_or(config);
    let version =
        inner.get("version").and_then(|version| version.as_i64().or_else(|| version.as_str()?.parse().ok()));
    if version == Some(2) { Ok(()) } else { Err(NetworkError::NotVersion2) }
}

/// The network of keyfiles, which `NetworkManager` gets unchanged.
fn keyfile_network(config: &Value, observed: Option<&ObservedNetwork>) -> Result<HostNetwork, NetworkError> {
    let map = config.as_object().ok_or(NetworkError::NoKeyfiles)?;
    let mut connections = BTreeMap::new();
    for (name, text) in map {
        let text = text.as_str().ok_or(NetworkError::NoKeyfiles)?;
        let name = name.strip_suffix(".nmconnection").unwrap_or(name);
        connections.insert(name.to_owned(), text.to_owned());
    }
    let Translation { network, untranslated } = connections::translate_connections(&connections, observed)?;
    render_network(&network, connections, &untranslated, |_| false)
}

pub(crate) fn is_empty(config: &Value) -> bool {
    config.is_null() || config.as_object().is_some_and(serde_json::Map::is_empty)
}

/// Replaces `{name}` in every text.
fn fill_value(value: &mut Value, addresses: &BTreeMap<String, String>) -> Result<(), NetworkError> {
    match value {
        Value::String(text) => *text = fill_text(text, addresses)?,
        Value::Array(items) => items.iter_mut().try_for_each(|item| fill_value(item, addresses))?,
        Value::Object(map) => map.values_mut().try_for_each(|value| fill_value(value, addresses))?,
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

fn fill_text(text: &str, addresses: &BTreeMap<String, String>) -> Result<String, NetworkError> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        result.push_str(before);
        let Some((name, after)) = after.split_once('}').filter(|(name, _)| is_name(name)) else {
            result.push('{');
            rest = after;
            continue;
        };
        let address = addresses.get(name);
        let address = address.ok_or_else(|| NetworkError::Placeholder { name: name.to_owned() })?;
        if address.parse::<IpAddr>().is_err() && address.parse::<IpNet>().is_err() {
            return Err(bad_value("spec.network.ipAddresses", address, "IP address"));
        }
        result.push_str(address);
        rest = after;
    }
    result.push_str(rest);
    Ok(result)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}
