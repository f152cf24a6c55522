//! The system and the network of the host as it reports them: without what the cluster added, and
//! with what a former node left in the kernel.

use proto::v1alpha1::{ObservedNetwork, SystemState};

use super::carried;
use crate::ground::failure::Failure;
use crate::ground::paths::Root;
use crate::host::kernel_state;
use crate::host::network::NetworkObserver;
use crate::host::system::System;
use crate::plan::executor::NewestPlan;
use crate::state::before_node;

/// Observes both, and records the kernel while the host carries no node.
pub(super) async fn observe_host<S: System>(
    root: &Root,
    system: &S,
    network: &impl NetworkObserver,
    newest: &NewestPlan,
) -> Result<(SystemState, Option<ObservedNetwork>), Failure> {
    let mut state = system.running().await?;
    let mut network = network
        .observe()
        .inspect_err(|error| tracing::warn!(%error, "cannot observe the network, report without it"))
        .ok();
    let carries_node = || carried::observe_carried(root, newest).node.is_some();
    let boot = state.boot_id.clone();
    let mut seen = None;
    if !carries_node() {
        let mut items = system.kernel_items().await?;
        items.extend(network.iter().flat_map(before_node::list_configured));
        seen = Some(items);
    }
    // A node that came meanwhile may have brought a part of it.
    if carries_node() {
        seen = None;
        warn_unkept(before_node::mark_node(root, &boot));
    }
    let own = before_node::own_items(root, &boot);
    match (&own, seen) {
        (Some(own), Some(items)) => state.left_in_kernel = kernel_state::show_left(own, &items),
        (None, Some(items)) => warn_unkept(before_node::record_items(root, &boot, items)),
        (_, None) => {}
    }
    if let (Some(own), Some(network)) = (own, &mut network) {
        own.filter_network(network);
    }
    Ok((state, network))
}

/// A later clean ends with a reboot if there is no record.
fn warn_unkept(kept: Result<(), Failure>) {
    if let Err(error) = kept {
        tracing::warn!(%error, "cannot record the host's own part of the kernel");
    }
}
