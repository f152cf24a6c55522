//! Comparison of a base with the image catalog. The ISO of an image is in the repository of the same
//! name with `-iso`, under the same tag.

use std::collections::BTreeMap;

use coordinator_api::conditions::{self, ConditionUpdate, Reason, Type, condition_false, condition_true};
use coordinator_api::seed_image::{SeedImage, SeedImageStatus};
use jiff::Timestamp;

use super::base::{BaseSource, parse_base};
use crate::image_catalog::{ImageName, list_known, parse_name};

/// Suffix of the names of repositories with ISOs.
const ISO: &str = "-iso";

/// Sets the condition about the base in `status`. A URL and a file cannot be compared, nor can any
/// base if the catalog is empty.
pub fn project_fit(
    status: &mut SeedImageStatus,
    image: &SeedImage,
    catalog: &BTreeMap<String, String>,
    now: Timestamp,
) {
    let base = image.spec.base_image.as_deref().unwrap_or("");
    match compare_base(base, catalog) {
        Some(update) => {
            let generation = image.metadata.generation;
            conditions::set_conditions(&mut status.conditions, &[update], generation, now);
        }
        None => {
            status.conditions.retain(|condition| condition.type_ != Type::BaseImageInCatalog.as_str());
        }
    }
}

fn compare_base(base: &str, catalog: &BTreeMap<String, String>) -> Option<ConditionUpdate> {
    let name = matches!(parse_base(base), Ok(BaseSource::Image(_))).then(|| parse_name(base)).flatten()?;
    let mut entries = catalog.values().filter_map(|image| parse_name(image)).peekable();
    entries.peek()?;
    if entries.any(|entry| is_iso_of(name, entry)) {
        return Some(condition_true(Type::BaseImageInCatalog, Reason::BaseImageListed, ""));
    }
    let message = format!(
        "spec.baseImage {base} belongs to no image of the image catalog{}, whose ISOs are in the repository with {ISO} behind its name, under the same tag",
        list_known(catalog)
    );
    let action = "correct it, or add the image to the ConfigMap elemental-image-catalog in the coordinator's namespace, or to the one that --image-catalog names";
    let update = condition_false(Type::BaseImageInCatalog, Reason::BaseImageUnlisted, message);
    Some(update.with_next_action(action))
}

/// The base is the ISO of `image`. Registries are not compared, because the Cluster may name a
/// registry and a path on it. Tags are compared only if both references have one.
fn is_iso_of(base: ImageName<'_>, image: ImageName<'_>) -> bool {
    let path = base.path.strip_suffix(ISO).unwrap_or(base.path);
    let before = path.strip_suffix(image.path);
    let is_same_path = before.is_some_and(|before| before.is_empty() || before.ends_with('/'));
    is_same_path && (base.tag == image.tag || base.tag.is_none() || image.tag.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_fits_repository_and_tag_of_an_entry() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let pinned = format!("r.example/os/node-iso@{digest}");
        for (base, entry, want) in [
            ("r.example/os/node-iso:v1", "r.example/os/node:v1", Some(true)),
            ("oci://r.example/os/node-iso:v1", "oci:r.example/os/node:v1", Some(true)),
            ("r.example/os/node:v1", "r.example/os/node:v1", Some(true)),
            ("mirror.example:5000/os/node-iso:v1", "r.example/os/node:v1", Some(true)),
            ("r.example/project/os/node-iso:v1", "os/node:v1", Some(true)),
            ("r.example/os/node-iso:v2", "r.example/os/node:v1", Some(false)),
            ("r.example/os/other-iso:v1", "r.example/os/node:v1", Some(false)),
            ("r.example/os/mynode-iso:v1", "node:v1", Some(false)),
            (&pinned, "r.example/os/node:v1", Some(true)),
            ("r.example/os/node-iso:v1", &format!("r.example/os/node@{digest}"), Some(true)),
            ("https://images.example/node.iso", "r.example/os/node:v1", None),
            ("file:///node.iso", "r.example/os/node:v1", None),
            ("r.example/os/node-iso:v1", "dir:/run/os", None),
            ("", "r.example/os/node:v1", None),
        ] {
            let catalog = BTreeMap::from([("v1".to_owned(), entry.to_owned())]);
            let found = compare_base(base, &catalog);
            let fits = found.as_ref().map(|update| update.reason == Reason::BaseImageListed);
            assert_eq!(fits, want, "{base} {entry}: {found:?}");
        }
        assert_eq!(compare_base("r.example/os/node-iso:v1", &BTreeMap::new()), None);
    }

    #[test]
    fn unlisted_base_is_told_beside_ready() {
        let spec = coordinator_api::seed_image::SeedImageSpec {
            base_image: Some("r.example/os/node-iso:v2".into()),
            ..Default::default()
        };
        let (mut image, mut status) = (SeedImage::new("seed", spec), SeedImageStatus::default());
        let catalog = BTreeMap::from([("v1".to_owned(), "r.example/os/node:v1".to_owned())]);
        project_fit(&mut status, &image, &catalog, Timestamp::UNIX_EPOCH);
        let [condition] = &*status.conditions else { panic!("{status:?}") };
        assert_eq!((&*condition.type_, &*condition.status), ("BaseImageInCatalog", "False"));
        assert!(condition.message.contains("(it has v1)") && condition.message.contains("-iso"));
        image.spec.base_image = Some("https://images.example/node.iso".into());
        project_fit(&mut status, &image, &catalog, Timestamp::UNIX_EPOCH);
        assert_eq!(status.conditions, []);
    }
}
