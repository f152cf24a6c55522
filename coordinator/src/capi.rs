//! Which version of Cluster API's kinds is served.

use std::time::Duration;

use coordinator_api::capi;
use kube::Client;

use crate::controllers::CapiVersions;
use crate::telemetry::chain;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(2);

/// Waits until Cluster API is installed and names its best version that we
/// can read.
pub async fn versions(client: &Client) -> CapiVersions {
    loop {
        match client.list_api_groups().await {
            Ok(groups) => {
                let group = groups.groups.into_iter().find(|group| group.name == capi::GROUP);
                let served = group.map(|group| group.versions).unwrap_or_default();
                let best = capi::VERSIONS.into_iter().find(|version| served.iter().any(|other| other.version == *version));
                if let Some(version) = best {
                    return CapiVersions { machine: capi::machine(version), cluster: capi::cluster(version) };
                }
                tracing::warn!("Cluster API is not installed: waiting for {} {}", capi::GROUP, capi::VERSIONS.join(" or "));
            }
            Err(error) => tracing::warn!(error = %chain(&error), "cannot ask Kubernetes which kinds it serves"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
