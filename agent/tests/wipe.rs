//! The wipe on real mounts, in a mount namespace of its own. Needs root.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use agent::ground::durable;
use agent::ground::paths::Root;
use agent::host::wipe;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

const NONE: Option<&str> = None;

fn put(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "content").unwrap();
}

fn mount_tmpfs(at: &Path) {
    fs::create_dir_all(at).unwrap();
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), NONE).unwrap();
}

/// An overlay over two file systems: every file has a device number of its own.
fn mount_overlay(base: &Path, at: &Path) {
    let (lower, upper) = (base.join("lower"), base.join("upper"));
    mount_tmpfs(&lower);
    mount_tmpfs(&upper);
    put(&lower.join("pods/of/the/image"));
    for directory in [upper.join("data"), upper.join("work"), at.to_owned()] {
        fs::create_dir_all(directory).unwrap();
    }
    let options =
        format!("lowerdir={0}/lower,upperdir={0}/upper/data,workdir={0}/upper/work,xino=off", base.display());
    mount(Some("overlay"), at, Some("overlay"), MsFlags::empty(), Some(options.as_str())).unwrap();
}

#[test]
fn an_overlay_is_emptied_but_for_its_mounts() {
    let directory = tempfile::tempdir().unwrap();
    let in_namespace = || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
        let root = Root::at(directory.path().join("root"));
        let kubelet = root.join("/var/lib/kubelet");
        mount_overlay(directory.path(), &kubelet);
        put(&kubelet.join("pods/of/the/node"));
        put(&kubelet.join("pki/kubelet.key"));
        let (volume, bound) = (kubelet.join("pods/a/volume"), kubelet.join("pods/b/bound"));
        mount_tmpfs(&volume);
        put(&volume.join("data"));
        put(&kubelet.join("pods/b/source/data"));
        put(&bound);
        mount(Some(&kubelet.join("pods/b/source/data")), &bound, NONE, MsFlags::MS_BIND, NONE).unwrap();

        let mut kept = wipe::empty_directory(&root, "/var/lib/kubelet").unwrap();

        kept.sort();
        assert_eq!(kept, [volume.clone(), bound.clone()]);
        assert!(volume.join("data").exists());
        let left = |path: &str| -> Vec<PathBuf> {
            fs::read_dir(kubelet.join(path)).unwrap().map(|entry| entry.unwrap().path()).collect()
        };
        assert_eq!(left(""), [kubelet.join("pods")]);
        assert_eq!((left("pods/a"), left("pods/b")), (vec![volume.clone()], vec![bound.clone()]));
    };
    thread::scope(|scope| scope.spawn(in_namespace).join()).unwrap();
}

// Fault: the image has a seed of its own, and its directory is an overlay.
// Shown: nothing: the seed of the plan replaces the image's.
#[test]
fn merged_directory_of_an_overlay_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let in_namespace = || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
        let cloud = directory.path().join("cloud");
        mount_overlay(directory.path(), &cloud);
        let seed = cloud.join("pods/of/the");
        assert!(seed.join("image").exists(), "the image's seed is in the lower layer");
        durable::replace_directory(&seed, &[("user-data", b"of the plan")]).unwrap();
        assert_eq!(fs::read(seed.join("user-data")).unwrap(), b"of the plan");
        assert_eq!(fs::read_dir(&seed).unwrap().count(), 1, "the image's file is gone");
        durable::replace_directory(&seed, &[("user-data", b"of the next")]).unwrap();
        assert_eq!(fs::read_dir(seed.parent().unwrap()).unwrap().count(), 1, "no former directory is left");
    };
    thread::scope(|scope| scope.spawn(in_namespace).join()).unwrap();
}
