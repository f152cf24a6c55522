//! Two clusters and a host that is not powered on: where the tests of one host start.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use control_plane::directory::Directory;
use guest::{Image, ImageInputs};
use tokio::runtime::{Builder, Runtime};

use crate::environment::{Environment, Reach};
use crate::host::{GuestHost, HostKind};
use crate::progress::Progress;
use crate::serve::serve;
use crate::switch::{self, DhcpServer};
use crate::watching::Watching;

/// It ends with this value.
pub struct GuestSite {
    /// What goes into the images.
    pub inputs: ImageInputs,
    pub environment: Environment,
    pub host: GuestHost,
    /// URL of the base ISO.
    pub base: String,
    pub progress: Arc<Progress>,
    pub watching: Watching,
    /// Of hosts in User Mode Linux.
    _dhcp: Option<DhcpServer>,
}

impl GuestSite {
    /// With a host in QEMU: builds what is missing, and starts the clusters.
    pub async fn start() -> anyhow::Result<Self> {
        let inputs = read_inputs()?;
        let base = guest::build(Image::Iso, &inputs).await?;
        Self::start_with(inputs, base).await
    }

    /// Runs `play` beside a host in User Mode Linux.
    pub fn run_in_uml(play: impl AsyncFnOnce(Self) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let inputs = HostKind::Uml.adapt(read_inputs()?);
        let base = enter_with_images(&inputs)?;
        Runtime::new()?.block_on(async { play(Self::start_with(inputs, base).await?).await })
    }

    async fn start_with(inputs: ImageInputs, base: PathBuf) -> anyhow::Result<Self> {
        let progress = Arc::new(Progress::default());
        let directory = Arc::new(Directory::temporary()?);
        let (reach, dhcp) = match inputs.kernel {
            guest::Kernel::Uml => (Reach::Segments, Some(switch::create_segments(directory.path())?)),
            guest::Kernel::Cloud | guest::Kernel::Generic => (Reach::Guests, None),
        };
        let environment = Environment::start_in(directory, reach, &[], &progress).await?;
        let watching = Watching::start(&environment.management.admin, &progress);
        let base = serve(base).await?;
        let host = GuestHost::new(&environment, &inputs).await?;
        Ok(Self { inputs, environment, host, base, progress, watching, _dhcp: dhcp })
    }
}

fn read_inputs() -> anyhow::Result<ImageInputs> {
    ImageInputs::from_env().context(
        "AGENT, KUBERNETES_BIN and CONTAINERD_BIN name what goes into the images: use the targets of the Makefile",
    )
}

/// Replaces this process by one in a network namespace of its own, once the images are built: their packages are
/// downloaded, which the namespace does not allow. Returns the base ISO.
pub(crate) fn enter_with_images(inputs: &ImageInputs) -> anyhow::Result<PathBuf> {
    let base = Builder::new_current_thread().enable_all().build()?.block_on(async {
        guest::build(Image::Os, inputs).await?;
        guest::build(Image::Iso, inputs).await
    })?;
    switch::enter()?;
    Ok(base)
}
