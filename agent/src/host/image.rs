//! Comparison of references to images.

use proto::plan::IMAGE_SCHEMES;

/// True if both references name the same image. The scheme and its slashes only say how to fetch
/// the image.
pub fn is_same_image(wanted: &str, seen: &str) -> bool {
    !seen.is_empty() && normalize(wanted) == normalize(seen)
}

/// True if a snapshot that was written from `source`, with this digest or none, holds `wanted`. A
/// digest of another kind, such as the digest of an index, proves nothing.
pub fn is_written_from(wanted: &str, source: &str, digest: &str) -> bool {
    let wanted_digest = wanted.split_once('@').map(|(_, digest)| digest);
    is_same_image(wanted, source) || wanted_digest.is_some_and(|wanted| wanted == digest)
}

/// Removes the scheme, and adds the tag that the CLI uses by default.
fn normalize(reference: &str) -> String {
    let rest = IMAGE_SCHEMES.into_iter().find_map(|scheme| reference.strip_prefix(scheme));
    let rest = rest.map_or(reference, |rest| rest.strip_prefix("//").unwrap_or(rest));
    let name = rest.rsplit('/').next().unwrap_or(rest);
    let is_tagged = rest.starts_with('/') || rest.contains('@') || name.contains(':');
    if is_tagged { rest.to_owned() } else { format!("{rest}:latest") }
}

/// True if the reference fixes the content of an image; a tag or a local path does not.
pub fn has_digest(reference: &str) -> bool {
    !is_local(reference) && reference.contains("@sha256:")
}

fn is_local(reference: &str) -> bool {
    reference.starts_with("file:") || reference.starts_with("dir:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_do_not_matter_and_everything_else_does() {
        let cases = [
            ("same", "lab/os:v1", "lab/os:v1", true),
            ("scheme here", "oci:lab/os:v1", "lab/os:v1", true),
            ("scheme there", "lab/os:v1", "oci://lab/os:v1", true),
            ("file", "file:/images/v1", "file:///images/v1", true),
            ("directory", "dir:/run/rootfsbase", "dir:///run/rootfsbase", true),
            ("tag", "oci:lab/os:v1", "lab/os:v2", false),
            ("registry with port", "oci:reg:5000/os:v1", "reg:5000/os:v1", true),
            ("nothing seen", "lab/os:v1", "", false),
            ("tag of the CLI", "lab/os", "oci:lab/os:latest", true),
            ("port and no tag", "reg:5000/os", "oci://reg:5000/os:latest", true),
            ("digest", "lab/os@sha256:a", "oci:lab/os@sha256:a", true),
        ];
        for (name, wanted, seen, want) in cases {
            assert_eq!(is_same_image(wanted, seen), want, "{name}");
        }
    }

    #[test]
    fn a_digest_names_the_image_whatever_its_source() {
        let cases = [
            ("mirror", "lab/os@sha256:a", "mirror/os:v1", "sha256:a", true),
            ("digest of an index", "lab/os@sha256:a", "oci:lab/os@sha256:a", "sha256:b", true),
            ("another", "lab/os@sha256:a", "lab/os:v1", "sha256:b", false),
            ("tag", "lab/os:v1", "lab/os:v2", "sha256:a", false),
        ];
        for (name, wanted, source, digest, want) in cases {
            assert_eq!(is_written_from(wanted, source, digest), want, "{name}");
        }
    }
}
