//! A bundle of objects and Events for a report, without secrets.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};

/// In place of what may be secret.
const REDACTED: &str = "REDACTED";

/// Parts of field names whose values may be secret, whatever they are.
const SECRET_FIELDS: [&str; 19] = [
    "token",
    "password",
    "passwd",
    "passphrase",
    "psk",
    "secretkey",
    "privatekey",
    "credential",
    "cloud-config",
    "cloudconfig",
    "userdata",
    "stringdata",
    "content",
    "kubeadmconfigspec",
    "emulated-tpm-seed",
    "connections",
    "url",
    "certificatekey",
    "authorizedkeys",
];

/// Fields with such a name that hold the name of an object, or are public.
const PUBLIC_FIELDS: [&str; 3] = ["tokenexpiresat", "credentialsname", "contenttype"];

/// Fields that say nothing to a reader.
const DROPPED_FIELDS: [&str; 2] = ["managedFields", "selfLink"];

/// Takes out of an object what may be secret: values of fields by their names, of variables
/// of a topology, URLs with tokens in them, and copies of whole objects in annotations.
pub(crate) fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => redact_fields(fields),
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::String(text) => {
            if let Some(clean) = redact_text(text) {
                *text = clean;
            }
        }
        _ => {}
    }
}

fn redact_fields(fields: &mut Map<String, Value>) {
    fields.retain(|name, _| !DROPPED_FIELDS.contains(&name.as_str()));
    // Keyfiles, and a network in the form of text, hold passwords.
    let is_text = fields.get("config").is_some_and(Value::is_string);
    let has_keyfiles = fields.get("configurator").is_some_and(|of| is_text || of == "nmconnections");
    if let Some(config) = fields.get_mut("config").filter(|_| has_keyfiles) {
        *config = Value::from(REDACTED);
    }
    for (name, value) in fields.iter_mut() {
        if name == "kubectl.kubernetes.io/last-applied-configuration" || is_secret_field(name) {
            if !value.is_null() {
                *value = Value::from(REDACTED);
            }
        } else {
            if name == "variables" {
                redact_variables(value);
            }
            redact(value);
        }
    }
}

/// Of a topology: the name of a variable does not tell whether its value is secret.
fn redact_variables(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(redact_variables),
        Value::Object(fields) => {
            let is_variable = fields.contains_key("name");
            for (name, value) in fields {
                if is_variable && name == "value" {
                    *value = Value::from(REDACTED);
                } else {
                    redact_variables(value);
                }
            }
        }
        _ => {}
    }
}

fn is_secret_field(name: &str) -> bool {
    let lower = name.to_lowercase();
    // A label or annotation is no field: its key says whose it is.
    let is_field = !lower.contains('/');
    is_field
        && !PUBLIC_FIELDS.contains(&lower.as_str())
        && SECRET_FIELDS.iter().any(|secret| lower.contains(secret))
}

/// A key, a certificate's key, or a URL with a user, a query or a path, without these.
fn redact_text(text: &str) -> Option<String> {
    if text.contains("PRIVATE KEY-----") {
        return Some(REDACTED.to_owned());
    }
    let is_url = |word: &str| word.contains("://") && !word.starts_with("baremetal://");
    if !text.split_whitespace().any(is_url) {
        return None;
    }
    let clean = |word: &str| if is_url(word) { redact_url(word) } else { word.to_owned() };
    Some(text.split(' ').map(clean).collect::<Vec<_>>().join(" "))
}

/// The same for text of several lines.
pub(crate) fn redact_lines(text: &str) -> String {
    let clean = |line: &str| redact_text(line).unwrap_or_else(|| line.to_owned()) + "\n";
    text.lines().map(clean).collect()
}

/// Scheme and host alone: tokens are in paths and queries too.
fn redact_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // A password may have these characters, and is no host.
    if path.contains('@') {
        return format!("{scheme}://{REDACTED}");
    }
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let path = if path.is_empty() { "" } else { "/REDACTED" };
    format!("{scheme}://{host}{path}")
}

/// A tar archive that grows file by file.
pub(crate) struct Bundle<W: Write> {
    archive: tar::Builder<GzEncoder<W>>,
    seconds: u64,
}

impl<W: Write> Bundle<W> {
    /// `seconds` is the time of all files.
    pub(crate) fn new(writer: W, seconds: u64) -> Self {
        Self { archive: tar::Builder::new(GzEncoder::new(writer, Compression::default())), seconds }
    }

