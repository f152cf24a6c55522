//! Every path of the host that the agent touches, below one root: `/` in production, a temporary
//! directory in tests.

use std::fs;
use std::path::{Path, PathBuf};

use proto::plan::PlanId;
use proto::update_keys::SIGNATURE_FILE;
use proto::v1alpha1::BootMode;

/// The agent's state directory, relative to the persistent partition of an installed disk;
/// `var-lib-baremetal\x2dagent.mount` mounts it in its place.
pub(crate) const PERSISTENT_STATE: &str = "baremetal-agent";
const ATTACHED: &str = "attached";
/// File of the state directory.
pub(crate) const BALLAST: &str = "ballast";

/// The root directory of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    pub fn host() -> Self {
        Self(PathBuf::from("/"))
    }

    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// True for the host itself, false for a directory in its place.
    pub fn is_host(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// The place of an absolute path of the host below this root.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Writes a file of a host in a test, with its directories.
    #[cfg(test)]
    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// The state of the agent: `/var/lib/baremetal-agent`.
    pub fn state(&self) -> StateDir {
        StateDir(self.join("/var/lib/baremetal-agent"))
    }

    /// The `NoCloud` seed that cloud-init reads.
    pub fn nocloud_seed(&self) -> PathBuf {
        self.join("/var/lib/cloud/seed/nocloud")
    }

    /// The connections that `NetworkManager` reads.
    pub fn connections(&self) -> PathBuf {
        self.join("/etc/NetworkManager/system-connections")
    }

    /// True if `NetworkManager` configures the network of this image; an image that also starts
    /// systemd-networkd does not count.
    pub fn uses_network_manager(&self) -> bool {
        self.starts_unit("NetworkManager.service") && !self.starts_unit("systemd-networkd.service")
    }

    fn starts_unit(&self, unit: &str) -> bool {
        ["/etc", "/usr/lib"].iter().any(|directory| {
            let wants = format!("{directory}/systemd/system/multi-user.target.wants/{unit}");
            self.join(wants).symlink_metadata().is_ok()
        })
    }

    /// The kernel's id of this boot.
    pub fn boot_id(&self) -> PathBuf {
        self.join("/proc/sys/kernel/random/boot_id")
    }

    pub fn os_release(&self) -> PathBuf {
        self.join("/etc/os-release")
    }

    /// The configuration on the seed ISO, in a live system.
    pub fn live_config(&self) -> PathBuf {
        self.join("/run/initramfs/live/livecd-cloud-config.yaml")
    }

    /// The networks of single hosts on the seed ISO, in a live system.
    pub fn live_networks(&self) -> PathBuf {
        self.join("/run/initramfs/live/baremetal-networks.json")
    }

    /// The signature of the agent on the seed ISO, with the keys for updates, in a live system.
    pub fn live_signature(&self) -> PathBuf {
        self.join("/run/initramfs/live").join(SIGNATURE_FILE)
    }

    /// The cloud-config of the seed ISO as yip reads it, in a live system.
    pub fn live_stages(&self) -> PathBuf {
        self.join("/run/initramfs/live/iso-config/cloud-config.yaml")
    }

    /// Files that the agent keeps until the next boot.
    pub fn runtime(&self) -> PathBuf {
        self.join("/run/baremetal-agent")
    }

    /// keepalived's configuration, and the state of the load balancer's duty.
    pub fn load_balancer(&self) -> PathBuf {
        self.runtime().join("load-balancer")
    }

    /// Keeps a file below [`Root::runtime`]. A failure is only logged, because such a file saves
    /// work or mistakes after a restart of the agent and no step depends on it.
    pub fn write_runtime_file(&self, name: &str, text: &str) {
        let path = self.runtime().join(name);
        let made = fs::create_dir_all(self.runtime());
        if let Err(error) = made.and_then(|()| fs::write(&path, text)) {
            tracing::warn!(path = %path.display(), %error, "cannot write runtime state file");
        }
    }

    /// The drop-ins of the node's units wait for this file: it says that early boot has ended and
    /// that a node may start.
    pub fn node_gate(&self) -> PathBuf {
        self.runtime().join("node-may-start")
    }

    /// This file says that the agent has attached in this boot.
    pub fn attached_mark(&self) -> PathBuf {
        self.runtime().join(ATTACHED)
    }

    pub fn record_attached(&self) {
        if !self.attached_mark().exists() {
            self.write_runtime_file(ATTACHED, "");
        }
    }

    /// The system that was booted, by Elemental's sentinel, else by the kernel's command line;
    /// unspecified if neither names one.
    pub fn boot_mode(&self) -> BootMode {
        let modes = [
            ("live", BootMode::Live),
            ("active", BootMode::Active),
            ("passive", BootMode::Passive),
            ("recovery", BootMode::Recovery),
        ];
        let command_line = read_or_empty(self.join("/proc/cmdline"));
        let named = command_line.split_whitespace().find_map(|word| word.strip_prefix("elemental.mode="));
        let by_sentinel =
            modes.iter().find(|(name, _)| self.join(format!("/run/elemental/{name}_mode")).exists());
        let found = by_sentinel.or_else(|| modes.iter().find(|(name, _)| Some(*name) == named));
        found.map_or(BootMode::Unspecified, |(_, mode)| *mode)
    }
}

