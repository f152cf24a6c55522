//! The hosts at the switch.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ::guest::Guest;
use ::qemu::HostConfig;
use anyhow::{Context as _, ensure};
use coordinator_api::inventory::MachineInventory;
use kube::Api;

use super::apply_examples;
use crate::host::{Hardware, HostKind};
use crate::lifecycle::{NAMESPACE, await_attached};
use crate::progress::Progress;
use crate::seed;
use crate::site::Site;
use crate::switch;

/// Numbers of the hosts in the pool of control planes: the first one taken, the
/// spare one, and one that only a control plane of three needs.
pub(super) const CONTROL_PLANES: [u8; 3] = [1, 2, 4];
/// Number of the host that replaces a lost one of three.
pub(super) const REPLACEMENT: u8 = 5;
/// Number of the worker's host.
pub(super) const WORKER: u8 = 3;
/// kube-apiserver, etcd and the rest take one; containerd's store is on the disk.
const CONTROL_PLANE_MIB: u32 = 3072;
const WORKER_MIB: u32 = 2048;
/// The code of six large Go programs, which otherwise is translated all the time.
const TRANSLATIONS_MIB: u32 = 1024;
/// From power-on to the installed system.
const REGISTRATION: Duration = Duration::from_mins(30);
const SCRIPT: Duration = Duration::from_mins(3);
/// Prints addresses, links, routes, IPVS, rules of the packet filter, and mounts.
const KERNEL_STATE: &str = "ip -oneline address show | awk '{ print \"address\", $2, $4 }'; \
    ip -oneline link show | awk '{ print \"link\", $2 }'; ip route show table all; ip rule show; \
    sed 1,3d /proc/net/ip_vs 2>/dev/null; nft list ruleset; findmnt --raw --noheadings --output TARGET,FSTYPE";
/// Port of the API servers and of the endpoint.
pub(super) const API_PORT: u16 = 6443;

/// The hosts; they run until it is dropped.
pub struct Hosts<'a> {
    site: &'a Site,
    progress: &'a Arc<Progress>,
    iso: PathBuf,
    images: PathBuf,
    kind: HostKind,
    cpus: u8,
    running: Vec<(String, Guest)>,
    /// Kernel state of each host by its inventory, before the host carried a node.
    bare: BTreeMap<String, String>,
}

impl<'a> Hosts<'a> {
    /// None yet, of `count` at most; the seed ISO based on `base` is made. `images` is the
    /// disk with the OS images.
    pub async fn create(
        site: &'a Site,
        progress: &'a Arc<Progress>,
        base: &str,
        images: &Path,
        (kind, count): (HostKind, usize),
    ) -> anyhow::Result<Self> {
        let iso = create_seed(site, progress, (base, kind)).await?;
        let cpus = cpus_of_each(count, thread::available_parallelism()?.get());
        Ok(Self {
            site,
            progress,
            iso,
            images: images.to_owned(),
            kind,
            cpus,
            running: vec![],
            bare: BTreeMap::new(),
        })
    }

    /// More of them boot the ISO, install and attach.
    pub async fn register(&mut self, numbers: &[u8]) -> anyhow::Result<()> {
        let taps: Vec<_> = numbers.iter().copied().map(tap).collect();
        let what = "boot of the ISO, registration, installation, until it is attached";
        self.progress.step(&format!("{}: {what}", taps.join(", ")));
        let api: Api<MachineInventory> = Api::namespaced(self.site.management.admin.clone(), NAMESPACE);
        let mut started = vec![];
        for number in numbers {
            let hardware = self.configure(*number);
            let name = format!("rack-a-{}", hardware.uuid());
            self.running.push((name.clone(), hardware.start().await?));
            started.push(name);
        }
        for name in started {
            await_attached(&api, &name, REGISTRATION).await?;
            let state = self.run_on(self.find_number(&name)?, KERNEL_STATE).await?;
            self.bare.insert(name, state);
        }
        Ok(())
    }

    fn configure(&self, number: u8) -> Hardware {
        let tap = tap(number);
        let directory = self.site.directory.path().join(&tap);
        let memory_mib = if number == WORKER { WORKER_MIB } else { CONTROL_PLANE_MIB };
        let mut hardware = match self.kind {
            HostKind::Qemu => {
                let mut config = HostConfig::new(&tap, &directory, number).at_taps(&[&tap]);
                config.translations_mib = TRANSLATIONS_MIB;
                config.cpus = self.cpus;
                config.memory_mib = memory_mib;
                Hardware::Qemu(Box::new(config))
            }
            HostKind::Uml => {
                let mut config = uml::HostConfig::new(&tap, &directory, number, &[&tap]);
                config.memory_mib = memory_mib;
                Hardware::Uml(config)
            }
        };
        hardware.set_images(&self.images);
        hardware.set_cd(&self.iso);
        hardware
    }

    /// Runs commands as root on one.
    pub(super) async fn run_on(&self, number: u8, script: &str) -> anyhow::Result<String> {
        run(&self.running[self.find_running(number)?].1, script).await
    }

    /// Name of the inventory of one.
    pub(super) fn inventory(&self, number: u8) -> anyhow::Result<&str> {
        Ok(&self.running[self.find_running(number)?].0)
    }

    /// Number of the host with an inventory of this name.
    pub(super) fn find_number(&self, inventory: &str) -> anyhow::Result<u8> {
        let mut numbers = CONTROL_PLANES.into_iter().chain([REPLACEMENT, WORKER]);
        let found = numbers.find(|number| self.inventory(*number).is_ok_and(|name| name == inventory));
        found.with_context(|| format!("{inventory} is no host of the lab"))
    }

