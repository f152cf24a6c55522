//! Delivers the agent if the image does not carry it: the agent's own file on the persistent
//! partition, and its units in `/run`, which Elemental's yip writes at each boot.
//!
//! An image with `/usr/bin/baremetal-agent` uses its own agent.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proto::distribution;

use crate::ground::durable;
use crate::ground::failure::{Context as _, Failure, OnPath as _};
use crate::ground::paths::{Root, StateDir};

/// The path in the units of an image that carries the agent.
const CARRIED: &str = "/usr/bin/baremetal-agent";

/// The template of the units that show the page on a terminal.
const PAGE: &str = "baremetal-agent-console@.service";
/// A live system shows the page on the first visible terminal. All other terminals, and an
/// installed system, keep the login of the image.
const LIVE_PAGE: &str = "baremetal-agent-console@tty1.service";

const UNITS: [(&str, &str); 6] = [
    ("baremetal-agent-alive.service", include_str!("../../../systemd/baremetal-agent-alive.service")),
    ("baremetal-agent-boot.service", include_str!("../../../systemd/baremetal-agent-boot.service")),
    (PAGE, include_str!("../../../systemd/baremetal-agent-console@.service")),
    ("baremetal-agent-register.service", include_str!("../../../systemd/baremetal-agent-register.service")),
    ("baremetal-agent.service", include_str!("../../../systemd/baremetal-agent.service")),
    ("var-lib-baremetal\\x2dagent.mount", include_str!("../../../systemd/var-lib-baremetal\\x2dagent.mount")),
];

/// The drop-in that makes the units of a node wait for early boot.
const GATE: &str = include_str!("../../../systemd/baremetal-agent-gate.conf");

/// The directory of the assessment's checkers is read-only, so the assessment asks the agent before
/// it starts them.
const ASSESSED: &str = "# The agent takes part in the boot assessment.\n[Service]\nExecStartPre=/usr/bin/baremetal-agent check\n";

/// The units of upstream's agents are disabled, because they have no management server here.
const REPLACED: &str =
    "# In their place: baremetal-agent.\n[Unit]\nConditionPathExists=/run/baremetal-agent/never\n";
const REPLACED_UNITS: [&str; 3] =
    ["elemental-register-install", "elemental-register", "elemental-system-agent"];

/// Elemental copies this cloud-config to `/oem`, and its yip runs it before the system starts, at
/// each boot and with each image.
const CLOUD_CONFIG: &str = "\
name: Bare-metal agent
stages:
  initramfs:
  - name: Lay the units of the agent into a system that does not carry it
    if: '[ ! -x /usr/bin/baremetal-agent ] && [ -x /run/elemental/persistent/baremetal-agent/bin/baremetal-agent ]'
    commands:
    - /run/elemental/persistent/baremetal-agent/bin/baremetal-agent units
";

/// Writes the units, which run `program`, and enables them.
pub fn write_units(root: &Root, program: &Path) -> Result<(), Failure> {
    let directory = root.join("/run/systemd/system");
    for (name, text) in UNITS {
        let text = text.replace(CARRIED, &program.display().to_string());
        write_file(&directory.join(name), &text)?;
        let enabled = match name {
            PAGE => root.live_config().exists().then_some(LIVE_PAGE),
            _ => Some(name),
        };
        for target in text.lines().filter_map(|line| line.strip_prefix("WantedBy=")) {
            enabled.map_or(Ok(()), |enabled| enable_unit(&directory, name, enabled, target))?;
        }
    }
    for unit in distribution::units() {
        write_file(&directory.join(format!("{unit}.service.d/20-baremetal-agent.conf")), GATE)?;
    }
    let assessed = ASSESSED.replace(CARRIED, &program.display().to_string());
    write_file(&directory.join("elemental-boot-assessment.service.d/20-baremetal-agent.conf"), &assessed)?;
    for unit in REPLACED_UNITS {
        write_file(&directory.join(format!("{unit}.service.d/20-baremetal-agent.conf")), REPLACED)?;
    }
    Ok(())
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    if let Some(parent) = path.parent() {
        durable::create_directory_with_mode(parent, 0o755)?;
    }
    durable::write_with_mode(path, text.as_bytes(), durable::PUBLIC)
}

/// `enabled` is the unit itself, or an instance of the template `name`.
fn enable_unit(directory: &Path, name: &str, enabled: &str, target: &str) -> Result<(), Failure> {
    let wants = directory.join(format!("{target}.wants"));
    durable::create_directory_with_mode(&wants, 0o755)?;
    let path = wants.join(enabled);
    match symlink(Path::new("..").join(name), &path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked.on("enable the unit", &path),
    }
}

