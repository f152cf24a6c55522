//! The `NoCloud` seed: its copy among the agent's state is the authority, the
//! one that cloud-init reads is made from it at every boot.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use proto::plan::{Secret, Seed};

use super::connections;
use crate::ground::durable::{self, DurableError};
use crate::ground::error::NextAction;
use crate::ground::paths::{Root, StateDir};

const USER_DATA: &str = "user-data";
const META_DATA: &str = "meta-data";
pub(crate) const NETWORK_CONFIG: &str = "network-config";
pub(crate) const NETWORK_DATA: &str = "network_data.json";
/// Of cloud-init, which else would configure one NIC by itself.
pub(crate) const NO_NETWORK: &str = "network: {config: disabled}\n";

/// A seed that was not restored.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The kernel does not give a file of it.
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// It cannot be written.
    #[error("cannot write the seed")]
    Write(#[from] DurableError),
}

impl NextAction for SeedError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Read { source, .. } => Some(durable::next_action(source.kind())),
            Self::Write(error) => error.next_action(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// There is no copy to restore from.
    NoSeed,
    /// It was as it should be.
    Same,
    Written,
}

/// Makes `seed` the authoritative copy in `state`, all files at once.
pub fn store(state: &StateDir, seed: &Seed) -> Result<(), DurableError> {
    durable::create_directory(state.path())?;
    replace_files(&state.seed(), seed)
}

fn replace_files(directory: &Path, seed: &Seed) -> Result<(), DurableError> {
    let files = list_files(seed);
    let files: Vec<_> = files.iter().map(|(name, content)| (name.as_str(), *content)).collect();
    durable::replace_directory(directory, &files)
}

fn list_files(seed: &Seed) -> Vec<(String, &[u8])> {
    let mut files = vec![(META_DATA.to_owned(), seed.meta_data.as_bytes())];
    files.extend(seed.user_data.as_ref().map(|data| (USER_DATA.to_owned(), data.expose())));
    files.extend(seed.network_config.as_ref().map(|text| (NETWORK_CONFIG.to_owned(), text.as_bytes())));
    files.extend(seed.network_data.as_ref().map(|data| (NETWORK_DATA.to_owned(), data.expose())));
    let connections = seed.connections.iter();
    files.extend(connections.map(|(name, content)| (connections::file_name(name), content.expose())));
    files
}

pub fn load(state: &StateDir) -> Result<Option<Seed>, SeedError> {
    read_directory(&state.seed())
}

/// The seed that cloud-init will read.
pub fn load_nocloud(root: &Root) -> Result<Option<Seed>, SeedError> {
    read_directory(&root.nocloud_seed())
}

fn read_directory(directory: &Path) -> Result<Option<Seed>, SeedError> {
    let Some(meta_data) = read_optional(directory.join(META_DATA))? else {
        return Ok(None);
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Some(Seed {
        user_data: read_optional(directory.join(USER_DATA))?.map(Secret::new),
        meta_data: text(meta_data),
        network_config: read_optional(directory.join(NETWORK_CONFIG))?.map(text),
        connections: read_connections(directory)?,
        network_data: read_optional(directory.join(NETWORK_DATA))?.map(Secret::new),
    }))
}

pub(crate) fn read_connections(directory: &Path) -> Result<BTreeMap<String, Secret>, SeedError> {
    let read_error = |source| SeedError::Read { path: directory.to_owned(), source };
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(read_error)? {
        let path = entry.map_err(read_error)?.path();
        if let (Some(name), Some(content)) =
            (connections::connection_name(&path), read_optional(path.clone())?)
        {
            found.insert(name, Secret::new(content));
        }
    }
    Ok(found)
}

pub(crate) fn read_optional(path: PathBuf) -> Result<Option<Vec<u8>>, SeedError> {
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SeedError::Read { path, source }),
    }
}

/// Makes cloud-init's seed the authoritative one.
pub fn restore_seed(root: &Root) -> Result<Restored, SeedError> {
    match load(&root.state())? {
        None => Ok(Restored::NoSeed),
        Some(seed) => place(root, &seed),
    }
}

/// Makes cloud-init's seed one that brings up the authoritative one's network
/// and name, and nothing else: for a boot in which no node may start.
pub fn restore_network(root: &Root) -> Result<Restored, SeedError> {
    match load(&root.state())? {
        None => Ok(Restored::NoSeed),
        Some(seed) => place(root, &network_only(&seed)),
    }
}

/// An instance of its own: cloud-init would take the same one for done.
fn network_only(seed: &Seed) -> Seed {
    let instance = instance_id(&seed.meta_data).unwrap_or_default();
    let key = |line: &&str| {
        let key = line.split(':').next().unwrap_or_default();
        matches!(key, "local-hostname" | "local_hostname")
    };
    let mut meta_data = format!("instance-id: held-{instance}\n");
    for line in seed.meta_data.lines().filter(key) {
        meta_data.push_str(line);
        meta_data.push('\n');
    }
    Seed { user_data: None, meta_data, ..seed.clone() }
}

/// `instance-id` of a seed's meta-data.
pub fn instance_id(meta_data: &str) -> Option<String> {
    let mut lines = meta_data.lines();
    let value = lines.find_map(|line| line.strip_prefix("instance-id:"))?.trim();
    Some(value.trim_matches(|c| c == '"' || c == '\'').to_owned())
}

