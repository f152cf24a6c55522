//! The image of the coordinator as an archive of an OCI layout, which `skopeo copy oci-archive:`,
//! `podman load`, `docker load` and `ctr images import` read.
//!
//! The documents are not written by the types of `oci-spec`, because these keep labels in hash maps
//! whose order differs from run to run.

use std::collections::BTreeMap;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use object::{Architecture, Object as _};
use proto::update_keys::ReleaseSignature;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use crate::VERSION;
use crate::archive::{Entry, gzip, tar};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The beginning of the epoch, so that the image is the same bytes on every day.
const CREATED: &str = "1970-01-01T00:00:00Z";
/// User and group of the coordinator, which the Deployment names too.
pub const USER: u64 = 65532;
pub(crate) const COORDINATOR: &str = "usr/bin/baremetal-coordinator";
const AGENT: &str = "usr/share/baremetal/baremetal-agent";
/// Beside the agent, because the coordinator looks for it there.
const SIGNATURE: &str = "usr/share/baremetal/baremetal-agent.signature.json";
const NOTICES: &str = "usr/share/doc/baremetal/THIRD-PARTY-LICENSES.txt";
const CACHE: &str = "var/cache/baremetal-coordinator/";
const ROOTS: &str = "etc/ssl/certs/ca-certificates.crt";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the {0} is no program: name the file that cargo built")]
    NoProgram(&'static str, #[source] object::Error),
    /// The image has neither loader nor libraries.
    #[error(
        "the {0} is linked dynamically, and may find no libraries where it runs: build it by `make release`"
    )]
    Dynamic(&'static str),
    #[error("the {what} is built for {found:?}: build it for x86_64 or aarch64")]
    Architecture { what: &'static str, found: Architecture },
    #[error("the coordinator is built for {coordinator} and the agent for {agent}: build both for one")]
    Mixed { coordinator: &'static str, agent: &'static str },
    #[error("{0:?} is no NAME:TAG")]
    Reference(String),
    #[error("write the archive")]
    Archive(#[from] io::Error),
}

/// The content of an image.
#[derive(Debug, Clone)]
pub struct Image {
    pub coordinator: Vec<u8>,
    /// The static agent, which is part of every seed ISO.
    pub agent: Vec<u8>,
    /// The signature of the agent; `None` if the release has no key for updates.
    pub signature: Option<ReleaseSignature>,
    /// The licences of the packages of both programs.
    pub notices: Vec<u8>,
    /// NAME:TAG of the loaded image.
    pub reference: String,
    /// The commit of the sources.
    pub revision: Option<String>,
}

struct Blob {
    media: &'static str,
    digest: String,
    content: Vec<u8>,
}

impl Blob {
    fn new(media: &'static str, content: Vec<u8>) -> Self {
        Self { media, digest: sha256(&content), content }
    }

    fn json(media: &'static str, document: &Value) -> Self {
        Self::new(media, document.to_string().into_bytes())
    }

    fn descriptor(&self) -> Value {
        json!({ "mediaType": self.media, "digest": self.digest, "size": self.content.len() })
    }

    fn into_entry(self) -> Entry {
        Entry::file(format!("blobs/{}", self.digest.replace(':', "/")), self.content)
    }
}

impl Image {
    /// The archive of its layout.
    pub fn build(&self) -> Result<Vec<u8>, Error> {
        let architecture = self.architecture()?;
        let tag = match self.reference.rsplit_once(':') {
            Some((name, tag)) if !name.is_empty() && !tag.is_empty() && !tag.contains('/') => tag,
            _ => return Err(Error::Reference(self.reference.clone())),
        };
        let labels = self.labels();
        // Layers that change seldom come first, because a registry has them already.
        let layers = [build_base()?, self.agent()?, self.program()?];
        let unpacked: Vec<String> = layers.iter().map(|layer| sha256(layer)).collect();
        let layers = layers.iter().map(|layer| Ok(Blob::new(LAYER, gzip(layer)?)));
        let layers = layers.collect::<io::Result<Vec<Blob>>>()?;
        let config = Blob::json(CONFIG, &configuration(architecture, &unpacked, &labels));
        let manifest = Blob::json(
            MANIFEST,
            &json!({
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": config.descriptor(),
                "layers": layers.iter().map(Blob::descriptor).collect::<Vec<_>>(),
                "annotations": labels,
            }),
        );
        let mut descriptor = manifest.descriptor();
        descriptor["platform"] = json!({ "architecture": architecture, "os": "linux" });
        descriptor["annotations"] = json!({
            "io.containerd.image.name": self.reference,
            "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor] });
        let mut entries: Vec<Entry> =
            layers.into_iter().chain([config, manifest]).map(Blob::into_entry).collect();
        entries.push(Entry::file("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string()));
        entries.push(Entry::file("index.json", index.to_string()));
        Ok(tar(entries)?)
    }

    fn agent(&self) -> io::Result<Vec<u8>> {
        let mut entries = vec![Entry::program(AGENT, &*self.agent)];
        if let Some(signature) = &self.signature {
            entries.push(Entry::file(SIGNATURE, serde_json::to_string(signature)?));
        }
        tar(entries)
    }

    fn program(&self) -> io::Result<Vec<u8>> {
        tar(vec![Entry::program(COORDINATOR, &*self.coordinator), Entry::file(NOTICES, &*self.notices)])
    }

    /// The architecture of the programs, as images name it. Both have to be static and of the same
    /// architecture.
    pub fn architecture(&self) -> Result<&'static str, Error> {
        let coordinator = static_architecture("coordinator", &self.coordinator)?;
        let agent = static_architecture("agent", &self.agent)?;
        if coordinator == agent { Ok(agent) } else { Err(Error::Mixed { coordinator, agent }) }
    }

    fn labels(&self) -> BTreeMap<&'static str, &str> {
        let mut labels = BTreeMap::from([
            ("org.opencontainers.image.title", "baremetal-coordinator"),
            ("org.opencontainers.image.description", "Turns bare metal into Kubernetes nodes"),
            ("org.opencontainers.image.licenses", "Apache-2.0"),
            ("org.opencontainers.image.version", VERSION),
        ]);
        if let Some(revision) = &self.revision {
            labels.insert("org.opencontainers.image.revision", revision);
        }
        labels
    }
}

/// The name that images use for the architecture of a static program.
pub(crate) fn static_architecture(what: &'static str, program: &[u8]) -> Result<&'static str, Error> {
    let file = object::File::parse(program).map_err(|error| Error::NoProgram(what, error))?;
    if file.section_by_name(".interp").is_some() {
        return Err(Error::Dynamic(what));
    }
    match file.architecture() {
        Architecture::X86_64 => Ok("amd64"),
        Architecture::Aarch64 => Ok("arm64"),
        found => Err(Error::Architecture { what, found }),
    }
}

/// The files that the programs need: the name of the user, the authorities of public servers, and a
/// directory for base ISOs.
fn build_base() -> io::Result<Vec<u8>> {
    tar(vec![
        Entry::file("etc/passwd", format!("nonroot:x:{USER}:{USER}::/:/sbin/nologin\n")),
        Entry::file("etc/group", format!("nonroot:x:{USER}:\n")),
        Entry::file(ROOTS, render_roots()),
        Entry::directory(CACHE, 0o755, USER),
    ])
}

/// Mozilla's authorities as PEM.
fn render_roots() -> String {
    let mut text = String::new();
    for certificate in TLS_SERVER_ROOT_CERTS {
        let encoded = STANDARD.encode(certificate);
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in encoded.as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

fn configuration(architecture: &str, unpacked: &[String], labels: &BTreeMap<&str, &str>) -> Value {
    let history = ["base", "agent", "coordinator"]
        .map(|name| json!({ "created": CREATED, "created_by": format!("bundle image: {name}") }));
    json!({
        "architecture": architecture,
        "os": "linux",
        "created": CREATED,
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": [format!("/{COORDINATOR}")],
            "Env": [format!("AGENT_PATH=/{AGENT}")],
            "ExposedPorts": { "8443/tcp": {}, "8444/tcp": {}, "8080/tcp": {} },
            "WorkingDir": "/",
            "Labels": labels,
        },
        "rootfs": { "type": "layers", "diff_ids": unpacked },
        "history": history,
    })
}

pub(crate) fn sha256(content: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(content)))
}

#[cfg(test)]
pub(crate) mod tests;
