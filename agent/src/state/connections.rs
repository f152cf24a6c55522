//! Connections of `NetworkManager`. They are written at every boot, because `/etc` may be
//! ephemeral.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use proto::plan::Secret;

use crate::ground::durable;
use crate::ground::failure::{Failure, OnPath as _};
use crate::ground::paths::Root;

const SUFFIX: &str = ".nmconnection";
/// Prefix of the agent's own files. Other files belong to the image or to an operator and are left
/// alone.
const PREFIX: &str = "baremetal-";

pub(crate) fn file_name(name: &str) -> String {
    format!("{name}{SUFFIX}")
}

pub(crate) fn connection_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.strip_suffix(SUFFIX)?.to_owned())
}

/// Makes `wanted` the agent's connections if `NetworkManager` configures the network, and removes
/// those of a former plan. Returns true if any connection is wanted.
pub(crate) fn place_connections(root: &Root, wanted: &BTreeMap<String, Secret>) -> Result<bool, Failure> {
    let directory = root.connections();
    let is_used = root.uses_network_manager();
    // A network that this host reported has the names of the agent's own files.
    let wanted: BTreeMap<_, _> =
        wanted.iter().filter(|_| is_used).map(|(name, content)| (own_file_name(name), content)).collect();
    for name in list_own_files(&directory)? {
        if !wanted.contains_key(&name) {
            durable::remove(&directory.join(name))?;
        }
    }
    for (name, content) in &wanted {
        let path = directory.join(name);
        // An unchanged file is not written again, because `NetworkManager` would take it for
        // another connection.
        if is_written(&path, content.expose()) {
            continue;
        }
        durable::create_directory_with_mode(&directory, 0o755)?;
        durable::write_with_mode(&path, content.expose(), durable::SECRET)?;
    }
    Ok(!wanted.is_empty())
}

fn own_file_name(name: &str) -> String {
    file_name(&format!("{PREFIX}{}", name.strip_prefix(PREFIX).unwrap_or(name)))
}

fn is_written(path: &Path, content: &[u8]) -> bool {
    let Ok(file) = fs::symlink_metadata(path) else { return false };
    let is_secret = file.is_file() && file.permissions().mode() & 0o7777 == durable::SECRET;
    is_secret && fs::read(path).is_ok_and(|found| found == content)
}

fn list_own_files(directory: &Path) -> Result<Vec<String>, Failure> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::of_file("read", directory, &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.on("read", directory)?.file_name().to_string_lossy().into_owned();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    fn wanted(names: &[&str]) -> BTreeMap<String, Secret> {
        names.iter().map(|name| ((*name).to_owned(), Secret::new(name.as_bytes().to_vec()))).collect()
    }

    #[test]
    fn former_connections_are_replaced_and_others_stay() {
        let host = tempfile::tempdir().unwrap();
        let root = Root::at(host.path());
        let directory = root.connections();
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("own.nmconnection"), "operator").unwrap();
        let names = || {
            let entries = fs::read_dir(&directory).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert!(!place_connections(&root, &wanted(&["eno1"])).unwrap(), "no NetworkManager");
        assert_eq!(names(), ["own.nmconnection"]);
        let wants = root.join("/usr/lib/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants).unwrap();
        symlink("../NetworkManager.service", wants.join("NetworkManager.service")).unwrap();
        assert!(place_connections(&root, &wanted(&["eno1", "eno2"])).unwrap());
        assert!(place_connections(&root, &wanted(&["bond0", "baremetal-eno2"])).unwrap());
        assert_eq!(
            names(),
            ["baremetal-bond0.nmconnection", "baremetal-eno2.nmconnection", "own.nmconnection"]
        );
        // NetworkManager ignores what others may read.
        let mode = fs::metadata(directory.join("baremetal-bond0.nmconnection")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let bond = directory.join("baremetal-bond0.nmconnection");
        let inode = || fs::metadata(&bond).unwrap().ino();
        let before = inode();
        place_connections(&root, &wanted(&["bond0"])).unwrap();
        assert_eq!(inode(), before, "an equal file is not written again");
        fs::set_permissions(&bond, fs::Permissions::from_mode(0o644)).unwrap();
        place_connections(&root, &wanted(&["bond0"])).unwrap();
        assert_ne!(inode(), before, "others could read it");
        assert!(!place_connections(&root, &BTreeMap::new()).unwrap());
        assert_eq!(names(), ["own.nmconnection"]);
    }
}
