//! Credentials for a registry in a pull Secret.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use oci_spec::distribution::Reference;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const TYPE: &str = "kubernetes.io/dockerconfigjson";
const KEY: &str = ".dockerconfigjson";
/// Names of Docker Hub.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Credentials {
    pub username: String,
    /// `Debug` omits the password, so that no log contains it.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Why a pull Secret has no credentials for an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullSecretError {
    #[error("is not of type {TYPE}")]
    Type,
    #[error("has no key {KEY} of the form that `kubectl create secret docker-registry` writes")]
    Format,
    #[error("has no credentials for {registry}")]
    Missing { registry: String },
    /// The entry has an identity token, or nothing.
    #[error("has no user name and password for {registry}")]
    Incomplete { registry: String },
}

#[derive(Deserialize)]
struct Document<E> {
    auths: BTreeMap<String, E>,
}

impl<E> Document<E> {
    fn find_entry(&self, image: &Reference) -> Result<&E, PullSecretError> {
        let rated = self.auths.iter().filter_map(|(key, entry)| Some((rate_key(key, image)?, entry)));
        let (_, entry) = rated
            .max_by_key(|(rating, _)| *rating)
            .ok_or_else(|| PullSecretError::Missing { registry: image.registry().to_owned() })?;
        Ok(entry)
    }
}

#[derive(Deserialize)]
struct Entry {
    username: Option<String>,
    password: Option<String>,
    auth: Option<String>,
}

/// The credentials of the entry that matches the image best: its registry and the longest path.
pub fn find_credentials(secret: &Secret, image: &Reference) -> Result<Credentials, PullSecretError> {
    if secret.type_.as_deref() != Some(TYPE) {
        return Err(PullSecretError::Type);
    }
    let data = secret.data.as_ref().and_then(|data| data.get(KEY)).ok_or(PullSecretError::Format)?;
    let document: Document<Entry> = serde_json::from_slice(&data.0).map_err(|_| PullSecretError::Format)?;
    let entry = document.find_entry(image)?;
    read_entry(entry).ok_or_else(|| PullSecretError::Incomplete { registry: image.registry().to_owned() })
}

/// The `config.json` of a client that pulls only this image; `None` if the Secret has no credentials
/// at all.
pub fn docker_config(secret: &Secret, image: &Reference) -> Result<Option<Vec<u8>>, PullSecretError> {
    let Some(data) = secret.data.as_ref().and_then(|data| data.get(KEY)) else { return Ok(None) };
    let document: Document<Value> = serde_json::from_slice(&data.0).map_err(|_| PullSecretError::Format)?;
    let entry = document.find_entry(image)?;
    let registry = image.registry();
    // Clients look credentials up by the registry, and those of Docker Hub by its address.
    let key = if DOCKER_HUB.contains(&registry) { "https://index.docker.io/v1/" } else { registry };
    let config = serde_json::json!({ "auths": { key: entry } });
    Ok(Some(config.to_string().into_bytes()))
}

/// The rating of a key: a host without wildcard before others, then the longest path. `None` if the
/// key does not match.
fn rate_key(key: &str, image: &Reference) -> Option<(bool, usize)> {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    // `docker login` writes the path of the API.
    let path = path.trim_end_matches('/');
    let path = if matches!(path, "v1" | "v2") { "" } else { path };
    let repository = image.repository();
    let rest = repository.strip_prefix(path)?;
    let is_below = path.is_empty() || rest.is_empty() || rest.starts_with('/');
    let is_written = is_same_registry(host, image.registry());
    (is_below && (is_written || matches_host(host, image.registry()))).then_some((is_written, path.len()))
}

fn is_same_registry(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other) || [one, other].iter().all(|name| DOCKER_HUB.contains(name))
}

