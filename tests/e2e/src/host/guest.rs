//! A host that is a guest of this machine: in QEMU or in User Mode Linux.

use std::path::Path;
use std::time::Duration;

use std::sync::Arc;

use ::guest::{Guest, Image as ImageFile, ImageInputs};
use ::qemu::{DataDisk, HostConfig, Qemu};
use anyhow::{Context as _, bail, ensure};
use async_trait::async_trait;

use super::disk_search::{Secret, find_secrets};
use super::hardware::Hardware;
use super::{Host, Image};
use crate::environment::{Environment, GUEST_API, GUEST_COORDINATOR, GUEST_GATEWAY};
use crate::switch;

/// A guest with two NICs, a disk, and the OS images on another.
pub struct GuestHost {
    hardware: Hardware,
    guest: Option<Guest>,
    qemu: Option<Arc<Qemu>>,
    network: &'static [Look],
}

/// What a command says inside a host whose network is as it should be.
struct Look {
    what: &'static str,
    command: &'static str,
    says: &'static [&'static str],
}

const ADDRESSES: &str = "ip -o -4 address show scope global";
const ROUTES: &str = "ip -4 route show";
/// One NIC by DHCP, the other with a static address and routes.
const TWO_NICS: [Look; 3] = [
    Look { what: "the static address", command: ADDRESSES, says: &["10.77.0.10/24"] },
    Look {
        what: "the address by DHCP",
        command: "ip -o -4 address show scope global dynamic",
        says: &["10.0.2.15/24"],
    },
    Look {
        what: "static routes",
        command: ROUTES,
        says: &["10.78.0.0/16 via 10.77.0.2", "default via 10.77.0.2"],
    },
];
/// A VLAN on a bond of both NICs.
const VLAN_ON_BOND: [Look; 5] = [
    Look { what: "the address", command: ADDRESSES, says: &["bond0.77", "10.77.0.10/24"] },
    Look { what: "the default route", command: ROUTES, says: &["default via 10.77.0.2 dev bond0.77"] },
    Look {
        what: "the bond",
        command: "cat /proc/net/bonding/bond0",
        says: &["active-backup", "Polling Interval (ms): 100", "52:54:00:4c:01:01", "52:54:00:4c:01:02"],
    },
    Look { what: "the VLAN", command: "cat /proc/net/vlan/bond0.77", says: &["VID: 77", "Device: bond0"] },
    Look {
        what: "DNS",
        command: "cat /run/systemd/resolve/resolv.conf",
        says: &["nameserver 10.77.0.53", "search lab.example"],
    },
];

/// Secrets of a control plane and of other distributions, which this host is not: they are planted
/// where those have them.
const PLANTED: [(&str, &str); 5] = [
    ("the key of an authority", "/etc/kubernetes/pki/ca.key"),
    ("a kubeconfig", "/etc/kubernetes/admin.conf"),
    ("the data of etcd", "/var/lib/etcd/member/snap/db"),
    ("the token of k3s", "/var/lib/rancher/k3s/server/token"),
    ("the token of RKE2", "/var/lib/rancher/rke2/server/token"),
];
/// A stand-in for k3s: its directory on the disk, and its unit, which leaves a process in its control
/// group when it is stopped, as k3s leaves the shims of its containers.
const START_K3S: &str = "set -e; \
    mkdir -p /run/persistent /var/lib/rancher; \
    mount LABEL=COS_PERSISTENT /run/persistent; \
    mkdir -p /run/persistent/rancher; \
    mount --bind /run/persistent/rancher /var/lib/rancher; \
    unit='[Service]\nKillMode=process\nExecStart=/bin/sh -c \"sleep 86399 & exec sleep 86399\"\n'; \
    printf \"$unit\" >/run/systemd/system/k3s.service; \
    systemctl daemon-reload; \
    systemctl start k3s.service; \
    until test \"$(pgrep -c -f '^sleep 86399')\" = 2; do sleep 1; done";
const K3S_PROCESSES: &str = "pgrep -a -f '^sleep 86399' || test $? -eq 1";
/// A file of the bootstrap data.
const ENCRYPTION_CONFIG: &str = "/etc/kubernetes/encryption-config.yaml";
const KUBELET_KEY: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

