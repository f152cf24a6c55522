//! Empties the directories of a former node and nothing else: links are removed and never followed,
//! mounts are never entered.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, FileType, StatxAttributes, StatxFlags, statx, unlinkat};
use rustix::io::Errno;

use crate::ground::durable;
use crate::ground::failure::{Failure, OnPath as _};
use crate::ground::paths::Root;
use crate::ground::tree::{Visited, Visitor, open_directory, walk_tree};

const REMOVE: &str = "remove";

fn link_failure(path: &Path) -> Failure {
    let message = format!("{} is a link, not a directory", path.display());
    Failure::input_output(message, "make it a directory or a mount point")
}

/// Empties `directory` of the host. The directory itself stays, because it may be a mount point.
/// Returns the mount points inside, which stay too.
pub fn empty_directory(root: &Root, directory: &str) -> Result<Vec<PathBuf>, Failure> {
    empty_until(root, directory, None).map(|emptied| emptied.kept)
}

/// The part of a directory that was removed.
#[derive(Debug, Default)]
pub struct Emptied {
    /// Mount points inside, which stay.
    pub kept: Vec<PathBuf>,
    /// Number of removed files and directories.
    pub removed: u64,
    /// False if the time limit was reached before the end.
    pub is_complete: bool,
}

/// Empties `directory` until this time. At least one entry is removed, so that each call makes
/// progress.
pub fn empty_until(root: &Root, directory: &str, until: Option<Instant>) -> Result<Emptied, Failure> {
    let remover = Remover { until, enters: true, ..Remover::default() };
    remove_content(root, directory, remover)
}

/// Removes the files directly in `directory` of the host; its subdirectories stay.
pub fn remove_files(root: &Root, directory: &str) -> Result<(), Failure> {
    remove_content(root, directory, Remover::default()).map(|_| ())
}

fn remove_content(root: &Root, directory: &str, mut remover: Remover) -> Result<Emptied, Failure> {
    let path = root.join(directory);
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Emptied { is_complete: true, ..Emptied::default() });
        }
        Ok(metadata) if metadata.is_symlink() => return Err(link_failure(&path)),
        found => found.on(REMOVE, &path)?,
    };
    remover.mounts = mounts_below(root, directory)?;
    let opened = open_directory(CWD, &path).on(REMOVE, &path)?;
    let walked = walk_tree(opened, &path, &mut remover);
    let is_complete = match walked {
        Err((_, error)) if error.kind() == io::ErrorKind::TimedOut => false,
        walked => walked.map(|()| true).or_else(|(path, error)| Err(error).on(REMOVE, &path))?,
    };
    Ok(Emptied { kept: remover.kept, removed: remover.removed, is_complete })
}

/// Makes the removals in these directories durable, so that no record of them can be older on the
/// disk.
pub fn flush_directories(root: &Root, directories: &[&str]) -> Result<(), Failure> {
    let directories: Vec<_> = directories.iter().map(|directory| root.join(directory)).collect();
    durable::flush_file_systems(&directories)
}

/// Removes by open directories, so that a directory that is replaced by a link meanwhile redirects
/// nothing.
#[derive(Default)]
struct Remover {
    until: Option<Instant>,
    removed: u64,
    /// The mount points that the host's first process sees, because the agent may have a mount
    /// namespace of its own.
    mounts: Vec<PathBuf>,
    /// True if subdirectories are removed too.
    enters: bool,
    /// Mount points that were found.
    kept: Vec<PathBuf>,
    /// Directories above them.
    left: BTreeSet<PathBuf>,
}

impl Visitor for Remover {
    const REMOVES: bool = true;

    fn visit(&mut self, parent: BorrowedFd<'_>, name: &CStr, path: &Path) -> io::Result<Visited> {
        let found = match look_at(parent, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Visited::Done),
            found => found?,
        };
        if found.is_mount || self.mounts.iter().any(|mount| mount == path) {
            if !self.kept.iter().any(|kept| kept == path) {
                self.kept.push(path.to_owned());
            }
        } else if !found.is_directory {
            self.remove(parent, name, AtFlags::empty())?;
        } else if self.enters && !self.left.contains(path) {
            return Ok(Visited::Enter);
        }
        Ok(Visited::Done)
    }

    /// Removes the directory unless something in it was kept.
    fn leave(&mut self, parent: BorrowedFd<'_>, name: &CStr, path: &Path) -> io::Result<()> {
        if self.kept.iter().any(|kept| kept.starts_with(path)) {
            self.left.insert(path.to_owned());
            return Ok(());
        }
        self.remove(parent, name, AtFlags::REMOVEDIR)
    }

    fn fail(&mut self, _: &Path, error: io::Error) -> io::Result<()> {
        Err(error)
    }
}

