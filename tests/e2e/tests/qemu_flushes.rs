//! A power cut at each flush of an OS switch, on a real host: the former system or the new one comes
//! up, never neither, with the agent and what the host is known by.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ::qemu::{Host, HostConfig, HostState, Stop, WriteLog};
use e2e::host::Qemu;
use e2e::lifecycle::Lifecycle;
use e2e::qemu_site::QemuSite;
use kube::ResourceExt as _;

const LONG: Duration = Duration::from_mins(12);
/// Image of the base ISO, and that of the plan.
const FORMER: &str = "live";
const NEW: &str = "v1";
/// What the recorded host writes before and after `elemental upgrade`, by its last word.
const MARKER: &str = "witness of the switch:";

/// What a boot shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    mode: String,
    image: String,
}

/// Puts markers into the log of writes, around the OS switch.
async fn mark_upgrades(host: &Qemu) {
    let script = format!(
        "mv /usr/bin/elemental /usr/bin/elemental.marked; cat > /usr/bin/elemental <<'END'\n\
         #!/bin/sh\n\
         mark() {{ echo {MARKER} $1 > /var/lib/baremetal-agent/$1; sync /var/lib/baremetal-agent/$1; }}\n\
         [ \"$1\" != upgrade ] || mark begins\n\
         /usr/bin/elemental.marked \"$@\"; code=$?\n\
         [ \"$1\" != upgrade ] || mark ends\n\
         exit $code\n\
         END\nchmod 0755 /usr/bin/elemental"
    );
    host.inside(&script).await.unwrap();
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["--recursive", "--sparse=always"]).args([from, to]).status();
    assert!(copied.unwrap().success(), "{} is not copied", from.display());
}

/// Powers off an installed host, copies it to `directory`, and records the boot in which it switches
/// to another image; the host as it was before, with the log beside it.
async fn record_switch(site: QemuSite, directory: &Path) -> HostConfig {
    let QemuSite { environment, mut host, base, progress, watching: _watching, .. } = site;
    let mut lifecycle = Lifecycle::new(&environment, &mut host, progress.clone());
    let iso = lifecycle.create_seed(&base).await.unwrap();
    let inventory = lifecycle.register(&iso).await.unwrap();
    progress.step("an installed host is powered off and copied");
    let qemu = lifecycle.qemu().unwrap();
    let mut config = qemu.config().clone();
    let machine = qemu.host_mut().unwrap();
    let _ = machine.exec(&["systemctl", "--no-block", "poweroff"]).await;
    assert_eq!(machine.wait_for_off(LONG).await.unwrap(), Stop::PowerOff);
    for name in ["system.raw", "uefi-variables.fd", "tpm"] {
        copy(&config.directory.join(name), &directory.join(name));
    }
    machine.record_next_boot(&directory.join("writes.log")).unwrap();
    machine.power_on().await.unwrap();
    let HostState::On(boot) = machine.state() else { panic!("{:?}", machine.state()) };
    machine.wait_for_boot(boot, LONG).await.unwrap();
    mark_upgrades(qemu).await;
    lifecycle.apply_cluster(&[inventory.name_any()], 1).await.unwrap();
    progress.step("the OS switch is recorded");
    let machine = lifecycle.qemu().unwrap().host_mut().unwrap();
    machine.wait_for_boot(boot + 1, LONG).await.unwrap();
    machine.power_cut().await;
    progress.end();
    config.directory = directory.to_owned();
    config.cd = None;
    config.keeps_writes = false;
    config
}

/// Boots once, without a coordinator, and forgets what that wrote.
async fn boot(config: &HostConfig) -> Seen {
    let mut host = Host::start(config.clone()).await.unwrap();
    host.wait_for_boot(1, LONG).await.unwrap();
    let script = "cd /run/elemental; ls -d *_mode; . /etc/os-release; echo $IMAGE_TAG; \
        systemctl is-active baremetal-agent; systemctl is-active kubelet; \
        cd /var/lib/baremetal-agent; test -s install.json && test -s identity/key.pem && echo identified";
    let run = async || {
        let output = host.exec_within(&["sh", "-c", script], LONG).await;
        let output = output.map_err(|error| error.to_string())?.stdout;
        match output.lines().collect::<Vec<_>>()[..] {
            [mode, image, "active", "inactive", "identified"] => {
                Ok(Seen { mode: mode.to_owned(), image: image.to_owned() })
            }
            _ => Err(output),
        }
    };
    let seen = host.wait_until("agent that knows its host", LONG, run).await.unwrap();
    host.power_cut().await;
    seen
}

// Fault: power is lost at a flush of the OS switch.
// Shown: nothing: the former system or the new one boots, and the agent runs.
// Seen: console
#[tokio::test(flavor = "multi_thread")]
async fn os_switch_survives_power_cuts_at_flushes() {
    let directory = tempfile::tempdir().unwrap();
    let config = record_switch(QemuSite::start().await.unwrap(), directory.path()).await;
    let log = WriteLog::read(&directory.path().join("writes.log")).unwrap();
    let find = |word: &str| log.find(format!("{MARKER} {word}").as_bytes()).unwrap().unwrap();
    let (begins, ends) = (find("begins"), find("ends"));
    let flushes = log.flushes_from(begins);
    let within = flushes.iter().filter(|flush| **flush < ends).count();
    eprintln!("{} flushes, {within} of them while the command runs", flushes.len());
    assert!(flushes.len() >= 20 && within > 0);
    let disk = File::options().write(true).open(config.system_disk()).unwrap();
    let mut all: BTreeMap<Seen, usize> = BTreeMap::new();
    let (mut from, mut last) = (0, None);
    for flush in flushes {
        log.replay(from..flush, &disk).unwrap();
        from = flush;
        let seen = boot(&config).await;
        eprintln!("power cut at entry {flush}: {} {}", seen.mode, seen.image);
        assert!([FORMER, NEW].contains(&seen.image.as_str()), "{seen:?}");
        *all.entry(seen.clone()).or_default() += 1;
        last = Some(seen);
    }
    eprintln!("{all:?}");
    assert!(all.keys().any(|seen| seen.image == FORMER), "the switch was over at its first flush");
    assert_eq!(last.unwrap().image, NEW, "the switch is not flushed when the host reboots");
}
