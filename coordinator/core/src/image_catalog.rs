//! The image catalog, which maps the version of a Machine to an OS image.

use std::collections::BTreeMap;

use coordinator_api::conditions::Reason;
use proto::plan::Image;

use crate::problem::Problem;

/// Bound of the keys in one message; the others are counted.
const MAX_LISTED: usize = 10;

/// Sources without a registry: a directory, a file, a channel of images.
const LOCAL: [&str; 3] = ["dir:", "file:", "channel:"];
/// Sources of a registry, which a reference may omit.
const REMOTE: [&str; 4] = ["oci://", "docker://", "oci:", "docker:"];

/// Why a version has no image. A change of the catalog or of the Cluster is enough to correct
/// each error; no object has to be deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The version is no key. There is no default image, because the control plane may reject a
    /// node of another version.
    #[error("the image catalog has no key {key:?}{own_key}{known}")]
    Miss {
        /// [`catalog_key`] of `spec.version` of the Machine.
        key: String,
        /// Text about the key for the architecture of the host.
        own_key: String,
        /// Text about the keys of the catalog.
        known: String,
    },
    /// Neither the reference nor the Cluster names a registry.
    #[error("image {image} of version {version} names no registry")]
    RegistryMissing {
        /// `spec.version` of the Machine.
        version: String,
        /// Reference in the catalog.
        image: String,
    },
    #[error("the image of version {version} in the image catalog is not usable ({source})")]
    Invalid {
        /// `spec.version` of the Machine.
        version: String,
        source: proto::plan::PlanError,
    },
}

impl ImageError {
    pub fn problem(&self) -> Problem {
        let (reason, action) = match self {
            Self::Miss { .. } => (
                Reason::ImageCatalogMiss,
                "add it to the ConfigMap elemental-image-catalog in the coordinator's namespace, or to the one that --image-catalog names",
            ),
            Self::RegistryMissing { .. } => (
                Reason::ImageRegistryMissing,
                "write it with its registry into the image catalog, or set the annotation cpaas.io/registry-address of the Cluster",
            ),
            Self::Invalid { .. } => (
                Reason::ImageCatalogMiss,
                "correct it in the ConfigMap elemental-image-catalog in the coordinator's namespace, or in the one that --image-catalog names",
            ),
        };
        Problem::new(reason, self.to_string(), action)
    }
}

/// The key of a version. Versions of RKE2 and k3s have a plus sign, which no key of a `ConfigMap` may
/// have: the key of `v1.31.4+rke2r1` is `v1.31.4_rke2r1`.
pub fn catalog_key(version: &str) -> String {
    version.replace('+', "_")
}

/// The image of a version. `registry` replaces the registry of the catalog's reference; name,
/// tag and digest stay. If the host reported an architecture, the key `VERSION_ARCHITECTURE`,
/// for example `v1.36.3_arm64`, takes precedence over `VERSION`.
pub fn resolve_image(
    catalog: &BTreeMap<String, String>,
    version: &str,
    architecture: Option<&str>,
    registry: Option<&str>,
) -> Result<Image, ImageError> {
    let key = catalog_key(version);
    let own_key = architecture.map(|architecture| format!("{key}_{architecture}"));
    let own_image = own_key.as_ref().and_then(|key| catalog.get(key));
    let image = own_image.or_else(|| catalog.get(&key)).ok_or_else(|| ImageError::Miss {
        key: key.clone(),
        own_key: own_key.as_ref().map_or_else(String::new, |key| format!(" and no key {key:?}")),
        known: list_known(catalog),
    })?;
    let image = image.trim();
    let parse = |image: &str| {
        Image::parse(image).map_err(|source| ImageError::Invalid { version: version.to_owned(), source })
    };
    let (scheme, reference) = split_image(image);
    // The registry must not turn an invalid reference into a valid one.
    parse(reference)?;
    let registry = registry.map(registry_address).filter(|registry| !registry.is_empty());
    if LOCAL.contains(&scheme) || (registry.is_none() && has_host(reference)) {
        return parse(image);
    }
    let registry = registry.ok_or_else(|| ImageError::RegistryMissing {
        version: version.to_owned(),
        image: image.to_owned(),
    })?;
    parse(&format!("{scheme}{registry}/{}", strip_host(reference)))
}

