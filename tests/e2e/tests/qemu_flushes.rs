//! A power cut at the flushes of an OS switch, and of the boot after it that wipes the former node, on
//! a real host: the former system or the new one comes up, never neither, with the agent and what the
//! host is known by.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ::guest::{PowerState, Stop};
use ::qemu::{HostConfig, Qemu, WriteLog};
use e2e::guest_site::GuestSite;
use e2e::host::GuestHost;
use e2e::lifecycle::Lifecycle;
use kube::ResourceExt as _;

const LONG: Duration = Duration::from_mins(12);
/// Flushes after the command, at most.
const LATER: usize = 20;
/// Flushes of the boot that wipes.
const FIRST: usize = 12;
/// Logs of the two boots.
const SWITCH: &str = "switch.log";
const WIPE: &str = "wipe.log";
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
    kubelet: String,
    /// `witness` or `clean`: a file of the former node.
    node: String,
    /// `now`, `before` or `never`: the boot that wiped the former node.
    wiped: String,
}

impl Seen {
    /// `None` until the agent runs.
    fn parse(output: &str) -> Option<Self> {
        let lines: Vec<_> = output.lines().map(str::to_owned).collect();
        let [mode, image, agent, kubelet, identity, node, wiped] = <[String; 7]>::try_from(lines).ok()?;
        let runs = agent == "active" && identity == "identified";
        runs.then_some(Self { mode, image, kubelet, node, wiped })
    }

    /// In the switch: the former node is as it was and does not run, or it was wiped, which the new
    /// system alone does: one that was not rebooted into by its plan holds.
    fn check_switch(&self) {
        let is_held = self.node == "witness" && self.wiped == "never" && self.kubelet == "inactive";
        let is_wiped = self.node == "clean" && self.wiped != "never";
        match self.image.as_str() {
            FORMER => assert!(is_held, "{self:?}"),
            NEW => assert!(is_held || is_wiped, "{self:?}"),
            _ => panic!("{self:?}"),
        }
    }

    /// In the boot that wipes: where the boot loader goes back to the former system, which it does
    /// unless the new one was found good, the wipe may have begun, and nothing of the node runs.
    fn check_wipe(&self) {
        let is_wiped = self.node == "clean" && self.wiped != "never";
        match self.image.as_str() {
            FORMER => assert_eq!(self.kubelet, "inactive", "{self:?}"),
            NEW => assert!(is_wiped, "{self:?}"),
            _ => panic!("{self:?}"),
        }
    }
}

/// Puts markers into the log of writes, around the OS switch, and leaves a file of a former node.
async fn prepare_host(host: &GuestHost) {
    let script = format!(
        "mv /usr/bin/elemental /usr/bin/elemental.marked; cat > /usr/bin/elemental <<'END'\n\
         #!/bin/sh\n\
         mark() {{ echo {MARKER} $1 > /var/lib/baremetal-agent/$1; sync /var/lib/baremetal-agent/$1; }}\n\
         [ \"$1\" != upgrade ] || mark begins\n\
         /usr/bin/elemental.marked \"$@\"; code=$?\n\
         [ \"$1\" != upgrade ] || mark ends\n\
         exit $code\n\
         END\nchmod 0755 /usr/bin/elemental; mkdir -p /var/lib/kubelet; echo > /var/lib/kubelet/witness"
    );
    host.inside(&script).await.unwrap();
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["--recursive", "--sparse=always"]).args([from, to]).status();
    assert!(copied.unwrap().success(), "{} is not copied", from.display());
}

/// Powers off an installed host, copies it to `directory`, and records the boot in which it switches
/// to another image, and the one after it; the host as it was before, with the logs beside it.
async fn record_boots(site: GuestSite, directory: &Path) -> HostConfig {
    let GuestSite { environment, mut host, base, progress, watching: _watching, .. } = site;
    let mut lifecycle = Lifecycle::new(&environment, &mut host, progress.clone());
    let iso = lifecycle.create_seed(&base).await.unwrap();
    let inventory = lifecycle.register(&iso).await.unwrap();
    progress.step("an installed host is powered off and copied");
    let qemu = lifecycle.guest().unwrap();
    let mut config = qemu.qemu_config().unwrap().clone();
    let machine = qemu.running_mut().unwrap();
    let _ = machine.exec(&["systemctl", "--no-block", "poweroff"]).await;
    assert_eq!(machine.wait_for_off(LONG).await.unwrap(), Stop::PowerOff);
    for name in ["system.raw", "uefi-variables.fd", "tpm"] {
        copy(&config.directory.join(name), &directory.join(name));
    }
    qemu.qemu().unwrap().record_next_boot(&directory.join(SWITCH)).unwrap();
    let machine = qemu.running_mut().unwrap();
    machine.power_on().await.unwrap();
    let PowerState::On(boot) = machine.state() else { panic!("{:?}", machine.state()) };
    machine.wait_for_boot(boot, LONG).await.unwrap();
    prepare_host(qemu).await;
    qemu.qemu().unwrap().record_next_boot(&directory.join(WIPE)).unwrap();
    lifecycle.apply_cluster(&[inventory.name_any()], 1).await.unwrap();
    progress.step("the OS switch and the boot after it are recorded");
    let machine = lifecycle.guest().unwrap().running_mut().unwrap();
    machine.wait_for_boot(boot + 1, LONG).await.unwrap();
    machine.power_cut().await;
    progress.end();
    config.directory = directory.to_owned();
    config.cd = None;
    config.keeps_writes = false;
    // Where kernels of two processors patch their own code, QEMU's emulation hangs some of them.
    config.cpus = 1;
    config
}

