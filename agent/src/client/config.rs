//! The address of the coordinator and the authority that vouches for it: the seed ISO's
//! `livecd-cloud-config.yaml`, and its copy on the installed disk.
//!
//! Both files have the upstream form, `elemental.registration.{url,ca-cert,…}`. Early boot reads
//! the SeedImage's own `cloud-config`, which is in the same file.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::ground::failure::{Failure, OnPath as _, describe_cause};
use crate::host::proxy::{ProxySettings, format_authority};

const PATH_PREFIX: &str = "/elemental/registration/";
/// Size of the reserved file of the base ISO, in bytes; nothing larger is read.
const MAX_BYTES: u64 = 64 * 1024;

/// Address and authority of the coordinator.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// Host name or address, without brackets.
    pub host: String,
    pub port: u16,
    /// The token opens a registration; it is never logged.
    pub token: String,
    /// PEM; no other authority is trusted.
    pub authority: String,
    url: String,
    emulate_tpm: bool,
    https_proxy: Option<String>,
    no_proxy: Option<String>,
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
    /// The proxy between this host and the coordinator, for the live and the installed system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    https_proxy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    no_proxy: Option<String>,
}

impl Config {
    /// `host:port`.
    pub fn address(&self) -> String {
        format_authority(&self.host, self.port)
    }

    /// The proxy that the registration names.
    pub fn proxy(&self) -> ProxySettings {
        let https = self.https_proxy.as_deref();
        ProxySettings::configured("https-proxy of the registration", https, self.no_proxy.as_deref())
    }

    /// The configuration of the same host for another coordinator.
    pub fn moved_to(&self, url: &str, authorities: &str) -> Result<Self, Failure> {
        self.registration(url, authorities).parse()
    }

    fn registration(&self, url: &str, authorities: &str) -> Registration {
        Registration {
            url: url.to_owned(),
            ca_cert: authorities.to_owned(),
            emulate_tpm: self.emulate_tpm,
            https_proxy: self.https_proxy.clone(),
            no_proxy: self.no_proxy.clone(),
        }
    }

    /// The checksum that the coordinator computes as well.
    pub fn checksum(&self) -> String {
        proto::proof::settings(&self.url, &self.authority)
    }

    /// The document for the installed disk, YAML.
    pub fn render_yaml(&self) -> Result<String, Failure> {
        let registration = self.registration(&self.url, &self.authority);
        serde_norway::to_string(&Document { elemental: Some(Elemental { registration }) }).map_err(|error| {
            Failure::input_output(describe_cause("cannot render the agent's configuration", &error), "")
        })
    }
}

pub fn read(path: &Path) -> Result<Config, Failure> {
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text))
        .on("read", path)
        .map_err(|failure| failure.with_next_action("boot a seed ISO of this coordinator"))?;
    parse(&text, path)
}

/// The configuration at `path`; `None` if there is no such file.
pub fn read_optional(path: &Path) -> Result<Option<Config>, Failure> {
    if path.exists() { read(path).map(Some) } else { Ok(None) }
}

const FRESH_ISO: &str = "download a fresh seed ISO and boot it";

fn no_coordinator() -> Failure {
    Failure::input_output(
        "this ISO belongs to no coordinator",
        "create a SeedImage and boot the ISO of its status.downloadURL",
    )
}

/// Parses the document; `path` is used in messages only.
pub fn parse(text: &str, path: &Path) -> Result<Config, Failure> {
    // The base ISO holds this file as a page of newlines.
    if text.trim().is_empty() {
        return Err(no_coordinator());
    }
    let document: Document = serde_norway::from_str(text).map_err(|error| {
        let message = format!("{} is not the configuration of a seed ISO", path.display());
        Failure::input_output(describe_cause(&message, &error), FRESH_ISO)
    })?;
    let registration = document.elemental.ok_or_else(no_coordinator)?.registration;
    registration.parse()
}

impl Registration {
    fn parse(self) -> Result<Config, Failure> {
        let Self { url, ca_cert: authority, emulate_tpm, https_proxy, no_proxy } = self;
        if !authority.contains("-----BEGIN CERTIFICATE-----") {
            return Err(Failure::input_output("elemental.registration.ca-cert is missing", FRESH_ISO));
        }
        let (host, port, token) = parse_url(&url).ok_or_else(|| {
            let url = without_token(&url);
            let message = format!(
                "elemental.registration.url is {url:?}, not https://HOST:PORT/elemental/registration/TOKEN"
            );
            Failure::input_output(message, FRESH_ISO)
        })?;
        Ok(Config { host, port, token, authority, url, emulate_tpm, https_proxy, no_proxy })
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
    fn proxy_stays_with_the_host() {
        let url = "https://c.example:8443/elemental/registration/abc";
        let named = "    https-proxy: http://user:secret@proxy:3128\n    no-proxy: .direct.example\n";
        let text = document(url).replace("    emulate-tpm", &format!("{named}    emulate-tpm"));
        let config = parse(&text, Path::new("x")).unwrap();
        assert!(!format!("{config:?}").contains("secret"), "{config:?}");
        let copy = parse(&config.render_yaml().unwrap(), Path::new("x")).unwrap();
        let moved = copy.moved_to("https://d.example/elemental/registration/b", CA).unwrap();
        for (name, config) in [("seed", config), ("copy", copy), ("moved", moved)] {
            let proxy = config.proxy().choose(&config.address()).unwrap().unwrap();
            assert_eq!(proxy.to_string(), "proxy http://proxy:3128", "{name}");
            assert!(proxy.credentials.is_some(), "{name}");
            assert!(config.proxy().choose("a.direct.example:1").unwrap().is_none(), "{name}");
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
            let message = parse(&text, Path::new("x")).unwrap_err().to_string();
            assert!(message.contains(want), "{name}: {message}");
            assert!(!message.contains("secret-token"), "{name}");
        }
    }
}
