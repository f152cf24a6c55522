//! The least that the agent and Kubernetes need of the system of a host.

use crate::v1alpha1::Platform;

/// Oldest kernel, major and minor version: `statx` tells a wipe which directories are mount points.
pub const KERNEL: (u32, u32) = (5, 8);
/// Version of the control groups: Kubernetes 1.35 and later do not start with version 1.
pub const CONTROL_GROUPS: u32 = 2;
/// Oldest systemd that knows the settings of the agent's units.
pub const SYSTEMD: u32 = 249;

/// What `platform` lacks, a sentence each. A version that is unknown is not lacking.
pub fn list_gaps(platform: &Platform) -> Vec<String> {
    let Platform { kernel, control_groups, systemd, selinux_enforcing } = platform;
    let (major, minor) = KERNEL;
    let mut gaps = vec![];
    if parse_kernel(kernel).is_some_and(|version| version < KERNEL) {
        gaps.push(format!("Linux {kernel} is older than {major}.{minor}"));
    }
    if (1..CONTROL_GROUPS).contains(control_groups) {
        gaps.push(format!("control groups have version {control_groups}, and not {CONTROL_GROUPS}"));
    }
    if (1..SYSTEMD).contains(systemd) {
        gaps.push(format!("systemd {systemd} is older than {SYSTEMD}"));
    }
    if *selinux_enforcing {
        gaps.push("SELinux is enforcing, and may keep the agent from its work".to_owned());
    }
    gaps
}

/// Major and minor version of a release such as `6.1.0-rc2-generic`.
fn parse_kernel(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.splitn(3, '.').map(|part| {
        let digits = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().ok()
    });
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gap_has_a_sentence() {
        let newest = Platform {
            kernel: "6.12.9-1-default".into(),
            control_groups: 2,
            systemd: 257,
            selinux_enforcing: false,
        };
        let table = [
            (newest.clone(), ""),
            (Platform::default(), ""),
            (Platform { kernel: "5.8".into(), systemd: 249, ..newest.clone() }, ""),
            (Platform { kernel: "5.8-rc1".into(), ..newest.clone() }, ""),
            (Platform { kernel: "5.3.18-150300.59-default".into(), ..newest.clone() }, "Linux 5.3.18"),
            (Platform { kernel: "4.18.0".into(), ..newest.clone() }, "Linux 4.18.0"),
            (Platform { kernel: "custom".into(), ..newest.clone() }, ""),
            (Platform { kernel: "99999999999.1".into(), ..newest.clone() }, ""),
            (Platform { control_groups: 1, ..newest.clone() }, "version 1"),
            (Platform { systemd: 239, ..newest.clone() }, "systemd 239"),
            (Platform { selinux_enforcing: true, ..newest }, "SELinux"),
        ];
        for (platform, expected) in table {
            let gaps = list_gaps(&platform);
            assert_eq!(gaps.len(), usize::from(!expected.is_empty()), "{platform:?}: {gaps:?}");
            assert!(gaps.iter().all(|gap| gap.contains(expected)), "{gaps:?}");
        }
    }
}
