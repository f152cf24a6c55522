use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use proto::update_keys::{SIGNATURE_FILE, UpdateKeys};
use tar::Archive;

use super::*;

pub(crate) const X86_64: u8 = 0x3e;
pub(crate) const AARCH64: u8 = 0xb7;
const RISCV: u8 = 0xf3;

/// The header of a 64-bit ELF file, and nothing behind it but `content`.
pub(crate) fn program(machine: u8, content: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 64];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    (file[16], file[18], file[20], file[52]) = (3, machine, 1, 64);
    file.extend_from_slice(content);
    file
}

fn image() -> Image {
    Image {
        coordinator: program(X86_64, b"coordinator"),
        agent: program(X86_64, b"agent"),
        signature: None,
        notices: b"MIT".to_vec(),
        reference: "registry.example:5000/lab/baremetal-coordinator:1".to_owned(),
        revision: Some("73d4b62".to_owned()),
    }
}

fn unpack(archive: &[u8]) -> Files {
    let mut files = BTreeMap::new();
    for entry in Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!(header.mtime().unwrap(), 0);
        let (mode, owner) = (header.mode().unwrap(), header.uid().unwrap());
        let mut content = vec![];
        entry.read_to_end(&mut content).unwrap();
        files.insert(entry.path().unwrap().into_owned(), (mode, owner, content));
    }
    files
}

fn json_at(files: &Files, path: &str) -> Value {
    serde_json::from_slice(&files[&PathBuf::from(path)].2).unwrap()
}

fn blob(digest: &Value) -> String {
    format!("blobs/{}", digest.as_str().unwrap().replace(':', "/"))
}

#[test]
fn two_builds_are_the_same_bytes() {
    assert_eq!(sha256(&image().build().unwrap()), sha256(&image().build().unwrap()));
    let other = Image { coordinator: program(X86_64, b"another"), ..image() };
    assert_ne!(sha256(&image().build().unwrap()), sha256(&other.build().unwrap()));
}

#[test]
fn layers_hold_what_the_coordinator_needs() {
    let files = unpack(&image().build().unwrap());
    let index = json_at(&files, "index.json");
    assert_eq!(index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"], "1");
    assert_eq!(index["manifests"][0]["platform"], json!({ "architecture": "amd64", "os": "linux" }));
    let manifest = json_at(&files, &blob(&index["manifests"][0]["digest"]));
    assert_eq!(manifest["annotations"]["org.opencontainers.image.revision"], "73d4b62");
    let config = json_at(&files, &blob(&manifest["config"]["digest"]));
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["architecture"], "amd64");
    let root = unpack_layers(&files, &manifest, &config);
    let has = |path: &str| root.get(&PathBuf::from(path)).unwrap_or_else(|| panic!("no {path}"));
    assert_eq!(has(COORDINATOR), &(0o755, 0, program(X86_64, b"coordinator")));
    assert_eq!(has(AGENT), &(0o755, 0, program(X86_64, b"agent")));
    assert_eq!(has(NOTICES), &(0o644, 0, b"MIT".to_vec()));
    assert_eq!(has(CACHE).1, USER);
    let roots = String::from_utf8(has(ROOTS).2.clone()).unwrap();
    assert_eq!(roots.matches("BEGIN CERTIFICATE").count(), TLS_SERVER_ROOT_CERTS.len());
    let agent = config["config"]["Env"][0].as_str().unwrap().strip_prefix("AGENT_PATH=/").unwrap();
    assert_eq!(agent, AGENT);
    assert!(!root.contains_key(&PathBuf::from(SIGNATURE)), "there is no key for updates");
}

#[test]
fn signature_is_beside_the_agent() {
    let keys = UpdateKeys::parse(&[vec![1; 32]]).unwrap();
    let signature = ReleaseSignature { keys, signature: vec![2; 64] };
    let files = unpack(&Image { signature: Some(signature.clone()), ..image() }.build().unwrap());
    let index = json_at(&files, "index.json");
    let manifest = json_at(&files, &blob(&index["manifests"][0]["digest"]));
    let config = json_at(&files, &blob(&manifest["config"]["digest"]));
    let root = unpack_layers(&files, &manifest, &config);
    let beside = PathBuf::from(AGENT).with_file_name(SIGNATURE_FILE);
    let (mode, owner, text) = &root[&beside];
    assert_eq!((*mode, *owner), (0o644, 0), "every user reads it");
    assert_eq!(serde_json::from_slice::<ReleaseSignature>(text).unwrap(), signature);
}

type Files = BTreeMap<PathBuf, (u32, u64, Vec<u8>)>;

fn unpack_layers(files: &Files, manifest: &Value, config: &Value) -> Files {
    let mut root = BTreeMap::new();
    for (number, layer) in manifest["layers"].as_array().unwrap().iter().enumerate() {
        let mut unpacked = vec![];
        let packed = &files[&PathBuf::from(blob(&layer["digest"]))].2;
        GzDecoder::new(packed.as_slice()).read_to_end(&mut unpacked).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][number], sha256(&unpacked));
        root.extend(unpack(&unpacked));
    }
    root
}

#[test]
fn programs_that_would_not_start_are_refused() {
    let running = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let cases: [(&str, Image, &str); 5] = [
        ("dynamic", Image { coordinator: running, ..image() }, "linked dynamically"),
        ("a script", Image { agent: b"#!/bin/sh\n".to_vec(), ..image() }, "the agent is no program"),
        ("mixed", Image { agent: program(AARCH64, b""), ..image() }, "amd64 and the agent for arm64"),
        ("unknown", Image { coordinator: program(RISCV, b""), ..image() }, "Riscv64"),
        ("no tag", Image { reference: "registry:5000/name".to_owned(), ..image() }, "is no NAME:TAG"),
    ];
    for (name, image, cause) in cases {
        let message = image.build().unwrap_err().to_string();
        assert!(message.contains(cause), "{name}: {message}");
    }
    let arm = Image { coordinator: program(AARCH64, b""), agent: program(AARCH64, b""), ..image() };
    let files = unpack(&arm.build().unwrap());
    assert_eq!(json_at(&files, "index.json")["manifests"][0]["platform"]["architecture"], "arm64");
}
