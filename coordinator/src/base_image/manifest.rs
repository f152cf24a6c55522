//! Resolves a reference to the layers of the image for the platform of the hosts.

use coordinator_core::seed_image::platform::Platform;
use oci_spec::image::{Descriptor, Digest, DigestAlgorithm, ImageIndex, ImageManifest, Os};
use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::{Digest as _, Sha256};

use super::BaseImageError;
use super::registry::Registry;
use crate::bounded::Items;

/// Largest size of a manifest, an index or a configuration. Registries accept no larger ones.
const DOCUMENT_SIZE: usize = 4 << 20;
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
/// Most layers of an image, and most images of an index. Docker builds images of at most 127 layers.
const ENTRIES: usize = 512;
/// Configurations that state a platform.
const CONFIGURATIONS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// An image whose manifest was verified.
#[derive(Debug)]
pub(super) struct Image {
    /// Digest of the manifest: `sha256:` and hexadecimal digits.
    pub(super) digest: String,
    /// Layers from the bottom up.
    pub(super) layers: Vec<Descriptor>,
}

pub(super) enum Document {
    Index(Box<ImageIndex>),
    Manifest(Box<ImageManifest>),
}

/// The fields by which documents differ, without a value in memory.
#[derive(Deserialize)]
struct Fields {
    manifests: Option<Items<IgnoredAny, ENTRIES>>,
    layers: Option<Items<IgnoredAny, ENTRIES>>,
}

#[derive(Deserialize)]
struct Configuration {
    architecture: Option<String>,
    os: Option<String>,
}

/// The image of a tag or digest. An index leads to the image for the platform of the hosts.
pub(super) async fn resolve_image(
    registry: &mut Registry<'_>,
    reference: &str,
    hosts: Platform,
) -> Result<Image, BaseImageError> {
    let pinned = reference.starts_with("sha256:").then_some(reference);
    let (digest, document) = fetch_manifest(registry, reference, pinned).await?;
    let index = match document {
        Document::Manifest(manifest) => {
            check_platform(registry, &manifest, hosts).await?;
            return Ok(Image { digest, layers: manifest.layers().clone() });
        }
        Document::Index(index) => index,
    };
    let wanted = choose_platform(&index, hosts).map_err(|found| platform_error(registry, found, hosts))?;
    let wanted = sha256_of(registry, wanted)?;
    let (digest, document) = fetch_manifest(registry, &wanted, Some(&wanted)).await?;
    match document {
        Document::Manifest(manifest) => Ok(Image { digest, layers: manifest.layers().clone() }),
        Document::Index(_) => Err(registry.malformed("its index names another index")),
    }
}

/// Accepts only sha256, because no other algorithm is verified.
pub(super) fn sha256_of(registry: &Registry<'_>, descriptor: &Descriptor) -> Result<String, BaseImageError> {
    let digest: &Digest = descriptor.digest();
    if *digest.algorithm() != DigestAlgorithm::Sha256 {
        return Err(registry.malformed("it has a digest that is not sha256"));
    }
    Ok(digest.to_string())
}

async fn fetch_manifest(
    registry: &mut Registry<'_>,
    reference: &str,
    digest: Option<&str>,
) -> Result<(String, Document), BaseImageError> {
    let path = format!("manifests/{reference}");
    let bytes = registry.get_document(&path, Some(ACCEPT), DOCUMENT_SIZE).await?;
    let found = verify_digest(registry, &bytes, digest)?;
    let document = parse_document(&bytes)
        .ok_or_else(|| registry.malformed("its manifest is not of OCI or Docker, schema 2"))?;
    Ok((found, document))
}

fn verify_digest(
    registry: &Registry<'_>,
    bytes: &[u8],
    digest: Option<&str>,
) -> Result<String, BaseImageError> {
    let found = format!("sha256:{}", hex::encode(Sha256::digest(bytes)));
    if let Some(digest) = digest.filter(|digest| *digest != found) {
        let digest = digest.to_owned();
        return Err(BaseImageError::Corrupt { image: registry.shown.clone(), digest });
    }
    Ok(found)
}

/// Recognizes a document by its fields, because registries often omit the media type. A document
/// with the fields of both is refused.
pub(super) fn parse_document(bytes: &[u8]) -> Option<Document> {
    let found: Fields = serde_json::from_slice(bytes).ok()?;
    match (found.manifests, found.layers) {
        (Some(_), None) => serde_json::from_slice(bytes).ok().map(Document::Index),
        (None, Some(_)) => serde_json::from_slice(bytes).ok().map(Document::Manifest),
        _ => None,
    }
}

