//! `kubectl baremetal` for krew: an archive, and a manifest with the checksum of the archive.

use crate::VERSION;
use crate::archive::{Entry, gzip, tar};
use crate::image::{Error, sha256, static_architecture};

const MANIFEST: &str = include_str!("../../kubectl-baremetal/krew/baremetal.yaml");
const LICENSE: &str = include_str!("../../../LICENSE");

/// The content of the archive.
#[derive(Debug, Clone)]
pub struct Plugin {
    pub program: Vec<u8>,
    /// The licences of the packages of the program.
    pub notices: Vec<u8>,
}

/// The files that a server offers to krew.
#[derive(Debug, Clone)]
pub struct Package {
    /// File name of the archive.
    pub name: String,
    pub archive: Vec<u8>,
    /// The manifest, as YAML.
    pub manifest: String,
}

impl Plugin {
    /// The archive, and the manifest for a server that offers the archive below `url`.
    pub fn package(self, url: &str) -> Result<Package, Error> {
        let architecture = static_architecture("plugin", &self.program)?;
        let name = format!("kubectl-baremetal-linux-{architecture}.tar.gz");
        let archive = gzip(&tar(vec![
            Entry::program("kubectl-baremetal", self.program),
            Entry::file("LICENSE", LICENSE),
            Entry::file("THIRD-PARTY-LICENSES.txt", self.notices),
        ])?)?;
        let sum = sha256(&archive);
        let manifest = MANIFEST
            .replace("@VERSION@", VERSION)
            .replace("@ARCHITECTURE@", architecture)
            .replace("@URL@", url.trim_end_matches('/'))
            .replace("@SHA256@", sum.trim_start_matches("sha256:"));
        Ok(Package { name, archive, manifest })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use serde_json::Value;
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::image::tests::{AARCH64, X86_64, program};

    fn package(program: Vec<u8>) -> Result<Package, Error> {
        Plugin { program, notices: b"MIT".to_vec() }.package("https://releases.example/v1/")
    }

    fn unpack(archive: &[u8]) -> BTreeMap<String, u32> {
        let mut archive = tar::Archive::new(GzDecoder::new(archive));
        let entries = archive.entries().unwrap().map(Result::unwrap);
        let name = |entry: &tar::Entry<_>| entry.path().unwrap().display().to_string();
        entries.map(|entry| (name(&entry), entry.header().mode().unwrap())).collect()
    }

    #[test]
    fn krew_manifest_names_what_the_archive_has() {
        for (machine, architecture) in [(X86_64, "amd64"), (AARCH64, "arm64")] {
            let Package { name, archive, manifest } = package(program(machine, b"plugin")).unwrap();
            assert!(!manifest.contains('@'), "{manifest}");
            let manifest: Value = serde_norway::from_str(&manifest).unwrap();
            assert_eq!(manifest["metadata"]["name"], "baremetal");
            assert_eq!(manifest["spec"]["version"], format!("v{VERSION}"));
            let platform = &manifest["spec"]["platforms"][0];
            assert_eq!(platform["selector"]["matchLabels"]["arch"], architecture);
            assert_eq!(platform["uri"], format!("https://releases.example/v1/{name}"));
            assert_eq!(platform["sha256"], hex::encode(Sha256::digest(&archive)));
            let files = platform["files"].as_array().unwrap();
            let named: Vec<_> = files.iter().map(|file| file["from"].as_str().unwrap()).collect();
            let mut packed = unpack(&archive);
            assert!(named.iter().all(|name| packed.contains_key(*name)), "{named:?} of {packed:?}");
            assert_eq!(named.len(), packed.len(), "krew installs no more than it names: {packed:?}");
            assert_eq!(packed.remove(platform["bin"].as_str().unwrap()), Some(0o755));
            assert!(packed.values().all(|mode| *mode == 0o644), "{packed:?}");
        }
    }

    #[test]
    fn archive_has_the_notices_and_the_same_bytes() {
        let mut content = String::new();
        let archive = package(program(X86_64, b"plugin")).unwrap().archive;
        assert_eq!(archive, package(program(X86_64, b"plugin")).unwrap().archive);
        let mut archive = tar::Archive::new(GzDecoder::new(archive.as_slice()));
        let mut entries = archive.entries().unwrap().map(Result::unwrap);
        let mut notices =
            entries.find(|entry| entry.path().unwrap().ends_with("THIRD-PARTY-LICENSES.txt")).unwrap();
        notices.read_to_string(&mut content).unwrap();
        assert_eq!(content, "MIT");
    }

    #[test]
    fn dynamic_program_is_refused() {
        let running = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(matches!(package(running), Err(Error::Dynamic("plugin"))));
        assert!(matches!(package(b"#!/bin/sh".to_vec()), Err(Error::NoProgram("plugin", _))));
    }
}
