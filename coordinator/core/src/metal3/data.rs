//! `Metal3DataTemplate`: an index for each machine, and the data that is rendered with it.
//!
//! The name of a `Metal3Data` is derived from template and index, so that the claim that
//! creates it first has the index.

mod claim;
mod foreign;
mod meta_data;
mod network_data;
mod pool_id;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use coordinator_api::capi::Machine;
use coordinator_api::metal3::data_template::{
    FromAnnotation, KeyPool, Metal3DataTemplate, Metal3DataTemplateSpec, PoolRef, Source,
};
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::ipam::IPAddressSpec;
use coordinator_api::metal3::machine::Metal3Machine;
use kube::ResourceExt as _;

pub use claim::{
    ClaimStep, data_name, decide_claim, group_of_data, group_of_template, labels_of_template,
    project_template,
};
pub use foreign::{claim_labels, claim_name, foreign_claim, read_foreign_address};
pub use meta_data::render_meta_data;
pub use network_data::render_network_data;
pub use pool_id::PoolId;

/// Key of the Secret with meta-data, and suffix of its name.
pub const META_DATA: (&str, &str) = ("metaData", "-metadata");
/// Key of the Secret with network data, and suffix of its name.
pub const NETWORK_DATA: (&str, &str) = ("networkData", "-networkdata");

/// The sources of rendered values.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    pub machine: &'a Machine,
    pub metal3_machine: &'a Metal3Machine,
    pub host: &'a BareMetalHost,
    pub index: i64,
    /// Addresses of the machine by their pools. An address of another provider has no DNS servers.
    pub addresses: &'a BTreeMap<PoolId, IPAddressSpec>,
}

/// Why the data cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    #[error(
        "{item}: the host has no interface {name:?}: correct the template, or see status.hardware of the BareMetalHost"
    )]
    NoInterface { item: String, name: String },
    #[error("{item}: the BareMetalHost has no spec.bootMACAddress: set it")]
    NoBootMac { item: String },
    #[error("{item}: {value:?} is no MAC address: correct the template")]
    BadMac { item: String, value: String },
    #[error("{item}: no pool is named: name one in the template, or set the annotation that it names")]
    NoPool { item: String },
    #[error(
        "{item}: {pool} is of no kind of pools: name a pool of kind IPPool, or the group of its provider"
    )]
    NoSuchPool { item: String, pool: PoolId },
    #[error("{item}: {pool} has no DNS servers: name them in the template, or use an IPPool of Metal3")]
    NoDnsServers { item: String, pool: PoolId },
    #[error("{item}: no address of pool {name} was claimed")]
    NoAddress { item: String, name: PoolId },
    #[error("{item}: {value:?} is no IP address: correct the template")]
    BadAddress { item: String, value: String },
    #[error(
        "{item}: {value} has a prefix longer than an address of its family: correct prefix of the route, or of the IPPool"
    )]
    BadPrefix { item: String, value: String },
    #[error("{item}: parameter {parameter} has its own field in the template: remove the parameter")]
    IllegalParameter { item: String, parameter: String },
}

