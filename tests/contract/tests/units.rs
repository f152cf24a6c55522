//! Properties of the systemd units that a boot in the lab would not miss at once: what
//! depends on what, and what the sandboxes leave open.

use std::fs;

use contract::documents::checkout;
use proto::distribution;

const BOOT: &str = "baremetal-agent-boot.service";

/// The settings of a unit, by section.
struct Unit {
    name: &'static str,
    settings: Vec<(String, String, String)>,
}

impl Unit {
    fn read(name: &'static str) -> Self {
        let text = fs::read_to_string(checkout("systemd").join(name)).unwrap();
        let (mut section, mut settings) = (String::new(), vec![]);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                name.clone_into(&mut section);
            } else if let Some((key, value)) = line.split_once('=') {
                settings.push((section.clone(), key.to_owned(), value.to_owned()));
            }
        }
        Self { name, settings }
    }

    /// All words of a setting, which may be written several times.
    fn words(&self, section: &str, key: &str) -> Vec<&str> {
        let is_meant = |setting: &&(String, String, String)| setting.0 == section && setting.1 == key;
        self.settings.iter().filter(is_meant).flat_map(|(_, _, value)| value.split(' ')).collect()
    }

    fn assert_has(&self, section: &str, key: &str, wanted: &[&str]) {
        let words = self.words(section, key);
        for word in wanted {
            assert!(words.contains(word), "{}: {key}={words:?} lacks {word}", self.name);
        }
    }

    fn assert_is(&self, section: &str, key: &str, wanted: &[&str]) {
        assert_eq!(self.words(section, key), wanted, "{}: {key}", self.name);
    }
}

#[test]
fn agent_runs_although_early_boot_failed() {
    for name in ["baremetal-agent.service", "baremetal-agent-register.service"] {
        let unit = Unit::read(name);
        unit.assert_has("Unit", "After", &[BOOT, "network-online.target"]);
        unit.assert_has("Unit", "Wants", &["network-online.target"]);
        for key in ["Requires", "Requisite", "BindsTo", "PartOf"] {
            assert!(!unit.words("Unit", key).contains(&BOOT), "{name}: {key}");
        }
        unit.assert_is("Unit", "StartLimitIntervalSec", &["0"]);
        unit.assert_is("Install", "WantedBy", &["multi-user.target"]);
    }
    Unit::read("baremetal-agent.service").assert_has("Unit", "Wants", &[BOOT]);
    Unit::read("baremetal-agent.service").assert_is("Service", "Restart", &["always"]);
}

#[test]
fn early_boot_precedes_all_readers() {
    let boot = Unit::read(BOOT);
    let readers =
        ["cloud-init-main.service", "cloud-init-local.service", "containerd.service", "kubelet.service"];
    boot.assert_has("Unit", "Before", &readers);
    boot.assert_has("Unit", "Before", &["sysinit.target"]);
    boot.assert_is("Unit", "DefaultDependencies", &["no"]);
    let mut mounts = distribution::mounted_directories();
    mounts.extend(["/var/lib/baremetal-agent", "/var/lib/cloud"]);
    mounts.sort_unstable();
    let mut waited = boot.words("Unit", "RequiresMountsFor");
    waited.sort_unstable();
    assert_eq!(waited, mounts, "early boot waits for the mounts of the table");
    boot.assert_is("Service", "Type", &["oneshot"]);
    boot.assert_is("Install", "WantedBy", &["sysinit.target"]);
    let state = Unit::read("var-lib-baremetal\\x2dagent.mount");
    state.assert_has("Unit", "Before", &[BOOT]);
    state.assert_is("Mount", "Where", &["/var/lib/baremetal-agent"]);
}

