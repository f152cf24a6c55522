//! Parts of bootstrap data that a reboot takes away. cloud-init writes them once for an instance, and
//! most paths of an Elemental image are those of the image again after each boot.

use std::collections::BTreeSet;

use proto::size::bound_list;

use super::BootstrapError;
use super::tree::{self, Node};

/// Directories that every system empties at a boot; what is written there is meant for this boot.
const VOLATILE: [&str; 4] = ["/dev", "/run", "/tmp", "/var/run"];
/// Most entries, which a condition shows.
const LISTED: usize = 16;
/// First fields of entries of `mounts` that name no disk.
const NO_DISKS: [&str; 3] = ["none", "swap", "tmpfs"];

/// Files, users and time servers of the data whose paths are not below a kept one. Empty where the
/// kept paths are unknown, or the data is no cloud-config.
pub fn list_lost(data: &str, kept: &[String]) -> Vec<String> {
    if kept.is_empty() {
        return vec![];
    }
    let is_lost = |path: &str| !is_below(path, &VOLATILE) && !is_below(path, kept);
    let Some(document) = read_mapping(data) else { return vec![] };
    let find = |key: &str| Some(document.find_entry(key).ok()??.1.clone());
    let mut lost = BTreeSet::new();
    for file in find("write_files").iter().flat_map(|files| files.items()) {
        let path = file.find_text("path").ok().flatten();
        lost.extend(path.filter(|path| is_lost(path)).map(|path| format!("file {path}")));
    }
    for user in find("users").iter().flat_map(|users| users.items()) {
        let name = user.as_text().or_else(|| user.find_text("name").ok().flatten());
        let name = name.filter(|name| *name != "default" && is_lost("/etc/passwd"));
        lost.extend(name.map(|name| format!("user {name} (/etc/passwd)")));
    }
    if find("ntp").is_some_and(|ntp| is_enabled(&ntp)) && is_lost("/etc/chrony.conf") {
        lost.insert("ntp (/etc)".to_owned());
    }
    bound_list(lost.into_iter().collect(), LISTED)
}

/// Refuses disks for data. cloud-init would mount them in the first boot alone, so that etcd would
/// start on an empty directory after a power cut, and no clean would empty them.
pub(super) fn check_disks(document: &Node) -> Result<(), BootstrapError> {
    for field in ["disk_setup", "fs_setup", "mounts"] {
        let Ok(Some((_, value))) = document.find_entry(field) else { continue };
        let names_disk = match field {
            "mounts" => value.items().iter().any(|entry| mounts_disk(entry)),
            _ => !value.items().is_empty() || !value.entries().is_empty(),
        };
        if names_disk {
            return Err(BootstrapError::DataDisk { field });
        }
    }
    Ok(())
}

/// An entry without a mount point removes one.
fn mounts_disk(entry: &Node) -> bool {
    let fields = entry.items();
    let device = fields.first().and_then(|field| field.as_text());
    let has_point = fields.get(1).is_some_and(|field| !field.is_null());
    has_point && device.is_none_or(|device| !NO_DISKS.contains(&device))
}

fn is_enabled(ntp: &Node) -> bool {
    let enabled = ntp.find_text("enabled").ok().flatten();
    !ntp.is_null() && enabled.is_none_or(|enabled| !["false", "no", "off"].contains(&enabled))
}

pub(super) fn is_below(path: &str, directories: &[impl AsRef<str>]) -> bool {
    directories.iter().map(AsRef::as_ref).any(|directory| {
        let rest = path.strip_prefix(directory.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// The first document; `None` for text that is no YAML.
pub(super) fn read_mapping(data: &str) -> Option<std::rc::Rc<Node>> {
    tree::parse_tree(data).ok()?.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(paths: &[&str]) -> Vec<String> {
        paths.iter().map(|path| (*path).to_owned()).collect()
    }

    const DATA: &str = "#cloud-config
write_files:
- path: /etc/sysctl.d/99-k8s.conf
  content: a
- path: /run/kubeadm/kubeadm.yaml
  content: a
- path: /etc/kubernetes/audit.yaml
  content: a
- {path: /etc/kubernetes2/x, content: a}
users:
- default
- name: boot
  ssh_authorized_keys: [a]
ntp: {enabled: true, servers: [a]}
runcmd: [a]
";

    #[test]
    fn lost_paths_are_named() {
        let listed = list_lost(DATA, &kept(&["/etc/kubernetes", "/var/lib/kubelet"]));
        let want = [
            "file /etc/kubernetes2/x",
            "file /etc/sysctl.d/99-k8s.conf",
            "ntp (/etc)",
            "user boot (/etc/passwd)",
        ];
        assert_eq!(listed, want);
        for all in [&["/"][..], &["/etc/"], &["/var", "/etc"]] {
            assert_eq!(list_lost(DATA, &kept(all)), Vec::<String>::new(), "{all:?}");
        }
        assert_eq!(list_lost(DATA, &[]), Vec::<String>::new(), "the host says nothing");
        for data in [
            "#!/bin/sh\n",
            "#cloud-config\nwrite_files: 1\nusers: a\nntp:\n",
            "#cloud-config\nntp: {enabled: false}\n",
            "{",
        ] {
            assert_eq!(list_lost(data, &kept(&["/opt"])), Vec::<String>::new(), "{data}");
        }
        let files: Vec<_> = (0..100).map(|number| format!("- path: /etc/{number:03}\n")).collect();
        let listed = list_lost(&format!("write_files:\n{}", files.concat()), &kept(&["/opt"]));
        assert_eq!((listed.len(), listed.last().map(String::as_str)), (LISTED, Some("85 more")));
    }

    #[test]
    fn disks_for_data_are_refused() {
        for (data, want) in [
            ("disk_setup: {/dev/sdb: {table_type: gpt}}", Some("disk_setup")),
            ("fs_setup: [{device: /dev/sdb, filesystem: ext4, label: etcd_disk}]", Some("fs_setup")),
            ("mounts: [[LABEL=etcd_disk, /var/lib/etcddisk]]", Some("mounts")),
            ("mounts: [[swap, null], [tmpfs, /mnt, tmpfs], [/dev/sdb]]", None),
            ("mounts: []\nfs_setup:\ndisk_setup: {}", None),
            ("runcmd: [mount]", None),
            ("#!/bin/sh", None),
        ] {
            let document = read_mapping(&format!("#cloud-config\n{data}\n"));
            let refused = document.and_then(|document| check_disks(&document).err());
            let field = refused.map(|error| match error {
                BootstrapError::DataDisk { field } => field,
                other => panic!("{other}"),
            });
            assert_eq!(field, want, "{data}");
        }
    }
}
