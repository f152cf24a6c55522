//! The images of `iso/`, built or found in the cache.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::error::LabError;

/// An image of `iso/build.sh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image {
    /// The disk image with `v1.squashfs` and `v2.squashfs`, at `/run/os-images` in the host.
    Os,
    /// The same with an image for each Kubernetes release, `v1.36.3.squashfs`, that can be a control plane.
    Cluster,
    /// The live base ISO.
    Iso,
}

/// Debian's kernel in the images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kernel {
    /// With the drivers of virtual machines.
    #[default]
    Cloud,
    /// With those of real servers.
    Generic,
    /// User Mode Linux.
    Uml,
}

/// The program that configures the network in the images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Network {
    #[default]
    Networkd,
    /// `NetworkManager`, by keyfiles.
    NetworkManager,
}

/// Parts of the images beside Debian's packages.
#[derive(Debug, Clone)]
pub struct ImageInputs {
    /// The static `baremetal-agent`.
    pub agent: PathBuf,
    /// Directory with kubelet and kubeadm.
    pub kubernetes: PathBuf,
    /// Directory with containerd, its shim and ctr.
    pub containerd: PathBuf,
    /// The real `elemental`; without it the stand-in is in the images.
    pub elemental: Option<PathBuf>,
    /// The kernel; cloud by default.
    pub kernel: Kernel,
    pub network: Network,
}

impl ImageInputs {
    /// From `AGENT`, `KUBERNETES_BIN`, `CONTAINERD_BIN` and, where it is set, `ELEMENTAL`; none
    /// when one of the first three is unset.
    pub fn from_env() -> Option<Self> {
        let path = |name: &str| std::env::var_os(name).filter(|text| !text.is_empty()).map(PathBuf::from);
        Some(Self {
            agent: path("AGENT")?,
            kubernetes: path("KUBERNETES_BIN")?,
            containerd: path("CONTAINERD_BIN")?,
            elemental: path("ELEMENTAL"),
            kernel: Kernel::default(),
            network: Network::default(),
        })
    }
}

/// Builds an image, or finds it in the cache. Its progress lines go to our standard error. Needs root.
///
/// # Errors
/// When the script cannot be run or fails; its output is on standard error.
pub async fn build(image: Image, inputs: &ImageInputs) -> Result<PathBuf, LabError> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../iso/build.sh");
    let output = Command::new(script)
        .arg(match image {
            Image::Os => "os",
            Image::Cluster => "cluster",
            Image::Iso => "iso",
        })
        .env("AGENT", &inputs.agent)
        .env("KUBERNETES_BIN", &inputs.kubernetes)
        .env("CONTAINERD_BIN", &inputs.containerd)
        .env(
            "KERNEL",
            match inputs.kernel {
                Kernel::Cloud => "cloud",
                Kernel::Generic => "generic",
                Kernel::Uml => "uml",
            },
        )
        .env(
            "NETWORK",
            match inputs.network {
                Network::Networkd => "networkd",
                Network::NetworkManager => "networkmanager",
            },
        )
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await
        .map_err(|source| LabError::Start { program: "iso/build.sh", source })?;
    let said = String::from_utf8_lossy(&output.stdout);
    let path = said.lines().last().unwrap_or_default();
    if !output.status.success() || path.is_empty() {
        let said = format!("{}, see its lines above", output.status);
        return Err(LabError::Program { program: "iso/build.sh", said });
    }
    Ok(match image {
        Image::Os | Image::Cluster => Path::new(path).join("os-images.iso"),
        Image::Iso => PathBuf::from(path),
    })
}
