use super::*;
use crate::host::facts::disks::{Partition, Signature};
use crate::state::install_record::InstallRecord;

const GIB: u64 = 1 << 30;

fn disk(name: &str, size_bytes: u64) -> Disk {
    Disk {
        name: name.to_owned(),
        size_bytes,
        model: "Model X".to_owned(),
        serial: format!("serial-{name}"),
        wwn: format!("0x5000{name}"),
        links: vec![format!("/dev/disk/by-id/{name}-link")],
        signature: Some(Signature::default()),
        ..Disk::default()
    }
}

fn with_label(name: &str, label: &str) -> Disk {
    let partition = Partition { file_system: label.to_owned(), ..Partition::default() };
    Disk { partitions: vec![partition], ..disk(name, 100 * GIB) }
}

fn require(key: &str, operator: &str, values: &[&str]) -> DeviceRequirement {
    DeviceRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: values.iter().map(ToString::to_string).collect(),
    }
}

fn name_of(result: &Result<&Disk, Failure>) -> Option<String> {
    result.as_ref().ok().map(|disk| disk.name.clone())
}

#[test]
fn a_selector_takes_exactly_one_disk() {
    let disks = [
        Disk { rotational: true, ..disk("sda", 4000 * GIB) },
        disk("sdb", 100 * GIB),
        disk("nvme0n1", 500 * GIB),
        Disk { removable: true, ..disk("sdc", 16 * GIB) },
        Disk { live_medium: true, ..disk("sdd", 8 * GIB) },
    ];
    for (name, requirements, want) in [
        ("name", vec![require("Name", "In", &["sdb"])], Some("sdb")),
        ("name with /dev", vec![require("Name", "In", &["/dev/sdb", "/dev/sdx"])], Some("sdb")),
        ("several left", vec![require("Rotational", "In", &["false"])], None),
        ("platters", vec![require("Rotational", "In", &["true"])], Some("sda")),
        (
            "all requirements",
            vec![require("Rotational", "In", &["false"]), require("Size", "Gt", &["200Gi"])],
            Some("nvme0n1"),
        ),
        ("smaller than", vec![require("Size", "Lt", &["101Gi"])], Some("sdb")),
        ("exact size", vec![require("Size", "In", &["500Gi"])], Some("nvme0n1")),
        ("serial", vec![require("Serial", "In", &["serial-sda"])], Some("sda")),
        ("not in", vec![require("Name", "NotIn", &["sda", "sdb"])], Some("nvme0n1")),
        ("WWN spelled as a link", vec![require("WWN", "In", &["wwn-0X5000SDB"])], Some("sdb")),
        ("stable path", vec![require("Path", "In", &["/dev/disk/by-id/sdb-link"])], Some("sdb")),
        ("model of all", vec![require("Model", "In", &["Model X"])], None),
        ("removable only", vec![require("Name", "In", &["sdc"])], None),
        ("live medium only", vec![require("Name", "In", &["sdd"])], None),
        ("no requirement", vec![], None),
    ] {
        let chosen = choose_disk(&disks, &DiskRequest::Selector(requirements), &Rules::default());
        assert_eq!(name_of(&chosen).as_deref(), want, "{name}");
    }
    let only = [disk("vda", GIB), Disk { live_medium: true, ..disk("vdb", GIB) }];
    assert_eq!(
        name_of(&choose_disk(&only, &DiskRequest::Selector(vec![]), &Rules::default())).as_deref(),
        Some("vda")
    );
}

#[test]
fn a_named_device_must_be_a_whole_disk() {
    let disks = [disk("sda", GIB), disk("sdb", GIB)];
    let device = |name: Option<&str>| DiskRequest::Device {
        path: "/dev/target".into(),
        name: name.map(str::to_owned),
    };
    assert_eq!(
        name_of(&choose_disk(&disks, &device(Some("sdb")), &Rules::default())).as_deref(),
        Some("sdb")
    );
    for (name, wish, want) in [
        ("not there", device(None), "not there yet"),
        ("a partition", device(Some("sda1")), "no whole fixed disk"),
    ] {
        let message = choose_disk(&disks, &wish, &Rules::default()).unwrap_err().to_string();
        assert!(message.contains(want) && message.contains("/dev/disk/by-id/sda-link"), "{name}: {message}");
        assert!(message.contains("baremetal.cluster.io/install-device"), "{name}: {message}");
    }
}

