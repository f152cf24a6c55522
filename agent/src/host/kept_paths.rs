//! Paths that a node must find again after a reboot, and that the running image does not keep.

use std::fs;
use std::path::{Path, PathBuf};

use proto::distribution::DISTRIBUTIONS;

use crate::ground::paths::Root;

/// Paths of every node. Without them cloud-init would join the node again at each boot.
const EVERY: [&str; 1] = ["/var/lib/cloud"];
const UNIT_DIRECTORIES: [&str; 3] = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
const VOLATILE: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];
/// Deepest stack of overlays that is followed.
const DEPTH: usize = 4;

/// Paths that a reboot resets to the content of the image, or that cannot be written. Empty if the
/// mounts are unknown.
pub fn find_lost_paths(root: &Root) -> Vec<PathBuf> {
    let Ok(text) = fs::read_to_string(root.join("/proc/self/mountinfo")) else { return vec![] };
    let mounts: Vec<_> = text.lines().filter_map(Mount::parse).collect();
    let installed = DISTRIBUTIONS.iter().filter(|row| row.kubelets.iter().any(|unit| has_unit(root, unit)));
    let mut paths: Vec<_> =
        EVERY.iter().chain(installed.flat_map(|row| row.kept)).map(PathBuf::from).collect();
    paths.sort();
    paths.dedup();
    paths.retain(|path| !is_kept(&mounts, path, DEPTH));
    paths
}

/// Most paths in a statement.
const LISTED: usize = 64;
/// Directories whose mounts say nothing about a reboot, or come and go with pods.
const PASSING: [&str; 5] = ["/dev", "/proc", "/run", "/sys", "/var/lib/kubelet"];

/// Mount points whose content is written to a disk, without those below another one.
pub fn list_kept(root: &Root) -> Vec<String> {
    let text = fs::read_to_string(root.join("/proc/self/mountinfo")).unwrap_or_default();
    let mounts: Vec<_> = text.lines().filter_map(Mount::parse).collect();
    let is_passing = |point: &Path| {
        PASSING.iter().any(|directory| point != Path::new(directory) && point.starts_with(directory))
    };
    let points = mounts.iter().map(|mount| mount.point).filter(|point| !is_passing(point));
    let mut kept: Vec<&Path> = points.filter(|point| is_kept(&mounts, point, DEPTH)).collect();
    kept.sort_unstable();
    kept.dedup();
    // A parent precedes what is below it.
    let mut outer: Vec<&Path> = Vec::new();
    for point in kept {
        if !outer.iter().any(|parent| point.starts_with(parent)) {
            outer.push(point);
        }
    }
    outer.into_iter().take(LISTED).map(|point| point.display().to_string()).collect()
}

fn has_unit(root: &Root, unit: &str) -> bool {
    let service = format!("{unit}.service");
    UNIT_DIRECTORIES.iter().any(|directory| root.join(directory).join(&service).exists())
}

/// A line of mountinfo (proc(5)).
struct Mount<'a> {
    point: &'a Path,
    kind: &'a str,
    /// Options of the file system. The options of the mount are not used, because the sandbox of a
    /// unit changes them.
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let point = Path::new(mount.split(' ').nth(4)?);
        let mut fields = file_system.split(' ');
        let (kind, _source, options) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Self { point, kind, options })
    }

    fn option(&self, name: &str) -> Option<&'a str> {
        self.options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }
}

