//! Empties the directories of a former node and nothing else: links are removed and never followed,
//! mounts are never entered.

use std::ffi::{CStr, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, StatxAttributes, StatxFlags, openat, statx, unlinkat,
};
use rustix::path::Arg;

use crate::ground::durable;
use crate::ground::failure::{Failure, OnPath as _};
use crate::ground::paths::Root;

/// The directories of a node. RKE2 and k3s keep images of an air gap beside these directories, so
/// only the parts that no image brings along are listed.
pub const NODE_DIRECTORIES: [&str; 8] = [
    "/var/lib/kubelet",
    "/var/lib/containerd",
    "/var/lib/etcd",
    "/etc/kubernetes",
    "/etc/rancher/node",
    "/var/lib/cni",
    "/var/lib/rancher/k3s/server",
    "/var/lib/rancher/rke2/server",
];

const REMOVE: &str = "remove";

fn link_failure(path: &Path) -> Failure {
    let message = format!("{} is a link, not a directory", path.display());
    Failure::input_output(message, "make it a directory or a mount point")
}

/// Empties `directory` of the host. The directory itself stays, because it may be a mount point.
/// Returns the mount points inside, which stay too.
pub fn empty_directory(root: &Root, directory: &str) -> Result<Vec<PathBuf>, Failure> {
    let path = root.join(directory);
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Ok(metadata) if metadata.is_symlink() => return Err(link_failure(&path)),
        found => found.on(REMOVE, &path)?,
    };
    let mounts = mounts_below(root, directory)?;
    let opened = open_directory(rustix::fs::CWD, &path).on(REMOVE, &path)?;
    let mut walk = Walk { mounts, levels: vec![Level { opened, kept_before: 0 }], path, kept: Vec::new() };
    walk.run().on(REMOVE, &walk.path)?;
    Ok(walk.kept)
}

/// Makes the removals in these directories durable, so that no record of them can be older on the
/// disk.
pub fn flush_directories(root: &Root, directories: &[&str]) -> Result<(), Failure> {
    let directories: Vec<_> = directories.iter().map(|directory| root.join(directory)).collect();
    durable::flush_file_systems(&directories)
}

/// A walk by open directories, so that a directory that is replaced by a link meanwhile redirects
/// nothing.
struct Walk {
    /// The mount points that the host's first process sees, because the agent may have a mount
    /// namespace of its own.
    mounts: Vec<PathBuf>,
    /// The open directories from the top to the one that is being emptied.
    levels: Vec<Level>,
    /// The current path, for messages.
    path: PathBuf,
    kept: Vec<PathBuf>,
}

struct Level {
    opened: Dir,
    kept_before: usize,
}

impl Walk {
    fn run(&mut self) -> io::Result<()> {
        while let Some(level) = self.levels.last_mut() {
            match level.opened.next() {
                Some(entry) => self.remove_entry(entry?.file_name())?,
                None => self.leave_directory()?,
            }
        }
        Ok(())
    }

    fn remove_entry(&mut self, name: &CStr) -> io::Result<()> {
        let Some(level) = self.levels.last().filter(|_| name != c"." && name != c"..") else {
            return Ok(());
        };
        let parent = level.opened.fd()?;
        self.path.push(OsStr::from_bytes(name.to_bytes()));
        let found = look_at(parent, name)?;
        if found.is_mount || self.mounts.contains(&self.path) {
            self.kept.push(self.path.clone());
        } else if found.is_directory {
            let opened = open_directory(parent, name)?;
            self.levels.push(Level { opened, kept_before: self.kept.len() });
            return Ok(());
        } else {
            unlinkat(parent, name, AtFlags::empty())?;
        }
        self.path.pop();
        Ok(())
    }

    /// Removes the directory unless something in it was kept; the outermost directory stays.
    fn leave_directory(&mut self) -> io::Result<()> {
        let left = self.levels.pop();
        if let (Some(left), Some(parent)) = (left, self.levels.last()) {
            if left.kept_before == self.kept.len() {
                let name = self.path.file_name().unwrap_or_default();
                unlinkat(parent.opened.fd()?, name, AtFlags::REMOVEDIR)?;
            }
            self.path.pop();
        }
        Ok(())
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
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(Found {
        is_mount: found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        is_directory: FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory,
    })
}

fn open_directory(parent: impl AsFd, path: impl Arg) -> io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(Dir::new(openat(parent, path, flags, Mode::empty())?)?)
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
