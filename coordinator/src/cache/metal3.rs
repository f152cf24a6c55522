//! The stores of the Metal3 kinds.

use std::sync::Arc;

use coordinator_api::metal3::ipam::{IPAddress, IPClaim, IPPool};
use kube::runtime::reflector::Store;

use super::follow::{Watch, Watched};
use super::{Presence, Sinks};
use crate::controllers::index::Triggers;
use crate::controllers::metal3::index::Metal3Index;

/// The stores, and what in them concerns what.
#[derive(Clone, Debug)]
pub struct Metal3Cache {
    pub index: Metal3Index,
    pub ip_pools: Store<IPPool>,
    pub ip_claims: Store<IPClaim>,
    pub ip_addresses: Store<IPAddress>,
}

impl Metal3Cache {
    pub(super) fn start(watch: &mut Watch<'_>) -> Self {
        Self {
            index: watch.sinks.metal3.clone(),
            ip_pools: watch.follow_objects(),
            ip_claims: watch.follow_objects(),
            ip_addresses: watch.follow_objects(),
        }
    }

    pub(super) async fn wait_until_filled(&self) {
        // An error is a watch that ended with the process.
        let _ = tokio::join!(
            self.ip_pools.wait_until_ready(),
            self.ip_claims.wait_until_ready(),
            self.ip_addresses.wait_until_ready(),
        );
    }
}

impl Watched for IPPool {
    const KIND: &'static str = "IPPool";

    fn record_change(this: &Arc<Self>, _: Presence, sinks: &Sinks) -> Triggers {
        sinks.metal3.apply_ip_pool(this)
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
