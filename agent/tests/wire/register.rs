//! The live system, from the ISO's document to the reboot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::client::calls::Caller;
use agent::client::config;
use agent::client::error::CallError;
use agent::client::registration::register_once;
use agent::ground::paths::{Root, StateDir};
use agent::host::command::{Captured, CommandError, Invocation};
use agent::host::network::KernelNetwork;
use agent::host::system::Output;
use agent::identity::{Identity, Role};
use agent::live::installed_disk::{Access, Mounted, Mounts};
use agent::live::register::register;
use agent::state::install_record::InstallRecord;
use proto::refusal::Refusal;
use proto::v1alpha1::complete_response::Next;
use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::{BootDisk, Install, Seed};
use simulated_host::SimulatedSystem;
use tempfile::TempDir;

use super::coordinator::{Coordinator, Memory};

pub(crate) struct Host {
    directory: TempDir,
    pub(crate) root: Root,
    pub(crate) system: SimulatedSystem,
    pub(crate) pauses: Pauses,
}

/// The persistent partition: it holds a file system once the install ran.
struct Partitions {
    path: PathBuf,
    system: SimulatedSystem,
    pauses: Pauses,
}

/// The pauses between two checks of the disks, which take no time here.
#[derive(Clone, Default)]
pub(crate) struct Pauses {
    pub(crate) taken: Arc<Mutex<Vec<Duration>>>,
    /// Written during the first pause.
    pub(crate) appears: Arc<Mutex<Vec<(PathBuf, String)>>>,
    /// Written when a disk is erased.
    pub(crate) erased: Arc<Mutex<Vec<(PathBuf, String)>>>,
}

impl Mounts for Partitions {
    async fn settle(&self, pause: Duration) {
        if !pause.is_zero() {
            self.pauses.taken.lock().unwrap().push(pause);
            for (path, text) in self.pauses.appears.lock().unwrap().drain(..) {
                write(&path, &text);
            }
        }
    }

    async fn run_tool(&self, invocation: &Invocation) -> Result<Captured, CommandError> {
        if invocation.program == "wipefs" {
            for (path, text) in self.pauses.erased.lock().unwrap().drain(..) {
                write(&path, &text);
            }
        }
        Ok(Captured { stdout: String::new(), shown: Output(String::new()) })
    }

    fn mount(&self, partition: &str, _: Access) -> io::Result<Mounted> {
        let path = self.path.join(partition);
        if self.system.effects().iter().any(|effect| effect.starts_with("install")) {
            fs::create_dir_all(&path)?;
        }
        if !path.exists() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Mounted::directory(path))
    }
}

impl Host {
    pub(crate) fn live(coordinator: &Coordinator) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path().join("root"));
        let system = SimulatedSystem::installed(root.clone(), "live-image").unwrap();
        let host = Self { directory, root, system, pauses: Pauses::default() };
        host.boot("boot-1");
        host.write("/run/initramfs/live/livecd-cloud-config.yaml", &coordinator.config());
        for disk in ["vda", "vdb"] {
            host.write(&format!("/sys/block/{disk}/size"), "100000");
            host.write(&format!("/sys/block/{disk}/{disk}5/partition"), "5");
            host.write(&format!("/dev/{disk}"), "");
            host.write(&format!("/sys/block/{disk}/serial"), &format!("serial-{disk}"));
        }
        host.write("/sys/block/vda/vda5/uevent", "PARTNAME=persistent\n");
        host
    }

    fn boot(&self, id: &str) {
        self.write("/proc/sys/kernel/random/boot_id", id);
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        write(&self.root.join(path), text);
    }

    fn partitions(&self) -> Partitions {
        let path = self.directory.path().join("partitions");
        Partitions { path, system: self.system.clone(), pauses: self.pauses.clone() }
    }

    /// Registers until the coordinator was told what a test waits for.
    pub(crate) async fn register_until(
        &self,
        coordinator: &Coordinator,
        what: &str,
        holds: impl Fn(&Memory) -> bool,
    ) {
        tokio::select! {
            ended = self.register() => panic!("{ended:?}"),
            () = coordinator.until(what, holds) => {}
        }
    }

    pub(crate) fn installed_state(&self) -> StateDir {
        Mounted::directory(self.directory.path().join("partitions/vda5")).state()
    }

    pub(crate) async fn register(&self) -> Result<(), String> {
        register(&self.root, &self.system, &self.partitions(), &KernelNetwork::below(&self.root))
            .await
            .map_err(|error| error.to_string())
    }

    pub(crate) async fn register_once(&self) -> Result<(), CallError> {
        let config = config::read(&self.root.live_config()).unwrap();
        let identity = Identity::load_or_make(&self.root.state().identity()).unwrap();
        let network = KernelNetwork::below(&self.root);
        register_once(
            &self.root,
            Caller { config: &config, network: &network, identity: &identity },
            Role::Live,
        )
        .await
        .map(drop)
    }

    pub(crate) fn installs(&self) -> usize {
        self.system.effects().iter().filter(|effect| effect.starts_with("install")).count()
    }
}

