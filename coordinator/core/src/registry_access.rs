//! How a host reaches the registry of its image: out of a Secret that a machine,
//! its Cluster or a registration names.

use k8s_openapi::api::core::v1::Secret as KubeSecret;
use oci_spec::distribution::Reference;
use proto::plan::{RegistryAccess, Secret};

use crate::image_catalog::registry_reference;
use crate::seed_image::pull_secret::{PullSecretError, docker_config};

const AUTHORITIES: &str = "ca.crt";
const HTTPS_PROXY: &str = "httpsProxy";
const HTTP_PROXY: &str = "httpProxy";
const NO_PROXY: &str = "noProxy";
const TLS_VERIFY: &str = "tlsVerify";
/// Others may be of any use, and are not given to hosts.
const TYPES: [&str; 2] = ["kubernetes.io/dockerconfigjson", "Opaque"];

/// Why a Secret gives no access.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryAccessError {
    #[error("is of another type than {} and {}", TYPES[0], TYPES[1])]
    Type,
    #[error("{0}")]
    Credentials(#[from] PullSecretError),
    #[error("has a key {AUTHORITIES} without a certificate in PEM")]
    Authorities,
    #[error("has a key {0} that is empty, not text or holds white space")]
    Proxy(&'static str),
    #[error(
        "has {TLS_VERIFY} other than true, and elemental verifies every certificate: put the registry's CA into {AUTHORITIES} and remove {TLS_VERIFY}; a registry without TLS needs neither"
    )]
    Verification,
    #[error(
        "has none of the keys .dockerconfigjson, {AUTHORITIES}, {HTTPS_PROXY}, {HTTP_PROXY} and {NO_PROXY}"
    )]
    Empty,
}

/// Reads the part of the Secret that a host needs to pull `image`: only the credentials for its
/// registry, because the host could read all others.
///
/// # Errors
/// [`RegistryAccessError`], to be read after the name of the Secret.
pub fn read_access(secret: &KubeSecret, image: &str) -> Result<RegistryAccess, RegistryAccessError> {
    let kind = secret.type_.as_deref().unwrap_or("Opaque");
    if !TYPES.contains(&kind) {
        return Err(RegistryAccessError::Type);
    }
    let value = |key: &str| secret.data.as_ref()?.get(key).map(|value| value.0.as_slice());
    if value(TLS_VERIFY).is_some_and(|value| !value.trim_ascii().eq_ignore_ascii_case(b"true")) {
        return Err(RegistryAccessError::Verification);
    }
    let reference = registry_reference(image).and_then(|reference| reference.parse::<Reference>().ok());
    let config = reference.map(|reference| docker_config(secret, &reference)).transpose()?.flatten();
    let proxy = |key: &'static str| {
        value(key).map(|value| parse_proxy(value).ok_or(RegistryAccessError::Proxy(key))).transpose()
    };
    let access = RegistryAccess {
        docker_config: config.map(Secret::new),
        authorities: value(AUTHORITIES).map(parse_authorities).transpose()?,
        https_proxy: proxy(HTTPS_PROXY)?.map(hide_text),
        http_proxy: proxy(HTTP_PROXY)?.map(hide_text),
        no_proxy: proxy(NO_PROXY)?,
    };
    if access == RegistryAccess::default() && value(".dockerconfigjson").is_none() {
        return Err(RegistryAccessError::Empty);
    }
    Ok(access)
}

fn parse_authorities(value: &[u8]) -> Result<String, RegistryAccessError> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.contains("-----BEGIN CERTIFICATE-----"));
    text.map(str::to_owned).ok_or(RegistryAccessError::Authorities)
}

fn parse_proxy(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let is_plain = !text.contains(|c: char| c.is_whitespace() || c.is_control());
    (!text.is_empty() && is_plain).then(|| text.to_owned())
}

fn hide_text(text: String) -> Secret {
    Secret::new(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    const CONFIG: &str = r#"{"auths":{"https://registry.example/v1/":{"auth":"dXNlcjpwYXNz"},
        "other.example":{"username":"a","password":"b"}}}"#;
    const PEM: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

    fn secret(kind: &str, data: &[(&str, &str)]) -> KubeSecret {
        let entry = |(key, value): &(&str, &str)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()));
        let data: BTreeMap<_, _> = data.iter().map(entry).collect();
        KubeSecret { type_: Some(kind.into()), data: Some(data), ..KubeSecret::default() }
    }

    #[test]
    fn a_host_gets_what_its_image_needs() {
        let all = secret(
            TYPES[0],
            &[
                (".dockerconfigjson", CONFIG),
                (AUTHORITIES, PEM),
                (HTTPS_PROXY, "http://u:p@proxy:3128\n"),
                (HTTP_PROXY, "http://proxy:3128"),
                (NO_PROXY, "10.0.0.0/8,.example"),
                (TLS_VERIFY, "true"),
            ],
        );
        let pinned = format!("oci://registry.example/os@sha256:{}", "0".repeat(64));
        for image in ["registry.example/os:v1", "oci:registry.example/os:v1", &pinned] {
            let access = read_access(&all, image).unwrap();
            let config = access.docker_config.unwrap();
            let config: serde_json::Value = serde_json::from_slice(config.expose()).unwrap();
            let want = serde_json::json!({"auths": {"registry.example": {"auth": "dXNlcjpwYXNz"}}});
            assert_eq!(config, want, "{image}");
            assert_eq!(access.authorities.as_deref(), Some(PEM));
            assert_eq!(access.https_proxy, Some(Secret::new(b"http://u:p@proxy:3128".to_vec())));
            assert_eq!(access.no_proxy.as_deref(), Some("10.0.0.0/8,.example"));
        }
        assert_eq!(read_access(&all, "dir:/run/os").unwrap().docker_config, None);
    }

    #[test]
    fn what_gives_no_access_is_named() {
        let missing = PullSecretError::Missing { registry: "third.example".into() };
        let cases = [
            ("another type", secret("kubernetes.io/tls", &[(AUTHORITIES, PEM)]), RegistryAccessError::Type),
            ("another registry", secret(TYPES[0], &[(".dockerconfigjson", CONFIG)]), missing.into()),
            ("no JSON", secret(TYPES[0], &[(".dockerconfigjson", "?")]), PullSecretError::Format.into()),
            ("no PEM", secret(TYPES[1], &[(AUTHORITIES, "x")]), RegistryAccessError::Authorities),
            ("no proxy", secret(TYPES[1], &[(NO_PROXY, "a b")]), RegistryAccessError::Proxy(NO_PROXY)),
            (
                "no verification",
                secret(TYPES[1], &[(AUTHORITIES, PEM), (TLS_VERIFY, "false")]),
                RegistryAccessError::Verification,
            ),
            ("nothing", secret(TYPES[1], &[("other", "x")]), RegistryAccessError::Empty),
        ];
        for (name, secret, want) in cases {
            assert_eq!(read_access(&secret, "third.example/os:v1"), Err(want), "{name}");
        }
    }
}
