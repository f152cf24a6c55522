//! The provider as the real `clusterctl` installs it.

use std::collections::BTreeMap;

use bundle::components::Sources;
use control_plane::Clusterctl;

use crate::site::{Management, Site};

/// What `clusterctl` is given of the checkout: components, metadata, templates.
///
/// # Errors
/// When the checkout is not as expected.
pub fn release() -> anyhow::Result<BTreeMap<&'static str, String>> {
    Ok(Sources::of_checkout().repository()?)
}

/// Installs `release` over what runs already: `clusterctl` then knows the provider, its kinds and its
/// templates. `arguments` choose the other providers.
pub async fn install(
    site: &Site,
    management: &Management,
    release: &BTreeMap<&str, String>,
    arguments: &[&str],
) -> anyhow::Result<Clusterctl> {
    let Management { control_plane, cluster_api, .. } = management;
    let mut clusterctl = Clusterctl::prepare(&site.parts, control_plane, cluster_api).await?;
    let version = format!("v{}", bundle::VERSION);
    clusterctl.add_release("infrastructure-baremetal", &version, release)?;
    clusterctl.configure("infrastructure-components.yaml")?;
    clusterctl.set_variable("BAREMETAL_SERVER_URL", "https://coordinator.example:8443");
    let init = [&["init", "--infrastructure", "baremetal"], arguments].concat();
    clusterctl.run(&init).await?;
    Ok(clusterctl)
}