#[test]
fn elemental_labels_on_other_disk_stop_install() {
    for (name, disks, stops) in [
        ("on another", vec![disk("sda", GIB), with_label("sdb", "COS_STATE")], true),
        ("on the chosen one", vec![with_label("sda", "COS_STATE"), disk("sdb", GIB)], false),
        ("of the live image", vec![disk("sda", GIB), with_label("sdb", "COS_LIVE")], false),
        ("of another system", vec![disk("sda", GIB), with_label("sdb", "DATA")], false),
    ] {
        let wish = DiskRequest::Selector(vec![require("Name", "In", &["sda"])]);
        let chosen = choose_disk(&disks, &wish, &Rules::default());
        assert_eq!(
            chosen.as_ref().is_err_and(|failure| failure.message.contains("file systems of Elemental")),
            stops,
            "{name}: {chosen:?}"
        );
    }
}

#[test]
fn invalid_selectors_are_reported() {
    for (name, requirement, want) in [
        ("key", require("Colour", "In", &["red"]), "Colour"),
        ("operator", require("Name", "Gt", &["sda"]), "Gt"),
        ("operator of a size", require("Size", "Like", &["1G"]), "Like"),
        ("two bounds", require("Size", "Gt", &["1G", "2G"]), "one value"),
        ("no number", require("Size", "Gt", &["big"]), "big"),
        ("too large a number", require("Size", "Gt", &["99999999999Ti"]), "99999999999Ti"),
    ] {
        let chosen =
            choose_disk(&[disk("sda", GIB)], &DiskRequest::Selector(vec![requirement]), &Rules::default())
                .map(drop);
        let message = chosen.unwrap_err().to_string();
        assert!(message.contains(want) && message.contains("correct it"), "{name}: {message}");
    }
}

fn with_data(name: &str) -> Disk {
    let signature = Signature { kind: "ext4".to_owned(), usage: "filesystem".to_owned() };
    let partition = Partition { name: format!("{name}1"), signature, ..Partition::default() };
    Disk { partitions: vec![partition], ..disk(name, 100 * GIB) }
}

fn named(name: &str) -> DiskRequest {
    DiskRequest::Device { path: "/dev/target".to_owned(), name: Some(name.to_owned()) }
}

#[test]
fn disk_with_data_needs_name_or_permission() {
    let all = DiskRequest::Selector(vec![]);
    let second = DiskRequest::Selector(vec![require("Name", "In", &["sdb"])]);
    let data = [with_data("sda")];
    let both = [with_data("sda"), disk("sdb", GIB)];
    for (name, disks, wish, allow_erase, want) in [
        ("the only one", &data[..], &all, false, Err("sda, is not empty: ext4 on sda1")),
        ("allowed", &data, &all, true, Ok("sda")),
        ("named", &data, &named("sda"), false, Ok("sda")),
        ("beside an empty one", &both, &all, false, Err("2 disks fit the device selector, sda, sdb")),
        ("not selected", &both, &second, false, Ok("sdb")),
    ] {
        let rules = Rules { allow_erase, ..Rules::default() };
        match (choose_disk(disks, wish, &rules), want) {
            (Ok(chosen), Ok(want)) => assert_eq!(chosen.name, want, "{name}"),
            (Err(error), Err(want)) => {
                let message = error.to_string();
                assert!(message.contains(want) && message.contains("[ext4 on sda1]"), "{name}: {message}");
                assert!(message.contains("baremetal.cluster.io/install-device"), "{name}: {message}");
            }
            (chosen, _) => panic!("{name}: {chosen:?}"),
        }
    }
}