/// `*` stands for one part of the name, as for the kubelet.
fn matches_host(pattern: &str, host: &str) -> bool {
    let [pattern, host] = [pattern, host].map(|name| name.split('.').collect::<Vec<_>>());
    let mut pairs = pattern.iter().zip(&host);
    pattern.len() == host.len() && pairs.all(|(part, found)| *part == "*" || part.eq_ignore_ascii_case(found))
}

fn read_entry(entry: &Entry) -> Option<Credentials> {
    let whole = entry.auth.as_ref().filter(|auth| !auth.is_empty()).and_then(|auth| {
        let text = String::from_utf8(STANDARD.decode(auth.trim()).ok()?).ok()?;
        let (username, password) = text.split_once(':')?;
        Some(Credentials { username: username.to_owned(), password: password.to_owned() })
    });
    let parts = entry.username.clone().zip(entry.password.clone());
    let parts = parts.map(|(username, password)| Credentials { username, password });
    whole.or(parts).filter(|found| !found.username.is_empty() && !found.password.is_empty())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::{Value, json};

    use super::*;

    fn secret(kind: &str, auths: &Value) -> Secret {
        let data = ByteString(json!({ "auths": auths }).to_string().into_bytes());
        Secret { type_: Some(kind.into()), data: Some([(KEY.to_owned(), data)].into()), ..Secret::default() }
    }

    fn login(name: &str) -> Value {
        json!({ "auth": STANDARD.encode(format!("{name}:pa:ss")) })
    }

    #[test]
    fn most_precise_entry_is_taken() {
        for (auths, image, want) in [
            (json!({ "r.example": login("a") }), "r.example/os", Some("a")),
            (json!({ "https://r.example/v2/": login("a") }), "r.example/os", Some("a")),
            (json!({ "R.example": login("a") }), "r.example/os", Some("a")),
            (json!({ "r.example": login("a") }), "r.example:5000/os", None),
            (json!({ "r.example:5000": login("a") }), "r.example:5000/os", Some("a")),
            (json!({ "r.example": login("a"), "r.example/os": login("b") }), "r.example/os/x", Some("b")),
            (json!({ "r.example": login("a"), "r.example/os": login("b") }), "r.example/oss", Some("a")),
            (json!({ "*.example": login("a"), "r.example": login("b") }), "r.example/os", Some("b")),
            (json!({ "*.example": login("a") }), "r.example/os", Some("a")),
            (json!({ "*.example": login("a") }), "x.r.example/os", None),
            (json!({ "https://index.docker.io/v1/": login("a") }), "os/image", Some("a")),
            (json!({ "r.example": { "username": "a", "password": "pa:ss" } }), "r.example/os", Some("a")),
            (json!({ "other.example": login("a") }), "r.example/os", None),
        ] {
            let found = find_credentials(&secret(TYPE, &auths), &image.parse().unwrap());
            let want = want.map(|name| Credentials { username: name.into(), password: "pa:ss".into() });
            assert_eq!(found.ok(), want, "{auths} {image}");
        }
    }

    #[test]
    fn pull_secret_defect_is_named_without_password() {
        let login = |entry: Value| json!({ "r.example": entry });
        let registry = || "r.example".to_owned();
        for (kind, auths, want) in [
            ("Opaque", login(json!({})), PullSecretError::Type),
            (TYPE, json!([]), PullSecretError::Format),
            (TYPE, json!({}), PullSecretError::Missing { registry: registry() }),
            (
                TYPE,
                login(json!({ "identitytoken": "t" })),
                PullSecretError::Incomplete { registry: registry() },
            ),
            (TYPE, login(json!({ "auth": "?" })), PullSecretError::Incomplete { registry: registry() }),
        ] {
            let found = find_credentials(&secret(kind, &auths), &"r.example/os".parse().unwrap());
            assert_eq!(found, Err(want), "{auths}");
        }
        let shown = format!("{:?}", Credentials { username: "a".into(), password: "pa:ss".into() });
        assert!(!shown.contains("pa:ss"), "{shown}");
    }
}
