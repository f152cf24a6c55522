//! The image of the coordinator, pushed to a real registry by the command of the document.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

use anyhow::Result;
use bundle::VERSION;
use bundle::image::Image;
use contract::documents::{PUSH, Reader, fill};
use control_plane::registry::{Access, sha256};
use control_plane::{Parts, Registry, Shell};
use serde_json::Value;

const REPOSITORY: &str = "baremetal-coordinator";

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
async fn registry_serves_the_pushed_image() -> Result<()> {
    let image = Image {
        coordinator: program(),
        agent: program(),
        notices: vec![],
        reference: "baremetal-coordinator:1".to_owned(),
        revision: None,
        signature: None,
    };
    let archive = image.build()?;
    let files = read_archive(&archive);
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        &files[&format!("blobs/{}", digest.replace(':', "/"))]
    };
    let index: Value = serde_json::from_slice(&files["index.json"])?;
    let described = &index["manifests"][0];
    let manifest: Value = serde_json::from_slice(blob(described))?;

    let registry = Registry::start(&Parts::from_environment()?, &Access::Anonymous).await?;
    let shell = Shell::new(PathBuf::new())?;
    fs::create_dir(shell.path("dist"))?;
    fs::write(shell.path(&format!("dist/baremetal-coordinator-{VERSION}-amd64.oci.tar")), archive)?;
    fs::write(shell.path("authority.pem"), registry.authority())?;
    let mut reader = Reader::of(PUSH);
    for block in reader.read("docs/install.md", "Build")?.iter().filter(|block| block.is_commands()) {
        let commands = fill(&block.content, &[("registry.example.com", registry.address().to_owned())]);
        shell.run(&format!("export SSL_CERT_FILE=$PWD/authority.pem\n{commands}")).await?;
    }
    reader.finish()?;

    let served = registry.read(REPOSITORY, &format!("manifests/{VERSION}")).await?;
    assert_eq!(sha256(&served), described["digest"]);
    for descriptor in manifest["layers"].as_array().unwrap().iter().chain([&manifest["config"]]) {
        let digest = descriptor["digest"].as_str().unwrap();
        let served = registry.read(REPOSITORY, &format!("blobs/{digest}")).await?;
        assert_eq!((sha256(&served).as_str(), served.len()), (digest, blob(descriptor).len()));
    }
    Ok(())
}