#[test]
fn elemental_system_in_use_needs_a_name() {
    let contents = "an Elemental system in use on sda5 (.state)".to_owned();
    let used = [UsedDisk { disk: "sda".to_owned(), contents }];
    let all = DiskRequest::Selector(vec![]);
    for (name, disk, wish, allow_erase, want) in [
        (
            "selected",
            "sda",
            &all,
            false,
            Some("sda, is not empty: an Elemental system in use on sda5 (.state)"),
        ),
        ("allowed", "sda", &all, true, None),
        ("named", "sda", &named("sda"), false, None),
        ("a cut-off install", "sdb", &all, false, None),
    ] {
        let disks = [with_label(disk, "COS_PERSISTENT")];
        let rules = Rules { allow_erase, used: &used, ..Rules::default() };
        let refused = choose_disk(&disks, wish, &rules).err().map(|error| error.to_string());
        assert_eq!(refused.is_some(), want.is_some(), "{name}: {refused:?}");
        let refused = refused.unwrap_or_default();
        assert!(refused.contains(want.unwrap_or_default()), "{name}: {refused}");
        assert_eq!(refused.contains("[an Elemental system in use"), want.is_some(), "{name}: {refused}");
    }
}

#[test]
fn removable_disk_is_taken_only_by_annotation() {
    let removable = Disk { removable: true, ..disk("sda", GIB) };
    let live = Disk { live_medium: true, ..disk("sdb", GIB) };
    let disks = [removable, live];
    for (name, wish, is_annotated, want) in [
        ("selected", DiskRequest::Selector(vec![]), true, None),
        ("named for all hosts", named("sda"), false, None),
        ("named for this host", named("sda"), true, Some("sda")),
        ("the live medium", named("sdb"), true, None),
    ] {
        let rules = Rules { is_annotated, ..Rules::default() };
        assert_eq!(name_of(&choose_disk(&disks, &wish, &rules)).as_deref(), want, "{name}");
    }
}

/// A disk with a member of something larger, as each kind is found.
fn excluded(name: &str, kind: &str, usage: &str) -> Disk {
    let signature = Signature { kind: kind.to_owned(), usage: usage.to_owned() };
    Disk { signature: Some(signature), ..disk(name, 100 * GIB) }
}

#[test]
fn excluded_disk_counts_in_each_choice() {
    let all = DiskRequest::Selector(vec![]);
    let first = DiskRequest::Selector(vec![require("Name", "In", &["sda"])]);
    for kind in ["LVM2_member", "linux_raid_member", "ddf_raid_member", "VMFS_volume_member", "zfs_member"] {
        let disks = [excluded("sda", kind, "raid"), disk("sdb", GIB)];
        let rules = Rules { allow_erase: true, ..Rules::default() };
        let message = choose_disk(&disks, &all, &rules).unwrap_err().to_string();
        let want =
            format!("2 disks fit the device selector, sda (but sda is a part of something larger ({kind}))");
        assert!(message.contains(&want), "{message}");
        let message = choose_disk(&disks, &first, &rules).unwrap_err().to_string();
        assert!(message.contains("sda, is never taken by a selector: "), "{message}");
        assert!(message.contains("kubectl baremetal install-on"), "{message}");
    }
}

