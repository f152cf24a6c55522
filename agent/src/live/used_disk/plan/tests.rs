use super::super::layers::Membership;
use super::*;

/// Builds layers with both directions of each relation.
#[derive(Default)]
struct Model(Layers);

impl Model {
    fn disk(mut self, name: &str, partitions: &[&str]) -> Self {
        self.0.0.push(Layer { name: name.to_owned(), ..Layer::default() });
        for partition in partitions {
            let disk = Some(name.to_owned());
            self.0.0.push(Layer { name: (*partition).to_owned(), disk, ..Layer::default() });
        }
        self
    }

    fn built(mut self, name: &str, kind: Kind, slaves: &[&str]) -> Self {
        for layer in &mut self.0.0 {
            if slaves.contains(&layer.name.as_str()) {
                layer.holders.push(name.to_owned());
            }
        }
        let slaves = slaves.iter().map(ToString::to_string).collect();
        self.0.0.push(Layer { name: name.to_owned(), kind, slaves, ..Layer::default() });
        self
    }

    fn mapped(self, name: &str, label: &str, slaves: &[&str]) -> Self {
        self.built(name, Kind::Mapped(label.to_owned()), slaves)
    }

    fn change(mut self, name: &str, change: impl FnOnce(&mut Layer)) -> Self {
        change(self.0.0.iter_mut().find(|layer| layer.name == name).unwrap());
        self
    }

    fn member(self, name: &str, kind: SetKind, set: &str) -> Self {
        let membership = Membership { kind, name: set.to_owned(), id: format!("id of {set}") };
        self.change(name, |layer| layer.membership = Some(membership))
    }

    fn plan(&self, names: &[&str]) -> Result<Vec<String>, Obstacle> {
        let targets: Vec<_> = names.iter().map(|name| target(name, &[])).collect();
        self.plan_targets(&targets)
    }

    fn plan_targets(&self, targets: &[Disk]) -> Result<Vec<String>, Obstacle> {
        let steps = plan_steps(&self.0, &targets.iter().collect::<Vec<_>>())?;
        Ok(steps.into_iter().map(describe).collect())
    }
}

fn target(name: &str, other_paths: &[&str]) -> Disk {
    let other_paths = other_paths.iter().map(ToString::to_string).collect();
    Disk { name: name.to_owned(), other_paths, ..Disk::default() }
}

fn describe(step: Step) -> String {
    match step {
        Step::Export { pool, .. } => format!("export {pool}"),
        Step::Remove(name) => format!("remove {name}"),
        Step::Stop(name) => format!("stop {name}"),
        Step::Erase(name) => format!("erase {name}"),
        Step::Reread(name) => format!("reread {name}"),
    }
}

fn spans(what: &str, disks: &[&str]) -> Obstacle {
    Obstacle::Spans { what: what.to_owned(), disks: disks.iter().map(ToString::to_string).collect() }
}

#[test]
fn lvm_on_md_is_taken_apart_deepest_first() {
    let model = Model::default()
        .disk("sda", &["sda1", "sda2"])
        .disk("sdb", &["sdb1"])
        .built("md127", Kind::Array, &["sda1", "sda2"])
        .mapped("dm-0", "vg0-root", &["md127"])
        .mapped("dm-1", "vg0-pool_tdata", &["md127"])
        .mapped("dm-2", "vg0-thin", &["dm-1"]);
    assert_eq!(
        model.plan(&["sda"]).unwrap(),
        [
            "remove vg0-root",
            "remove vg0-thin",
            "remove vg0-pool_tdata",
            "stop md127",
            "erase sda1",
            "erase sda2",
            "erase sda",
            "reread sda"
        ]
    );
    assert_eq!(model.plan(&["sdb"]).unwrap(), ["erase sdb1", "erase sdb", "reread sdb"]);
}

#[test]
fn luks_on_lvm_is_taken_apart() {
    let model = Model::default()
        .disk("nvme0n1", &["nvme0n1p3"])
        .mapped("dm-0", "vg-home", &["nvme0n1p3"])
        .mapped("dm-1", "luks-home", &["dm-0"]);
    let plan = model.plan(&["nvme0n1"]).unwrap();
    assert_eq!(plan[..3], ["remove luks-home", "remove vg-home", "erase nvme0n1p3"]);
}