impl GuestHost {
    /// A host that reaches `environment`, not yet powered on. Builds the OS images
    /// when they are not in the cache.
    ///
    /// # Errors
    /// When they cannot be built.
    pub async fn new(environment: &Environment, inputs: &ImageInputs) -> anyhow::Result<Self> {
        let directory = environment.directory.path().join("host");
        let hardware = if inputs.kernel == ::guest::Kernel::Uml {
            Hardware::Uml(uml::HostConfig::new("host", &directory, 1, &switch::SEGMENTS))
        } else {
            let api = environment.workload.control_plane().port();
            let config = HostConfig::new("host", &directory, 1)
                .forward(GUEST_GATEWAY, GUEST_COORDINATOR, environment.forwarder.port())
                .forward(GUEST_GATEWAY, GUEST_API, api);
            Hardware::Qemu(Box::new(config))
        };
        Self::with_images(hardware, &TWO_NICS, inputs).await
    }

    /// The same for a host that has both NICs in tap devices of a switch, where it is to have a
    /// VLAN on a bond.
    ///
    /// # Errors
    /// When they cannot be built.
    pub async fn on_bond(
        environment: &Environment,
        taps: [&str; 2],
        inputs: &ImageInputs,
    ) -> anyhow::Result<Self> {
        let config = HostConfig::new("host", &environment.directory.path().join("host"), 1).at_taps(&taps);
        Self::with_images(Hardware::Qemu(Box::new(config)), &VLAN_ON_BOND, inputs).await
    }

    async fn with_images(
        mut hardware: Hardware,
        network: &'static [Look],
        inputs: &ImageInputs,
    ) -> anyhow::Result<Self> {
        let images = ::guest::build(ImageFile::Os, inputs).await.context("build the OS images")?;
        hardware.set_images(&images);
        Ok(Self { hardware, guest: None, qemu: None, network })
    }

    /// The same host without a TPM: it registers with a software key.
    pub fn without_tpm(mut self) -> Self {
        self.hardware.remove_tpm();
        self
    }

    /// The same host with these disks. One in QEMU has no OS images, and its system disk is plugged in later.
    pub fn with_data_disks(mut self, disks: Vec<DataDisk>) -> Self {
        match &mut self.hardware {
            Hardware::Qemu(config) => {
                config.images.clear();
                config.has_system_disk = false;
                config.data_disks = disks;
            }
            Hardware::Uml(config) => {
                config.data_disks = disks.into_iter().map(|disk| disk.path).collect();
            }
        }
        self
    }

    /// What it is made of.
    pub const fn hardware(&self) -> &Hardware {
        &self.hardware
    }

    /// The host, once it is powered on.
    pub fn running(&self) -> anyhow::Result<&Guest> {
        self.guest.as_ref().context("the host is not powered on")
    }

    /// The same, to pull its plug.
    pub fn running_mut(&mut self) -> anyhow::Result<&mut Guest> {
        self.guest.as_mut().context("the host is not powered on")
    }

    /// Its hardware in QEMU.
    pub fn qemu_config(&self) -> anyhow::Result<&HostConfig> {
        match &self.hardware {
            Hardware::Qemu(config) => Ok(config),
            Hardware::Uml(_) => bail!("the host is not in QEMU"),
        }
    }

    /// Its machine, once it is powered on in QEMU.
    pub fn qemu(&self) -> anyhow::Result<&Qemu> {
        self.qemu.as_deref().context("the host does not run in QEMU")
    }

    /// The output of a command inside.
    ///
    /// # Errors
    /// When it fails.
    pub async fn inside(&self, script: &str) -> anyhow::Result<String> {
        let output = self.running()?.exec_within(&["sh", "-c", script], Duration::from_mins(2)).await?;
        ensure!(
            output.code == 0,
            "`{script}` ended with {} inside the host: {}{}",
            output.code,
            output.stdout,
            output.stderr
        );
        Ok(output.stdout)
    }

    /// Looks for credentials of the node, for `secret` in the bootstrap data,
    /// and for processes. The kernel cuts the name of a process at 15
    /// characters, and `pgrep -x` compares the whole of it. The guest agent logs
    /// its commands to the journal, which is searched: none holds the whole secret.
    async fn check_files(&self, secret: &str) -> anyhow::Result<()> {
        let (head, tail) = secret.split_at(secret.len() / 2);
        let left = self
            .inside(&format!(
                "find /etc/kubernetes /var/lib/kubelet -mindepth 1 2>/dev/null; \
                 find /var/lib/rancher -type f 2>/dev/null; {K3S_PROCESSES}; \
                 ls /var/lib/baremetal-agent/node-identity.json 2>/dev/null; \
                 grep -sE 'provider-id|metal3.io/uuid' /etc/default/kubelet; \
                 grep -rslF '{head}''{tail}' /var/lib /var/log /etc /run /root /tmp; \
                 pgrep -a -x 'kubelet|containerd|containerd-shim' || test $? -eq 1"
            ))
            .await?;
        if !left.trim().is_empty() {
            bail!("something of the node is left on the host:\n{left}");
        }
        Ok(())
    }