#[test]
fn a_node_starts_through_the_gate_alone() {
    let gate = Unit::read("baremetal-agent-gate.conf");
    gate.assert_is("Unit", "After", &[BOOT]);
    gate.assert_is("Unit", "ConditionPathExists", &["/run/baremetal-agent/node-may-start"]);
    let read = |path: &str| fs::read_to_string(checkout(path)).unwrap();
    assert!(read("agent/src/ground/paths.rs").contains(".join(\"node-may-start\")"));
    let text = read("systemd/baremetal-agent-gate.conf");
    for unit in distribution::units() {
        assert!(text.contains(unit), "the gate's comment names {unit}");
    }
    let layer = read("iso/layer.sh");
    assert!(layer.contains("for unit in kubelet containerd; do\n"), "gates of the lab's image");
    assert!(layer.contains("$unit.service.d/20-baremetal-agent.conf\"\n"), "gates of the lab's image");
    assert!(layer.contains("/usr/libexec/elemental-checker/baremetal-agent\"\n"), "the checker");
}

#[test]
fn restart_pauses_are_those_of_every_systemd() {
    for entry in fs::read_dir(checkout("systemd")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let settings: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        for key in ["RestartSteps=", "RestartMaxDelaySec=", "RestartMode="] {
            let found = settings.iter().find(|line| line.starts_with(key));
            assert!(found.is_none(), "{}: systemd before 254 ignores {found:?}", path.display());
        }
    }
}

#[test]
fn images_keep_time_by_network() {
    // Debian enables it where it is installed.
    let packages = fs::read_to_string(checkout("iso/packages.guest")).unwrap();
    assert!(packages.lines().any(|line| line == "systemd-timesyncd"), "{packages}");
    let layer = fs::read_to_string(checkout("iso/layer.sh")).unwrap();
    assert!(!layer.contains("timesyncd"), "it is disabled or masked");
}

#[test]
fn every_unit_is_enabled_in_the_image() {
    let layer = fs::read_to_string(checkout("iso/layer.sh")).unwrap();
    let (_, enabled) = layer.rsplit_once("\nenable ").unwrap();
    let enabled = enabled.split("\n\n").next().unwrap();
    for entry in fs::read_dir(checkout("systemd")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let stem = name.strip_suffix(".service").map(|name| name.trim_end_matches('@'));
        assert!(stem.is_none_or(|stem| enabled.contains(stem)), "{name} is not enabled");
    }
}

#[test]
fn sandboxes_leave_open_what_is_written() {
    let register = Unit::read("baremetal-agent-register.service");
    // It makes /sys read-only, whose efivars have the boot order.
    register.assert_is("Service", "ProtectKernelTunables", &["yes"]);
    register.assert_is("Service", "ReadWritePaths", &["-/sys/firmware/efi/efivars"]);
    let agent = Unit::read("baremetal-agent.service");
    agent.assert_is("Service", "ProtectSystem", &["strict"]);
    agent.assert_has("Service", "ReadWritePaths", &["/var/lib/baremetal-agent", "/run"]);
    // A path without a dash that is missing is 226/NAMESPACE: the agent would not start at all.
    let made = agent.words("Service", "ExecStartPre");
    for path in agent.words("Service", "ReadWritePaths") {
        let exists = ["/var/lib/baremetal-agent", "/var/log", "/run"].contains(&path);
        assert!(exists || path.starts_with('-'), "{path} may be missing");
    }
    let is_below = |path: &str, words: &[&str]| {
        words.iter().any(|word| std::path::Path::new(path).starts_with(word.trim_start_matches('-')))
    };
    let cleaned = distribution::cleaned_directories().into_iter().chain(["/var/lib/cloud"]);
    for path in cleaned.filter(|path| !path.starts_with("/run/")) {
        assert!(is_below(path, &made), "{path} is not made before the agent starts");
        assert!(is_below(path, &agent.words("Service", "ReadWritePaths")), "{path} is read-only");
    }
    agent.assert_has("Service", "DeviceAllow", &["char-tpm"]);
    let alive = Unit::read("baremetal-agent-alive.service");
    alive.assert_has("Service", "ReadWritePaths", &["/var/lib/baremetal-agent", "/run", "/proc/sys/net"]);
}