/// The reference without its source; `None` for an image without registry.
pub fn registry_reference(image: &str) -> Option<&str> {
    let (scheme, reference) = split_image(image);
    (!LOCAL.contains(&scheme)).then_some(reference)
}

/// Parts of a reference that stay if its registry is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageName<'a> {
    pub path: &'a str,
    pub tag: Option<&'a str>,
}

/// `None` for an image without registry.
pub(crate) fn parse_name(image: &str) -> Option<ImageName<'_>> {
    let path = strip_host(registry_reference(image.trim())?);
    let path = path.split_once('@').map_or(path, |(path, _)| path);
    Some(match path.split_once(':') {
        Some((path, tag)) => ImageName { path, tag: Some(tag) },
        None => ImageName { path, tag: None },
    })
}

fn split_image(image: &str) -> (&str, &str) {
    let scheme = LOCAL.into_iter().chain(REMOTE).find(|scheme| image.starts_with(scheme));
    image.split_at(scheme.map_or(0, str::len))
}

fn strip_host(reference: &str) -> &str {
    match reference.split_once('/') {
        Some((_, path)) if has_host(reference) => path,
        _ => reference,
    }
}

/// Docker's rule: the part before the first slash is a host if it has a dot or a port, or is
/// `localhost`. A reference without slash has only a name and a tag.
fn has_host(reference: &str) -> bool {
    reference.split_once('/').is_some_and(|(first, _)| first.contains(['.', ':']) || first == "localhost")
}

fn registry_address(registry: &str) -> &str {
    let registry = registry.trim();
    let bare = ["https://", "http://"].iter().find_map(|scheme| registry.strip_prefix(scheme));
    bare.unwrap_or(registry).trim_end_matches('/')
}

