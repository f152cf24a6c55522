//! A host made of files: the real agent, a simulated operating system, and a
//! played kubelet.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::executor::{Executor, Policy};
use agent::install::found::{Access, Mounted, Mounts};
use agent::paths::{Root, StateDir};
use agent::system::simulated::Simulated as System;
use agent::{boot, link, register};
use anyhow::{Context as _, bail};
use control_plane::Workload;
use control_plane::directory::Directory;
use tokio::task::JoinHandle;

/// SMBIOS UUID of the host.
pub const UUID: &str = "4c616200-0000-4000-8000-0000000000aa";
/// Pause between two looks whether a reboot was asked for.
const LOOK: Duration = Duration::from_millis(100);

/// The host.
pub struct Simulated {
    directory: Directory,
    workload: Arc<Workload>,
    life: Option<JoinHandle<()>>,
}

impl Simulated {
    /// A host that joins `workload`, not yet powered on.
    ///
    /// # Errors
    /// When its files cannot be made.
    pub fn new(workload: Arc<Workload>) -> io::Result<Self> {
        Ok(Self { directory: Directory::temporary()?, workload, life: None })
    }

    /// Extracts the seed from the ISO, as the kernel would mount it, and lives.
    pub(super) async fn boot(&mut self, iso: &Path) -> anyhow::Result<()> {
        let files = Files { directory: self.directory.path().to_owned() };
        let root = files.root();
        let system = System::installed(root.clone(), "live").context("make the host")?;
        files.furnish()?;
        extract(iso, &root.live_config()).await?;
        let workload = self.workload.clone();
        self.life = Some(tokio::spawn(async move {
            if let Err(error) = Box::pin(live(files, system, workload)).await {
                eprintln!("the simulated host died: {error:#}");
            }
        }));
        Ok(())
    }

    pub(super) fn check_clean(&self) -> anyhow::Result<()> {
        let root = Files { directory: self.directory.path().to_owned() }.root();
        for left in [root.state().node_identity(), root.join("/etc/kubernetes/kubelet.conf")] {
            if left.exists() {
                bail!("{} is left on the host", left.display());
            }
        }
        Ok(())
    }

    pub(super) fn log(&self) -> String {
        self.directory.path().display().to_string()
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        if let Some(life) = self.life.take() {
            life.abort();
        }
    }
}

/// Where the host's files are.
#[derive(Clone)]
struct Files {
    directory: PathBuf,
}

impl Files {
    fn root(&self) -> Root {
        Root::at(self.directory.join("root"))
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        fs::write(path, content)
    }

    /// One disk and what the firmware says.
    fn furnish(&self) -> io::Result<()> {
        self.write("/run/elemental/live_mode", "")?;
        self.write("/sys/block/vda/size", "33554432")?;
        self.write("/sys/block/vda/vda5/partition", "5")?;
        self.write("/sys/block/vda/vda5/uevent", "PARTNAME=persistent\n")?;
        self.write("/dev/vda", "")?;
        self.write("/sys/firmware/dmi/tables/smbios_entry_point", smbios::entry_point())?;
        self.write("/sys/firmware/dmi/tables/DMI", smbios::tables())
    }
}