#[test]
fn excluded_disk_is_taken_by_explicit_act() {
    let held = Disk { holders: vec!["md127".to_owned()], ..disk("sda", 100 * GIB) };
    for (name, disks, is_annotated, allow_erase, is_taken) in [
        ("held, named for all hosts", [held.clone(), disk("sdb", GIB)], false, false, false),
        ("held, named for this host", [held.clone(), disk("sdb", GIB)], true, false, true),
        ("held, named with permission", [held, disk("sdb", GIB)], false, true, true),
        (
            "LVM, named for all hosts",
            [excluded("sda", "LVM2_member", "raid"), disk("sdb", GIB)],
            false,
            false,
            false,
        ),
        (
            "LVM, named for this host",
            [excluded("sda", "LVM2_member", "raid"), disk("sdb", GIB)],
            true,
            false,
            true,
        ),
    ] {
        let rules = Rules { allow_erase, is_annotated, ..Rules::default() };
        let chosen = choose_disk(&disks, &named("sda"), &rules);
        assert_eq!(chosen.is_ok(), is_taken, "{name}: {chosen:?}");
        let Err(error) = chosen else { continue };
        let message = error.to_string();
        assert!(message.contains("not taken by its path alone"), "{name}: {message}");
        assert!(message.contains("baremetal.cluster.io/install-device"), "{name}: {message}");
    }
}

#[test]
fn given_up_disks_are_no_obstacle() {
    let disks = [disk("sda", GIB), with_label("sdb", "COS_STATE"), with_label("sdc", "COS_STATE")];
    for (given_up, want) in [(vec![], Some("sdb")), (vec!["sdb"], Some("sdc")), (vec!["sdb", "sdc"], None)] {
        let given_up: Vec<_> = given_up.into_iter().map(str::to_owned).collect();
        let rules = Rules { is_annotated: true, given_up: &given_up, ..Rules::default() };
        let message = choose_disk(&disks, &named("sda"), &rules).err().map(|error| error.to_string());
        assert_eq!(message.is_some(), want.is_some(), "{given_up:?}: {message:?}");
        assert!(message.unwrap_or_default().contains(want.unwrap_or_default()), "{given_up:?}");
    }
}

#[test]
fn foreign_system_is_taken_only_by_annotation() {
    let record = InstallRecord {
        inventory: "fleet/host-2".to_owned(),
        smbios_uuid: "uuid-2".to_owned(),
        ..InstallRecord::default()
    };
    let foreign = [InstalledDisk { disk: "sdb".to_owned(), partition: "sdb5".to_owned(), record }];
    let disks = [disk("sda", GIB), with_label("sdb", "COS_PERSISTENT")];
    let only = DiskRequest::Selector(vec![require("Name", "In", &["sdb"])]);
    for (name, wish, is_annotated, want) in [
        (
            "selected",
            &only,
            false,
            "sdb fits, but carries the installed system of another host, fleet/host-2",
        ),
        ("named for all hosts", &named("sdb"), false, "another host, fleet/host-2 with UUID uuid-2"),
        ("named for this host", &named("sdb"), true, ""),
        ("another one named", &named("sda"), true, "COS_PERSISTENT, the system of fleet/host-2"),
    ] {
        let rules = Rules { allow_erase: true, is_annotated, foreign: &foreign, ..Rules::default() };
        let message =
            choose_disk(&disks, wish, &rules).map_or_else(|error| error.to_string(), |_| String::new());
        assert_eq!(message.is_empty(), want.is_empty(), "{name}: {message}");
        assert!(message.contains(want), "{name}: {message}");
    }
}

#[test]
fn joined_disk_is_taken_instead_of_parts() {
    let part = |name: &str| Disk { holders: vec!["dm-0".to_owned()], ..with_label(name, "COS_STATE") };
    let disks = [with_label("dm-0", "COS_STATE"), part("sda"), part("sdb")];
    let rules = Rules { allow_erase: true, ..Rules::default() };
    let all = DiskRequest::Selector(vec![]);
    assert_eq!(name_of(&choose_disk(&disks, &all, &rules)).as_deref(), Some("dm-0"));
    let rules = Rules { is_annotated: true, ..rules };
    let message = choose_disk(&disks, &named("sda"), &rules).unwrap_err().to_string();
    assert!(message.contains("sda, which is a part of dm-0"), "{message}");
    let beside = [with_label("dm-0", "COS_STATE"), part("sda"), with_label("sdc", "COS_STATE")];
    let message = choose_disk(&beside, &named("dm-0"), &rules).unwrap_err().to_string();
    assert!(message.contains("sdc = ") && !message.contains("sda = "), "{message}");
}

