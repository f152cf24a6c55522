//! The image of the coordinator in a real registry.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::Result;
use bundle::image::Image;
use control_plane::registry::{Access, sha256};
use control_plane::{Parts, Registry};
use serde_json::Value;

const REPOSITORY: &str = "lab/baremetal-coordinator";

/// A 64-bit x86 ELF file without sections.
fn program() -> Vec<u8> {
    let mut file = vec![0; 64];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    (file[16], file[18], file[20], file[52]) = (3, 0x3e, 1, 64);
    file
}

fn read_archive(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = vec![];
        entry.read_to_end(&mut content).unwrap();
        files.insert(entry.path().unwrap().display().to_string(), content);
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_returns_the_image_of_the_archive() -> Result<()> {
    let image = Image {
        coordinator: program(),
        agent: program(),
        notices: vec![],
        reference: "baremetal-coordinator:1".to_owned(),
        revision: None,
    };
    let files = read_archive(&image.build()?);
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        &files[&format!("blobs/{}", digest.replace(':', "/"))]
    };
    let index: Value = serde_json::from_slice(&files["index.json"])?;
    let described = &index["manifests"][0];
    let manifest: Value = serde_json::from_slice(blob(described))?;

    let registry = Registry::start(&Parts::from_environment()?, &Access::Anonymous).await?;
    let descriptors: Vec<&Value> =
        manifest["layers"].as_array().unwrap().iter().chain([&manifest["config"]]).collect();
    for descriptor in &descriptors {
        let media = descriptor["mediaType"].as_str().unwrap();
        assert_eq!(registry.push_blob(REPOSITORY, media, blob(descriptor)).await?, **descriptor);
    }
    let pushed = registry.push_manifest(REPOSITORY, "1", &manifest).await?;
    assert_eq!(pushed["digest"], described["digest"]);

    let served = registry.read(REPOSITORY, "manifests/1").await?;
    assert_eq!(sha256(&served), described["digest"]);
    for descriptor in descriptors {
        let digest = descriptor["digest"].as_str().unwrap();
        let served = registry.read(REPOSITORY, &format!("blobs/{digest}")).await?;
        assert_eq!((sha256(&served).as_str(), served.len()), (digest, blob(descriptor).len()));
    }
    Ok(())
}