/// True if the content of `path` is written to a disk.
fn is_kept(mounts: &[Mount<'_>], path: &Path, depth: usize) -> bool {
    let covering = mounts.iter().filter(|mount| path.starts_with(mount.point));
    // The last of several mounts at one place is visible.
    let Some(mount) = covering.max_by_key(|mount| mount.point.components().count()) else { return false };
    let is_writable = mount.options.split(',').any(|option| option == "rw");
    match mount.kind {
        "overlay" if depth > 0 => mount
            .option("upperdir")
            .is_some_and(|upper| is_writable && is_kept(mounts, Path::new(upper), depth - 1)),
        "overlay" => false,
        kind => is_writable && !VOLATILE.contains(&kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: &str = "\
22 1 0:20 / / ro,relatime shared:1 - overlay overlay rw,lowerdir=/run/rootfsbase,upperdir=/run/overlay/upper,workdir=/run/overlay/work
23 22 0:21 / /run rw,nosuid - tmpfs run rw,mode=755
24 23 254:6 / /run/elemental/persistent rw,relatime shared:9 - ext4 /dev/vda6 rw
";

    fn bind(path: &str) -> String {
        // As the sandbox of a unit shows it: the mount is read-only, the file system is not.
        format!("30 22 254:6 /.state/x.bind {path} ro,relatime shared:9 - ext4 /dev/vda6 rw\n")
    }

    fn overlay(path: &str, upper: &str) -> String {
        format!(
            "31 22 0:40 / {path} rw shared:7 - overlay overlay rw,lowerdir={path},upperdir={upper},workdir=/w\n"
        )
    }

    fn find(mounts: &str, units: &[&str]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let units = units.iter().map(|unit| (format!("/usr/lib/systemd/system/{unit}.service"), ""));
        for (path, text) in units.chain([("/proc/self/mountinfo".to_owned(), mounts)]) {
            fs::create_dir_all(root.join(&path).parent().unwrap()).unwrap();
            fs::write(root.join(&path), text).unwrap();
        }
        find_lost_paths(&root).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn kept_paths_are_outer_mounts_on_disks() {
        let list = |mounts: &str| {
            let directory = tempfile::tempdir().unwrap();
            let root = Root::at(directory.path());
            root.put("/proc/self/mountinfo", mounts);
            list_kept(&root)
        };
        let elemental = LIVE.to_owned()
            + &bind("/etc/kubernetes")
            + &bind("/etc/kubernetes/pki")
            + &bind("/var/lib/kubelet")
            + &bind("/var/lib/kubelet/pods/a/volumes/b")
            + &overlay("/etc/default", "/run/overlay/default/upper")
            + &overlay("/etc/ssh", "/run/elemental/persistent/.state/ssh.overlay/upper");
        assert_eq!(list(&elemental), ["/etc/kubernetes", "/etc/ssh", "/var/lib/kubelet"]);
        assert_eq!(list("22 1 254:1 / / rw - ext4 /dev/vda1 rw\n"), ["/"]);
        assert_eq!(list(""), Vec::<String>::new());
    }

    #[test]
    fn lost_paths_are_those_in_memory() {
        let kubeadm = ["/etc/kubernetes", "/var/lib/containerd", "/var/lib/etcd", "/var/lib/kubelet"];
        let persistent = "/run/elemental/persistent/.state/etc.overlay/upper";
        let binds =
            |paths: &[&str]| LIVE.to_owned() + &paths.iter().map(|path| bind(path)).collect::<String>();
        let all = binds(&kubeadm) + &bind("/var/lib/cloud");
        let plain = "22 1 254:1 / / rw - ext4 /dev/vda1 rw\n".to_owned();
        let parents = LIVE.to_owned() + &overlay("/etc", persistent) + &bind("/var");
        let memory = all.clone() + "40 22 0:50 / /var/lib/etcd rw - tmpfs tmpfs rw\n";
        let read_only = all.clone() + "40 22 7:1 / /var/lib/etcd rw - squashfs /dev/loop1 ro\n";
        let ephemeral = all.clone() + &overlay("/etc/kubernetes", "/run/elemental/overlay/etc/upper");
        let endless = all.clone() + &overlay("/etc/kubernetes", "/etc/kubernetes/upper");
        let rancher = binds(&["/var/lib/cloud", "/var/lib/kubelet", "/var/lib/rancher"]);
        for (name, mounts, units, want) in [
            ("each path", all, &["kubelet"][..], &[][..]),
            ("a writable root", plain, &["kubelet"], &[]),
            ("parents", parents, &["kubelet"], &[]),
            ("all but cloud-init's", binds(&kubeadm), &["kubelet"], &["/var/lib/cloud"]),
            ("over it in memory", memory, &["kubelet"], &["/var/lib/etcd"]),
            ("over it read-only", read_only, &["kubelet"], &["/var/lib/etcd"]),
            ("an ephemeral overlay", ephemeral, &["kubelet"], &["/etc/kubernetes"]),
            ("an overlay upon itself", endless, &["kubelet"], &["/etc/kubernetes"]),
            ("RKE2", rancher, &["rke2-server", "rke2-agent"], &["/etc/rancher"]),
            ("no unit of a node", LIVE.to_owned(), &[], &["/var/lib/cloud"]),
        ] {
            assert_eq!(find(&mounts, units), want, "{name}");
        }
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(find_lost_paths(&Root::at(directory.path())), Vec::<PathBuf>::new(), "no mounts");
    }
}
