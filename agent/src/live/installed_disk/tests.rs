use super::fake::Directories;
use super::*;
use crate::host::facts::disks::Partition;

fn find_all(disks: &[Disk], mounts: &Directories, uuid: Option<&str>) -> Result<InstalledDisks, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(find_installed_disks(disks, mounts, uuid))
}

fn find_own(disks: &[Disk], mounts: &Directories) -> Result<Option<InstalledDisk>, Failure> {
    find_all(disks, mounts, Some("uuid-1")).map(|found| found.own)
}

fn disk(name: &str) -> Disk {
    let partition =
        Partition { name: format!("{name}5"), label: "persistent".to_owned(), ..Partition::default() };
    Disk { name: name.to_owned(), partitions: vec![partition], ..Disk::default() }
}

fn record(directory: &Path, partition: &str, text: &str) {
    let state = Mounted::directory(directory.join(partition)).state();
    fs::create_dir_all(state.path()).unwrap();
    fs::write(state.install_record(), text).unwrap();
}

#[test]
fn an_installed_disk_is_found_by_its_record() {
    let directory = tempfile::tempdir().unwrap();
    let mounts = Directories(directory.path().to_owned());
    let disks = [disk("sda"), disk("sdb"), Disk { name: "sdc".into(), ..Disk::default() }];
    assert_eq!(find_own(&disks, &mounts).unwrap(), None, "not formatted");
    fs::create_dir_all(directory.path().join("sda5")).unwrap();
    assert_eq!(find_own(&disks, &mounts).unwrap(), None, "no record");
    record(directory.path(), "sdb5", r#"{"device":"/dev/sda","image":"os:v1"}"#);
    let found = find_own(&disks, &mounts).unwrap().unwrap();
    assert_eq!((found.disk.as_str(), found.record.image.as_str()), ("sdb", "os:v1"));
    record(directory.path(), "sdb5", "garbled");
    assert!(find_own(&disks, &mounts).unwrap().is_some(), "still a record");
    record(directory.path(), "sda5", "{}");
    let message = find_own(&disks, &mounts).unwrap_err().to_string();
    assert!(
        message.contains("sda = /dev/sda, sdb = /dev/sdb") && message.contains("Wipe a disk"),
        "{message}"
    );
}

#[test]
fn a_partition_that_cannot_be_read_stops_everything() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("sda5"), "").unwrap();
    let mounts = Directories(directory.path().to_owned());
    let unknown = |disk: Disk| find_own(&[disk], &mounts).unwrap_err().message;
    assert!(unknown(disk("sda")).starts_with("cannot read the persistent partition sda5"));
    let mut damaged = disk("sdb");
    damaged.partitions[0].file_system = "COS_PERSISTENT".to_owned();
    assert!(unknown(damaged).starts_with("cannot read the persistent partition sdb5"), "formatted");
}