/// The manifest for the platform of the hosts, or the list of the existing platforms.
pub(super) fn choose_platform(index: &ImageIndex, hosts: Platform) -> Result<&Descriptor, String> {
    let mut found = vec![];
    for descriptor in index.manifests() {
        let Some(platform) = descriptor.platform() else { continue };
        if *platform.os() == Os::Linux && platform.architecture().to_string() == hosts.architecture() {
            return Ok(descriptor);
        }
        found.push(format!("{}/{}", platform.os(), platform.architecture()));
    }
    Err(if found.is_empty() { "no platform".to_owned() } else { found.join(", ") })
}

fn platform_error(registry: &Registry<'_>, found: String, hosts: Platform) -> BaseImageError {
    BaseImageError::Platform { image: registry.shown.clone(), found, hosts }
}

async fn check_platform(
    registry: &mut Registry<'_>,
    manifest: &ImageManifest,
    hosts: Platform,
) -> Result<(), BaseImageError> {
    let config = manifest.config();
    if !CONFIGURATIONS.contains(&config.media_type().as_ref()) {
        return Ok(());
    }
    let digest = sha256_of(registry, config)?;
    let bytes = registry.get_document(&format!("blobs/{digest}"), None, DOCUMENT_SIZE).await?;
    verify_digest(registry, &bytes, Some(&digest))?;
    let Ok(Configuration { architecture, os }) = serde_json::from_slice(&bytes) else {
        return Err(registry.malformed("its configuration is not JSON"));
    };
    let (os, architecture) =
        (os.as_deref().unwrap_or("unknown"), architecture.as_deref().unwrap_or("unknown"));
    if (os, architecture) == ("linux", hosts.architecture()) {
        return Ok(());
    }
    Err(platform_error(registry, format!("{os}/{architecture}"), hosts))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn manifest_for_our_hosts_is_chosen() {
        let entry = |platform: &str, digit: char| {
            let (os, architecture) = platform.split_once('/').unwrap();
            json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 1,
                "digest": format!("sha256:{}", digit.to_string().repeat(64)),
                "platform": { "os": os, "architecture": architecture },
            })
        };
        let both = || vec!["linux/arm64", "linux/amd64", "unknown/unknown"];
        for (platforms, hosts, want) in [
            (both(), Platform::Amd64, Ok('1')),
            (both(), Platform::Arm64, Ok('0')),
            (vec!["linux/amd64"], Platform::Amd64, Ok('0')),
            (vec!["linux/amd64"], Platform::Arm64, Err("linux/amd64")),
            (vec!["linux/arm64", "windows/amd64"], Platform::Amd64, Err("linux/arm64, windows/amd64")),
            (vec![], Platform::Arm64, Err("no platform")),
        ] {
            let digits = "0123".chars();
            let manifests: Vec<_> =
                platforms.iter().zip(digits).map(|(platform, digit)| entry(platform, digit)).collect();
            let text = json!({ "schemaVersion": 2, "manifests": manifests }).to_string();
            let Some(Document::Index(index)) = parse_document(text.as_bytes()) else { panic!("{text}") };
            let got =
                choose_platform(&index, hosts).map(|found| found.digest().digest().chars().next().unwrap());
            assert_eq!(got, want.map_err(str::to_owned), "{platforms:?}");
        }
    }

    #[test]
    fn other_documents_are_no_manifest() {
        let config = json!({ "mediaType": "x/y", "size": 1, "digest": format!("sha256:{}", "0".repeat(64)) });
        let both = json!({ "schemaVersion": 2, "manifests": [], "layers": [], "config": config }).to_string();
        for text in ["", "{}", r#"{"schemaVersion":1,"fsLayers":[]}"#, &both, r#"{"layers":[]}"#] {
            assert!(parse_document(text.as_bytes()).is_none(), "{text}");
        }
        let layer = json!({ "mediaType": "x/y", "size": 1, "digest": format!("sha256:{}", "0".repeat(64)) });
        let with = |count: usize| {
            json!({ "schemaVersion": 2, "layers": vec![layer.clone(); count], "config": config }).to_string()
        };
        assert!(parse_document(with(ENTRIES).as_bytes()).is_some());
        assert!(parse_document(with(ENTRIES + 1).as_bytes()).is_none());
        let manifest = json!({ "schemaVersion": 2, "layers": [], "config": config }).to_string();
        assert!(matches!(parse_document(manifest.as_bytes()), Some(Document::Manifest(_))));
    }
}