/// The text of a file; empty if it cannot be read.
pub fn read_or_empty(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The agent's state directory at any mount point: 0700, persistent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// The state directory on a persistent partition mounted at `mount_point`.
    pub fn on_persistent_partition(mount_point: &Path) -> Self {
        Self(mount_point.join(PERSISTENT_STATE))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn identity(&self) -> PathBuf {
        self.0.join("identity")
    }

    /// The record of the installed disk and image.
    pub fn install_record(&self) -> PathBuf {
        self.0.join("install.json")
    }

    /// The agent's own file, for images that do not carry the agent.
    pub fn program(&self) -> PathBuf {
        self.0.join("bin/baremetal-agent")
    }

    /// Directory of the agents that the coordinator sent.
    pub fn updates(&self) -> PathBuf {
        self.0.join("updates")
    }

    /// The record of the agent that is started from [`StateDir::updates`].
    pub fn update_record(&self) -> PathBuf {
        self.updates().join("record.json")
    }

    /// The keys that sign updates of this host's agent.
    pub fn update_keys(&self) -> PathBuf {
        self.0.join("update-keys.json")
    }

    /// The configuration that the host registered with.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.yaml")
    }

    /// The configuration that the coordinator announced, until the host has attached by it.
    pub fn next_config(&self) -> PathBuf {
        self.0.join("next-config.yaml")
    }

    /// Room for the journal and the identity on a full partition.
    pub fn ballast(&self) -> PathBuf {
        self.0.join(BALLAST)
    }

    /// The journal of the newest plan.
    pub fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// The marker that makes the next early boot wipe; it holds the plan's id.
    pub fn cleanup_marker(&self) -> PathBuf {
        self.0.join("cleanup-requested")
    }

    /// The mark that the script of a step leaves, in a record that an earlier release stored.
    pub fn upstream_done(&self, plan: &PlanId, step: &str) -> PathBuf {
        self.0.join("done").join(format!("{plan}.{step}"))
    }

    /// The receipt of the last wipe.
    pub fn cleanup_receipt(&self) -> PathBuf {
        self.0.join("cleanup-receipt.json")
    }

    /// The progress of a wipe that goes on at the next boot.
    pub fn cleanup_progress(&self) -> PathBuf {
        self.0.join("cleanup-progress.json")
    }

    /// The note of a reboot that interrupted the bootstrap commands of the newest plan.
    pub fn bootstrap_record(&self) -> PathBuf {
        self.0.join("bootstrap.json")
    }

    /// The authoritative copy of the `NoCloud` seed.
    pub fn seed(&self) -> PathBuf {
        self.0.join("seed")
    }

    /// The former network, while a new network is on trial.
    pub fn network_trial(&self) -> PathBuf {
        self.0.join("network-trial")
    }

    /// The duty of a control-plane host for the cluster's endpoint.
    pub fn load_balancer(&self) -> PathBuf {
        self.0.join("load-balancer")
    }

    /// The mark that no node may start, whatever the journal says.
    pub fn node_hold(&self) -> PathBuf {
        self.0.join("node-hold")
    }

    /// The record of the kernel before the host carried a node.
    pub fn before_node(&self) -> PathBuf {
        self.0.join("before-node.json")
    }

    /// Arguments and labels of the kubelet.
    pub fn node_identity(&self) -> PathBuf {
        self.0.join("node-identity.json")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        let cases = [("absolute", "/etc/x", "/elsewhere/etc/x"), ("relative", "etc/x", "/elsewhere/etc/x")];
        for (name, given, want) in cases {
            assert_eq!(Root::at("/elsewhere").join(given), Path::new(want), "{name}");
        }
        assert_eq!(Root::host().state().journal(), Path::new("/var/lib/baremetal-agent/journal"));
    }

    #[test]
    fn sentinel_or_command_line_tells_the_boot_mode() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(root.boot_mode(), BootMode::Unspecified);
        std::fs::create_dir_all(root.join("/proc")).unwrap();
        std::fs::write(root.join("/proc/cmdline"), "root=LABEL=x elemental.mode=active quiet\n").unwrap();
        assert_eq!(root.boot_mode(), BootMode::Active);
        std::fs::create_dir_all(root.join("/run/elemental")).unwrap();
        std::fs::write(root.join("/run/elemental/passive_mode"), "1").unwrap();
        assert_eq!(root.boot_mode(), BootMode::Passive);
    }
}
