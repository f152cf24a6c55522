//! Which version of Cluster API's kinds is served.

use std::time::Duration;

use coordinator_api::capi;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;
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
            Ok(groups) => match best(groups) {
                Some(version) => {
                    return CapiVersions { machine: capi::machine(version), cluster: capi::cluster(version) };
                }
                None => say_not_installed(),
            },
            Err(error) => say_unknown(&error),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn best(served: APIGroupList) -> Option<&'static str> {
    let group = served.groups.into_iter().find(|group| group.name == capi::GROUP);
    let served = group.map(|group| group.versions).unwrap_or_default();
    capi::VERSIONS.into_iter().find(|version| served.iter().any(|other| other.version == *version))
}

fn say_not_installed() {
    tracing::warn!(
        "Cluster API is not installed: waiting for {} {}",
        capi::GROUP,
        capi::VERSIONS.join(" or ")
    );
}

fn say_unknown(error: &kube::Error) {
    tracing::warn!(error = %chain(error), "cannot ask Kubernetes which kinds it serves");
}