/// Makes `seed` the one that cloud-init reads. Where `NetworkManager` has its
/// connections, cloud-init stays away from the network: it would write further
/// ones for the same interfaces.
pub fn place(root: &Root, seed: &Seed) -> Result<Restored, SeedError> {
    let mut wanted = with_user_data(seed);
    let connections = std::mem::take(&mut wanted.connections);
    if !connections.is_empty() && root.uses_network_manager() {
        wanted.network_config = Some(NO_NETWORK.to_owned());
    }
    let directory = root.nocloud_seed();
    if read_directory(&directory)?.as_ref() == Some(&wanted) {
        durable::remove_temporary(&directory)?;
        return Ok(Restored::Same);
    }
    if let Some(parent) = directory.parent() {
        durable::create_directory_with_mode(parent, 0o755)?;
    }
    replace_files(&directory, &wanted)?;
    Ok(Restored::Written)
}

/// cloud-init takes a directory without user-data for no seed at all, and its
/// network-config with it: absent becomes empty.
fn with_user_data(seed: &Seed) -> Seed {
    let mut seed = seed.clone();
    seed.user_data.get_or_insert_with(|| Secret::new(Vec::new()));
    seed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        (directory, root)
    }

    fn seed() -> Seed {
        Seed {
            user_data: Some(Secret::new(b"#cloud-config\n".to_vec())),
            meta_data: "instance-id: plan-1\nlocal-hostname: node-1\nuuid: x\n".into(),
            network_config: Some("version: 2\n".into()),
            connections: BTreeMap::new(),
            network_data: Some(Secret::new(b"{}".to_vec())),
        }
    }

    #[test]
    fn a_seed_that_cloud_init_deleted_is_restored() {
        let (_directory, root) = host();
        assert_eq!(restore_seed(&root).unwrap(), Restored::NoSeed);
        store(&root.state(), &seed()).unwrap();
        assert_eq!(load(&root.state()).unwrap(), Some(seed()));
        assert_eq!(restore_seed(&root).unwrap(), Restored::Written);
        assert_eq!(restore_seed(&root).unwrap(), Restored::Same);
        assert_eq!(load_nocloud(&root).unwrap(), Some(seed()));
        fs::remove_dir_all(root.nocloud_seed()).unwrap();
        assert_eq!(restore_seed(&root).unwrap(), Restored::Written);
    }

    #[test]
    fn absent_parts_leave_no_former_file() {
        let (_directory, root) = host();
        store(&root.state(), &seed()).unwrap();
        restore_seed(&root).unwrap();
        let neutral = Seed {
            user_data: None,
            meta_data: "instance-id: plan-2\n".into(),
            network_config: None,
            connections: BTreeMap::new(),
            network_data: None,
        };
        store(&root.state(), &neutral).unwrap();
        restore_seed(&root).unwrap();
        assert_eq!(load(&root.state()).unwrap(), Some(neutral));
        let user_data = fs::read(root.nocloud_seed().join(USER_DATA)).unwrap();
        assert!(user_data.is_empty(), "cloud-init needs the file");
        assert!(!root.nocloud_seed().join(NETWORK_CONFIG).exists());
        assert!(!root.nocloud_seed().join(NETWORK_DATA).exists());
    }

    #[test]
    fn a_held_boot_gets_network_and_name_only() {
        let (_directory, root) = host();
        store(&root.state(), &seed()).unwrap();
        restore_network(&root).unwrap();
        let held = load_nocloud(&root).unwrap().unwrap();
        assert_eq!(held.meta_data, "instance-id: held-plan-1\nlocal-hostname: node-1\n");
        assert_eq!(held.user_data.unwrap().expose(), b"");
        assert_eq!(held.network_config.as_deref(), Some("version: 2\n"));
        assert_eq!(load(&root.state()).unwrap(), Some(seed()), "the authority is untouched");
    }

    #[test]
    fn network_manager_gets_keyfiles_instead_of_network_config() {
        let (_directory, root) = host();
        let keyfiles = BTreeMap::from([("eno1".to_owned(), Secret::new(b"[connection]\n".to_vec()))]);
        let with_keyfiles = Seed { connections: keyfiles, ..seed() };
        store(&root.state(), &with_keyfiles).unwrap();
        assert_eq!(load(&root.state()).unwrap(), Some(with_keyfiles));
        let rendered = |root: &Root| {
            restore_seed(root).unwrap();
            load_nocloud(root).unwrap().unwrap()
        };
        assert_eq!(rendered(&root), seed(), "an image without NetworkManager");
        let wants = root.join("/etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants).unwrap();
        std::os::unix::fs::symlink("/nowhere", wants.join("NetworkManager.service")).unwrap();
        let quiet = Seed { network_config: Some(NO_NETWORK.to_owned()), ..seed() };
        assert_eq!(rendered(&root), quiet);
        fs::write(wants.join("systemd-networkd.service"), "").unwrap();
        assert_eq!(rendered(&root), seed(), "an image with both");
    }

    #[test]
    fn the_instance_id_is_found_in_any_quotes() {
        let cases = [
            ("plain", "a: b\ninstance-id: p-1\n", Some("p-1")),
            ("quoted", "instance-id: \"p-1\"\n", Some("p-1")),
            ("none", "a: b\n", None),
        ];
        for (name, given, want) in cases {
            assert_eq!(instance_id(given).as_deref(), want, "{name}");
        }
    }
}
