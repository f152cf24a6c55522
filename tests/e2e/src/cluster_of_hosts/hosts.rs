//! The QEMU hosts at the switch.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ::qemu::{BootOrder, Host, HostConfig, ImageDisk};
use anyhow::{Context as _, bail, ensure};
use coordinator_api::inventory::MachineInventory;
use kube::Api;

use super::apply_examples;
use crate::lifecycle::{NAMESPACE, await_attached};
use crate::progress::Progress;
use crate::seed;
use crate::site::Site;

/// Numbers of the hosts in the pool of control planes: the first one taken, the
/// spare one, and one that only a control plane of three needs.
pub(super) const CONTROL_PLANES: [u8; 3] = [1, 2, 4];
/// Number of the worker's host.
pub(super) const WORKER: u8 = 3;
/// kube-apiserver, etcd and the rest take one; containerd's store is on the disk.
const CONTROL_PLANE_MIB: u32 = 3072;
/// The code of six large Go programs, which otherwise is translated all the time.
const TRANSLATIONS_MIB: u32 = 1024;
/// From power-on to the installed system.
const REGISTRATION: Duration = Duration::from_mins(30);
const SCRIPT: Duration = Duration::from_mins(3);

/// The hosts; they run until it is dropped.
pub struct Hosts<'a> {
    site: &'a Site,
    progress: &'a Arc<Progress>,
    iso: PathBuf,
    images: PathBuf,
    cpus: u8,
    running: Vec<(String, Host)>,
}

impl<'a> Hosts<'a> {
    /// None yet, of `count` at most; the seed ISO based on `base` is made. `images` is the
    /// disk with the OS images.
    pub async fn create(
        site: &'a Site,
        progress: &'a Arc<Progress>,
        base: &str,
        images: &Path,
        count: usize,
    ) -> anyhow::Result<Self> {
        let iso = create_seed(site, progress, base).await?;
        let cpus = cpus_of_each(count, thread::available_parallelism()?.get());
        Ok(Self { site, progress, iso, images: images.to_owned(), cpus, running: vec![] })
    }

    /// More of them boot the ISO, install and attach.
    pub async fn register(&mut self, numbers: &[u8]) -> anyhow::Result<()> {
        let taps: Vec<_> = numbers.iter().copied().map(tap).collect();
        let what = "boot of the ISO, registration, installation, until it is attached";
        self.progress.step(&format!("{}: {what}", taps.join(", ")));
        let api: Api<MachineInventory> = Api::namespaced(self.site.management.admin.clone(), NAMESPACE);
        let mut started = vec![];
        for number in numbers {
            let config = self.configure(*number);
            let name = format!("rack-a-{}", config.uuid);
            self.running.push((name.clone(), Host::start(config).await?));
            started.push(name);
        }
        for name in started {
            await_attached(&api, &name, REGISTRATION).await?;
        }
        Ok(())
    }

    fn configure(&self, number: u8) -> HostConfig {
        let tap = tap(number);
        let directory = self.site.directory.path().join(&tap);
        let mut config = HostConfig::new(&tap, &directory, number).at_taps(&[&tap]);
        config.translations_mib = TRANSLATIONS_MIB;
        config.cpus = self.cpus;
        if CONTROL_PLANES.contains(&number) {
            config.memory_mib = CONTROL_PLANE_MIB;
        }
        config.images = vec![ImageDisk { serial: "os-images".to_owned(), path: self.images.clone() }];
        config.boot_order = BootOrder::Variables;
        config.cd = Some(self.iso.clone());
        config
    }

    /// Runs commands as root on one.
    pub(super) async fn run_on(&self, number: u8, script: &str) -> anyhow::Result<String> {
        run(&self.running[self.find_running(number)?].1, script).await
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
        }
        Ok(())
    }

    /// The one host that has an address.
    ///
    /// # Errors
    /// When it is not one.
    pub(super) async fn find_holder(&self, address: &str) -> anyhow::Result<&str> {
        let script = format!("ip -o -4 address show to {address}/32");
        let mut holders = vec![];
        for (name, host) in &self.running {
            if !run(host, &script).await?.trim().is_empty() {
                holders.push(name.as_str());
            }
        }
        let [holder] = *holders else { bail!("{address} is held by {holders:?}") };
        Ok(holder)
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
    CONTROL_PLANES.into_iter().chain([WORKER]).map(tap).collect()
}

fn tap(number: u8) -> String {
    format!("host{number}")
}

/// CPUs of a host. Where many share them, one: of two, the one that is run waits for locks of the other.
fn cpus_of_each(hosts: usize, available: usize) -> u8 {
    if hosts >= 2 * available { 1 } else { 2 }
}

async fn run(host: &Host, script: &str) -> anyhow::Result<String> {
    let output = host.exec_within(&["sh", "-c", script], SCRIPT).await?;
    ensure!(output.code == 0, "`{script}` ended with {}: {}{}", output.code, output.stdout, output.stderr);
    Ok(output.stdout)
}

/// The registration and the seed image of docs/examples/ become an ISO.
async fn create_seed(site: &Site, progress: &Progress, base: &str) -> anyhow::Result<PathBuf> {
    progress.step("the examples are applied: a MachineRegistration and a SeedImage become an ISO");
    apply_examples(site, "registration", &[("BASE", base)]).await?;
    seed::download(site, NAMESPACE, "rack-a", progress).await
}