#[test]
fn an_array_on_two_disks_is_refused() {
    let model = Model::default()
        .disk("sda", &["sda1"])
        .disk("sdb", &["sdb1"])
        .built("md127", Kind::Array, &["sda1", "sdb1"])
        .mapped("dm-0", "vg0-root", &["md127"]);
    assert_eq!(model.plan(&["sda"]).unwrap_err(), spans("md127", &["sdb"]));
    let plan = model.plan(&["sda", "sdb"]).unwrap();
    assert_eq!(plan[..2], ["remove vg0-root", "stop md127"], "both are given up");
    assert!(plan.contains(&"erase sdb1".to_owned()), "{plan:?}");
}

#[test]
fn a_set_on_two_disks_is_refused() {
    for kind in [SetKind::VolumeGroup, SetKind::Array, SetKind::Pool, SetKind::Datastore] {
        let model = Model::default()
            .disk("sda", &["sda1"])
            .disk("sdb", &["sdb1"])
            .disk("sdc", &[])
            .member("sda1", kind, "tank")
            .member("sdb1", kind, "tank")
            .member("sdc", kind, "data");
        let what = format!("the {} tank", kind.noun());
        assert_eq!(model.plan(&["sda"]).unwrap_err(), spans(&what, &["sdb"]));
        assert!(model.plan(&["sdc"]).is_ok(), "another set");
    }
}

#[test]
fn a_group_on_array_and_disk_is_refused() {
    let model = Model::default()
        .disk("sda", &[])
        .disk("sdb", &[])
        .built("md0", Kind::Array, &["sda"])
        .member("md0", SetKind::VolumeGroup, "vg0")
        .member("sdb", SetKind::VolumeGroup, "vg0");
    assert_eq!(model.plan(&["sda"]).unwrap_err(), spans("the volume group vg0", &["sdb"]));
}

#[test]
fn multipath_is_emptied_by_its_own_name() {
    let model = Model::default()
        .disk("sda", &[])
        .disk("sdb", &[])
        .built("dm-0", Kind::Multipath, &["sda", "sdb"])
        .mapped("dm-1", "mpatha-part1", &["dm-0"])
        .mapped("dm-2", "vg0-root", &["dm-1"])
        .member("dm-0", SetKind::VolumeGroup, "vg0")
        .member("sda", SetKind::VolumeGroup, "vg0");
    let leg = target("sda", &["sdb"]);
    assert_eq!(model.plan_targets(&[leg]).unwrap_err(), Obstacle::PathOf("dm-0".to_owned()));
    let plan = model.plan(&["dm-0"]).unwrap();
    assert_eq!(plan, ["remove vg0-root", "remove mpatha-part1", "erase dm-0"]);
}

#[test]
fn a_disk_on_two_paths_spans_no_other() {
    let model = Model::default()
        .disk("sda", &["sda1"])
        .disk("sdb", &["sdb1"])
        .member("sda1", SetKind::VolumeGroup, "vg0")
        .member("sdb1", SetKind::VolumeGroup, "vg0")
        .mapped("dm-0", "vg0-root", &["sdb1"]);
    let plan = model.plan_targets(&[target("sda", &["sdb"])]).unwrap();
    assert_eq!(plan, ["remove vg0-root", "erase sda1", "erase sda", "reread sda", "reread sdb"]);
}

#[test]
fn firmware_volume_is_stopped_before_its_container() {
    let model = Model::default().disk("sda", &[]).built("md126", Kind::Container, &["sda"]).built(
        "md127",
        Kind::Array,
        &["sda"],
    );
    assert_eq!(model.plan(&["sda"]).unwrap()[..2], ["stop md127", "stop md126"]);
}

#[test]
fn a_pool_is_exported_first() {
    let model = Model::default().disk("sda", &["sda1", "sda9"]).member("sda1", SetKind::Pool, "rpool");
    assert_eq!(model.plan(&["sda"]).unwrap()[..2], ["export rpool", "erase sda1"]);
}

#[test]
fn devices_in_use_or_unknown_are_refused() {
    let model = || Model::default().disk("sda", &["sda1"]);
    let mounted = model()
        .mapped("dm-0", "vg0-root", &["sda1"])
        .change("dm-0", |layer| layer.uses.push("/mnt".to_owned()));
    let in_use = Obstacle::InUse { name: "dm-0".to_owned(), uses: vec!["/mnt".to_owned()] };
    assert_eq!(mounted.plan(&["sda"]).unwrap_err(), in_use);
    let cached = model().built("bcache0", Kind::Other, &["sda1"]);
    assert_eq!(cached.plan(&["sda"]).unwrap_err(), Obstacle::Unknown("bcache0".to_owned()));
    let vanished = model().change("sda1", |layer| layer.holders.push("dm-9".to_owned()));
    assert_eq!(vanished.plan(&["sda"]).unwrap_err(), Obstacle::Unknown("dm-9".to_owned()));
}