pub(crate) fn list_known(catalog: &BTreeMap<String, String>) -> String {
    let listed: Vec<_> = catalog.keys().take(MAX_LISTED).map(String::as_str).collect();
    match catalog.len() {
        0 => " (it is empty)".to_owned(),
        many if many > MAX_LISTED => {
            format!(" (it has {}, and {} more)", listed.join(", "), many - MAX_LISTED)
        }
        _ => format!(" (it has {})", listed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case = (&'static str, &'static str, Option<&'static str>, Result<&'static str, ImageError>);

    #[test]
    fn a_version_names_exactly_one_image() {
        let registry = Some("https://registry.example:5000/");
        let missing = |image: &str| ImageError::RegistryMissing { version: "v1".into(), image: image.into() };
        let invalid = || ImageError::Invalid { version: "v1".into(), source: proto::plan::PlanError::Image };
        let cases: [Case; 16] = [
            ("a host with a dot", "a.b/os:v1", None, Ok("a.b/os:v1")),
            ("a host with a port", "a:5000/os", None, Ok("a:5000/os")),
            ("this host", "localhost/os", None, Ok("localhost/os")),
            ("another host", "a.b/os@sha256:00", registry, Ok("registry.example:5000/os@sha256:00")),
            (
                "a scheme and another host",
                "oci://a:5000/c/os:v1",
                registry,
                Ok("oci://registry.example:5000/c/os:v1"),
            ),
            ("no host", "base/os:v1.34.5", registry, Ok("registry.example:5000/base/os:v1.34.5")),
            ("only a name and a tag", "os:v1", registry, Ok("registry.example:5000/os:v1")),
            ("a scheme and no host", "oci:base/os:v1", registry, Ok("oci:registry.example:5000/base/os:v1")),
            ("a scheme and a host", "docker://a.b/os:v1", None, Ok("docker://a.b/os:v1")),
            ("a directory", "dir:/run/os-images/v2", None, Ok("dir:/run/os-images/v2")),
            ("a file", "file:/run/v2.squashfs", registry, Ok("file:/run/v2.squashfs")),
            ("a channel", "channel:stable", None, Ok("channel:stable")),
            ("nothing names a registry", "os:v1", None, Err(missing("os:v1"))),
            ("a registry of nothing", "os:v1", Some(" https:/// "), Err(missing("os:v1"))),
            ("an empty value", " ", registry, Err(invalid())),
            ("an option", "--reboot", registry, Err(invalid())),
        ];
        for (name, image, registry, want) in cases {
            let catalog = BTreeMap::from([("v1".to_owned(), image.to_owned())]);
            let got = resolve_image(&catalog, "v1", None, registry);
            assert_eq!(got.as_ref().map(Image::as_str), want.as_ref().copied(), "{name}");
        }
    }

    #[test]
    fn version_with_a_plus_sign_has_a_key() {
        let catalog = BTreeMap::from([("v1.31.4_rke2r1".to_owned(), "a.b/os:1".to_owned())]);
        let found = resolve_image(&catalog, "v1.31.4+rke2r1", Some("arm64"), None);
        assert_eq!(found.unwrap().as_str(), "a.b/os:1");
        let missed = resolve_image(&catalog, "v1.31.5+rke2r1", Some("arm64"), None).unwrap_err();
        let text = missed.to_string();
        assert!(text.contains(r#"no key "v1.31.5_rke2r1" and no key "v1.31.5_rke2r1_arm64""#), "{text}");
    }

    #[test]
    fn image_is_that_of_the_architecture() {
        for (keys, architecture, want) in [
            (&["v1"][..], Some("arm64"), Some("v1")),
            (&["v1", "v1_arm64"], Some("arm64"), Some("v1_arm64")),
            (&["v1", "v1_arm64"], Some("amd64"), Some("v1")),
            (&["v1", "v1_arm64"], None, Some("v1")),
            (&["v1_amd64", "v1_arm64"], Some("amd64"), Some("v1_amd64")),
            (&["v1_arm64"], Some("amd64"), None),
            (&["v1_arm64"], None, None),
        ] {
            let catalog = keys.iter().map(|key| ((*key).to_owned(), format!("a.b/os:{key}"))).collect();
            let got = resolve_image(&catalog, "v1", architecture, None);
            let want = want.map(|key| format!("a.b/os:{key}"));
            assert_eq!(got.as_ref().ok().map(Image::as_str), want.as_deref(), "{keys:?} {architecture:?}");
            if let (Err(error), Some(_)) = (&got, architecture) {
                assert!(
                    error.to_string().contains("no key \"v1\" and no key \"v1_amd64\" (it has"),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn unknown_key_error_lists_keys_and_action() {
        let catalog = |keys: &[usize]| {
            keys.iter().map(|key| (format!("v1.{key}"), String::new())).collect::<BTreeMap<_, _>>()
        };
        let cases = [
            (catalog(&[]), " (it is empty)"),
            (catalog(&[1, 2]), " (it has v1.1, v1.2)"),
            (
                catalog(&(10..25).collect::<Vec<_>>()),
                " (it has v1.10, v1.11, v1.12, v1.13, v1.14, v1.15, v1.16, v1.17, v1.18, v1.19, and 5 more)",
            ),
        ];
        for (catalog, known) in cases {
            assert_eq!(
                resolve_image(&catalog, "v1.3-1", None, None).unwrap_err().problem().text(),
                format!(
                    "the image catalog has no key \"v1.3-1\"{known}; next: add it to the ConfigMap elemental-image-catalog in the coordinator's namespace, or to the one that --image-catalog names"
                )
            );
        }
    }
}