    pub(crate) fn add(&mut self, path: &str, content: &str) -> std::io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(self.seconds);
        self.archive.append_data(&mut header, format!("baremetal-support/{path}"), content.as_bytes())
    }

    pub(crate) fn finish(self) -> std::io::Result<()> {
        self.archive.into_inner()?.finish()?.flush()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_taken_out() {
        let mut object = json!({
            "metadata": {
                "managedFields": [1],
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "{\"spec\":{\"token\":\"s1\"}}",
                    "baremetal.cluster.io/rotate-token": "",
                },
            },
            "spec": {
                "token": "s2",
                "tokenExpiresAt": "2026-01-01T00:00:00Z",
                "config": { "cloud-config": { "users": [{ "passwd": "s3" }] } },
                "observedNetwork": { "connections": { "wifi": "[wifi-security]\npsk=s4" } },
                "network": { "configurator": "nmconnections", "config": { "eno1": "psk=s11" } },
                "other": { "configurator": "none", "config": { "ethernets": { "eno2": { "dhcp4": true } } } },
                "kubeadmConfigSpec": { "files": [{ "content": "s5" }] },
                "bootstrap": { "dataSecretName": "shown" },
                "providerID": "baremetal:///host",
                "baseImage": "https://user:s6@server.example/path-s7.iso",
            },
            "status": {
                "registrationURL": "https://c.example/s8",
                "downloadURL": "https://c.example/s9/x.iso",
                "conditions": [{ "message": "fetch https://c.example/s10 failed: 404" }],
            },
        });
        redact(&mut object);
        let text = object.to_string();
        for number in 1..=10 {
            assert!(
                !text.contains(&format!("s{number}\"")) && !text.contains(&format!("s{number} ")),
                "s{number}: {text}"
            );
        }
        for secret in ["psk=s11", "psk=s4", "s6@", "path-s7", "/s8", "/s9", "/s10"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        assert_eq!(object["spec"]["bootstrap"]["dataSecretName"], "shown");
        assert_eq!(object["spec"]["providerID"], "baremetal:///host");
        assert_eq!(object["spec"]["other"]["config"]["ethernets"]["eno2"]["dhcp4"], true);
        assert_eq!(object["spec"]["tokenExpiresAt"], "2026-01-01T00:00:00Z");
        assert_eq!(
            object["status"]["conditions"][0]["message"],
            "fetch https://c.example/REDACTED failed: 404"
        );
        assert_eq!(object["metadata"].get("managedFields"), None);
    }

    #[test]
    fn values_of_topology_variables_are_taken_out() {
        let workers = json!([{
            "name": "workers", "replicas": 1,
            "variables": { "overrides": [{ "name": "any", "value": { "deep": "s1" } }] },
        }]);
        let mut topology = json!({
            "variables": [{ "name": "registryPassword", "value": "s2" }],
            "workers": { "machineDeployments": workers },
        });
        redact(&mut topology);
        let want = json!({
            "variables": [{ "name": "registryPassword", "value": "REDACTED" }],
            "workers": { "machineDeployments": [{
                "name": "workers", "replicas": 1,
                "variables": { "overrides": [{ "name": "any", "value": "REDACTED" }] },
            }] },
        });
        assert_eq!(topology, want);
    }

    #[test]
    fn urls_keep_their_host_alone() {
        for (url, want) in [
            ("https://d.example:8443", "https://d.example:8443"),
            ("https://d.example/s1", "https://d.example/REDACTED"),
            ("https://d.example?token=s1", "https://d.example/REDACTED"),
            ("https://d.example#s1", "https://d.example/REDACTED"),
            ("https://user:s1@d.example/s2", "https://d.example/REDACTED"),
            ("https://user:s1?s2@d.example/s3", "https://REDACTED"),
            ("baremetal:///host", "baremetal:///host"),
        ] {
            assert_eq!(redact_lines(&format!("fetch {url} failed")), format!("fetch {want} failed\n"));
        }
    }

    #[test]
    fn archive_holds_its_files() {
        use std::io::Read as _;

        let mut bytes = vec![];
        let mut bundle = Bundle::new(&mut bytes, 7);
        bundle.add("a/b.yaml", "x: 1\n").unwrap();
        bundle.finish().unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
        let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        assert_eq!(
            (entry.path().unwrap().to_str(), text.as_str()),
            (Some("baremetal-support/a/b.yaml"), "x: 1\n")
        );
    }
}