impl Remover {
    /// A name that is gone meanwhile counts as removed.
    fn remove(&mut self, parent: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> io::Result<()> {
        if self.removed > 0 && self.until.is_some_and(|until| Instant::now() >= until) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match unlinkat(parent, name, flags) {
            Ok(()) | Err(Errno::NOENT) => {
                self.removed += 1;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

struct Found {
    is_mount: bool,
    is_directory: bool,
}

/// The kernel marks the root of a mount. Device numbers cannot be used: on an overlay every file
/// has its own number, and a bind mount has the number of its source.
fn look_at(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<Found> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = statx(parent, name, flags, StatxFlags::TYPE)?;
    if !found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        let message = "the kernel does not tell mount points, Linux 5.8 or later is needed";
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    Ok(Found {
        is_mount: found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        is_directory: FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory,
    })
}

/// Mount points strictly below `directory`, as the host's first process sees them, the deepest
/// first.
pub fn mounts_below(root: &Root, directory: &str) -> Result<Vec<PathBuf>, Failure> {
    let mountinfo = root.join("/proc/1/mountinfo");
    let text = durable::read_text(&mountinfo)?.unwrap_or_default();
    let mut found: Vec<PathBuf> = parse_mount_points(&text)
        .into_iter()
        .filter(|path| path.starts_with(directory) && path != Path::new(directory))
        .map(|path| root.join(path))
        .collect();
    found.sort();
    found.dedup();
    found.reverse();
    Ok(found)
}

fn parse_mount_points(text: &str) -> Vec<PathBuf> {
    let points = text.lines().filter_map(|line| line.split(' ').nth(4));
    points.map(|point| PathBuf::from(unescape_mount(point))).collect()
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescape_mount(text: &str) -> String {
    let pairs = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    pairs.into_iter().fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

/// Removes the configuration that cloud-init rendered for the former node's network. Older versions
/// of cloud-init leave it behind, and a NIC that the new seed does not name would keep its old
/// address.
pub fn remove_rendered_network(root: &Root) -> Result<(), Failure> {
    let rendered = [
        ("/etc/systemd/network", "10-cloud-init-"),
        ("/etc/netplan", "50-cloud-init."),
        ("/etc/NetworkManager/system-connections", "cloud-init-"),
    ];
    for (directory, prefix) in rendered {
        let Ok(entries) = fs::read_dir(root.join(directory)) else {
            continue;
        };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                fs::remove_file(entry.path()).on(REMOVE, &entry.path())?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::ground::limited::is_limited;

    struct Host {
        _directory: tempfile::TempDir,
        root: Root,
    }

    impl Host {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let root = Root::at(directory.path());
            Self { _directory: directory, root }
        }

        fn put(&self, path: &str) {
            let path = self.root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "content").unwrap();
        }

        fn is(&self, path: &str) -> bool {
            fs::symlink_metadata(self.root.join(path)).is_ok()
        }
    }

    #[test]
    fn a_directory_is_emptied_and_stays() {
        let host = Host::new();
        host.put("/var/lib/kubelet/pods/a/b/c");
        host.put("/var/lib/kubelet/config.yaml");
        assert_eq!(empty_directory(&host.root, "/var/lib/kubelet").unwrap(), Vec::<PathBuf>::new());
        let left = fs::read_dir(host.root.join("/var/lib/kubelet")).unwrap().count();
        assert_eq!(left, 0);
        assert!(empty_directory(&host.root, "/var/lib/nothing").unwrap().is_empty());
    }

    #[test]
    fn links_are_removed_and_never_followed() {
        let host = Host::new();
        host.put("/srv/precious/file");
        host.put("/var/lib/kubelet/x");
        let link = host.root.join("/var/lib/kubelet/link");
        symlink(host.root.join("/srv/precious"), &link).unwrap();
        empty_directory(&host.root, "/var/lib/kubelet").unwrap();
        assert!(!host.is("/var/lib/kubelet/link") && host.is("/srv/precious/file"));
        symlink(host.root.join("/srv/precious"), host.root.join("/var/lib/etcd")).unwrap();
        let error = empty_directory(&host.root, "/var/lib/etcd").unwrap_err();
        assert!(error.message.contains("is a link") && host.is("/srv/precious/file"), "{error}");
    }

    /// Makes directories below each other; no path may be that long.
    fn nest(top: &Path, levels: usize) {
        let mut directory = open_directory(CWD, top).unwrap();
        for _ in 0..levels {
            rustix::fs::mkdirat(&directory, "deep", 0o700.into()).unwrap();
            directory = open_directory(&directory, "deep").unwrap();
        }
        rustix::fs::openat(
            &directory,
            "file",
            rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY,
            0o600.into(),
        )
        .unwrap();
    }

    #[test]
    fn any_tree_is_removed_with_few_descriptors() {
        if !is_limited("host::wipe::tests::any_tree_is_removed_with_few_descriptors") {
            return;
        }
        let host = Host::new();
        host.put("/var/lib/kubelet/pods/a/volume/data");
        host.put("/proc/1/mountinfo");
        let line = "36 35 98:0 /m /var/lib/kubelet/pods/a/volume rw - ext4 /dev/x rw\n";
        fs::write(host.root.join("/proc/1/mountinfo"), line).unwrap();
        let pods = host.root.join("/var/lib/kubelet/pods");
        nest(&pods, 5000);
        // 300,000 files.
        for number in 0..6000 {
            let pod = pods.join(format!("pod-{number}"));
            fs::create_dir(&pod).unwrap();
            (0..50).for_each(|file| fs::write(pod.join(file.to_string()), "").unwrap());
        }
        let kept = empty_directory(&host.root, "/var/lib/kubelet").unwrap();
        assert_eq!(kept, [pods.join("a/volume")]);
        assert!(host.is("/var/lib/kubelet/pods/a/volume/data"));
        assert_eq!(fs::read_dir(&pods).unwrap().count(), 1);
    }

    #[test]
    fn files_are_removed_and_subdirectories_stay() {
        let host = Host::new();
        host.put("/var/lib/rancher/rke2/agent/client-kubelet.key");
        host.put("/var/lib/rancher/rke2/agent/images/x.tar.zst");
        remove_files(&host.root, "/var/lib/rancher/rke2/agent").unwrap();
        assert!(!host.is("/var/lib/rancher/rke2/agent/client-kubelet.key"));
        assert!(host.is("/var/lib/rancher/rke2/agent/images/x.tar.zst"));
    }

    #[test]
    fn nested_mount_points_keep_their_content() {
        let host = Host::new();
        host.put("/var/lib/kubelet/pods/a/volume/data");
        host.put("/var/lib/kubelet/pods/a/other");
        host.put("/var/lib/kubelet/pods/a/volumes/x");
        host.put("/proc/1/mountinfo");
        let line = "36 35 98:0 /m /var/lib/kubelet/pods/a/volume rw - ext4 /dev/x rw\n35 1 98:0 / /var/lib/kubelet rw - ext4 /dev/x rw\n";
        fs::write(host.root.join("/proc/1/mountinfo"), line).unwrap();
        let kept = empty_directory(&host.root, "/var/lib/kubelet").unwrap();
        assert_eq!(kept, [host.root.join("/var/lib/kubelet/pods/a/volume")]);
        assert!(host.is("/var/lib/kubelet/pods/a/volume/data"));
        assert!(!host.is("/var/lib/kubelet/pods/a/other") && !host.is("/var/lib/kubelet/pods/a/volumes"));
    }

    #[test]
    fn kernel_escapes_in_mount_points_are_decoded() {
        let text = "1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 / /a\\040b\\134c rw shared:1 - ext4 b rw\ngarbage\n";
        assert_eq!(parse_mount_points(text), [Path::new("/"), Path::new("/a b\\c")]);
    }

    #[test]
    fn only_rendered_network_files_are_removed() {
        let host = Host::new();
        for path in [
            "/etc/systemd/network/10-cloud-init-eth0.network",
            "/etc/systemd/network/80-dhcp.network",
            "/etc/netplan/50-cloud-init.yaml",
        ] {
            host.put(path);
        }
        remove_rendered_network(&host.root).unwrap();
        assert!(!host.is("/etc/systemd/network/10-cloud-init-eth0.network"));
        assert!(!host.is("/etc/netplan/50-cloud-init.yaml"));
        assert!(host.is("/etc/systemd/network/80-dhcp.network"));
    }
}
