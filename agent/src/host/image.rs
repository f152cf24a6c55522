//! When two references name the same image.

use proto::plan::IMAGE_SCHEMES;

/// Whether `wanted` and `seen` name the same image: the scheme and the form of
/// its slashes are how one gets it, not what it is.
#[must_use]
pub fn is_same_image(wanted: &str, seen: &str) -> bool {
    !seen.is_empty() && strip_scheme(wanted) == strip_scheme(seen)
}

fn strip_scheme(reference: &str) -> &str {
    let rest = IMAGE_SCHEMES.into_iter().find_map(|scheme| reference.strip_prefix(scheme));
    rest.map_or(reference, |rest| rest.strip_prefix("//").unwrap_or(rest))
}

/// Whether the reference names something that os-release cannot: a file or a
/// tree on this host, or a digest, which no image can hold of itself.
#[must_use]
pub fn is_only_a_source(reference: &str) -> bool {
    reference.starts_with("file:") || reference.starts_with("dir:") || reference.contains('@')
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
        ];
        for (name, wanted, seen, want) in cases {
            assert_eq!(is_same_image(wanted, seen), want, "{name}");
        }
    }
}
