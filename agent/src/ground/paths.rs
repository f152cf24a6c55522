//! Every path of the host that the agent touches, below one root: `/` in
//! production, a temporary directory in tests.

use std::fs;
use std::path::{Path, PathBuf};

use proto::plan::PlanId;
use proto::v1alpha1::BootMode;

/// Where the agent's state lies on the persistent partition of an installed
/// disk, relative to that partition: `var-lib-baremetal\x2dagent.mount` brings
/// it to its place.
pub(crate) const PERSISTENT_STATE: &str = "baremetal-agent";
const ATTACHED: &str = "attached";

/// The root directory of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// The host that the agent runs on.
    pub fn host() -> Self {
        Self(PathBuf::from("/"))
    }

    /// A host whose files lie below `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The place of an absolute path of the host.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// State of the agent: `/var/lib/baremetal-agent`.
    pub fn state(&self) -> StateDir {
        StateDir(self.join("/var/lib/baremetal-agent"))
    }

    /// Where cloud-init reads its `NoCloud` seed.
    pub fn nocloud_seed(&self) -> PathBuf {
        self.join("/var/lib/cloud/seed/nocloud")
    }

    /// Where `NetworkManager` reads the connections of a host.
    pub fn connections(&self) -> PathBuf {
        self.join("/etc/NetworkManager/system-connections")
    }

    /// Whether `NetworkManager` configures the network of this image: not one
    /// that starts systemd-networkd as well.
    pub fn uses_network_manager(&self) -> bool {
        let is_wanted = |unit: &str| {
            ["/etc", "/usr/lib"].iter().any(|directory| {
                let wants = format!("{directory}/systemd/system/multi-user.target.wants/{unit}");
                self.join(wants).symlink_metadata().is_ok()
            })
        };
        is_wanted("NetworkManager.service") && !is_wanted("systemd-networkd.service")
    }

    /// The kernel's name of this boot.
    pub fn boot_id(&self) -> PathBuf {
        self.join("/proc/sys/kernel/random/boot_id")
    }

    pub fn os_release(&self) -> PathBuf {
        self.join("/etc/os-release")
    }

    /// Configuration that the seed ISO carries, in a live system.
    pub fn live_config(&self) -> PathBuf {
        self.join("/run/initramfs/live/livecd-cloud-config.yaml")
    }

    /// Networks of single hosts that the seed ISO carries, in a live system.
    pub fn live_networks(&self) -> PathBuf {
        self.join("/run/initramfs/live/baremetal-networks.json")
    }

    /// The cloud-config of the seed ISO as yip reads it, in a live system.
    pub fn live_stages(&self) -> PathBuf {
        self.join("/run/initramfs/live/iso-config/cloud-config.yaml")
    }

    /// What the agent keeps until the next boot.
    pub fn runtime(&self) -> PathBuf {
        self.join("/run/baremetal-agent")
    }

    /// keepalived's configuration, and how far the load balancer's duty is.
    pub fn load_balancer(&self) -> PathBuf {
        self.runtime().join("load-balancer")
    }

    /// Keeps a file below [`Root::runtime`]. What is kept there spares work or
    /// mistakes after a restart of the agent: the step goes on without it.
    pub fn keep_note(&self, name: &str, text: &str) {
        let path = self.runtime().join(name);
        let made = fs::create_dir_all(self.runtime());
        if let Err(error) = made.and_then(|()| fs::write(&path, text)) {
            tracing::warn!(path = %path.display(), %error, "cannot keep a note for the rest of this boot");
        }
    }

    /// Early boot of this boot has ended, and a node may start: what the
    /// drop-ins of its units wait for.
    pub fn node_gate(&self) -> PathBuf {
        self.runtime().join("node-may-start")
    }

    /// The agent has attached in this boot.
    pub fn attached_note(&self) -> PathBuf {
        self.runtime().join(ATTACHED)
    }

    /// Leaves [`Root::attached_note`].
    pub fn note_attached(&self) {
        if !self.attached_note().exists() {
            self.keep_note(ATTACHED, "");
        }
    }

    /// How the system was booted: by Elemental's sentinel, else by the kernel's
    /// command line; unspecified where neither says.
    pub fn boot_mode(&self) -> BootMode {
        let modes = [
            ("live", BootMode::Live),
            ("active", BootMode::Active),
            ("passive", BootMode::Passive),
            ("recovery", BootMode::Recovery),
        ];
        let command_line = fs::read_to_string(self.join("/proc/cmdline")).unwrap_or_default();
        let named = command_line.split_whitespace().find_map(|word| word.strip_prefix("elemental.mode="));
        let has_sentinel = |name: &str| self.join(format!("/run/elemental/{name}_mode")).exists();
        let by_sentinel = modes.iter().find(|(name, _)| has_sentinel(name));
        let found = by_sentinel.or_else(|| modes.iter().find(|(name, _)| Some(*name) == named));
        found.map_or(BootMode::Unspecified, |(_, mode)| *mode)
    }
}

/// The agent's state directory, wherever it is mounted: 0700, persistent.
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

    /// The disk and the image that were installed.
    pub fn install_record(&self) -> PathBuf {
        self.0.join("install.json")
    }

    /// The agent, for images that do not carry it.
    pub fn program(&self) -> PathBuf {
        self.0.join("bin/baremetal-agent")
    }

    /// Agents that the coordinator sent.
    pub fn updates(&self) -> PathBuf {
        self.0.join("updates")
    }

    /// Which of them is started.
    pub fn update_record(&self) -> PathBuf {
        self.updates().join("record.json")
    }

    /// The configuration that the host registered with.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.yaml")
    }

    /// The configuration that the coordinator announced, until the host attached
    /// by it.
    pub fn next_config(&self) -> PathBuf {
        self.0.join("next-config.yaml")
    }

    /// Which plan, and how far.
    pub fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// The marker that makes the next early boot wipe; holds the plan's id.
    pub fn cleanup_marker(&self) -> PathBuf {
        self.0.join("cleanup-requested")
    }

    /// What an upstream agent leaves when it has run a step of a plan of ours.
    pub fn upstream_done(&self, plan: &PlanId, step: &str) -> PathBuf {
        self.0.join("done").join(format!("{plan}.{step}"))
    }

    /// What the last wipe left.
    pub fn cleanup_receipt(&self) -> PathBuf {
        self.0.join("cleanup-receipt.json")
    }

    /// Whether a reboot cut the bootstrap commands of the newest plan off.
    pub fn bootstrap_note(&self) -> PathBuf {
        self.0.join("bootstrap.json")
    }

    /// The authoritative copy of the `NoCloud` seed.
    pub fn seed(&self) -> PathBuf {
        self.0.join("seed")
    }

    /// The former network, while a new one is on trial.
    pub fn network_trial(&self) -> PathBuf {
        self.0.join("network-trial")
    }

    /// The duty of a control-plane host for the cluster's endpoint.
    pub fn load_balancer(&self) -> PathBuf {
        self.0.join("load-balancer")
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
