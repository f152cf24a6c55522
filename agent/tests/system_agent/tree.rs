//! A directory as the root of a mount namespace: `/etc`, `/var`, `/run` and
//! `/tmp` are its own, the commands are the host's, read-only.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Uid, chdir, chroot};

use super::host::VOLUME;

/// Where commands are looked for first.
pub(crate) const COMMANDS: &str = "/simulation/commands";

/// Commands that need more than files. Each acts on the simulated host as
/// `SimulatedSystem` does, and records its effect.
const STAND_INS: [(&str, &str); 9] = [
    (
        "elemental",
        r#"[ "$#:$1:$2:$3" = 4:upgrade:--reboot=false:--system ] || exit 64
printf %s "$4" > /simulation/unflushed
echo "upgrade $4" >> /simulation/effects"#,
    ),
    (
        "cloud-init",
        r#"[ "$*" = "clean --logs --seed" ] || exit 64
rm -rf /var/lib/cloud/*
echo "cloud-init clean" >> /simulation/effects"#,
    ),
    (
        "systemctl",
        r#"case $1:$2 in
  cat:kubelet.service | cat:containerd.service) ;;
  cat:*) exit 1 ;;
  stop:*)
    [ -e "/simulation/units/$2" ] || exit 0
    rm "/simulation/units/$2"
    echo "stop $2" >> /simulation/effects ;;
  *) exit 64 ;;
esac"#,
    ),
    (
        "systemd-run",
        r#"[ "$*" = "--on-active=10 systemctl reboot" ] || exit 64
: > /simulation/reboot
echo "reboot Orderly" >> /simulation/effects"#,
    ),
    (
        "ctr",
        r#"[ "$1:$2" = -n:k8s.io ] || exit 64
shift 2
[ -e /simulation/units/containerd.service ] || exit 1
case $1:$2 in
  containers:list | tasks:list) [ ! -e /simulation/workload ] || ls /simulation/workload ;;
  tasks:delete) ;;
  containers:delete)
    rm "/simulation/workload/$3"
    [ -n "$(ls /simulation/workload)" ] || { rmdir /simulation/workload; echo "remove workload" >> /simulation/effects; } ;;
  *) exit 64 ;;
esac"#,
    ),
    (
        "sync",
        r#"[ "$#" = 0 ] || exit 64
[ ! -e /simulation/unflushed ] || mv /simulation/unflushed /simulation/next"#,
    ),
    ("fstrim", "echo trimmed"),
    (
        "journalctl",
        r#"[ "$*" = "--rotate --vacuum-time=1s" ] || exit 64
rm -rf /var/log/journal"#,
    ),
    (
        "umount",
        r#"echo "unmount $1" >> /simulation/effects
exec /usr/bin/umount "$@""#,
    ),
];

/// Without root there is no mount namespace.
pub(crate) fn require_root() {
    assert!(
        Uid::effective().is_root(),
        "this test needs root (CAP_SYS_ADMIN and CAP_SYS_CHROOT) for a mount namespace with a root of its own: run it as root"
    );
}

pub(crate) struct Tree(PathBuf);

impl Tree {
    pub(crate) fn new(root: &Path) -> Self {
        let tree = Self(root.to_owned());
        for directory in ["usr", "dev", "proc", "run", "tmp"] {
            fs::create_dir_all(tree.0.join(directory)).unwrap();
        }
        fs::write(tree.0.join("dev/null"), "").unwrap();
        for alias in ["bin", "sbin", "lib", "lib64"] {
            tree.link_alias(alias);
        }
        for (name, body) in STAND_INS {
            let path = tree.0.join(COMMANDS.trim_start_matches('/')).join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            write_program(&path, &format!("#!/bin/sh -e\n{body}\n"));
        }
        tree
    }

    /// Where the host has a link below `/usr`, so has the tree; a directory is
    /// mounted later.
    fn link_alias(&self, alias: &str) {
        let (host, own) = (Path::new("/").join(alias), self.0.join(alias));
        if own.symlink_metadata().is_ok() {
            return;
        }
        match fs::read_link(&host) {
            Ok(target) => symlink(target, own).unwrap(),
            Err(_) if host.is_dir() => fs::create_dir(own).unwrap(),
            Err(_) => {}
        }
    }

    /// Runs `work` with the tree as its root. The namespace is that of one
    /// thread, and of the processes that the thread starts.
    pub(crate) fn enter(&self, work: impl FnOnce() + Send) {
        let in_namespace = || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            self.mount_all();
            chroot(&self.0).unwrap();
            chdir("/").unwrap();
            work();
        };
        thread::scope(|scope| scope.spawn(in_namespace).join()).unwrap();
    }

    fn mount_all(&self) {
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        for directory in ["usr", "bin", "sbin", "lib", "lib64"] {
            let own = self.0.join(directory);
            if own.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
                let bind = MsFlags::MS_BIND;
                mount(Some(&Path::new("/").join(directory)), &own, none, bind, none).unwrap();
                let read_only = bind | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
                mount(none, &own, none, read_only, none).unwrap();
            }
        }
        let null = self.0.join("dev/null");
        mount(Some("/dev/null"), &null, none, MsFlags::MS_BIND, none).unwrap();
        let proc = self.0.join("proc");
        mount(Some("/proc"), &proc, none, MsFlags::MS_BIND | MsFlags::MS_REC, none).unwrap();
        // Only while the node runs: a boot and a clean unmount it.
        let volume = self.0.join(VOLUME.trim_start_matches('/'));
        if volume.is_dir() {
            mount(Some("tmpfs"), &volume, Some("tmpfs"), MsFlags::empty(), none).unwrap();
            fs::write(volume.join("token"), "secret").unwrap();
        }
    }
}

/// By a process of its own: one that another test starts has a copy of what is open here, and no kernel runs a
/// program that is open for writing.
fn write_program(path: &Path, content: &str) {
    let mut install = Command::new("install");
    install.args(["-m", "0755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut child = install.spawn().unwrap();
    child.stdin.take().unwrap().write_all(content.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{}", path.display());
}