/// Copies the running agent to the persistent partition.
pub fn keep_program(root: &Root, state: &StateDir) -> Result<(), Failure> {
    let path = root.join("/proc/self/exe");
    // A simulated host has no processes.
    let Some(program) = durable::read(&path).context("cannot read the agent's own file")? else {
        return Ok(());
    };
    let kept = state.program();
    if let Some(parent) = kept.parent() {
        durable::create_directory(parent)?;
    }
    durable::write_with_mode(&kept, &program, 0o755).context("cannot leave the agent on this system")
}

/// Writes the file for `elemental install --cloud-init`.
pub fn write_cloud_config(root: &Root) -> Result<PathBuf, Failure> {
    let path = root.runtime().join("baremetal-agent.yaml");
    write_file(&path, CLOUD_CONFIG)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn units_run_the_program_and_are_enabled() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let program = Path::new("/run/elemental/persistent/baremetal-agent/bin/baremetal-agent");
        // At the second boot of a system that keeps /run over a soft reboot, too.
        for _ in 0..2 {
            write_units(&root, program).unwrap();
        }
        let units = root.join("/run/systemd/system");
        for (unit, target, verb) in [
            ("baremetal-agent-boot.service", "sysinit.target", "boot"),
            ("baremetal-agent-register.service", "multi-user.target", "register"),
            ("baremetal-agent.service", "multi-user.target", "run"),
        ] {
            let text = fs::read_to_string(units.join(format!("{target}.wants")).join(unit)).unwrap();
            assert!(text.contains(&format!("ExecStart={} {verb}\n", program.display())), "{unit}: {text}");
            assert!(!text.contains(CARRIED), "{unit}");
        }
        let gate = fs::read_to_string(units.join("kubelet.service.d/20-baremetal-agent.conf")).unwrap();
        assert!(gate.contains("ConditionPathExists=/run/baremetal-agent/node-may-start"), "{gate}");
        let assessed = units.join("elemental-boot-assessment.service.d/20-baremetal-agent.conf");
        let check = format!("[Service]\nExecStartPre={} check\n", program.display());
        assert!(fs::read_to_string(assessed).unwrap().ends_with(&check));
        assert!(units.join("elemental-register-install.service.d/20-baremetal-agent.conf").exists());
        assert!(units.join("var-lib-baremetal\\x2dagent.mount").exists());
    }

    #[test]
    fn page_is_shown_in_live_systems_only() {
        for is_live in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let root = Root::at(directory.path());
            if is_live {
                write_file(&root.live_config(), "").unwrap();
            }
            write_units(&root, Path::new("/run/baremetal-agent/baremetal-agent")).unwrap();
            let units = root.join("/run/systemd/system");
            let text = fs::read_to_string(units.join(PAGE)).unwrap();
            assert!(text.contains("ExecStart=/run/baremetal-agent/baremetal-agent console\n"), "{text}");
            // Where both are wanted, systemd starts the unit that names the conflict.
            assert!(text.contains("Conflicts=getty@%i.service serial-getty@%i.service\n"), "{text}");
            let wants = units.join("multi-user.target.wants");
            assert_eq!(fs::read_to_string(wants.join(LIVE_PAGE)).is_ok(), is_live);
            assert!(!wants.join(PAGE).exists(), "a template is no unit");
        }
    }

    #[test]
    fn running_agent_is_kept_for_installed_system() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        durable::create_directory(root.state().path()).unwrap();
        keep_program(&root, &root.state()).unwrap();
        assert!(!root.state().program().exists(), "there is none");
        fs::create_dir_all(root.join("/proc/self")).unwrap();
        fs::write(root.join("/proc/self/exe"), "agent").unwrap();
        keep_program(&root, &root.state()).unwrap();
        let kept = root.state().program();
        assert_eq!(fs::read_to_string(&kept).unwrap(), "agent");
        assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o755);
        // The place that the cloud-config names, from the partition's root.
        let partition = StateDir::on_persistent_partition(Path::new("/run/elemental/persistent"));
        assert!(CLOUD_CONFIG.contains(&format!("    - {} units\n", partition.program().display())));
        let text = fs::read_to_string(write_cloud_config(&root).unwrap()).unwrap();
        let read: serde_json::Value = serde_norway::from_str(&text).unwrap();
        assert_eq!(read["stages"]["initramfs"][0]["commands"].as_array().unwrap().len(), 1);
    }
}
