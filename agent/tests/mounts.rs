//! A look at a disk that another host may have in use, on real block devices. Needs root.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use agent::ground::paths::Root;
use agent::live::installed_disk::{Access, KernelMounts, Mounts as _};
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};

const NONE: Option<&str> = None;
const BYTES: u64 = 16 << 20;

fn run(program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).output().unwrap();
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// A file as a block device, such as /dev/loop0.
struct Device(String);

impl Device {
    fn attach(image: &Path) -> Self {
        Self(run("losetup", &["--find", "--show", image.to_str().unwrap()]))
    }

    fn name(&self) -> &str {
        self.0.trim_start_matches("/dev/")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.0]);
    }
}

/// An ext4 of which a host that still runs, or lost its power, has left work in the journal.
fn make_disk_in_use(directory: &Path) -> PathBuf {
    let (image, copy, at) = (directory.join("image"), directory.join("copy"), directory.join("mounted"));
    File::create(&image).unwrap().set_len(BYTES).unwrap();
    run("mkfs.ext4", &["-q", image.to_str().unwrap()]);
    let device = Device::attach(&image);
    fs::create_dir(&at).unwrap();
    mount(Some(device.0.as_str()), &at, Some("ext4"), MsFlags::empty(), NONE).unwrap();
    fs::write(at.join("file"), "content").unwrap();
    nix::unistd::sync();
    fs::copy(&image, &copy).unwrap();
    umount(&at).unwrap();
    let header = run("dumpe2fs", &["-h", copy.to_str().unwrap()]);
    assert!(header.contains("needs_recovery"), "{header}");
    copy
}

/// Whether a mount changes what is on the disk.
fn is_changed_by(access: Access, disk: &Path, root: &Root) -> bool {
    let before = fs::read(disk).unwrap();
    let device = Device::attach(disk);
    let mounted = KernelMounts::below(root).mount(device.name(), access).unwrap();
    assert!(root.runtime().join(device.name()).join("lost+found").is_dir());
    drop(mounted);
    drop(device);
    fs::read(disk).unwrap() != before
}

#[test]
fn look_at_a_disk_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let in_namespace = || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
        let disk = make_disk_in_use(directory.path());
        let root = Root::at(directory.path().join("root"));
        assert!(!is_changed_by(Access::Read, &disk, &root));
        assert!(is_changed_by(Access::Write, &disk, &root), "a mount for writing replays the journal");
    };
    thread::scope(|scope| scope.spawn(in_namespace).join()).unwrap();
}