pub(crate) fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

pub(crate) fn install(device: &str) -> Next {
    let seed = Seed {
        user_data: None,
        meta_data: "instance-id: first\n".to_owned(),
        network_config: None,
        connections: vec![],
        network_data: None,
    };
    Next::Install(Install { device: device.to_owned(), seed: Some(seed), ..Install::default() })
}

#[tokio::test]
async fn a_registered_host_installs_and_hands_over() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(install("/dev/vda"));
    let host = Host::live(&coordinator);
    host.register().await.unwrap();
    let memory = coordinator.memory();
    let facts = memory.registrations[0].facts.as_ref().unwrap();
    assert_eq!(facts.disks.len(), 2);
    assert!(memory.registrations[0].observed_network.is_some());
    let [Outcome::Started(_), Outcome::Done(done)] = memory.installs.as_slice() else {
        panic!("{:?}", memory.installs);
    };
    assert_eq!((done.device.as_str(), done.image.as_str()), ("/dev/vda", "live-image"));
    assert!(host.system.reboot_was_asked_for());
    assert_eq!(host.system.flushes(), [1], "after the install, before the reboot");
    let state = host.installed_state();
    let record: InstallRecord =
        serde_json::from_str(&fs::read_to_string(state.install_record()).unwrap()).unwrap();
    assert_eq!(record.inventory, "default/host-1");
    let identity = Identity::load(&state.identity()).unwrap().unwrap();
    assert_eq!(identity.certificate(std::time::SystemTime::now()).unwrap().role, Role::Live);
    assert_eq!(config::read(&state.config()).unwrap(), config::read(&host.root.live_config()).unwrap());
    assert!(state.seed().join("meta-data").exists());
}

#[tokio::test]
async fn an_installed_host_is_never_reinstalled() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(install("/dev/vda"));
    let host = Host::live(&coordinator);
    host.register().await.unwrap();
    let first = Identity::load(&host.root.state().identity()).unwrap().unwrap().hash();
    for (boot, next, rebooted) in
        [("boot-2", Next::BootDisk(BootDisk {}), true), ("boot-3", install("/dev/vdb"), false)]
    {
        fs::remove_dir_all(host.root.state().path()).unwrap();
        host.boot(boot);
        let reboots = host.system.effects().len();
        coordinator.memory().next = Some(next);
        host.register().await.unwrap();
        assert_eq!(host.system.flushes().last(), Some(&reboots), "{boot}: before a reboot");
        let asked = host.system.effects()[reboots..].iter().any(|effect| effect.starts_with("reboot"));
        assert_eq!(asked, rebooted, "{boot}");
    }
    assert_eq!(host.installs(), 1);
    let again = Identity::load(&host.root.state().identity()).unwrap().unwrap().hash();
    assert_eq!(again, first, "the host stays who it is");
    let memory = coordinator.memory();
    // The coordinator that forgot the install is told of it again.
    assert!(
        matches!(memory.installs[2..], [Outcome::LiveBootAfterInstall(_), Outcome::Done(_)]),
        "{:?}",
        memory.installs
    );
}

// Fault: the coordinator forgot which host carries a node, and an old request to install it again is left over.
// Shown: host console: cause and next action; the report is `LiveBootAfterInstall`, and the host boots its disk.
#[tokio::test]
async fn a_disk_with_a_node_is_not_reinstalled() {
    type Leave = fn(&StateDir);
    let node: Leave = |state| write(&state.node_identity(), "{}");
    let damaged: Leave = |state| write(&state.journal(), "torn");
    for (what, leave, is_kept) in
        [("node", node, true), ("damaged journal", damaged, true), ("nothing", |_| (), false)]
    {
        let coordinator = Coordinator::start().await;
        coordinator.memory().next = Some(install("/dev/vda"));
        let host = Host::live(&coordinator);
        host.register().await.unwrap();
        leave(&host.installed_state());
        host.boot("boot-2");
        let Next::Install(request) = install("") else { panic!() };
        let request = Install { reinstall: "/dev/vda".to_owned(), ..request };
        coordinator.memory().next = Some(Next::Install(request));
        // The key of the former system is replaced first.
        coordinator.memory().renewed_role = Some("live");
        host.register().await.unwrap();
        assert_eq!(host.installs(), if is_kept { 1 } else { 2 }, "{what}");
        let last = coordinator.memory().installs.last().cloned();
        assert_eq!(matches!(last, Some(Outcome::LiveBootAfterInstall(_))), is_kept, "{what}: {last:?}");
    }
}

