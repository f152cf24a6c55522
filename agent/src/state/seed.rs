//! The `NoCloud` seed. The copy in the agent's state is authoritative; cloud-init's copy is made
//! from it at every boot.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proto::plan::{Secret, Seed};

use super::connections;
use crate::ground::durable;
use crate::ground::failure::{Context as _, Failure, OnPath as _};
use crate::ground::paths::{Root, StateDir};

const USER_DATA: &str = "user-data";
const META_DATA: &str = "meta-data";
pub(crate) const NETWORK_CONFIG: &str = "network-config";
pub(crate) const NETWORK_DATA: &str = "network_data.json";
/// This network-config keeps cloud-init from configuring a NIC of its own choice.
pub(crate) const NO_NETWORK: &str = "network: {config: disabled}\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// No seed is stored.
    NoSeed,
    /// cloud-init's copy was up to date.
    Same,
    Written,
}

/// Stores `seed` as the authoritative copy, all files at once.
pub fn store(state: &StateDir, seed: &Seed) -> Result<(), Failure> {
    durable::create_directory(state.path())?;
    replace_files(&state.seed(), seed)
}

fn replace_files(directory: &Path, seed: &Seed) -> Result<(), Failure> {
    let files = list_files(seed);
    let files: Vec<_> = files.iter().map(|(name, content)| (name.as_str(), *content)).collect();
    durable::replace_directory(directory, &files).context("cannot write the seed")
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

pub fn load(state: &StateDir) -> Result<Option<Seed>, Failure> {
    read_directory(&state.seed())
}

/// The seed that cloud-init will read.
pub fn load_nocloud(root: &Root) -> Result<Option<Seed>, Failure> {
    read_directory(&root.nocloud_seed())
}

fn read_directory(directory: &Path) -> Result<Option<Seed>, Failure> {
    let Some(meta_data) = durable::read(&directory.join(META_DATA))? else {
        return Ok(None);
    };
    Ok(Some(Seed {
        user_data: durable::read(&directory.join(USER_DATA))?.map(Secret::new),
        meta_data: lossy_text(&meta_data),
        network_config: durable::read(&directory.join(NETWORK_CONFIG))?.map(|text| lossy_text(&text)),
        connections: read_connections(directory)?,
        network_data: durable::read(&directory.join(NETWORK_DATA))?.map(Secret::new),
    }))
}

fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn read_connections(directory: &Path) -> Result<BTreeMap<String, Secret>, Failure> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).on("read", directory)? {
        let path = entry.on("read", directory)?.path();
        if let (Some(name), Some(content)) = (connections::connection_name(&path), durable::read(&path)?) {
            found.insert(name, Secret::new(content));
        }
    }
    Ok(found)
}

/// Gives the authoritative seed to cloud-init.
pub fn restore_seed(root: &Root) -> Result<Restored, Failure> {
    match load(&root.state())? {
        None => Ok(Restored::NoSeed),
        Some(seed) => place(root, &seed),
    }
}

/// Gives cloud-init only the network and the name of the authoritative seed, for a boot in which no
/// node may start.
pub fn restore_network(root: &Root) -> Result<Restored, Failure> {
    match load(&root.state())? {
        None => Ok(Restored::NoSeed),
        Some(seed) => place(root, &network_only(&seed)),
    }
}

/// The instance id is another one, because cloud-init would skip an instance that it has already
/// run.
fn network_only(seed: &Seed) -> Seed {
    let instance = instance_id(&seed.meta_data).unwrap_or_default();
    let mut meta_data = format!("instance-id: held-{instance}\n");
    for line in seed.meta_data.lines() {
        let key = line.split_once(':').map_or(line, |(key, _)| key);
        if matches!(key, "local-hostname" | "local_hostname") {
            meta_data.push_str(line);
            meta_data.push('\n');
        }
    }
    Seed { user_data: None, meta_data, ..seed.clone() }
}

/// The `instance-id` in a seed's meta-data.
pub fn instance_id(meta_data: &str) -> Option<String> {
    let mut lines = meta_data.lines();
    let value = lines.find_map(|line| line.strip_prefix("instance-id:"))?.trim();
    Some(value.trim_matches(|c| c == '"' || c == '\'').to_owned())
}

/// Gives `seed` to cloud-init. If `NetworkManager` gets its connections, the network-config for
/// cloud-init is disabled, because cloud-init would write further connections for the same
/// interfaces.
pub fn place(root: &Root, seed: &Seed) -> Result<Restored, Failure> {
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

/// Adds an empty user-data, because cloud-init ignores a directory without one, and its
/// network-config with it.
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
