//! `Metal3DataTemplate`.

use serde_json::{Map, Value};

use super::ConversionError;
use super::fields::{Fields, take_key};

/// Names of lists of the meta-data at v1beta1 and at v1beta2.
const POOL_VALUES: [(&str, &str); 4] = [
    ("ipAddressesFromIPPool", "ipAddressesFromPool"),
    ("prefixesFromIPPool", "prefixesFromPool"),
    ("gatewaysFromIPPool", "gatewaysFromPool"),
    ("dnsServersFromIPPool", "dnsServersFromPool"),
];
const LINKS: [&str; 3] = ["ethernets", "bonds", "vlans"];
const NETWORKS: [&str; 5] = ["ipv4", "ipv6", "ipv4DHCP", "ipv6DHCP", "ipv6SLAAC"];

pub(super) fn spec_to_v1beta2(spec: &mut Fields<'_>) -> Result<(), ConversionError> {
    spec.remove("templateReference");
    spec.remove_empty_text("clusterName");
    if let Some(mut data) = spec.object("metaData")? {
        for (former, name) in POOL_VALUES {
            data.rename(former, name);
        }
        for mut item in data.objects("fromHostInterfaces")? {
            item.remove_empty_text("interface");
        }
    }
    let Some(mut data) = spec.object("networkData")? else { return Ok(()) };
    if let Some(mut links) = data.object("links")? {
        links_to_v1beta2(&mut links)?;
    }
    if let Some(mut networks) = data.object("networks")? {
        for list in NETWORKS {
            for mut network in networks.objects(list)? {
                network_to_v1beta2(&mut network)?;
            }
        }
    }
    remove_empty_pool(&mut data)
}

pub(super) fn spec_to_v1beta1(spec: &mut Fields<'_>) -> Result<(), ConversionError> {
    if let Some(mut data) = spec.object("metaData")? {
        for (former, name) in POOL_VALUES {
            data.rename(name, former);
        }
    }
    let Some(mut data) = spec.object("networkData")? else { return Ok(()) };
    let Some(mut links) = data.object("links")? else { return Ok(()) };
    let entry = |mut item: Map<String, Value>| Some((take_key(&mut item, "name")?, item.remove("value")?));
    for mut bond in links.objects("bonds")? {
        bond.map_items("parameters", entry, "a list of objects with name and value")?;
    }
    Ok(())
}

fn links_to_v1beta2(links: &mut Fields<'_>) -> Result<(), ConversionError> {
    let item = |name: String, value: Value| {
        Some(Map::from_iter([("name".to_owned(), name.into()), ("value".to_owned(), value)]))
    };
    for mut bond in links.objects("bonds")? {
        bond.remove_empty_text("bondXmitHashPolicy");
        bond.list_entries("parameters", item, "a map")?;
    }
    for list in LINKS {
        for mut link in links.objects(list)? {
            link.remove_empty_text("name");
            if let Some(mut address) = link.object("macAddress")? {
                address.remove_empty_text("string");
                address.remove_empty_text("fromHostInterface");
            }
        }
    }
    Ok(())
}

fn network_to_v1beta2(network: &mut Fields<'_>) -> Result<(), ConversionError> {
    network.remove_empty_text("ipAddressFromIPPool");
    remove_empty_reference(network)?;
    for mut route in network.objects("routes")? {
        if let Some(mut gateway) = route.object("gateway")? {
            gateway.remove_empty_text("string");
            gateway.remove_empty_text("fromIPPool");
            remove_empty_reference(&mut gateway)?;
        }
        remove_empty_pool(&mut route)?;
    }
    Ok(())
}

/// CAPM3 shows a network without a pool so at v1beta1.
fn remove_empty_reference(fields: &mut Fields<'_>) -> Result<(), ConversionError> {
    const NAME: &str = "fromPoolRef";
    let Some(pool) = fields.object(NAME)? else { return Ok(()) };
    if pool.text("name")?.is_none_or(str::is_empty) {
        fields.remove(NAME);
    }
    Ok(())
}

fn remove_empty_pool(fields: &mut Fields<'_>) -> Result<(), ConversionError> {
    if let Some(mut services) = fields.object("services")? {
        services.remove_empty_text("dnsFromIPPool");
    }
    Ok(())
}

/// The list is in the order of the indexes.
pub(super) fn status_to_v1beta2(status: &mut Fields<'_>) -> Result<(), ConversionError> {
    let item = |name: String, index: Value| {
        index.as_i64()?;
        Some(Map::from_iter([("name".to_owned(), name.into()), ("index".to_owned(), index)]))
    };
    status.list_entries("indexes", item, "a map of numbers of 64 bits")?;
    if let Some(mut indexes) = status.take_list("indexes")? {
        indexes.sort_by_key(|item| item["index"].as_i64());
        status.set("indexes", indexes);
    }
    Ok(())
}

pub(super) fn status_to_v1beta1(status: &mut Fields<'_>) -> Result<(), ConversionError> {
    let entry = |mut item: Map<String, Value>| Some((take_key(&mut item, "name")?, item.remove("index")?));
    status.map_items("indexes", entry, "a list of objects with name and index")
}
