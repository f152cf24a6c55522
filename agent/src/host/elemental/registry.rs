//! Access of `elemental` to a registry: the configuration of the Docker CLI, and the authorities in
//! `SSL_CERT_FILE`. The proxy is in [`crate::host::proxy`].

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use proto::plan::RegistryAccess;

use crate::ground::paths::Root;
use crate::host::authorities;

const DIRECTORY: &str = "registry";

/// The files of one pull, in memory and only for root. The files are removed on drop.
pub struct RegistryFiles {
    directory: PathBuf,
    environment: Vec<(String, String)>,
}

/// Removes the files that a killed agent left.
pub(super) fn remove_files(root: &Root) {
    remove_directory(&root.runtime().join(DIRECTORY));
}

fn remove_directory(directory: &Path) {
    if let Err(error) = fs::remove_dir_all(directory)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %directory.display(), %error, "cannot remove the credentials of a registry");
    }
}

impl RegistryFiles {
    /// Writes the files, and removes those of an earlier pull. After a failure no file is left.
    pub fn write(root: &Root, access: &RegistryAccess) -> io::Result<Self> {
        let directory = root.runtime().join(DIRECTORY);
        remove_directory(&directory);
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let mut files = Self { directory, environment: Vec::new() };
        if let Some(config) = &access.docker_config {
            files.add_file("config.json", config.expose())?;
            files.set_variable("DOCKER_CONFIG", files.directory.display().to_string());
        }
        if let Some(authorities) = &access.authorities {
            // `SSL_CERT_FILE` replaces the authorities of the system, so they are part of the file.
            let mut bundle = authorities::read_bundle(root)?;
            bundle.push(b'\n');
            bundle.extend_from_slice(authorities.as_bytes());
            let path = files.add_file("authorities.pem", &bundle)?;
            files.set_variable("SSL_CERT_FILE", path.display().to_string());
        }
        Ok(files)
    }

    /// Variables for the command.
    pub fn environment(&self) -> impl Iterator<Item = (String, String)> {
        self.environment.iter().cloned()
    }

    fn set_variable(&mut self, name: &str, value: String) {
        self.environment.push((name.to_owned(), value));
    }

    fn add_file(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let path = self.directory.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&path)?.write_all(content)?;
        Ok(path)
    }
}

impl Drop for RegistryFiles {
    fn drop(&mut self) {
        remove_directory(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use proto::plan::Secret;

    use super::*;

    #[test]
    fn credentials_are_there_for_one_pull() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        fs::create_dir_all(root.join("/etc/ssl")).unwrap();
        fs::write(root.join("/etc/ssl/ca-bundle.pem"), "of the system").unwrap();
        let access = RegistryAccess {
            docker_config: Some(Secret::new(b"{}".to_vec())),
            authorities: Some("of the site".into()),
            ..RegistryAccess::default()
        };
        let files = RegistryFiles::write(&root, &access).unwrap();
        let place = root.runtime().join(DIRECTORY);
        let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let bundle = place.join("authorities.pem");
        let want =
            [("DOCKER_CONFIG", place.display().to_string()), ("SSL_CERT_FILE", bundle.display().to_string())];
        let want: Vec<_> = want.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(files.environment().collect::<Vec<_>>(), want);
        assert_eq!(fs::read_to_string(&bundle).unwrap(), "of the system\nof the site");
        assert_eq!((mode(&place), mode(&bundle), mode(&place.join("config.json"))), (0o700, 0o600, 0o600));
        drop(files);
        assert!(!place.exists());
    }

    #[test]
    fn files_of_a_killed_agent_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let access = RegistryAccess { docker_config: Some(Secret::new(vec![1])), ..Default::default() };
        std::mem::forget(RegistryFiles::write(&root, &access).unwrap());
        drop(RegistryFiles::write(&root, &access).unwrap());
        std::mem::forget(RegistryFiles::write(&root, &access).unwrap());
        remove_files(&root);
        assert!(!root.runtime().join(DIRECTORY).exists());
    }
}