#[tokio::test]
async fn the_annotation_resolves_a_waiting_install() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(install("/dev/elemental-install-target"));
    coordinator.memory().install_device = "/dev/vda".to_owned();
    let host = Host::live(&coordinator);
    host.register().await.unwrap();
    let memory = coordinator.memory();
    let [Outcome::Waiting(waiting), Outcome::Started(started), Outcome::Done(_)] = memory.installs.as_slice()
    else {
        panic!("{:?}", memory.installs);
    };
    assert!(
        waiting.message.contains("/dev/elemental-install-target is not there yet"),
        "{}",
        waiting.message
    );
    assert_eq!(started.device, "/dev/vda");
}

// Fault: the install fails.
// Shown: condition `Installed` of the MachineInventory with the end of the output.
#[tokio::test]
async fn a_failed_install_is_reported() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(install("/dev/vda"));
    let host = Host::live(&coordinator);
    host.system.fail("install", 33).unwrap();
    let message = host.register().await.unwrap_err();
    assert!(message.contains("the install on /dev/vda failed") && message.contains("33"), "{message}");
    let Some(Outcome::Failed(failed)) = coordinator.memory().installs.last().cloned() else { panic!() };
    assert!(failed.message.contains("33") && !failed.next_action.is_empty(), "{failed:?}");
    assert!(!host.installed_state().install_record().exists());
    assert!(!host.system.reboot_was_asked_for());
}

// Fault: `elemental install` fails again and again.
// Shown: host console and report: cause and next action, after three attempts.
#[tokio::test]
async fn repeatedly_failing_install_waits_for_operator() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(install("/dev/vda"));
    let host = Host::live(&coordinator);
    host.system.fail("install", 33).unwrap();
    for _ in 0..3 {
        let message = host.register().await.unwrap_err();
        assert!(message.contains("the install on /dev/vda failed"), "{message}");
    }
    let attempts: Vec<_> = coordinator.memory().installs.iter().filter_map(attempt_of).collect();
    assert_eq!(attempts, [1, 2, 3]);
    let failed = |memory: &Memory| memory.installs.iter().filter(|o| matches!(o, Outcome::Failed(_))).count();
    assert_eq!(failed(&coordinator.memory()), 3);
    host.register_until(&coordinator, "it waits", is_waiting).await;
    let Some(Outcome::Waiting(waiting)) = coordinator.memory().installs.last().cloned() else { panic!() };
    assert!(waiting.message.contains("failed 3 times") && waiting.message.contains("33"), "{waiting:?}");
    assert!(waiting.next_action.contains("baremetal.cluster.io/install-device"), "{waiting:?}");
    coordinator.memory().install_device = "/dev/vdb".to_owned();
    coordinator.memory().next = Some(install("/dev/vdb"));
    let message = host.register().await.unwrap_err();
    assert!(message.contains("/dev/vdb") && message.contains("starts again"), "{message}");
    assert_eq!(failed(&coordinator.memory()), 3);
    let message = host.register().await.unwrap_err();
    assert!(message.contains("the install on /dev/vdb failed"), "{message}");
}

/// Of a report that an install starts.
fn attempt_of(outcome: &Outcome) -> Option<u32> {
    match outcome {
        Outcome::Started(started) => Some(started.attempt),
        _ => None,
    }
}

pub(crate) fn is_waiting(memory: &Memory) -> bool {
    matches!(memory.installs.last(), Some(Outcome::Waiting(_)))
}

// Fault: power is lost between the install and what the installed system needs.
// Shown: nothing: the firmware boots the ISO until all of it is on the disk.
#[tokio::test]
async fn firmware_boots_disk_only_with_record() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(install("/dev/vda"));
    let host = Host::live(&coordinator);
    host.write("/sys/block/vda/vda2/partition", "2");
    host.write("/sys/block/vda/vda2/uevent", "PARTNAME=efi\n");
    host.write("/sys/class/block/vda2/dev", "252:2");
    let record = "E:ID_PART_ENTRY_UUID=c12a7328-f81f-11d2-ba4b-00a0c93ec93b\nE:ID_PART_ENTRY_NUMBER=2\n\
        E:ID_PART_ENTRY_OFFSET=4096\nE:ID_PART_ENTRY_SIZE=131072\n";
    host.write("/run/udev/data/b252:2", record);
    let order = "/sys/firmware/efi/efivars/BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    host.write(order, "\x07\0\0\0\x01\0");
    let boot_order = || fs::read(host.root.join(order)).unwrap()[4..].to_vec();
    // What cannot be mounted takes no record.
    let partitions = host.directory.path().join("partitions");
    host.pauses.appears.lock().unwrap().push((partitions.clone(), String::new()));
    host.register().await.unwrap_err();
    assert_eq!((host.installs(), boot_order()), (1, vec![1, 0]));
    fs::remove_file(&partitions).unwrap();
    host.register().await.unwrap();
    assert!(host.installed_state().install_record().exists());
    assert_eq!((host.installs(), boot_order()), (2, vec![0, 0, 1, 0]));
}