#[test]
fn write_protected_disk_is_never_taken() {
    let disks = [Disk { state: DiskState::ReadOnly, ..disk("sda", GIB) }, disk("sdb", GIB)];
    let all = DiskRequest::Selector(vec![]);
    assert_eq!(name_of(&choose_disk(&disks, &all, &Rules::default())).as_deref(), Some("sdb"));
    let rules = Rules { is_annotated: true, allow_erase: true, ..Rules::default() };
    let message = choose_disk(&disks, &named("sda"), &rules).unwrap_err().to_string();
    assert!(message.contains("[write-protected]"), "{message}");
}

#[test]
fn a_disk_on_two_paths_is_chosen_once() {
    let joined = Disk { other_paths: vec!["sdb".to_owned()], ..with_label("sda", "COS_STATE") };
    let disks = [joined];
    for wish in [
        named("sda"),
        named("sdb"),
        DiskRequest::Selector(vec![]),
        DiskRequest::Selector(vec![require("Name", "In", &["sdb"])]),
        DiskRequest::Selector(vec![require("Path", "In", &["/dev/sdb"])]),
    ] {
        let chosen = choose_disk(&disks, &wish, &Rules::default());
        assert_eq!(name_of(&chosen).as_deref(), Some("sda"), "{wish:?}: {chosen:?}");
    }
}

#[test]
fn equal_wwns_alone_leave_doubt() {
    let path = |name: &str, label: &str| {
        let empty = Disk { wwn: "0x5".to_owned(), ..disk(name, 100 * GIB) };
        if label.is_empty() { empty } else { Disk { wwn: "0x5".to_owned(), ..with_label(name, label) } }
    };
    for (name, other, is_annotated, is_refused) in [
        ("named for all hosts", "", false, true),
        ("named for this host", "", true, false),
        ("named for this host, with a system", "COS_STATE", true, true),
    ] {
        let disks = [path("sda", ""), path("sdb", other)];
        let rules = Rules { is_annotated, ..Rules::default() };
        let message = choose_disk(&disks, &named("sda"), &rules).err().map(|error| error.to_string());
        assert_eq!(message.is_some(), is_refused, "{name}: {message:?}");
        let message = message.unwrap_or_default();
        assert_eq!(message.contains("paths to one disk"), is_refused, "{name}: {message}");
        assert!(!message.contains("wipe"), "{name}: {message}");
    }
}

#[test]
fn a_silent_disk_is_never_taken() {
    let silent = |name: &str| Disk { state: DiskState::Silent, ..disk(name, GIB) };
    let all = DiskRequest::Selector(vec![]);
    let disks = [silent("sda"), disk("sdb", GIB)];
    let message = choose_disk(&disks, &all, &Rules::default()).unwrap_err().to_string();
    assert!(message.contains("2 disks fit the device selector, sda (but sda does not answer"), "{message}");
    assert_eq!(name_of(&choose_disk(&disks, &named("sdb"), &Rules::default())).as_deref(), Some("sdb"));
    let rules = Rules { is_annotated: true, ..Rules::default() };
    let message = choose_disk(&disks, &named("sda"), &rules).unwrap_err().to_string();
    assert!(message.contains("sda, which does not answer reads"), "{message}");
}

#[test]
fn a_dead_system_is_replaced_by_annotation_alone() {
    let partition = Partition { label: "persistent".to_owned(), ..Partition::default() };
    let dead = Disk { partitions: vec![partition], ..disk("sdb", GIB) };
    let disks = [disk("sda", GIB), dead];
    let silent = ["sdb".to_owned()];
    for (is_annotated, is_taken) in [(false, false), (true, true)] {
        let rules = Rules { is_annotated, silent: &silent, ..Rules::default() };
        let chosen = choose_disk(&disks, &named("sda"), &rules);
        assert_eq!(chosen.is_ok(), is_taken, "{chosen:?}");
    }
}