    /// Writes a secret that no command line and so no log has.
    async fn plant_secret(&self, path: &str) -> anyhow::Result<String> {
        let write =
            "umask 077; mkdir -p $(dirname $path); head -c 24 /dev/urandom | base64 >$path; cat $path";
        self.inside(&format!("path={path}; {write}")).await
    }

    /// Looks for them on the whole disk.
    async fn check_disk(&self, secrets: &[Secret]) -> anyhow::Result<()> {
        let found = self.search_disk(secrets).await?;
        ensure!(found.is_empty(), "the disk of the clean host still holds {found:?}");
        Ok(())
    }

    async fn search_disk(&self, secrets: &[Secret]) -> anyhow::Result<Vec<&'static str>> {
        let (disk, secrets) = (self.hardware.system_disk(), secrets.to_vec());
        Ok(tokio::task::spawn_blocking(move || find_secrets(&disk, &secrets)).await??)
    }
}

#[async_trait]
impl Host for GuestHost {
    /// A host that is on is cut off before.
    async fn boot(&mut self, iso: &Path) -> anyhow::Result<()> {
        self.guest = None;
        self.hardware.set_cd(iso);
        let (guest, qemu) = self.hardware.power_on().await?;
        (self.guest, self.qemu) = (Some(guest), qemu);
        Ok(())
    }

    fn device(&self) -> &'static str {
        self.hardware.kind().system_device()
    }

    fn has_tpm(&self) -> bool {
        self.hardware.has_tpm()
    }

    fn uuid(&self) -> String {
        self.hardware.uuid().to_owned()
    }

    fn static_mac(&self) -> String {
        self.hardware.second_mac().map_or_else(String::new, str::to_owned)
    }

    fn images(&self) -> [Image; 2] {
        ["v1", "v2"].map(|tag| Image {
            catalog: format!("file:/run/os-images/{tag}.squashfs"),
            runs: format!("lab.example/os:{tag}"),
        })
    }

    /// A host in QEMU is slow.
    fn limit(&self) -> Duration {
        Duration::from_mins(30)
    }

    async fn check_network(&self) -> anyhow::Result<()> {
        for Look { what, command, says } in self.network {
            let seen = self.inside(command).await?;
            let missing: Vec<_> = says.iter().filter(|text| !seen.contains(**text)).collect();
            ensure!(
                missing.is_empty(),
                "{what}: {missing:?} is missing; `{command}` inside the host:\n{seen}"
            );
        }
        Ok(())
    }

    async fn check_name(&self, name: &str) -> anyhow::Result<()> {
        let found = self.inside("hostname").await?;
        ensure!(found.trim() == name, "the host is named {found:?}, wanted {name}");
        Ok(())
    }

    /// The secrets of the node, which are on the disk now: the search finds them. Where it
    /// did not join, it has none of its kubelet or of its bootstrap data.
    async fn note_secrets(&self, token: &str) -> anyhow::Result<Vec<Secret>> {
        let secret = |what, text: &str| Secret { what, text: text.to_owned() };
        self.inside(START_K3S).await?;
        let mut secrets = vec![secret("the join token", token)];
        for (what, path) in PLANTED {
            secrets.push(secret(what, self.plant_secret(path).await?.trim()));
        }
        let written =
            self.inside(&format!("test ! -e {ENCRYPTION_CONFIG} || cat {ENCRYPTION_CONFIG}")).await?;
        let written = Some(written.trim()).filter(|text| !text.is_empty());
        secrets.extend(written.map(|text| secret("a file of the bootstrap data", text)));
        let pem = self.inside(&format!("sync; test ! -e {KUBELET_KEY} || cat {KUBELET_KEY}")).await?;
        let key = pem.split_once("PRIVATE KEY-----\n").and_then(|(_, key)| key.lines().next());
        secrets.extend(key.map(|key| secret("the private key of the kubelet", key)));
        let found = self.search_disk(&secrets).await?;
        ensure!(found.len() == secrets.len(), "the disk of a node holds {found:?} alone");
        Ok(secrets)
    }

    async fn check_clean(&self, token: &str, secrets: &[Secret]) -> anyhow::Result<()> {
        self.check_files(token).await?;
        self.check_disk(secrets).await
    }

    fn guest(&mut self) -> anyhow::Result<&mut GuestHost> {
        Ok(self)
    }

    fn is_real(&self) -> bool {
        true
    }

    fn log(&self) -> String {
        let console = self.guest.as_ref().map(|guest| guest.console().display().to_string());
        console.unwrap_or_else(|| "the host was not powered on".to_owned())
    }
}