    /// Its place among those that run.
    fn find_running(&self, number: u8) -> anyhow::Result<usize> {
        let tap = tap(number);
        let found = self.running.iter().position(|(_, host)| host.name() == tap);
        found.with_context(|| format!("{tap} does not run"))
    }

    /// Cuts the power of one, or gives it back.
    pub(super) async fn set_power(&mut self, number: u8, is_on: bool) -> anyhow::Result<()> {
        let place = self.find_running(number)?;
        let host = &mut self.running[place].1;
        if is_on {
            host.power_on().await?;
        } else {
            host.power_cut().await;
        }
        Ok(())
    }

    pub fn names(&self) -> Vec<String> {
        self.running.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Whether each has run an image that carries a node.
    pub(super) async fn carried(&self) -> anyhow::Result<Vec<bool>> {
        let mut carried = vec![];
        for (_, host) in &self.running {
            let image = run(host, "sed -n 's/^IMAGE_TAG=//p' /etc/os-release").await?;
            carried.push(!image.contains("live"));
        }
        Ok(carried)
    }

    /// Looks for what a control plane and a node leave.
    pub(super) async fn check_clean(&self) -> anyhow::Result<()> {
        let script = "find /etc/kubernetes /var/lib/kubelet /var/lib/etcd -mindepth 1 2>/dev/null; \
            grep -sE 'provider-id|metal3.io/uuid' /etc/default/kubelet; \
            pgrep -a -x 'etcd|kube-apiserver|kube-controller|kube-scheduler|kubelet|containerd|containerd-shim|pause' \
            || test $? -eq 1";
        for (name, host) in &self.running {
            let left = run(host, script).await?;
            ensure!(left.trim().is_empty(), "something of the node is left on {name}:\n{left}");
            let bare = self.bare.get(name).with_context(|| format!("{name} was never seen bare"))?;
            let state = run(host, KERNEL_STATE).await?;
            let more = find_more(bare, &state);
            ensure!(more.is_empty(), "{name} holds kernel state of the node:\n{}", more.join("\n"));
        }
        Ok(())
    }

    /// Numbers of the control planes that have an address.
    pub(super) async fn list_holders(&self, address: &str) -> anyhow::Result<Vec<u8>> {
        let script = format!("ip -o -4 address show to {address}/32");
        let mut holders = vec![];
        for number in CONTROL_PLANES.into_iter().chain([REPLACEMENT]) {
            let is_on = self.find_running(number).is_ok_and(|place| self.running[place].1.is_on());
            // A host that is off holds nothing.
            if is_on && !self.run_on(number, &script).await?.trim().is_empty() {
                holders.push(number);
            }
        }
        Ok(holders)
    }

    /// What each host says of kubeadm and of its pods, for errors.
    pub async fn explain(&self) -> String {
        let script = "tail -n 60 /var/log/cloud-init-output.log; systemctl --failed --no-legend; \
            journalctl --no-pager -q -u kubelet -u containerd -u control-plane-images -n 40; \
            tail -qn 5 /var/log/pods/*/*/*.log; free -m; uptime";
        let mut said = String::new();
        for (name, host) in &self.running {
            let output = host.exec_within(&["sh", "-c", script], SCRIPT).await;
            let output = output.map_or_else(|error| error.to_string(), |output| output.stdout);
            said = format!("{said}\n=== {name}\n{output}");
        }
        said
    }

    /// Where their consoles are.
    pub fn consoles(&self) -> Vec<PathBuf> {
        self.running.iter().map(|(_, host)| host.console()).collect()
    }
}

/// Where the hosts are plugged in.
pub fn taps() -> Vec<String> {
    CONTROL_PLANES.into_iter().chain([REPLACEMENT, WORKER]).map(tap).collect()
}

/// Where the API server of a host listens.
pub(super) fn api_server(number: u8) -> SocketAddr {
    let [a, b, c, _] = switch::ADDRESS.octets();
    SocketAddr::from((Ipv4Addr::new(a, b, c, 10 + number), API_PORT))
}

/// Pulls the cable of a host, or plugs it in again.
pub(super) fn set_plugged(number: u8, is_plugged: bool) -> anyhow::Result<()> {
    switch::set_plugged(&tap(number), is_plugged)
}

fn tap(number: u8) -> String {
    format!("host{number}")
}

/// CPUs of a host. Where many share them, one: of two, the one that is run waits for locks of the other.
fn cpus_of_each(hosts: usize, available: usize) -> u8 {
    if hosts >= 2 * available { 1 } else { 2 }
}

/// Lines of `state` that are not in `bare`.
fn find_more<'a>(bare: &str, state: &'a str) -> Vec<&'a str> {
    let known: BTreeSet<_> = bare.lines().collect();
    state.lines().filter(|line| !known.contains(line)).collect()
}

/// Runs commands as root, as soon as the guest agent answers: a host may boot at any time.
async fn run(host: &Guest, script: &str) -> anyhow::Result<String> {
    host.wait_for_boot(1, SCRIPT).await?;
    let output = host.exec_within(&["sh", "-c", script], SCRIPT).await?;
    ensure!(output.code == 0, "`{script}` ended with {}: {}{}", output.code, output.stdout, output.stderr);
    Ok(output.stdout)
}

/// The registration and the seed image of docs/examples/ become an ISO.
async fn create_seed(
    site: &Site,
    progress: &Progress,
    (base, kind): (&str, HostKind),
) -> anyhow::Result<PathBuf> {
    progress.step("the examples are applied: a MachineRegistration and a SeedImage become an ISO");
    apply_examples(site, "registration", &[("BASE", base), ("DEVICE", kind.system_device())]).await?;
    seed::download(site, NAMESPACE, "rack-a", progress).await
}
