//! `spec.network`: written by an operator, used unchanged.

use std::collections::BTreeMap;

use coordinator_api::network::{Configurator, NetworkTemplate};
use ipnet::IpNet;
use serde_json::Value;
use std::net::IpAddr;

use super::{NetworkError, bad_value};

/// The network-config, or `None` when the template is empty.
pub(super) fn explicit_config(template: &NetworkTemplate) -> Result<Option<String>, NetworkError> {
    let configurator = match template.configurator {
        Configurator::None => None,
        Configurator::Nmc => Some("nmc"),
        Configurator::Nmstate => Some("nmstate"),
        Configurator::Nmconnections => Some("nmconnections"),
    };
    if let Some(configurator) = configurator {
        return Err(NetworkError::Configurator { configurator });
    }
    let Some(config) = template.config.as_ref().filter(|config| !is_empty(config)) else {
        return Ok(None);
    };
    let inner = config.get("network").unwrap_or(config);
    let version =
        inner.get("version").and_then(|version| version.as_i64().or_else(|| version.as_str()?.parse().ok()));
    if version != Some(2) {
        return Err(NetworkError::NotVersion2);
    }
    let mut config = config.clone();
    fill_value(&mut config, &template.ip_addresses)?;
    crate::yaml::to_yaml(&config).map(Some).map_err(|error| NetworkError::Render(error.to_string()))
}

fn is_empty(config: &Value) -> bool {
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
        let missing = || NetworkError::Placeholder { name: name.to_owned() };
        let address = addresses.get(name).ok_or_else(missing)?;
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