impl Sources<'_> {
    fn name(&self, source: Source) -> String {
        match source {
            Source::Machine => self.machine.name_any(),
            Source::Metal3Machine => self.metal3_machine.name_any(),
            Source::BareMetalHost => self.host.name_any(),
        }
    }

    fn labels(&self, source: Source) -> &BTreeMap<String, String> {
        match source {
            Source::Machine => self.machine.labels(),
            Source::Metal3Machine => self.metal3_machine.labels(),
            Source::BareMetalHost => self.host.labels(),
        }
    }

    fn annotations(&self, source: Source) -> &BTreeMap<String, String> {
        match source {
            Source::Machine => self.machine.annotations(),
            Source::Metal3Machine => self.metal3_machine.annotations(),
            Source::BareMetalHost => self.host.annotations(),
        }
    }

    fn annotation(&self, from: &FromAnnotation) -> &str {
        self.annotations(from.object).get(&from.annotation).map_or("", String::as_str)
    }

    /// MAC address of an interface of the host.
    fn mac(&self, item: &str, name: &str) -> Result<String, DataError> {
        let hardware = self.host.status.as_ref().and_then(|status| status.hardware.as_ref());
        let mut nics = hardware.into_iter().flat_map(|hardware| &hardware.nics);
        let nic = nics.find(|nic| nic.name == name);
        nic.map(|nic| nic.mac.clone())
            .ok_or_else(|| DataError::NoInterface { item: item.to_owned(), name: name.to_owned() })
    }

    fn address(&self, item: &str, pool: &PoolId) -> Result<&IPAddressSpec, DataError> {
        let address = self.addresses.get(pool);
        address.ok_or_else(|| DataError::NoAddress { item: item.to_owned(), name: pool.clone() })
    }

    /// The pool of an item by the annotation, else by the reference, else by the name.
    fn pool(
        &self,
        item: &str,
        annotation: Option<&FromAnnotation>,
        reference: Option<&PoolRef>,
        name: Option<&String>,
    ) -> Result<PoolId, DataError> {
        let found = match (annotation, reference) {
            (Some(annotation), _) => PoolId::of_metal3(self.annotation(annotation)),
            (None, Some(reference)) => {
                let PoolRef { name, api_group, kind } = reference;
                named_pool(item, name, api_group.as_ref(), kind.as_ref())?
            }
            (None, None) => PoolId::of_metal3(name.map_or("", String::as_str)),
        };
        if found.name.is_empty() { Err(DataError::NoPool { item: item.to_owned() }) } else { Ok(found) }
    }
}

/// The pool of an item with group and kind, which may be of another provider.
fn named_pool(
    item: &str,
    name: &str,
    group: Option<&String>,
    kind: Option<&String>,
) -> Result<PoolId, DataError> {
    let pool = PoolId::new(name, group.map(String::as_str), kind.map(String::as_str));
    if pool.is_usable() { Ok(pool) } else { Err(DataError::NoSuchPool { item: item.to_owned(), pool }) }
}

fn pool_of_key(item: &KeyPool) -> Result<PoolId, DataError> {
    named_pool(&item.key, &item.name, item.api_group.as_ref(), item.kind.as_ref())
}

/// The pools of a template. The machine gets one address of each of them.
pub fn list_pools(
    spec: &Metal3DataTemplateSpec,
    sources: &Sources<'_>,
) -> Result<BTreeSet<PoolId>, DataError> {
    let mut pools = BTreeSet::new();
    if let Some(meta) = &spec.meta_data {
        let lists = [
            &meta.ip_addresses_from_ip_pool,
            &meta.prefixes_from_ip_pool,
            &meta.gateways_from_ip_pool,
            &meta.dns_servers_from_ip_pool,
        ];
        for item in lists.into_iter().flatten() {
            pools.insert(pool_of_key(item)?);
        }
    }
    let Some(network) = &spec.network_data else { return Ok(pools) };
    let networks = &network.networks;
    pools.extend(network.services.dns_from_ip_pool.as_deref().map(PoolId::of_metal3));
    for layer in networks.ipv4.iter().chain(&networks.ipv6) {
        pools.insert(network_data::pool_of(layer, sources)?);
    }
    let fixed = networks.ipv4.iter().chain(&networks.ipv6).flat_map(|layer| &layer.routes);
    let dynamic = networks.ipv4_dhcp.iter().chain(&networks.ipv6_dhcp).chain(&networks.ipv6_slaac);
    for route in fixed.chain(dynamic.flat_map(|layer| &layer.routes)) {
        pools.extend(route.services.dns_from_ip_pool.as_deref().map(PoolId::of_metal3));
        pools.extend(network_data::gateway_pool(route, sources)?);
    }
    Ok(pools)
}

/// The contents of the two Secrets, as far as the template has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    pub meta_data: Option<String>,
    pub network_data: Option<String>,
}

pub fn render_data(template: &Metal3DataTemplate, sources: &Sources<'_>) -> Result<Rendered, DataError> {
    let spec = &template.spec;
    let meta_data = spec.meta_data.as_ref().map(|spec| render_meta_data(spec, sources)).transpose()?;
    let network_data =
        spec.network_data.as_ref().map(|spec| render_network_data(spec, sources)).transpose()?;
    // A map of texts can always be written as YAML.
    Ok(Rendered {
        meta_data: meta_data.and_then(|data| crate::yaml::to_yaml(&data).ok()),
        network_data: network_data.and_then(|data| crate::yaml::to_yaml(&data).ok()),
    })
}
