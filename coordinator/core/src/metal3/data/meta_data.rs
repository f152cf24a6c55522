//! Meta-data: a map of texts.

use std::collections::BTreeMap;

use coordinator_api::metal3::data_template::{KeyIndex, KeyInterface, MetaDataSpec};
use coordinator_api::object::Namespace;

use super::{DataError, Sources, pool_of_key};
use crate::metal3::host;
use crate::provider_id::ProviderId;

/// Renders meta-data. If several items have the same key, the last item in the order of CAPM3
/// counts. An item may override `providerid`.
pub fn render_meta_data(
    spec: &MetaDataSpec,
    sources: &Sources<'_>,
) -> Result<BTreeMap<String, String>, DataError> {
    let mut data = BTreeMap::new();
    let provider_id = host::provider_id(sources.host);
    data.insert("providerid".to_owned(), ProviderId::without_scheme(&provider_id).to_owned());
    for item in &spec.from_host_interfaces {
        data.insert(item.key.clone(), interface_mac(item, sources)?);
    }
    for item in &spec.ip_addresses_from_ip_pool {
        data.insert(item.key.clone(), sources.address(&item.key, &pool_of_key(item)?)?.address.clone());
    }
    for item in &spec.prefixes_from_ip_pool {
        let prefix = sources.address(&item.key, &pool_of_key(item)?)?.prefix;
        data.insert(item.key.clone(), prefix.map_or_else(String::new, |prefix| prefix.to_string()));
    }
    for item in &spec.gateways_from_ip_pool {
        let gateway = sources.address(&item.key, &pool_of_key(item)?)?.gateway.as_deref();
        data.insert(item.key.clone(), gateway.unwrap_or("").to_owned());
    }
    for item in &spec.dns_servers_from_ip_pool {
        let pool = pool_of_key(item)?;
        if !pool.is_metal3() {
            return Err(DataError::NoDnsServers { item: item.key.clone(), pool });
        }
        data.insert(item.key.clone(), sources.address(&item.key, &pool)?.dns_servers.join(","));
    }
    for item in &spec.indexes {
        data.insert(item.key.clone(), render_index(item, sources.index));
    }
    for item in &spec.namespaces {
        data.insert(item.key.clone(), Namespace::of(sources.metal3_machine).to_string());
    }
    for item in &spec.object_names {
        data.insert(item.key.clone(), sources.name(item.object));
    }
    for item in &spec.from_labels {
        let value = sources.labels(item.object).get(&item.label).map_or("", String::as_str);
        data.insert(item.key.clone(), value.to_owned());
    }
    for item in &spec.from_annotations {
        let value = sources.annotations(item.object).get(&item.annotation).map_or("", String::as_str);
        data.insert(item.key.clone(), value.to_owned());
    }
    for item in &spec.strings {
        data.insert(item.key.clone(), item.value.clone());
    }
    Ok(data)
}

fn render_index(item: &KeyIndex, index: i64) -> String {
    let step = if item.step == 0 { 1 } else { item.step };
    let number = index.saturating_mul(step).saturating_add(item.offset);
    format!("{}{number}{}", item.prefix, item.suffix)
}

fn interface_mac(item: &KeyInterface, sources: &Sources<'_>) -> Result<String, DataError> {
    if item.from_boot_mac {
        let mac = sources.host.spec.boot_mac_address.clone().filter(|mac| !mac.is_empty());
        return mac.ok_or_else(|| DataError::NoBootMac { item: item.key.clone() });
    }
    sources.mac(&item.key, item.interface.as_deref().unwrap_or(""))
}
