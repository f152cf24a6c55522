//! The version at which the kinds of Cluster API are served.

use std::time::Duration;

use coordinator_api::capi;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;
use kube::Client;

use crate::telemetry::chain;
use crate::watch::ApiVersions;

/// Interval between looks for Cluster API until it is installed.
const INSTALL_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between looks for another version.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// The kinds at `version`.
pub fn at_version(version: &str) -> ApiVersions {
    ApiVersions { machine: capi::machine(version), cluster: capi::cluster_resource(version) }
}

/// Waits until Cluster API is installed, and gives the best served version that can be read.
pub async fn wait_for_version(client: &Client) -> &'static str {
    loop {
        match client.list_api_groups().await {
            Ok(groups) => match best_version(groups) {
                Some(version) => return version,
                None => log_missing(),
            },
            Err(error) => log_unknown(&error),
        }
        tokio::time::sleep(INSTALL_INTERVAL).await;
    }
}

/// Waits until another version than `version` is the best served one, and gives that version. An
/// API server that does not answer changes nothing.
pub async fn wait_for_change(client: &Client, version: &str) -> &'static str {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        match client.list_api_groups().await {
            Ok(groups) => {
                if let Some(best) = best_version(groups).filter(|best| *best != version) {
                    return best;
                }
            }
            Err(error) => log_unknown(&error),
        }
    }
}

fn best_version(served: APIGroupList) -> Option<&'static str> {
    let group = served.groups.into_iter().find(|group| group.name == capi::GROUP)?;
    capi::VERSIONS.into_iter().find(|version| group.versions.iter().any(|other| other.version == *version))
}

fn log_missing() {
    tracing::warn!(
        "Cluster API is not installed: waiting for {} {}",
        capi::GROUP,
        capi::VERSIONS.join(" or ")
    );
}

fn log_unknown(error: &kube::Error) {
    tracing::warn!(error = %chain(error), "API discovery failed, retrying");
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_apiserver::{FakeApi, Kind};
    use serde_json::json;
    use tokio::time::timeout;

    fn served(versions: &[&str]) -> APIGroupList {
        let versions: Vec<_> = versions
            .iter()
            .map(
                |version| json!({ "version": version, "groupVersion": format!("{}/{version}", capi::GROUP) }),
            )
            .collect();
        serde_json::from_value(json!({ "groups": [{ "name": capi::GROUP, "versions": versions }] })).unwrap()
    }

    #[test]
    fn the_best_readable_version_is_used() {
        for (versions, want) in [
            (&["v1beta1", "v1beta2"][..], Some("v1beta2")),
            (&["v1alpha4", "v1beta1"], Some("v1beta1")),
            (&["v1beta3"], None),
            (&[], None),
        ] {
            assert_eq!(best_version(served(versions)), want, "{versions:?}");
        }
    }

    fn serve_machines(fake: &FakeApi, version: &str) {
        fake.register(Kind::namespaced(capi::GROUP, version, "Machine", "machines"));
    }

    /// Both versions are served at first.
    #[tokio::test(start_paused = true)]
    async fn change_of_the_served_versions_is_noticed() {
        let fake = FakeApi::new();
        for version in capi::VERSIONS {
            serve_machines(&fake, version);
        }
        let client = fake.client("coordinator");
        assert_eq!(wait_for_version(&client).await, "v1beta2");
        let noticed = async |version: &'static str| {
            timeout(2 * CHECK_INTERVAL, wait_for_change(&client, version)).await.ok()
        };
        assert_eq!(noticed("v1beta2").await, None, "nothing has changed");
        fake.stop_serving(capi::GROUP, "v1beta2");
        assert_eq!(noticed("v1beta2").await, Some("v1beta1"), "it is served no longer");
        fake.stop_serving(capi::GROUP, "v1beta1");
        assert_eq!(noticed("v1beta1").await, None, "Cluster API is being installed again");
        for version in capi::VERSIONS {
            serve_machines(&fake, version);
        }
        assert_eq!(noticed("v1beta1").await, Some("v1beta2"), "a better one");
    }
}
