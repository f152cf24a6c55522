//! Which providerID the kubelet of a host has.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use coordinator_api::conditions::{Reason, Type};
use proto::plan::Secret;

use crate::bootstrap::{render_expressions, stated_provider_id};
use crate::cloud_init::{MetaData, meta_data_values};
use crate::demand::{BootstrapEdit, NodeDemand};
use crate::host::HostRecord;
use crate::plan::Names;
use crate::problem::{Blocker, Problem};
use crate::provider_id::ProviderId;

/// What the host carries, where the bootstrap data had a say in it.
pub(super) fn provider_id(node: &NodeDemand, host: &HostRecord) -> ProviderId {
    let carried = host.carried_node().map(|node| &node.provider_id);
    let stated = carried.filter(|id| node.other_ids.contains(id)).and_then(|id| ProviderId::parse(id));
    if let Some(stated) = stated {
        return stated;
    }
    let named = node.names.as_ref().and_then(|names| ProviderId::parse(&names.provider_id));
    named.unwrap_or_else(|| ProviderId::of_host(&host.name))
}

/// The providerID that bootstrap data gives the kubelet instead of the one that the
/// host would. The kubelet takes one alone, so that both have to be the same.
pub(super) fn stated_id(
    node: &NodeDemand,
    data: &Secret,
    names: &Names,
    meta_data: &BTreeMap<String, String>,
) -> Result<Option<String>, Blocker> {
    let text = std::str::from_utf8(data.expose()).unwrap_or_default();
    let stated = (node.bootstrap_edit == BootstrapEdit::Unchanged).then(|| stated_provider_id(text));
    let Some(stated) = stated.flatten() else { return Ok(None) };
    let values = meta_data_values(&MetaData {
        hostname: names.hostname.clone(),
        uuid: names.uuid.clone(),
        provider_id: names.provider_id.clone(),
        machine: names.machine.clone(),
        namespace: names.namespace.clone(),
        replaced: meta_data.clone(),
        ..MetaData::default()
    });
    let rendered = render_expressions(&stated, &values);
    if let Some(id) = rendered.filter(|id| *id == names.provider_id || node.other_ids.contains(id)) {
        return Ok((id != names.provider_id).then_some(id));
    }
    let problem = Problem::new(
        Reason::NodeProviderIDUnsupported,
        format!(
            "the bootstrap data gives the kubelet the provider-id {stated}, which is not {} or {} here",
            names.provider_id,
            node.other_ids.join(" or ")
        ),
        "write metal3://{{ ds.meta_data.providerid }} or metal3://{{ ds.meta_data.uuid }}, or leave it out",
    );
    Err(Blocker::failed_with(Type::BootstrapReady, problem))
}