/// Boots once, without a coordinator, and forgets what that wrote.
async fn boot(config: &HostConfig) -> Seen {
    let mut host = Qemu::start(config.clone()).await.unwrap();
    host.wait_for_boot(1, LONG).await.unwrap();
    let script = "cd /run/elemental; ls -d *_mode; . /etc/os-release; echo $IMAGE_TAG; \
        systemctl is-active baremetal-agent; systemctl is-active kubelet; cd /var/lib/baremetal-agent; \
        test -s install.json && test -s identity/key.pem && echo identified; \
        if test -e /var/lib/kubelet/witness; then echo witness; else echo clean; fi; \
        if ! test -s cleanup-receipt.json; then echo never; \
        elif grep -q $(cat /proc/sys/kernel/random/boot_id) cleanup-receipt.json; then echo now; \
        else echo before; fi";
    let run = async || {
        let output = host.exec_within(&["sh", "-c", script], LONG).await;
        let output = output.map_err(|error| error.to_string())?.stdout;
        Seen::parse(&output).ok_or(output)
    };
    let seen = host.wait_until("agent that knows its host", LONG, run).await.unwrap();
    host.power_cut().await;
    seen
}

/// Boots the disk as it was at each of these flushes.
async fn boot_at(
    config: &HostConfig,
    log: &WriteLog,
    flushes: Vec<usize>,
    check: fn(&Seen),
) -> BTreeMap<Seen, usize> {
    let disk = File::options().write(true).open(config.system_disk()).unwrap();
    let (mut from, mut boots) = (0, BTreeMap::new());
    for flush in flushes {
        log.replay(from..flush, &disk).unwrap();
        from = flush;
        let seen = boot(config).await;
        eprintln!("power cut at entry {flush}: {seen:?}");
        check(&seen);
        *boots.entry(seen).or_default() += 1;
    }
    boots
}

/// All flushes while the command runs, and of those until the host reboots [`LATER`] at equal
/// distances, the last among them: each takes a boot.
fn choose_flushes(flushes: &[usize], ends: usize) -> Vec<usize> {
    let (within, after) = flushes.split_at(flushes.partition_point(|flush| *flush < ends));
    let count = after.len().min(LATER);
    let later = (1..=count).filter_map(|number| after.get(number * after.len() / count - 1));
    within.iter().chain(later).copied().collect()
}

// Fault: power is lost at a flush of the OS switch.
// Shown: nothing: the former system or the new one boots, and the agent runs.
// Fault: power is lost while the former node is wiped.
// Shown: nothing where the new system boots again, which wipes it; else the plan fails: `BootFallback`, and nothing of the node runs.
#[tokio::test(flavor = "multi_thread")]
async fn os_switch_survives_power_cuts_at_flushes() {
    let directory = tempfile::tempdir().unwrap();
    let config = Box::pin(record_boots(GuestSite::start().await.unwrap(), directory.path())).await;
    let read = |name: &str| WriteLog::read(&directory.path().join(name)).unwrap();
    let (switch, wipe) = (read(SWITCH), read(WIPE));
    let find = |word: &str| switch.find(format!("{MARKER} {word}").as_bytes()).unwrap().unwrap();
    let (all, ends) = (switch.flushes_from(find("begins")), find("ends"));
    let flushes = choose_flushes(&all, ends);
    let within = flushes.iter().filter(|flush| **flush < ends).count();
    eprintln!("{} of {} flushes, {within} of them while the command runs", flushes.len(), all.len());
    assert!(flushes.len() >= 20 && within > 0);
    let last = flushes.last().copied();
    let boots = boot_at(&config, &switch, flushes, Seen::check_switch).await;
    eprintln!("{boots:#?}");
    let count = |image: &str| boots.keys().filter(|seen| seen.image == image).count();
    assert!(count(FORMER) > 0 && count(NEW) > 0, "the switch is not between these flushes");
    // What follows the last flush is lost, and the next boot begins.
    let disk = File::options().write(true).open(config.system_disk()).unwrap();
    switch.replay(last.unwrap_or_default()..usize::MAX, &disk).unwrap();
    let flushes: Vec<_> = wipe.flushes_from(0).into_iter().take(FIRST).collect();
    let boots = boot_at(&config, &wipe, flushes, Seen::check_wipe).await;
    eprintln!("{boots:#?}");
    let count = |node: &str| boots.keys().filter(|seen| seen.node == node).count();
    assert!(count("witness") > 0 && count("clean") > 0, "the wipe is not between these flushes");
}
