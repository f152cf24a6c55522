//! Where the coordinator is and why it can be trusted: the seed ISO's
//! `livecd-cloud-config.yaml`, and its copy on the installed disk.
//!
//! Both have the upstream form: `elemental.registration.{url,ca-cert,…}`. The
//! SeedImage's own `cloud-config` beside it is for the early boot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ground::error::NextAction;

const PATH_PREFIX: &str = "/elemental/registration/";
/// The reserved file of the base ISO has this size, bytes; nothing larger is
/// read.
const MAX_BYTES: u64 = 64 * 1024;

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Read {
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The file is not what a coordinator writes.
    #[error("{path} is not the configuration of a seed ISO", path = path.display())]
    Parse { path: PathBuf, source: serde_norway::Error },
    /// The base ISO was booted as it is.
    #[error("this ISO belongs to no coordinator")]
    Unsigned,
    /// The URL does not lead to a registration.
    #[error("elemental.registration.url is {url:?}, not https://HOST:PORT/elemental/registration/TOKEN")]
    Url { url: String },
    /// Without a CA no coordinator can be verified.
    #[error("elemental.registration.ca-cert is missing")]
    Authority,
}

impl NextAction for ConfigError {
    fn next_action(&self) -> Option<&str> {
        Some(match self {
            Self::Read { .. } => "boot a seed ISO of this coordinator",
            Self::Unsigned => "create a SeedImage and boot the ISO of its status.downloadURL",
            Self::Parse { .. } | Self::Url { .. } | Self::Authority => {
                "download a fresh seed ISO and boot it"
            }
        })
    }
}

/// How a host connects to its coordinator.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// Host name or address, without brackets.
    pub host: String,
    pub port: u16,
    /// Opens a registration; never logged.
    pub token: String,
    /// PEM; nothing else is trusted.
    pub authority: String,
    url: String,
    emulate_tpm: bool,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Config({})", self.address())
    }
}

#[derive(Default, Deserialize, Serialize)]
struct Document {
    #[serde(default)]
    elemental: Option<Elemental>,
}

#[derive(Deserialize, Serialize)]
struct Elemental {
    registration: Registration,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Registration {
    url: String,
    #[serde(default)]
    ca_cert: String,
    #[serde(default)]
    emulate_tpm: bool,
}

impl Config {
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The same host with another coordinator.
    pub fn moved_to(&self, url: &str, authorities: &str) -> Result<Self, ConfigError> {
        let registration = Registration {
            url: url.to_owned(),
            ca_cert: authorities.to_owned(),
            emulate_tpm: self.emulate_tpm,
        };
        registration.parse()
    }

    /// As the coordinator computes it.
    pub fn checksum(&self) -> String {
        proto::proof::settings(&self.url, &self.authority)
    }

    /// The document for the installed disk, YAML.
    ///
    /// # Errors
    /// Never in practice: the values are plain text.
    pub fn render_yaml(&self) -> Result<String, serde_norway::Error> {
        serde_norway::to_string(&Document {
            elemental: Some(Elemental {
                registration: Registration {
                    url: self.url.clone(),
                    ca_cert: self.authority.clone(),
                    emulate_tpm: self.emulate_tpm,
                },
            }),
        })
    }
}

/// Reads the configuration of the live or of the installed system.
pub fn read(path: &Path) -> Result<Config, ConfigError> {
    use io::Read as _;
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text))
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    parse(&text, path)
}

/// Understands the document; `path` is for messages.
pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
    // The base ISO holds this file as a page of newlines.
    if text.trim().is_empty() {
        return Err(ConfigError::Unsigned);
    }
    let document: Document = serde_norway::from_str(text)
        .map_err(|source| ConfigError::Parse { path: path.to_owned(), source })?;
    let registration = document.elemental.ok_or(ConfigError::Unsigned)?.registration;
    registration.parse()
}

impl Registration {
    fn parse(self) -> Result<Config, ConfigError> {
        let Self { url, ca_cert: authority, emulate_tpm } = self;
        if !authority.contains("-----BEGIN CERTIFICATE-----") {
            return Err(ConfigError::Authority);
        }
        let (host, port, token) =
            parse_url(&url).ok_or_else(|| ConfigError::Url { url: without_token(&url) })?;
        Ok(Config { host, port, token, authority, url, emulate_tpm })
    }
}

fn parse_url(url: &str) -> Option<(String, u16, String)> {
    let uri: http::Uri = url.parse().ok()?;
    let host = uri.host()?.trim_matches(['[', ']']).to_owned();
    let token = uri.path().strip_prefix(PATH_PREFIX)?.to_owned();
    let plain = !token.is_empty() && !token.contains('/');
    (uri.scheme_str() == Some("https") && plain).then(|| (host, uri.port_u16().unwrap_or(443), token))
}

/// A token in a message on a console is a token in a photograph.
fn without_token(url: &str) -> String {
    url.find(PATH_PREFIX).map_or_else(|| url.to_owned(), |at| format!("{}…", &url[..at + PATH_PREFIX.len()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CA: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";

    fn document(url: &str) -> String {
        let authority = CA.replace('\n', "\n      ");
        format!(
            "elemental:\n  registration:\n    url: {url}\n    ca-cert: |\n      {authority}\n    emulate-tpm: true\n    emulated-tpm-seed: -1\n    no-smbios: false\ncloud-config:\n  users: []\n"
        )
    }

    #[test]
    fn a_seed_iso_leads_to_its_coordinator() {
        let with_padding =
            format!("{}{}", document("https://c.example:8443/elemental/registration/abc"), "\n".repeat(600));
        for (name, text, want) in [
            ("port", with_padding, ("c.example", 8443, "abc")),
            ("no port", document("https://192.0.2.1/elemental/registration/a-b"), ("192.0.2.1", 443, "a-b")),
            ("IPv6", document("https://[2001:db8::1]:9/elemental/registration/t"), ("2001:db8::1", 9, "t")),
        ] {
            let config = parse(&text, Path::new("x")).unwrap();
            assert_eq!((config.host.as_str(), config.port, config.token.as_str()), want, "{name}");
            let copy = parse(&config.render_yaml().unwrap(), Path::new("x")).unwrap();
            assert_eq!(copy, config, "{name}: the copy says the same");
        }
    }

    #[test]
    fn configuration_errors_have_a_next_action() {
        let url = "https://c.example/elemental/registration/secret-token/more";
        for (name, text, want) in [
            ("base ISO", "\n".repeat(65536), "create a SeedImage"),
            ("garbled", "elemental: [".to_owned(), "download a fresh seed ISO"),
            ("no scheme", document("c.example/elemental/registration/x"), "not https://"),
            ("plain text", document("http://c.example/elemental/registration/x"), "not https://"),
            ("no token", document("https://c.example/elemental/registration/"), "not https://"),
            ("odd token", document(url), "registration/…"),
            (
                "no authority",
                "elemental:\n  registration:\n    url: https://c/elemental/registration/t\n".to_owned(),
                "ca-cert is missing",
            ),
        ] {
            let message = crate::ground::error::explain(&parse(&text, Path::new("x")).unwrap_err());
            assert!(message.contains(want), "{name}: {message}");
            assert!(!message.contains("secret-token"), "{name}");
        }
    }
}
