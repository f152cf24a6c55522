//! The disk that a live system chooses, and what it never writes.

use std::fs;
use std::time::Duration;

use agent::identity::Identity;
use agent::state::install_record::InstallRecord;
use proto::v1alpha1::install_report::Outcome;
use simulated_host::firmware;

use super::coordinator::Coordinator;
use super::register::{Host, install, is_waiting, write};

// Fault: a second disk that fits appears late.
// Shown: host console: both disks; nothing is installed.
#[tokio::test]
async fn a_disk_that_appears_between_two_checks_counts() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(install(""));
    let host = Host::live(&coordinator);
    for name in ["vda", "vdb"] {
        fs::remove_dir_all(host.root.join(format!("/sys/block/{name}"))).unwrap();
    }
    for (disk, number) in [("sda", "8:0"), ("sdb", "8:16")] {
        let size = (host.root.join(format!("/sys/block/{disk}/size")), "100000".to_owned());
        host.write(&format!("/sys/block/{disk}/dev"), number);
        host.write(&format!("/run/udev/data/b{number}"), "E:ID_SERIAL_SHORT=S1\n");
        match disk {
            "sda" => write(&size.0, &size.1),
            _ => host.pauses.appears.lock().unwrap().push(size),
        }
    }
    host.register_until(&coordinator, "it waits", is_waiting).await;
    let memory = coordinator.memory();
    let [Outcome::Waiting(waiting)] = memory.installs.as_slice() else { panic!("{:?}", memory.installs) };
    assert!(waiting.message.contains("2 disks fit the device selector, sda, sdb"), "{waiting:?}");
    assert!(host.pauses.taken.lock().unwrap().iter().all(|pause| *pause >= Duration::from_secs(5)));
    assert_eq!(host.installs(), 0);
}

/// A host with one disk, whose persistent partition holds these directories.
fn host_with_contents(coordinator: &Coordinator, contents: &[&str]) -> Host {
    let host = Host::live(coordinator);
    fs::remove_dir_all(host.root.join("/sys/block/vdb")).unwrap();
    host.write("/sys/block/vda/dev", "8:0");
    host.write("/run/udev/data/b8:0", "E:ID_SERIAL_SHORT=serial-vda\n");
    let partition = host.installed_state().path().parent().unwrap().to_owned();
    for name in contents {
        fs::create_dir_all(partition.join(name)).unwrap();
    }
    host
}

// Fault: a host that another operator installed boots the ISO; its disk is not named.
// Shown: host console and report: the disk and what is on it; nothing is installed.
#[tokio::test]
async fn selector_spares_the_system_of_another_operator() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(install(""));
    let host = host_with_contents(&coordinator, &["lost+found", ".state", "etc"]);
    host.register_until(&coordinator, "it waits", is_waiting).await;
    let Some(Outcome::Waiting(waiting)) = coordinator.memory().installs.last().cloned() else { panic!() };
    assert!(waiting.message.contains("an Elemental system in use on vda5 (.state, etc)"), "{waiting:?}");
    assert!(waiting.next_action.contains("baremetal.cluster.io/install-device"), "{waiting:?}");
    assert_eq!(host.installs(), 0);
    coordinator.memory().install_device = "/dev/vda".to_owned();
    host.register().await.unwrap();
    assert_eq!(host.installs(), 1, "it is named");
}

// Fault: the only disk of a host carries LVM.
// Shown: condition `Installed`: `InstallWaiting` with the content, until the host's own annotation names the disk.
#[tokio::test]
async fn used_disk_is_taken_by_annotation_alone() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(install("/dev/vda"));
    let host = host_with_contents(&coordinator, &[]);
    let record = "E:ID_SERIAL_SHORT=serial-vda\nE:ID_FS_TYPE=LVM2_member\nE:ID_FS_USAGE=raid\n";
    host.write("/run/udev/data/b8:0", record);
    host.write("/dev/vda5", "");
    host.register_until(&coordinator, "it waits", is_waiting).await;
    let Some(Outcome::Waiting(waiting)) = coordinator.memory().installs.last().cloned() else { panic!() };
    assert!(waiting.message.contains("not taken by its path alone"), "{waiting:?}");
    assert_eq!(host.installs(), 0);
    let empty = (host.root.join("/run/udev/data/b8:0"), "E:ID_SERIAL_SHORT=serial-vda\n".to_owned());
    host.pauses.erased.lock().unwrap().push(empty);
    coordinator.memory().install_device = "/dev/disk/by-path/one".to_owned();
    fs::create_dir_all(host.root.join("/dev/disk/by-path")).unwrap();
    std::os::unix::fs::symlink("../../vda", host.root.join("/dev/disk/by-path/one")).unwrap();
    host.register().await.unwrap();
    assert_eq!(host.installs(), 1, "it is named for this host");
    assert!(host.pauses.erased.lock().unwrap().is_empty(), "nothing was erased");
}

