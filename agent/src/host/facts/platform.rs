//! What the agent and Kubernetes need of the running system.

use std::path::Path;

use proto::v1alpha1::Platform;

use crate::ground::paths::Root;
use crate::host::sysfs::read_line;

/// Directories with the library of systemd's own programs, whose name has the version.
const LIBRARIES: [&str; 4] = [
    "/usr/lib/systemd",
    "/usr/lib64/systemd",
    "/usr/lib/x86_64-linux-gnu/systemd",
    "/usr/lib/aarch64-linux-gnu/systemd",
];
const LIBRARY: &str = "libsystemd-shared-";

pub(super) fn read(root: &Root) -> Platform {
    Platform {
        kernel: read_line(&root.join("/proc/sys/kernel/osrelease")),
        control_groups: read_control_groups(root),
        systemd: LIBRARIES.iter().find_map(|directory| find_version(&root.join(directory))).unwrap_or(0),
        selinux_enforcing: read_line(&root.join("/sys/fs/selinux/enforce")) == "1",
    }
}

/// The hierarchy of version 2 has this file at its root. Where both are mounted, Kubernetes uses version 1.
fn read_control_groups(root: &Root) -> u32 {
    let hierarchy = root.join("/sys/fs/cgroup");
    if hierarchy.join("cgroup.controllers").exists() { 2 } else { u32::from(hierarchy.is_dir()) }
}

/// The library is for example `libsystemd-shared-254.so` or `libsystemd-shared-252.38-1.so`.
fn find_version(directory: &Path) -> Option<u32> {
    let names = std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| parse_version(name.to_str()?.strip_prefix(LIBRARY)?)).max()
}

fn parse_version(text: &str) -> Option<u32> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    text[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platform_is_read_from_files() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path().to_owned());
        assert_eq!(read(&root), Platform::default());
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("/proc/sys/kernel/osrelease", "5.14.21-150500.55-default\n");
        put("/sys/fs/cgroup/memory/tasks", "");
        put("/sys/fs/selinux/enforce", "1");
        put("/usr/lib/systemd/libsystemd-shared-249.so", "");
        put("/usr/lib/systemd/libsystemd-core-260.so", "");
        let expected = Platform {
            kernel: "5.14.21-150500.55-default".into(),
            control_groups: 1,
            systemd: 249,
            selinux_enforcing: true,
        };
        assert_eq!(read(&root), expected);
        put("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
        put("/sys/fs/selinux/enforce", "0");
        std::fs::remove_dir_all(root.join("/usr/lib/systemd")).unwrap();
        put("/usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.38-1~deb12u1.so", "");
        let expected = Platform { control_groups: 2, systemd: 252, selinux_enforcing: false, ..expected };
        assert_eq!(read(&root), expected);
    }
}
