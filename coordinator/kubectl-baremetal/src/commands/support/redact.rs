//! Objects without the values that may be secret.

use serde_json::{Map, Value};

const REDACTED: &str = "REDACTED";

/// Parts of the names of fields whose values may be secret.
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

/// Fields without use for a reader.
const DROPPED_FIELDS: [&str; 2] = ["managedFields", "selfLink"];

/// Redacts values that may be secret: fields by their names, the variables of a topology, URLs,
/// because these may have tokens, and the copies of whole objects in annotations.
pub(super) fn redact(value: &mut Value) {
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
    // Keyfiles, and networks that are given as text, may hold passwords.
    let is_text = fields.get("config").is_some_and(Value::is_string);
    let has_keyfiles = fields.get("configurator").is_some_and(|form| is_text || form == "nmconnections");
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

/// Redacts every variable of a topology, because its name does not tell if its value is secret.
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
    // The keys of labels and annotations have a slash; they are not names of fields.
    let is_field = !lower.contains('/');
    is_field
        && !PUBLIC_FIELDS.contains(&lower.as_str())
        && SECRET_FIELDS.iter().any(|secret| lower.contains(secret))
}

/// The text without private keys, and with the hosts of its URLs alone; `None` for a text that
/// needs no change.
fn redact_text(text: &str) -> Option<String> {
    if text.contains("PRIVATE KEY-----") {
        return Some(REDACTED.to_owned());
    }
    if !text.split_whitespace().any(is_url) {
        return None;
    }
    let words = text.split(' ').map(|word| if is_url(word) { redact_url(word) } else { word.to_owned() });
    Some(words.collect::<Vec<_>>().join(" "))
}

fn is_url(word: &str) -> bool {
    word.contains("://") && !word.starts_with("baremetal://")
}

/// Redacts each line of a text.
pub(super) fn redact_lines(text: &str) -> String {
    text.lines().map(|line| redact_text(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

/// Scheme and host of a URL, because tokens are in users, paths and queries.
fn redact_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // An `@` behind these characters means that they are part of a password.
    if path.contains('@') {
        return format!("{scheme}://{REDACTED}");
    }
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let path = if path.is_empty() { "" } else { "/REDACTED" };
    format!("{scheme}://{host}{path}")
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
}