#[tokio::test]
async fn an_install_that_was_cut_off_continues() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(install(""));
    let host = host_with_contents(&coordinator, &["lost+found", "baremetal-agent/identity"]);
    host.register().await.unwrap();
    assert_eq!(host.installs(), 1);
    assert!(!coordinator.memory().installs.iter().any(|outcome| matches!(outcome, Outcome::Waiting(_))));
}

// Fault: the chosen disk is replaced before the first write.
// Shown: the choice is made again.
#[tokio::test]
async fn disk_replaced_during_report_is_not_written() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(install("/dev/vda"));
    let host = Host::live(&coordinator);
    let serial = host.root.join("/sys/block/vda/serial");
    coordinator.memory().at_install_report = Some(Box::new(move |outcome| {
        if matches!(outcome, Outcome::Started(_)) {
            write(&serial, "another");
        }
    }));
    host.register_until(&coordinator, "it waits", is_waiting).await;
    let memory = coordinator.memory();
    let [Outcome::Started(_), Outcome::Waiting(waiting)] = memory.installs.as_slice() else {
        panic!("{:?}", memory.installs)
    };
    assert!(waiting.message.contains("serial-vda") && waiting.message.contains("another"), "{waiting:?}");
    assert_eq!(host.installs(), 0);
}

#[tokio::test]
async fn disk_is_written_and_recorded_by_identifiers() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(install("/dev/vda"));
    let host = Host::live(&coordinator);
    let firmware = firmware::Identity::of_serial("S-1");
    let tables = host.root.join("/sys/firmware/dmi/tables");
    fs::create_dir_all(&tables).unwrap();
    fs::write(tables.join("smbios_entry_point"), firmware::entry_point()).unwrap();
    fs::write(tables.join("DMI"), firmware::tables(firmware)).unwrap();
    host.write("/sys/block/vda/wwid", "0x5000");
    let link = "/dev/disk/by-id/wwn-0x5000";
    fs::create_dir_all(host.root.join("/dev/disk/by-id")).unwrap();
    std::os::unix::fs::symlink("../../vda", host.root.join(link)).unwrap();
    host.register().await.unwrap();
    let installed = format!("install {link} ");
    let effects = host.system.effects();
    assert!(effects.iter().any(|effect| effect.starts_with(&installed)), "{effects:?}");
    let record = InstallRecord::read(&host.installed_state()).unwrap().unwrap();
    assert_eq!((record.device.as_str(), record.wwn.as_str()), (link, "0x5000"));
    assert_eq!((record.serial, record.smbios_uuid), ("serial-vda".to_owned(), firmware.uuid()));
}

// Fault: a disk holds the installed system of another host.
// Shown: host console: the disk and the host; its key is not taken.
#[tokio::test]
async fn a_system_of_another_host_is_no_identity() {
    let coordinator = Coordinator::start().await;
    coordinator.memory().next = Some(install("/dev/vdb"));
    let host = Host::live(&coordinator);
    let firmware = firmware::Identity::of_serial("S-1");
    host.write("/sys/firmware/dmi/tables/smbios_entry_point", "");
    fs::write(host.root.join("/sys/firmware/dmi/tables/DMI"), firmware::tables(firmware)).unwrap();
    host.write("/dev/vda5", "");
    host.write("/sys/block/vda/vda5/dev", "8:5");
    host.write("/run/udev/data/b8:5", "E:ID_FS_TYPE=btrfs\nE:ID_FS_LABEL=COS_PERSISTENT\n");
    let state = host.installed_state();
    let other = Identity::load_or_make(&state.identity()).unwrap().hash();
    write(&state.install_record(), r#"{"inventory":"fleet/host-2","smbiosUuid":"of-host-2"}"#);
    host.register_until(&coordinator, "it waits", is_waiting).await;
    let own = Identity::load(&host.root.state().identity()).unwrap().unwrap().hash();
    assert_ne!(own, other);
    let memory = coordinator.memory();
    let Some(Outcome::Waiting(waiting)) = memory.installs.last() else { panic!("{:?}", memory.installs) };
    assert!(waiting.message.contains("the system of fleet/host-2 with UUID of-host-2"), "{waiting:?}");
    assert_eq!(host.installs(), 0);
}