// Fault: the firmware does not take its variables.
// Shown: condition `BootOrderSet` of the MachineInventory with the cause; the install is done.
#[tokio::test]
async fn refused_boot_order_is_reported_after_install() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(install("/dev/vda"));
    let host = Host::live(&coordinator);
    host.write("/sys/firmware/efi/efivars/BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c/unreadable", "");
    host.register().await.unwrap();
    let memory = coordinator.memory();
    let [Outcome::Started(_), Outcome::Done(_), Outcome::BootOrderRefused(refused)] =
        memory.installs.as_slice()
    else {
        panic!("{:?}", memory.installs)
    };
    assert!(refused.message.contains("the firmware did not take its variables"), "{refused:?}");
}

// Fault: a host without TPM registers where one is wanted.
// Shown: host console: `TpmRequired`.
#[tokio::test]
async fn a_refused_registration_is_retried() {
    let coordinator = Coordinator::start().await;
    let host = Host::live(&coordinator);
    for refusal in [Refusal::UnknownToken, Refusal::TpmRequired, Refusal::NameTaken] {
        coordinator.memory().refusals.push_back(refusal);
        let error = host.register_once().await.unwrap_err();
        assert!(error.to_string().contains(refusal.code()), "{error}");
        assert_eq!(error.failure.next_action, refusal.next_action());
    }
    coordinator.memory().refusals.push_back(Refusal::UnknownToken);
    coordinator.memory().next = Some(install("/dev/vda"));
    host.register().await.unwrap();
    assert_eq!(coordinator.memory().registrations.len(), 1);
}

#[tokio::test]
async fn only_the_configured_coordinator_is_called() {
    let coordinator = Coordinator::start().await;
    let other = Coordinator::start().await;
    let host = Host::live(&coordinator);
    let wrong_authority =
        coordinator.config().replace(&coordinator.address.to_string(), &other.address.to_string());
    let unused = coordinator.config().replace(&coordinator.address.to_string(), "127.0.0.1:1");
    let wrong_name = coordinator.config().replace("127.0.0.1", "localhost");
    host.write("/etc/hosts", "127.0.0.1 localhost\n");
    for (name, config, want) in [
        ("wrong authority", wrong_authority, "is not signed by the CA"),
        ("unused port", unused, "does not answer: "),
        ("wrong name", wrong_name, "for another name"),
    ] {
        host.write("/run/initramfs/live/livecd-cloud-config.yaml", &config);
        let error = host.register_once().await.unwrap_err();
        let message = error.to_string();
        assert!(message.contains(want), "{name}: {message}");
        assert!(!error.failure.next_action.is_empty(), "{name}: {message}");
        assert_eq!(message.matches("; next: ").count(), 1, "{name}: {message}");
    }
    assert!(other.memory().registrations.is_empty());
}

// Fault: the disk that was installed is gone.
// Shown: host console and report; nothing is installed elsewhere.
#[tokio::test]
async fn a_missing_installed_disk_is_reported() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(Next::BootDisk(BootDisk {}));
    let host = Host::live(&coordinator);
    let message = host.register().await.unwrap_err();
    assert!(message.contains("attach the disk"), "{message}");
    let memory = coordinator.memory();
    let [Outcome::Waiting(waiting)] = memory.installs.as_slice() else { panic!("{:?}", memory.installs) };
    assert!(waiting.next_action.contains("attach the disk"), "{waiting:?}");
    assert_eq!(host.installs(), 0);
}

// Fault: two disks hold an installed system of this host.
// Shown: host console: both disks and the next action.
#[tokio::test]
async fn two_installed_disks_stop_the_registration() {
    let coordinator = Coordinator::start().await;
    let host = Host::live(&coordinator);
    host.write("/sys/block/vdb/vdb5/uevent", "PARTNAME=persistent\n");
    for partition in ["vda5", "vdb5"] {
        let state = Mounted::directory(host.directory.path().join("partitions").join(partition)).state();
        fs::create_dir_all(state.path()).unwrap();
        fs::write(state.install_record(), "{}").unwrap();
    }
    let message = host.register().await.unwrap_err();
    assert!(
        message.contains("vda = /dev/vda, vdb = /dev/vdb") && message.contains("take all but one out"),
        "{message}"
    );
    assert!(coordinator.memory().registrations.is_empty());
}
