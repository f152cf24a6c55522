//! How hosts come to a namespace: a registration and a seed image become an ISO.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use coordinator_api::conditions::{Type, is_true};
use coordinator_api::seed_image::{SeedImage, SeedImageState};
use kube::Api;

use crate::commands::verify_checksum;
use crate::host::Host;
use crate::manifests::{self, fill};
use crate::progress::Progress;
use crate::site::Site;
use crate::watching::until;

/// What the ISO is made for.
#[derive(Clone, Copy, Debug)]
pub struct Seed<'a> {
    /// Of the registration, the seed image and the inventories.
    pub namespace: &'a str,
    /// URL of the base ISO.
    pub base: &'a str,
}

/// Applies registration and seed image for hosts like `host`, and downloads the ISO.
pub async fn create(
    site: &Site,
    seed: Seed<'_>,
    host: &dyn Host,
    progress: &Progress,
) -> anyhow::Result<PathBuf> {
    let Seed { namespace, base } = seed;
    progress.step("a MachineRegistration and a SeedImage become an ISO");
    let (emulate_tpm, mac) = ((!host.has_tpm()).to_string(), host.static_mac());
    let of_registration =
        [("NAMESPACE", namespace), ("DEVICE", host.device()), ("EMULATE_TPM", &emulate_tpm)];
    let of_image = [("NAMESPACE", namespace), ("BASE", base), ("MAC", &mac)];
    site.management.apply(&fill(manifests::REGISTRATION, &of_registration)).await?;
    site.management.apply(&fill(manifests::SEED_IMAGE, &of_image)).await?;
    download(site, namespace, "lab", progress).await
}

/// Downloads the ISO of a seed image once it is ready, and verifies it.
pub async fn download(
    site: &Site,
    namespace: &str,
    name: &str,
    progress: &Progress,
) -> anyhow::Result<PathBuf> {
    let images: Api<SeedImage> = Api::namespaced(site.management.admin.clone(), namespace);
    let image = until(&images, name, Duration::from_mins(2), is_ready).await?;
    let status = image.status.context("a SeedImage without status")?;
    progress.step("the ISO is downloaded and its checksum verified");
    let iso = site.directory.path().join("seed.iso");
    let sum = iso.with_extension("iso.sha256");
    site.download(&status.download_url.context("no downloadURL")?, &iso).await?;
    site.download(&status.checksum_url.context("no checksumURL")?, &sum).await?;
    verify_checksum(&iso, &sum).await?;
    Ok(iso)
}

fn is_ready(image: &SeedImage) -> bool {
    image.status.as_ref().is_some_and(|status| {
        status.state == Some(SeedImageState::Completed)
            && is_true(&status.conditions, Type::Ready)
            && is_true(&status.conditions, Type::SeedImageReady)
    })
}
