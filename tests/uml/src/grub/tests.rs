use std::cell::RefCell;

use super::*;

const OF_DISK: &str = include_str!("../../../../iso/elemental/grub.cfg");
const OF_ISO: &str = include_str!("../../../../iso/grub-live.cfg");
const BLOCK: usize = 256;

/// Files by device and path. The name of a device is its label.
#[derive(Default)]
struct Files(RefCell<BTreeMap<(String, String), Vec<u8>>>);

impl Files {
    fn with(self, device: &str, path: &str, content: &[u8]) -> Self {
        self.0.borrow_mut().insert((device.to_owned(), path.to_owned()), content.to_owned());
        self
    }

    fn with_environment(self, path: &str, variables: &[(&str, &str)]) -> Self {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let block = format_environment(&variables.collect(), BLOCK).unwrap();
        self.with("COS_OEM", path, &block)
    }

    fn environment(&self) -> BTreeMap<String, String> {
        parse_environment(&self.read("COS_OEM", "/grubenv").unwrap())
    }
}

impl Devices for Files {
    fn find_label(&self, label: &str) -> Option<String> {
        self.0.borrow().keys().any(|(device, _)| device == label).then(|| label.to_owned())
    }

    fn read(&self, device: &str, path: &str) -> Option<Vec<u8>> {
        self.0.borrow().get(&(device.to_owned(), path.to_owned())).cloned()
    }

    fn overwrite(&self, device: &str, path: &str, content: &[u8]) -> Option<()> {
        self.0.borrow_mut().insert((device.to_owned(), path.to_owned()), content.to_owned());
        Some(())
    }
}

fn installed(has_passive: bool) -> Files {
    let mut files = Files::default();
    for name in ["active", "passive"].into_iter().filter(|name| has_passive || *name == "active") {
        let kernel = [ELF, name.as_bytes()].concat();
        files = files.with("COS_STATE", &format!("/.snapshots/{name}/vmlinuz"), &kernel).with(
            "COS_STATE",
            &format!("/.snapshots/{name}/initrd"),
            name.as_bytes(),
        );
    }
    files
}

#[test]
fn the_disk_boots_by_its_variables() {
    let check = ("boot_assessment_check", "yes");
    let attempt = |mode| ("last_boot_attempt", mode);
    for (name, has_passive, variables, boots, attempted) in [
        ("no trial", true, &[][..], "active", None),
        ("a trial begins", true, &[check], "active", Some("active")),
        ("a trial did not end", true, &[check, attempt("active")], "passive", Some("passive")),
        ("nothing to fall back to", false, &[check, attempt("active")], "active", Some("active")),
        ("an attempt without a trial", true, &[attempt("active")], "active", Some("active")),
    ] {
        let files = installed(has_passive).with_environment("/grubenv", variables);
        let entry = boot(OF_DISK, "COS_GRUB", &files).unwrap();
        assert_eq!(entry.initrd, boots.as_bytes(), "{name}");
        assert!(entry.arguments.contains(&format!("elemental.mode={boots}")), "{name}: {entry:?}");
        let is_on_trial = variables.contains(&check);
        assert_eq!(entry.arguments.contains(&"elemental.health_check".to_owned()), is_on_trial, "{name}");
        let stored = files.environment().remove("last_boot_attempt");
        assert_eq!(stored.as_deref(), attempted, "{name}");
    }
}

#[test]
fn arguments_of_the_disk_are_appended() {
    let extra = [("extra_cmdline", "lab.persistence=overlay quiet")];
    let files = installed(true).with_environment("/grubenv", &[]).with_environment("/grub_oem_env", &extra);
    let entry = boot(OF_DISK, "COS_GRUB", &files).unwrap();
    assert!(entry.arguments.ends_with(&["lab.persistence=overlay".to_owned(), "quiet".to_owned()]));
}

#[test]
fn a_kernel_that_does_not_load_falls_back() {
    for (name, kernel) in [("an empty file", &b""[..]), ("garbage", b"garbage")] {
        let files = installed(true).with_environment("/grubenv", &[]).with(
            "COS_STATE",
            "/.snapshots/active/vmlinuz",
            kernel,
        );
        let entry = boot(OF_DISK, "COS_GRUB", &files).unwrap();
        assert_eq!(entry.initrd, b"passive", "{name}");
    }
}

#[test]
fn an_iso_boots_its_only_entry() {
    let files = Files::default().with("COS_LIVE", "/boot/x86_64/loader/linux", ELF).with(
        "COS_LIVE",
        "/boot/x86_64/loader/initrd",
        b"live",
    );
    let entry = boot(OF_ISO, "COS_LIVE", &files).unwrap();
    assert_eq!(entry.initrd, b"live");
    assert_eq!(entry.arguments[..2], ["cdroot", "root=live:CDLABEL=COS_LIVE"]);
}

#[test]
fn unknown_command_is_an_error() {
    for script in ["chainloader /x", "if [ a -o b ]; then\nset x=y\nfi", "search --fs-uuid --set=x y"] {
        assert!(boot(script, "x", &Files::default()).is_err(), "{script}");
    }
}
