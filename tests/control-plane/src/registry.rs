//! A registry of OCI images on loopback, with TLS by an authority of its own.

use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use crate::directory::Directory;
use crate::parts::{self, Part, Parts};
use crate::pki::{self, Authority};
use crate::ports;
use crate::process::{self, Server, Spec};

const TIME_LIMIT: Duration = Duration::from_mins(2);

/// Manifests are served in the form that they were stored in, or not at all.
const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, application/octet-stream";

/// Who may use a registry of [`Access::Password`].
pub const USER: &str = "puller";
pub const PASSWORD: &str = "correct horse";
/// The registry takes bcrypt alone.
const PASSWORD_HASH: &str = "$2a$05$JQb4p6tJ2Gqq1eMHY9JLv.nkRFwfbYdadujV7aHnOMaMjrQukQGB2";

/// A registry could not be started or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The binary is missing.
    #[error("find the registry")]
    Parts(#[from] parts::Error),
    /// A file of its directory could not be written.
    #[error("write the files of a registry")]
    Files(#[from] io::Error),
    /// A certificate could not be made.
    #[error("make the certificate of a registry")]
    Certificates(#[from] pki::Error),
    /// It did not start or get ready.
    #[error("run a registry")]
    Process(#[from] process::Error),
    /// A request could not be made.
    #[error("ask a registry")]
    Request(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It answered with an error.
    #[error("the registry answers {status} to {what}: {answer}")]
    Answer { what: String, status: StatusCode, answer: String },
}

/// Who may read and write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    Anonymous,
    /// [`USER`] with [`PASSWORD`].
    Password,
    /// Who has a token of that server, signed by the key of the certificate.
    Token {
        /// https URL of the server of tokens.
        realm: String,
        /// PEM of the certificate that its tokens carry.
        certificate: String,
    },
}

type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A running registry. Dropping it ends its process.
#[derive(Debug)]
pub struct Registry {
    server: Server,
    client: HttpsClient,
    authority: String,
    authorization: Option<String>,
    address: String,
    directory: Directory,
}

impl Registry {
    /// Starts one and waits until it answers.
    ///
    /// # Errors
    /// When the binary is missing or does not get ready.
    pub async fn start(parts: &Parts, access: &Access) -> Result<Self, Error> {
        let binary = parts.path(Part::Registry)?;
        let directory = Directory::temporary()?;
        let authority = Authority::new("registry")?;
        // Clients by OpenSSL take a certificate with the name of its issuer for self-signed.
        let pair = authority.server("registry server", &[])?;
        let port = ports::free()?;
        let file = |name: &str| directory.path().join(name);
        fs::write(file("tls.crt"), pair.certificate)?;
        fs::write(file("tls.key"), pair.key)?;
        fs::write(file("htpasswd"), format!("{USER}:{PASSWORD_HASH}\n"))?;
        if let Access::Token { certificate, .. } = access {
            fs::write(file("token.crt"), certificate)?;
        }
        let configuration = configuration(&file, port, access);
        fs::write(file("config.yml"), configuration.to_string())?;
        let server = Server::start(Spec {
            name: "registry".to_owned(),
            binary,
            arguments: vec!["serve".to_owned(), file("config.yml").display().to_string()],
            environment: vec![("OTEL_TRACES_EXPORTER".to_owned(), "none".to_owned())],
            log: file("registry.log"),
        })?;
        let authority = authority.pair().certificate.clone();
        let basic = || format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
        let authorization = (*access == Access::Password).then(basic);
        let (client, address) = (trusting(&authority)?, format!("127.0.0.1:{port}"));
        let registry = Self { server, client, authority, authorization, address, directory };
        registry.server.ready(TIME_LIMIT, || registry.probe()).await?;
        Ok(registry)
    }

    /// `127.0.0.1:PORT`, the first part of a reference.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// PEM of the certificate that signs for it.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// What [`Registry::push_blob`] and the others say that they are.
    pub fn authorized_by(mut self, authorization: String) -> Self {
        self.authorization = Some(authorization);
        self
    }

    /// Stores a blob; the answer is its descriptor.
    pub async fn push_blob(&self, repository: &str, media: &str, content: &[u8]) -> Result<Value, Error> {
        let digest = sha256(content);
        let path = format!("/v2/{repository}/blobs/uploads/");
        let started = self.request(Method::POST, &path, "", vec![]).await?;
        let location = started.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
        let location = location.ok_or_else(|| Error::Request("an upload without a location".into()))?;
        let path = location.split_once(&self.address).map_or(location, |(_, path)| path);
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}digest={digest}");
        self.request(Method::PUT, &path, "application/octet-stream", content.to_vec()).await?;
        Ok(json!({ "mediaType": media, "digest": digest, "size": content.len() }))
    }

    /// Stores a manifest or an index under a tag; the answer is its descriptor.
    pub async fn push_manifest(&self, repository: &str, tag: &str, manifest: &Value) -> Result<Value, Error> {
        let media = manifest["mediaType"].as_str().unwrap_or_default();
        let content = manifest.to_string().into_bytes();
        let path = format!("/v2/{repository}/manifests/{tag}");
        let descriptor = json!({ "mediaType": media, "digest": sha256(&content), "size": content.len() });
        self.request(Method::PUT, &path, media, content).await?;
        Ok(descriptor)
    }

    /// Stores an image of layers (media type, content), from the bottom up.
    pub async fn push_image(
        &self,
        repository: &str,
        tag: &str,
        architecture: &str,
        layers: &[(&str, &[u8])],
    ) -> Result<Value, Error> {
        let config = json!({ "architecture": architecture, "os": "linux", "rootfs": { "type": "layers" } });
        let media = "application/vnd.oci.image.config.v1+json";
        let config = self.push_blob(repository, media, config.to_string().as_bytes()).await?;
        let mut pushed = vec![];
        for (media, content) in layers {
            pushed.push(self.push_blob(repository, media, content).await?);
        }
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": pushed,
        });
        self.push_manifest(repository, tag, &manifest).await
    }

    /// What it serves of a repository, as `manifests/TAG` or `blobs/DIGEST`.
    pub async fn read(&self, repository: &str, path: &str) -> Result<Bytes, Error> {
        let answer = self.request(Method::GET, &format!("/v2/{repository}/{path}"), "", vec![]).await?;
        Ok(answer.into_body())
    }

    pub async fn delete_tag(&self, repository: &str, tag: &str) -> Result<(), Error> {
        let path = format!("/v2/{repository}/manifests/{tag}");
        self.request(Method::DELETE, &path, "", vec![]).await.map(drop)
    }

    /// Changes one byte of a blob behind the registry's back.
    ///
    /// # Errors
    /// When it is not there.
    pub fn alter_blob(&self, digest: &str) -> io::Result<()> {
        let hex = digest.trim_start_matches("sha256:");
        let blobs = self.directory.path().join("storage/docker/registry/v2/blobs/sha256");
        let path = blobs.join(&hex[..2]).join(hex).join("data");
        let mut content = fs::read(&path)?;
        if let Some(last) = content.last_mut() {
            *last ^= 1;
        }
        fs::write(path, content)
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: Vec<u8>,
    ) -> Result<Response<Bytes>, Error> {
        let what = format!("{method} {path}");
        let mut request = Request::builder().method(method).uri(format!("https://{}{path}", self.address));
        request = match media {
            "" => request.header(header::ACCEPT, ACCEPTED),
            media => request.header(header::CONTENT_TYPE, media),
        };
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::from(body)).map_err(|error| Error::Request(error.into()))?;
        let response = self.client.request(request).await.map_err(|error| Error::Request(error.into()))?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| Error::Request(error.into()))?.to_bytes();
        if !parts.status.is_success() {
            let answer = String::from_utf8_lossy(&body).into_owned();
            return Err(Error::Answer { what, status: parts.status, answer });
        }
        Ok(Response::from_parts(parts, body))
    }

    /// Whether it answers; without credentials some do with 401.
    async fn probe(&self) -> Result<(), String> {
        match self.request(Method::GET, "/v2/", "", vec![]).await {
            Ok(_) | Err(Error::Answer { status: StatusCode::UNAUTHORIZED, .. }) => Ok(()),
            Err(error) => Err(format!("{error:?}")),
        }
    }
}

