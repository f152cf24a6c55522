//! The image of a `BareMetalHost`, in the form that its agent installs.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::metal3::host::{BareMetalHost, Image};
use coordinator_api::metal3::names;
use coordinator_api::names::annotation;
use kube::ResourceExt as _;

use crate::problem::{Blocker, Problem};

const SCHEME: &str = "oci://";
/// Types of checksums that can be the digest of an image.
const DIGEST_TYPES: [&str; 3] = ["", "auto", "sha256"];
pub const IMAGE_URL: &str = "spec.image.url";

/// The wanted image; the annotation of the host replaces the image in the spec.
pub(super) fn wanted_image(host: &BareMetalHost) -> Option<Image> {
    let image = host.spec.image.as_ref()?;
    Some(match host.annotations().get(names::OS_IMAGE) {
        Some(url) => Image { url: url.clone(), ..Image::default() },
        None => image.clone(),
    })
}

/// The wanted image in the form for the agent.
pub(super) fn resolve_wanted(host: &BareMetalHost) -> Option<Result<proto::plan::Image, Blocker>> {
    let image = wanted_image(host)?;
    let is_replaced = host.annotations().contains_key(names::OS_IMAGE);
    let field =
        if is_replaced { format!("the annotation {}", names::OS_IMAGE) } else { IMAGE_URL.to_owned() };
    let remedy = format!("name it in the annotation {} of the BareMetalHost", names::OS_IMAGE);
    Some(resolve_image(&image, &field, &remedy))
}

/// The image to record for the node of the host.
pub fn record_image(host: &BareMetalHost) -> Option<String> {
    resolve_wanted(host)?.ok().map(|image| format!("{SCHEME}{}", image.as_str()))
}

/// The node runs another image than `wanted`. Only URLs are compared, as in baremetal-operator: a
/// changed checksum replaces no node.
pub(super) fn runs_another(host: &BareMetalHost, wanted: &proto::plan::Image) -> bool {
    let Some(recorded) = host.annotations().get(names::PROVISIONED_IMAGE) else { return false };
    let names_digest = wanted_image(host).is_some_and(|image| image.url.contains('@'));
    let references = [strip_scheme(recorded).unwrap_or(recorded), wanted.as_str()];
    let [recorded, wanted] = references.map(|reference| match reference.split_once('@') {
        Some((tagged, _)) if !names_digest => tagged,
        _ => reference,
    });
    recorded != wanted
}

/// Resolves an image that the `elemental` of hosts can install. `field` has the URL; `remedy` is
/// another way to name an image.
pub fn resolve_image(image: &Image, field: &str, remedy: &str) -> Result<proto::plan::Image, Blocker> {
    if let Some(format) = image.format.as_ref().filter(|format| !format.is_empty()) {
        return Err(unsupported(
            format!(
                "spec.image.format is {format}, but whole-disk images are not supported, because the host keeps its system and its identity"
            ),
            format!("name an OS image as oci://REGISTRY/IMAGE:TAG without format, or {remedy}"),
        ));
    }
    if image.oci_auth_secret_name.as_ref().is_some_and(|name| !name.is_empty()) {
        let annotation = annotation::REGISTRY_SECRET;
        return Err(unsupported(
            format!(
                "spec.image.ociAuthSecretName is set, but the annotation {annotation} names the Secret for the registry"
            ),
            format!("set the annotation {annotation} of the BareMetalHost, and remove the field"),
        ));
    }
    let Some(reference) = strip_scheme(&image.url) else {
        let message = format!("{field}: only oci://REGISTRY/IMAGE:TAG is supported");
        return Err(unsupported(message, format!("name such an image, or {remedy}")));
    };
    let pinned = pin_reference(image, reference).map_err(|cause| {
        unsupported(format!("spec.image.checksum {cause}"), format!("correct it, or {remedy}"))
    })?;
    proto::plan::Image::parse(&pinned)
        .map_err(|error| unsupported(format!("{field}: {error}"), format!("correct {field}")))
}

fn unsupported(message: String, action: String) -> Blocker {
    Blocker::failed_with(Type::ImageResolved, Problem::new(Reason::FieldUnsupported, message, action))
}

fn strip_scheme(url: &str) -> Option<&str> {
    let (scheme, reference) = url.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(reference)
}

/// The reference with the checksum as its digest, or why the checksum is not usable.
fn pin_reference(image: &Image, reference: &str) -> Result<String, &'static str> {
    let Some(checksum) = image.checksum.as_deref().filter(|checksum| !checksum.is_empty()) else {
        return Ok(reference.to_owned());
    };
    let is_known = DIGEST_TYPES.contains(&image.checksum_type.as_deref().unwrap_or(""));
    let hex = checksum.strip_prefix("sha256:").unwrap_or(checksum).to_ascii_lowercase();
    if !is_known || hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(
            "is not the SHA-256 digest of an OCI image (64 hexadecimal digits, also behind sha256:; checksumType sha256, auto or none)",
        );
    }
    let digest = format!("sha256:{hex}");
    match reference.split_once('@') {
        None => Ok(format!("{reference}@{digest}")),
        Some((_, named)) if named.eq_ignore_ascii_case(&digest) => Ok(reference.to_owned()),
        Some(_) => Err("is not the digest that spec.image.url names"),
    }
}