#[test]
fn the_system_of_another_host_is_not_adopted() {
    let directory = tempfile::tempdir().unwrap();
    let mounts = Directories(directory.path().to_owned());
    let disks = [disk("sda"), disk("sdb")];
    record(directory.path(), "sda5", r#"{"inventory":"fleet/host-1","smbiosUuid":"UUID-1"}"#);
    for (name, other, uuid, own, foreign) in [
        ("another host's", r#"{"smbiosUuid":"uuid-2"}"#, Some("uuid-1"), 1, 1),
        ("all of other hosts", r#"{"smbiosUuid":"uuid-2"}"#, Some("uuid-3"), 0, 2),
        ("an older record", "{}", Some("uuid-3"), 1, 1),
        ("a second one", "{}", Some("uuid-1"), 2, 0),
        ("no UUID here", r#"{"smbiosUuid":"uuid-2"}"#, None, 2, 0),
    ] {
        record(directory.path(), "sdb5", other);
        match find_all(&disks, &mounts, uuid) {
            Ok(found) => {
                assert_eq!((usize::from(found.own.is_some()), found.foreign.len()), (own, foreign), "{name}");
            }
            Err(error) => {
                assert!(error.message.starts_with("2 disks carry an installed system"), "{name}: {error}");
                assert_eq!(own, 2, "{name}");
            }
        }
    }
}

#[test]
fn a_mirrored_system_is_one_system() {
    let directory = tempfile::tempdir().unwrap();
    let mounts = Directories(directory.path().to_owned());
    for partition in ["md1265", "sda5", "sdb5"] {
        record(directory.path(), partition, "{}");
    }
    let part = |name: &str| Disk { holders: vec!["md126".to_owned()], ..disk(name) };
    let found = find_own(&[disk("md126"), part("sda"), part("sdb")], &mounts).unwrap().unwrap();
    assert_eq!(found.disk, "md126");
}

#[test]
fn a_system_without_record_may_be_used() {
    for (name, entries, want) in [
        ("fresh", &["sda5/lost+found"][..], None),
        ("a cut-off install", &["sda5/lost+found", "sda5/baremetal-agent/identity", "sda3/grubenv"], None),
        (
            "a system that ran",
            &["sda5/lost+found", "sda5/.state/var.bind", "sda5/etc"],
            Some("sda5 (.state, etc)"),
        ),
        ("without its record", &["sda5/baremetal-agent/journal", "sda5/.state"], Some("sda5 (.state)")),
        (
            "many entries",
            &["sda5/a", "sda5/b", "sda5/c", "sda5/d", "sda5/e", "sda5/f"],
            Some("(a, b, c, d, e, …)"),
        ),
        (
            "registered upstream",
            &["sda5/lost+found", "sda3/elemental-state.yaml"],
            Some("registered on sda3"),
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        for entry in entries {
            fs::create_dir_all(directory.path().join(entry)).unwrap();
        }
        let mut disk = disk("sda");
        let oem = Partition { name: "sda3".into(), file_system: "COS_OEM".into(), ..Partition::default() };
        disk.partitions.push(oem);
        let mounts = Directories(directory.path().to_owned());
        let found = find_all(&[disk], &mounts, None).unwrap();
        assert_eq!((found.own, found.foreign), (None, vec![]), "{name}");
        let used: Vec<_> = found.used.iter().map(|used| used.contents.as_str()).collect();
        assert_eq!(used.len(), usize::from(want.is_some()), "{name}: {used:?}");
        assert!(used.iter().all(|used| used.contains(want.unwrap_or_default())), "{name}: {used:?}");
    }
}

#[test]
fn a_system_on_two_paths_is_one_system() {
    let directory = tempfile::tempdir().unwrap();
    let mounts = Directories(directory.path().to_owned());
    for partition in ["sda5", "sdb5"] {
        record(directory.path(), partition, "{}");
    }
    let path =
        |name: &str, serial: &str| Disk { wwn: "0x5".to_owned(), serial: serial.to_owned(), ..disk(name) };
    let joined = Disk { other_paths: vec!["sdb".to_owned()], ..path("sda", "S1") };
    assert_eq!(find_own(&[joined], &mounts).unwrap().unwrap().disk, "sda");
    let message = find_own(&[path("sda", "S1"), path("sdb", "S2")], &mounts).unwrap_err().to_string();
    assert!(message.contains("may be paths to one disk"), "{message}");
    assert!(!message.to_lowercase().contains("wipe"), "{message}");
}

/// Partitions of a disk that stopped answering.
struct Silent;

impl Mounts for Silent {
    async fn look_into<T: Send + 'static>(
        &self,
        _: &str,
        _: impl FnOnce(io::Result<Mounted>) -> T + Send + 'static,
    ) -> io::Result<T> {
        Err(io::ErrorKind::TimedOut.into())
    }

    fn mount(&self, _: &str, _: Access) -> io::Result<Mounted> {
        Err(io::ErrorKind::TimedOut.into())
    }
}

#[tokio::test]
async fn a_dying_disk_does_not_stop_the_search() {
    let silent = Disk { state: DiskState::Silent, ..disk("sda") };
    let empty = Disk { name: "sdc".into(), ..Disk::default() };
    let found = find_installed_disks(&[silent, disk("sdb"), empty], &Silent, None).await.unwrap();
    assert_eq!(found.silent, ["sda", "sdb"]);
    assert_eq!((found.own, found.foreign, found.used), (None, vec![], vec![]));
}