impl Mounts for Files {
    /// The persistent partition holds a file system once the install ran.
    fn mount(&self, partition: &str, _: Access) -> io::Result<Mounted> {
        let path = self.directory.join(partition);
        let installed = System::new(self.root()).effects().iter().any(|effect| effect.starts_with("install"));
        if installed {
            fs::create_dir_all(&path)?;
        }
        if path.exists() { Ok(Mounted::directory(path)) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

async fn extract(iso: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to.parent().context("a path without a parent")?)?;
    let output = tokio::process::Command::new("xorriso")
        .args(["-osirrox", "on", "-indev"])
        .arg(iso)
        .args(["-extract", "/livecd-cloud-config.yaml"])
        .arg(to)
        .output()
        .await
        .context("run xorriso")?;
    anyhow::ensure!(output.status.success(), "xorriso: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The live system, then the installed one for ever.
async fn live(files: Files, system: System, workload: Arc<Workload>) -> anyhow::Result<()> {
    let root = files.root();
    early_boot(&root)?;
    register::register(&root, &system, &files).await?;
    fs::remove_file(root.join("/run/elemental/live_mode"))?;
    // The installed system mounts its persistent partition where the state is.
    let state = StateDir::on_persistent_partition(&files.directory.join("vda5"));
    let mounted = root.state().path().to_owned();
    fs::remove_dir_all(&mounted)
        .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    std::os::unix::fs::symlink(state.path(), &mounted)?;
    loop {
        system.power_cycle()?;
        early_boot(&root)?;
        system.run_cloud_init()?;
        join(&root, &workload).await?;
        let executor = Executor::open(root.clone(), system.clone(), Policy::default())?;
        tokio::select! {
            ended = link::run(&root, system.clone(), executor) => { ended?; }
            () = asked_to_reboot(&system) => {}
        }
    }
}

fn early_boot(root: &Root) -> anyhow::Result<()> {
    let summary = boot::run(root);
    anyhow::ensure!(summary.problems.is_empty(), "early boot: {:?}", summary.problems);
    Ok(())
}

async fn asked_to_reboot(system: &System) {
    while !system.reboot_was_asked_for() {
        tokio::time::sleep(LOOK).await;
    }
}

/// What kubeadm and the kubelet would do: the Node says of itself what the
/// agent wrote into the kubelet's configuration.
async fn join(root: &Root, workload: &Workload) -> anyhow::Result<()> {
    let seed = fs::read_to_string(root.nocloud_seed().join("user-data")).unwrap_or_default();
    if !seed.contains("kubeadm join") || root.join("/etc/kubernetes/kubelet.conf").exists() {
        return Ok(());
    }
    let meta_data = fs::read_to_string(root.nocloud_seed().join("meta-data"))?;
    let hostname = value(&meta_data, "local-hostname: ").context("the seed names no host")?;
    let flags = fs::read_to_string(root.join("/etc/default/kubelet"))?;
    let provider_id = value(&flags, "--provider-id=").context("the kubelet has no provider id")?;
    let uuid = value(&flags, "metal3.io/uuid=").context("the kubelet has no label")?;
    let labels = BTreeMap::from([("metal3.io/uuid".to_owned(), uuid)]);
    workload.register_node(&hostname, &provider_id, &labels).await?;
    fs::create_dir_all(root.join("/etc/kubernetes"))?;
    fs::write(root.join("/etc/kubernetes/kubelet.conf"), "credentials")?;
    Ok(())
}

/// The word after `key`.
fn value(text: &str, key: &str) -> Option<String> {
    let rest = &text[text.find(key)? + key.len()..];
    let end = |c: char| c.is_whitespace() || c == '"' || c == '\'' || c == ',';
    Some(rest.split(end).find(|word| !word.is_empty())?.to_owned())
}

/// The firmware's tables, as a kernel shows them.
mod smbios {
    /// SMBIOS 3.0.
    pub(super) fn entry_point() -> Vec<u8> {
        let mut entry = b"_SM3_\0\x18\x03\x00\x00\x01\x00".to_vec();
        entry.extend(4096_u32.to_le_bytes());
        entry.extend(0_u64.to_le_bytes());
        let sum = entry.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        entry[5] = 0_u8.wrapping_sub(sum);
        entry
    }

    /// System information and the end.
    pub(super) fn tables() -> Vec<u8> {
        // Manufacturer, product, version, serial number, UUID, wake-up, SKU, family.
        let mut table = vec![1, 27, 0, 1, 1, 2, 0, 3];
        // The first three fields of a UUID are little-endian.
        table.extend([0x00, 0x62, 0x61, 0x4c, 0, 0, 0x00, 0x40, 0x80, 0, 0, 0, 0, 0, 0, 0xaa]);
        table.extend([6, 0, 0]);
        table.extend(b"Lab\0Simulated\0SIM-1\0\0");
        table.extend([127, 4, 1, 1, 0, 0]);
        table
    }
}
