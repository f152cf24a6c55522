//! The base ISO that `spec.baseImage` names.

use http::Uri;
use oci_spec::distribution::Reference;

use coordinator_api::seed_image::SeedImageSpec;

use super::platform::Platform;

/// Source of a base ISO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseSource {
    /// A file in a layer of an OCI image.
    Image(Reference),
    /// A file on an http(s) server.
    Url(Uri),
    /// Absolute path of a file in the coordinator's container.
    File(String),
}

/// Why a base cannot be used, with the next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BaseRefusal(pub &'static str);

const UNKNOWN: BaseRefusal = BaseRefusal(
    "spec.baseImage is no OCI reference, no http(s) URL and no file:/// path of a base ISO: correct it",
);

/// Parses a URL with the scheme `oci`, `http`, `https` or `file`. A text without a scheme is an OCI
/// reference.
pub fn parse_base(text: &str) -> Result<BaseSource, BaseRefusal> {
    match text.split_once("://") {
        None => parse_reference(text),
        Some(("oci", reference)) => parse_reference(reference),
        Some(("http" | "https", _)) => {
            let uri = text.parse::<Uri>().ok().filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
            uri.map(BaseSource::Url).ok_or(UNKNOWN)
        }
        Some(("file", path)) if path.starts_with('/') => Ok(BaseSource::File(path.to_owned())),
        Some(_) => Err(UNKNOWN),
    }
}

fn parse_reference(text: &str) -> Result<BaseSource, BaseRefusal> {
    let reference: Reference = text.parse().map_err(|_| UNKNOWN)?;
    if reference.digest().is_some_and(|digest| !digest.starts_with("sha256:")) {
        return Err(BaseRefusal("spec.baseImage has a digest that is not sha256: give the sha256 digest"));
    }
    Ok(BaseSource::Image(reference))
}

/// The source of the base, checked against the other fields of the spec.
pub fn check_base(spec: &SeedImageSpec) -> Result<BaseSource, BaseRefusal> {
    let text = spec.base_image.as_deref().unwrap_or("");
    if text.is_empty() {
        return Err(BaseRefusal(
            "spec.baseImage is empty: give an OCI reference, an http(s) URL or a file:/// path of a base ISO",
        ));
    }
    let mut platforms = spec.target_platform.iter().filter(|platform| !platform.is_empty());
    if platforms.any(|platform| Platform::parse(platform).is_none()) {
        return Err(BaseRefusal(
            "spec.targetPlatform is not supported: use linux/amd64 or linux/arm64, or remove it",
        ));
    }
    let source = parse_base(text)?;
    let is_image = matches!(source, BaseSource::Image(_));
    if spec.base_image_pull_secret.is_some() && !is_image {
        return Err(BaseRefusal(
            "spec.baseImagePullSecret is for an OCI reference in spec.baseImage: remove one of them",
        ));
    }
    let has_tls = is_image || matches!(&source, BaseSource::Url(uri) if uri.scheme_str() == Some("https"));
    if spec.base_image_ca_secret.is_some() && !has_tls {
        return Err(BaseRefusal(
            "spec.baseImageCASecret is for an OCI reference or an https URL in spec.baseImage: remove one of them",
        ));
    }
    Ok(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn describe(source: &BaseSource) -> String {
        match source {
            BaseSource::Image(reference) => format!("image {reference}"),
            BaseSource::Url(uri) => format!("url {uri}"),
            BaseSource::File(path) => format!("file {path}"),
        }
    }

    #[test]
    fn scheme_tells_what_a_base_is() {
        let pinned = format!("registry.example.com/os@{DIGEST}");
        let both = format!("registry.example.com/os:v1@{DIGEST}");
        let sha512 = format!("registry.example.com/os@sha512:{}", "ab".repeat(64));
        for (text, want) in [
            ("registry.example.com/os/image-iso:v1", Some("image registry.example.com/os/image-iso:v1")),
            (
                "oci://registry.example.com/os/image-iso:v1",
                Some("image registry.example.com/os/image-iso:v1"),
            ),
            ("registry.example.com:5000/os", Some("image registry.example.com:5000/os:latest")),
            ("10.0.0.1:5000/os/image-iso:v1", Some("image 10.0.0.1:5000/os/image-iso:v1")),
            ("localhost:5000/os", Some("image localhost:5000/os:latest")),
            ("os/image-iso:v1", Some("image docker.io/os/image-iso:v1")),
            (pinned.as_str(), Some(&*format!("image {pinned}"))),
            (both.as_str(), Some(&*format!("image {both}"))),
            ("http://127.0.0.1:1/base.iso", Some("url http://127.0.0.1:1/base.iso")),
            ("https://images.example/base.iso", Some("url https://images.example/base.iso")),
            ("file:///images/base.iso", Some("file /images/base.iso")),
            ("file://images/base.iso", None),
            ("ftp://images.example/base.iso", None),
            ("oci://https://registry.example.com/os", None),
            ("https:///base.iso", None),
            ("registry.example.com/OS:v1", None),
            ("registry.example.com/os@sha256:12", None),
            (sha512.as_str(), None),
            ("a base", None),
            ("", None),
        ] {
            assert_eq!(parse_base(text).ok().map(|source| describe(&source)).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn fields_without_effect_are_refused() {
        let spec = |base: &str, pull: bool, ca: bool, platform: &str| SeedImageSpec {
            base_image: Some(base.into()),
            base_image_pull_secret: pull.then(|| "pull".into()),
            base_image_ca_secret: ca.then(|| "ca".into()),
            target_platform: Some(platform.into()),
            ..SeedImageSpec::default()
        };
        for (base, pull, ca, platform, refused) in [
            ("registry.example/os", true, true, "", ""),
            ("registry.example/os", false, false, "linux/amd64", ""),
            ("registry.example/os", false, false, "linux/x86_64", ""),
            ("registry.example/os", false, false, "linux/arm64", ""),
            ("registry.example/os", false, false, "linux/riscv64", "spec.targetPlatform"),
            ("https://images.example/x.iso", false, true, "", ""),
            ("https://images.example/x.iso", true, false, "", "spec.baseImagePullSecret"),
            ("http://images.example/x.iso", false, true, "", "spec.baseImageCASecret"),
            ("file:///x.iso", true, false, "", "spec.baseImagePullSecret"),
            ("file:///x.iso", false, true, "", "spec.baseImageCASecret"),
            ("", false, false, "", "spec.baseImage is empty"),
        ] {
            let got = check_base(&spec(base, pull, ca, platform)).err().map_or("", |refusal| refusal.0);
            assert!(got.starts_with(refused) && got.is_empty() == refused.is_empty(), "{base}: {got}");
        }
    }
}