/// `sha256:` and hexadecimal digits.
pub fn sha256(content: &[u8]) -> String {
    format!("sha256:{}", hex::encode(ring::digest::digest(&ring::digest::SHA256, content)))
}

fn configuration(file: &impl Fn(&str) -> PathBuf, port: u16, access: &Access) -> Value {
    let mut configuration = json!({
        "version": "0.1",
        "log": { "level": "warn", "accesslog": { "disabled": true } },
        "storage": {
            "filesystem": { "rootdirectory": file("storage") },
            "delete": { "enabled": true },
        },
        "http": {
            "addr": format!("127.0.0.1:{port}"),
            "secret": "of one process",
            "tls": { "certificate": file("tls.crt"), "key": file("tls.key") },
        },
    });
    match access {
        Access::Anonymous => {}
        Access::Password => {
            let htpasswd = json!({ "realm": "registry", "path": file("htpasswd") });
            configuration["auth"] = json!({ "htpasswd": htpasswd });
        }
        Access::Token { realm, .. } => {
            let bundle = file("token.crt");
            let token = json!({ "realm": realm, "service": "registry", "issuer": "tokens", "rootcertbundle": bundle });
            configuration["auth"] = json!({ "token": token });
        }
    }
    configuration
}

fn trusting(authority: &str) -> Result<HttpsClient, Error> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| Error::Request(error);
    let mut roots = RootCertStore::empty();
    let certificate =
        CertificateDer::from_pem_slice(authority.as_bytes()).map_err(|error| failed(error.into()))?;
    roots.add(certificate).map_err(|error| failed(error.into()))?;
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| failed(error.into()))?;
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}
