//! The stores of the Metal3 kinds.

use std::sync::Arc;

use coordinator_api::capi_ipam::{IPAddress as GivenAddress, IPAddressClaim};
use coordinator_api::metal3::cluster::Metal3Cluster;
use coordinator_api::metal3::data::{Metal3Data, Metal3DataClaim};
use coordinator_api::metal3::data_template::Metal3DataTemplate;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::ipam::{IPAddress, IPClaim, IPPool};
use coordinator_api::metal3::machine::{Metal3Machine, Metal3MachineTemplate};
use coordinator_api::metal3::remediation::Metal3Remediation;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;

use super::follow::{Watch, Watched};
use super::{ApiVersions, Sinks};
use crate::config::Metal3;
use crate::index::Triggers;
use crate::index::metal3::Metal3Index;
use crate::key::Presence;

/// The stores, and what in them concerns what.
#[derive(Clone, Debug)]
pub struct Metal3Cache {
    pub index: Metal3Index,
    /// All kinds are served; else only hosts.
    pub is_full: bool,
    pub hosts: Store<BareMetalHost>,
    pub machines: Store<Metal3Machine>,
    pub templates: Store<Metal3MachineTemplate>,
    pub clusters: Store<Metal3Cluster>,
    pub data_templates: Store<Metal3DataTemplate>,
    pub data_claims: Store<Metal3DataClaim>,
    pub data: Store<Metal3Data>,
    pub remediations: Store<Metal3Remediation>,
    pub ip_pools: Store<IPPool>,
    pub ip_claims: Store<IPClaim>,
    pub ip_addresses: Store<IPAddress>,
    /// Of Cluster API, where it serves them.
    pub address_claims: Store<IPAddressClaim>,
    pub given_addresses: Store<GivenAddress>,
}

impl Metal3Cache {
    pub(super) fn start(watch: &mut Watch<'_>, served: Metal3, versions: &ApiVersions) -> Self {
        let is_full = served == Metal3::Full;
        let has_claims = is_full && versions.has_address_claims();
        Self {
            index: watch.sinks.metal3.clone(),
            is_full,
            hosts: watch.follow_objects(),
            machines: follow_if(watch, is_full),
            templates: follow_if(watch, is_full),
            clusters: follow_if(watch, is_full),
            data_templates: follow_if(watch, is_full),
            data_claims: follow_if(watch, is_full),
            data: follow_if(watch, is_full),
            remediations: follow_if(watch, is_full),
            ip_pools: follow_if(watch, is_full),
            ip_claims: follow_if(watch, is_full),
            ip_addresses: follow_if(watch, is_full),
            address_claims: follow_if(&mut watch.of_optional_kinds(), has_claims),
            given_addresses: follow_if(&mut watch.of_optional_kinds(), has_claims),
        }
    }
}

/// A store that stays empty where the kind is not served.
fn follow_if<K>(watch: &mut Watch<'_>, is_served: bool) -> Store<K>
where
    K: Watched + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    if is_served { watch.follow_objects() } else { Writer::<K>::default().as_reader() }
}

impl Watched for BareMetalHost {
    const KIND: &'static str = "BareMetalHost";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.metal3.apply_host(this, presence)
    }
}

impl Watched for Metal3Machine {
    const KIND: &'static str = "Metal3Machine";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.metal3.apply_machine(this, presence)
    }
}

impl Watched for Metal3MachineTemplate {
    const KIND: &'static str = "Metal3MachineTemplate";

    fn record_change(this: &Arc<Self>, _: Presence, sinks: &Sinks) -> Triggers {
        sinks.metal3.apply_machine_template(this)
    }
}

impl Watched for Metal3Cluster {
    const KIND: &'static str = "Metal3Cluster";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.metal3.apply_infrastructure(this, presence)
    }
}

impl Watched for Metal3DataTemplate {
    const KIND: &'static str = "Metal3DataTemplate";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.metal3.apply_data_template(this, presence)
    }
}

impl Watched for Metal3DataClaim {
    const KIND: &'static str = "Metal3DataClaim";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.metal3.apply_data_claim(this, presence)
    }
}

impl Watched for Metal3Data {
    const KIND: &'static str = "Metal3Data";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.metal3.apply_data(this, presence)
    }
}

impl Watched for Metal3Remediation {
    const KIND: &'static str = "Metal3Remediation";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.metal3.apply_remediation(this, presence)
    }
}

impl Watched for IPPool {
    const KIND: &'static str = "IPPool";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.metal3.apply_ip_pool(this, presence)
    }
}

impl Watched for IPClaim {
    const KIND: &'static str = "IPClaim";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.metal3.apply_ip_claim(this, presence)
    }
}

impl Watched for IPAddress {
    const KIND: &'static str = "IPAddress";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.metal3.apply_ip_address(this, presence)
    }
}

impl Watched for IPAddressClaim {
    const KIND: &'static str = "IPAddressClaim";

    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers {
        sinks.metal3.apply_address_claim(this, presence)
    }
}

impl Watched for GivenAddress {
    const KIND: &'static str = "IPAddress of Cluster API";

    fn record_change(this: &Arc<Self>, _: Presence, _: &Sinks) -> Triggers {
        Metal3Index::apply_given_address(this)
    }
}
