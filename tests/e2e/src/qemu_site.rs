//! Two clusters and a QEMU host that is not powered on: where the tests of one host start.

use std::sync::Arc;

use anyhow::Context as _;
use guest::{Image, ImageInputs};

use crate::environment::{Environment, Reach};
use crate::host::GuestHost;
use crate::progress::Progress;
use crate::serve::serve;
use crate::watching::Watching;

/// It ends with this value.
pub struct QemuSite {
    /// What goes into the images.
    pub inputs: ImageInputs,
    pub environment: Environment,
    pub host: GuestHost,
    /// URL of the base ISO.
    pub base: String,
    pub progress: Arc<Progress>,
    pub watching: Watching,
}

impl QemuSite {
    /// Builds what is missing, and starts the clusters.
    pub async fn start() -> anyhow::Result<Self> {
        let inputs = ImageInputs::from_env().context(
            "AGENT, KUBERNETES_BIN and CONTAINERD_BIN name what goes into the images: use the targets of the Makefile",
        )?;
        let progress = Arc::new(Progress::default());
        let base = guest::build(Image::Iso, &inputs).await?;
        let environment = Environment::start(Reach::Guests, &progress).await?;
        let watching = Watching::start(&environment.management.admin, &progress);
        let base = serve(base).await?;
        let host = GuestHost::new(&environment, &inputs).await?;
        Ok(Self { inputs, environment, host, base, progress, watching })
    }
}
