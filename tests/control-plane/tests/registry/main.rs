//! Base ISOs out of images of a real registry, fetched by the coordinator's code.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod images;
mod pulls;
mod site;
mod tokens;

use control_plane::registry::{Access, sha256};
use control_plane::{Parts, Registry};
use coordinator::base_image::limits::BaseImageLimits;
use coordinator::base_image::serve::{check_server, serve_orders};
use coordinator::base_image::{BaseImageError, Wanted};
use coordinator_core::seed_image::Base;
use serde_json::json;
use tokio::sync::watch;

use images::{GZIP, PLAIN, ZSTD, gzip, iso, tar, zstd};
use site::Site;
use tokens::TokenServer;

async fn start_registry(access: &Access) -> Registry {
    Registry::start(&Parts::from_environment().unwrap(), access).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn private_registry_needs_its_authority_and_its_password() {
    let registry = start_registry(&Access::Password).await;
    let layer = gzip(&tar(&[("elemental-iso/base.iso", &iso(1))]));
    registry.push_image("os/iso", "v1", "amd64", &[(GZIP, &layer)]).await.unwrap();
    let site = Site::start(&registry, BaseImageLimits::default()).await;
    let image = format!("{}/os/iso:v1", registry.address());
    for (pull, authority, reason, named) in [
        (None, None, "BaseImageUntrusted", "spec.baseImageCASecret"),
        (Some("right"), None, "BaseImageUntrusted", "spec.baseImageCASecret"),
        (None, Some("ca"), "BaseImageUnauthorized", "spec.baseImagePullSecret"),
        (Some("wrong"), Some("ca"), "BaseImageUnauthorized", "Secret wrong"),
        (Some("none"), Some("ca"), "BaseImageSecretInvalid", "Secret none"),
        (Some("ca"), Some("ca"), "BaseImageSecretInvalid", "Secret ca"),
        (Some("elsewhere"), Some("ca"), "BaseImageSecretInvalid", registry.address()),
        (Some("right"), Some("none"), "BaseImageSecretInvalid", "Secret none"),
        (Some("right"), Some("right"), "BaseImageSecretInvalid", "ca.crt"),
    ] {
        let error = site.fetch(&image, pull, authority, Base::Kept).await.unwrap_err();
        assert_eq!(error.reason().as_str(), reason, "{pull:?} {authority:?}: {error}");
        assert!(error.is_terminal() && error.to_string().contains(named), "{pull:?} {authority:?}: {error}");
        assert!(!error.to_string().contains("horse"), "{error}");
    }
    let found = site.fetch(&image, Some("right"), Some("ca"), Base::Kept).await.unwrap();
    assert_eq!(std::fs::read(&found.path).unwrap(), iso(1));
    assert_eq!(format!("sha256:{}", found.sha256), sha256(&iso(1)));
    let error = site.fetch(&image, None, Some("ca"), Base::Kept).await.unwrap_err();
    assert!(
        matches!(error, BaseImageError::Unauthorized { .. }),
        "what is stored was fetched with a password"
    );
    assert_eq!(site.files("iso"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn image_of_any_form_is_stored_once() {
    let registry = start_registry(&Access::Anonymous).await;
    let site = Site::start(&registry, BaseImageLimits::default()).await;
    let plain = tar(&[("elemental-iso/", b""), ("elemental-iso/base.iso", &iso(1)), ("bin/busybox", b"x")]);
    let (packed, dense) = (gzip(&plain), zstd(&plain));
    let removed = gzip(&tar(&[("elemental-iso/.wh.old.iso", b"")]));
    let old = gzip(&tar(&[("elemental-iso/old.iso", &iso(9))]));
    let one = registry.push_image("os", "gzip", "amd64", &[(GZIP, &packed)]).await.unwrap();
    registry.push_image("os", "zstd", "amd64", &[(ZSTD, &dense)]).await.unwrap();
    registry.push_image("os", "plain", "amd64", &[(PLAIN, &plain)]).await.unwrap();
    let layers = [(GZIP, old.as_slice()), (GZIP, packed.as_slice()), (GZIP, removed.as_slice())];
    registry.push_image("os", "removed", "amd64", &layers).await.unwrap();
    let other = registry.push_image("os", "arm", "arm64", &[(GZIP, &old)]).await.unwrap();
    let entry = |descriptor: &serde_json::Value, architecture: &str| {
        let mut entry = descriptor.clone();
        entry["platform"] = json!({ "os": "linux", "architecture": architecture });
        entry
    };
    let index = |manifests: serde_json::Value| {
        json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": manifests,
        })
    };
    let both = index(json!([entry(&other, "arm64"), entry(&one, "amd64")]));
    let both = registry.push_manifest("os", "index", &both).await.unwrap();
    let foreign = index(json!([entry(&other, "arm64")]));
    registry.push_manifest("os", "foreign", &foreign).await.unwrap();
    let digest = |descriptor: &serde_json::Value| descriptor["digest"].as_str().unwrap().to_owned();
    let pinned = format!("os@{}", digest(&one));
    let pinned_index = format!("os:other@{}", digest(&both));
    for name in ["os:gzip", "os:zstd", "os:plain", "os:removed", "os:index", &pinned, &pinned_index] {
        for scheme in ["", "oci://"] {
            let image = format!("{scheme}{}/{name}", registry.address());
            let found = site.fetch(&image, None, Some("ca"), Base::Kept).await;
            let found = found.unwrap_or_else(|error| panic!("{image}: {error}"));
            assert_eq!(std::fs::read(&found.path).unwrap(), iso(1), "{image}");
        }
    }
    assert_eq!(site.files("iso"), 1, "stored once");
    for name in ["os:arm", "os:foreign"] {
        let image = format!("{}/{name}", registry.address());
        let error = site.fetch(&image, None, Some("ca"), Base::Kept).await.unwrap_err();
        assert_eq!(error.reason().as_str(), "BaseImagePlatformMismatch", "{error}");
        assert!(error.to_string().contains("linux/arm64"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_process_gets_what_an_order_needs() {
    let registry = start_registry(&Access::Password).await;
    let between = tempfile::tempdir().unwrap();
    let socket = between.path().join("socket");
    let (_end, shutdown) = watch::channel(false);
    let (served, limit) = (socket.clone(), BaseImageLimits::default().base_image_size);
    tokio::spawn(async move { serve_orders(&served, limit, shutdown).await });
    while check_server(&socket).await.is_err() {
        tokio::task::yield_now().await;
    }
    let limits = BaseImageLimits { base_image_socket: Some(socket), ..BaseImageLimits::default() };
    let site = Site::start(&registry, limits).await;
    let layers = [zstd(&tar(&[("elemental-iso/base.iso", &iso(1))])), gzip(&tar(&[("etc/hosts", b"x")]))];
    let pushed = registry
        .push_image("os/iso", "v1", "amd64", &[(ZSTD, &layers[0]), (GZIP, &layers[1])])
        .await
        .unwrap();
    registry.push_image("os/iso", "none", "amd64", &[(GZIP, &layers[1])]).await.unwrap();
    let image = |tag: &str| format!("{}/os/iso:{tag}", registry.address());
    for (tag, pull, authority, reason) in [
        ("v1", Some("right"), None, "BaseImageUntrusted"),
        ("v1", None, Some("ca"), "BaseImageUnauthorized"),
        ("v1", Some("wrong"), Some("ca"), "BaseImageUnauthorized"),
        ("none", Some("right"), Some("ca"), "BaseImageWithoutISO"),
        ("v2", Some("right"), Some("ca"), "BaseImageNotFound"),
    ] {
        let error = site.fetch(&image(tag), pull, authority, Base::Kept).await.unwrap_err();
        assert_eq!(error.reason().as_str(), reason, "{tag} {pull:?} {authority:?}: {error}");
        assert!(!error.to_string().contains("horse"), "{error}");
    }
    let found = site.fetch(&image("v1"), Some("right"), Some("ca"), Base::Kept).await.unwrap();
    assert_eq!(std::fs::read(&found.path).unwrap(), iso(1));
    assert_eq!(found.manifest.as_deref(), pushed["digest"].as_str());
    let again = site.fetch(&image("v1"), Some("right"), Some("ca"), Base::Fresh).await.unwrap();
    assert_eq!((again.sha256, site.files("iso")), (found.sha256, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_tag_is_refetched_deleted_tag_keeps_image() {
    let registry = start_registry(&Access::Anonymous).await;
    let site = Site::start(&registry, BaseImageLimits::default()).await;
    let image = format!("{}/os:v1", registry.address());
    let fetch = async |base| site.fetch(&image, None, Some("ca"), base).await;
    let layers = [1, 2].map(|fill| gzip(&tar(&[("elemental-iso/base.iso", &iso(fill))])));
    registry.push_image("os", "v1", "amd64", &[(GZIP, &layers[0])]).await.unwrap();
    let first = fetch(Base::Kept).await.unwrap();
    registry.push_image("os", "v1", "amd64", &[(GZIP, &layers[1])]).await.unwrap();
    assert_eq!(fetch(Base::Kept).await.unwrap().sha256, first.sha256);
    let second = fetch(Base::Fresh).await.unwrap();
    assert_eq!(std::fs::read(&second.path).unwrap(), iso(2));
    registry.delete_tag("os", "v1").await.unwrap();
    let error = fetch(Base::Fresh).await.unwrap_err();
    assert_eq!(error.reason().as_str(), "BaseImageNotFound", "{error}");
    assert_eq!(fetch(Base::Kept).await.unwrap().sha256, second.sha256);
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_image_is_fetched_after_tag_moved() {
    let registry = start_registry(&Access::Anonymous).await;
    let (first, second) = (
        Site::start(&registry, BaseImageLimits::default()).await,
        Site::start(&registry, BaseImageLimits::default()).await,
    );
    let image = format!("{}/os:v1", registry.address());
    let layers = [1, 2].map(|fill| gzip(&tar(&[("elemental-iso/base.iso", &iso(fill))])));
    registry.push_image("os", "v1", "amd64", &[(GZIP, &layers[0])]).await.unwrap();
    let made = first.fetch(&image, None, Some("ca"), Base::Kept).await.unwrap();
    assert!(made.manifest.is_some());
    registry.push_image("os", "v1", "amd64", &[(GZIP, &layers[1])]).await.unwrap();
    let newest = second.fetch(&image, None, Some("ca"), Base::Kept).await.unwrap();
    for _ in 0..2 {
        let wanted = Site::wanted(&image, None, Some("ca"));
        let recorded = second.images.fetch_recorded(wanted, &made.record()).await.unwrap();
        assert_eq!((std::fs::read(&recorded.path).unwrap(), recorded.record()), (iso(1), made.record()));
    }
    let kept = second.fetch(&image, None, Some("ca"), Base::Kept).await.unwrap();
    assert_eq!(kept.record(), newest.record(), "the tag leads to what it named last");
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_images_say_why_leaving_no_file() {
    let registry = start_registry(&Access::Anonymous).await;
    let limits = BaseImageLimits { base_image_size: 300_000, ..BaseImageLimits::default() };
    let site = Site::start(&registry, limits).await;
    let push = async |tag: &str, layer: &[u8]| {
        registry.push_image("os", tag, "amd64", &[(GZIP, layer)]).await.unwrap();
    };
    push("none", &gzip(&tar(&[("etc/hosts", b"x"), ("elemental-iso/no.iso", b"x")]))).await;
    push("several", &gzip(&tar(&[("elemental-iso/a.iso", &iso(1)), ("elemental-iso/b.iso", &iso(2))]))).await;
    push("large", &gzip(&tar(&[("elemental-iso/a.iso", &vec![0; 400_000])]))).await;
    push("bomb", &gzip(&tar(&[("zeros", &vec![0; 4_000_000])]))).await;
    push("garbled", b"\x1f\x8bnonsense").await;
    let altered = gzip(&tar(&[("elemental-iso/a.iso", &iso(3))]));
    push("altered", &altered).await;
    registry.alter_blob(&sha256(&altered)).unwrap();
    for (name, reason, named) in [
        ("none", "BaseImageWithoutISO", "/elemental-iso/"),
        ("several", "BaseImageWithSeveralISOs", "elemental-iso/a.iso, elemental-iso/b.iso"),
        ("bomb", "BaseImageTooLarge", "--base-image-size"),
        ("garbled", "BaseImageInvalid", "layer sha256:"),
        ("altered", "BaseImageDigestMismatch", &*sha256(&altered)),
        ("missing", "BaseImageNotFound", "os:missing"),
    ] {
        let image = format!("{}/os:{name}", registry.address());
        let error = site.fetch(&image, None, Some("ca"), Base::Kept).await.unwrap_err();
        assert_eq!(error.reason().as_str(), reason, "{name}: {error}");
        assert!(error.to_string().contains(named), "{name}: {error}");
    }
    for (image, reason) in [
        ("registry.invalid/os:v1", "BaseImageHostUnknown"),
        ("169.254.169.254/os:v1", "BaseImageUnreachable"),
        ("registry.default.svc/os:v1", "BaseImageUnreachable"),
    ] {
        let error = site.fetch(image, None, None, Base::Kept).await.unwrap_err();
        assert_eq!(error.reason().as_str(), reason, "{image}: {error}");
        assert!(!error.is_terminal(), "{image}: {error}");
    }
    assert_eq!(site.files(""), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn digest_and_deadline_apply_to_registry_images() {
    let registry = start_registry(&Access::Anonymous).await;
    let layer = gzip(&tar(&[("elemental-iso/base.iso", &iso(1))]));
    registry.push_image("os", "v1", "amd64", &[(GZIP, &layer)]).await.unwrap();
    let image = format!("{}/os:v1", registry.address());
    let site = Site::start(&registry, BaseImageLimits::default()).await;
    let fetch = async |digest: &str| {
        let wanted = Site::wanted(&image, None, Some("ca"));
        site.images.fetch_image(wanted, Base::Kept, Some(digest)).await
    };
    let error = fetch(&sha256(b"another")).await.unwrap_err();
    assert!(matches!(error, BaseImageError::Digest { .. }), "{error}");
    assert_eq!(site.files("iso"), 0);
    fetch(&sha256(&iso(1))).await.unwrap();
    let limits =
        BaseImageLimits { base_image_timeout: std::time::Duration::ZERO, ..BaseImageLimits::default() };
    let hurried = Site::start(&registry, limits).await;
    let error = hurried.fetch(&image, None, Some("ca"), Base::Kept).await.unwrap_err();
    assert_eq!(error.reason().as_str(), "BaseImageTimedOut", "{error}");
    assert!(!error.is_terminal());
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_requested_with_and_without_a_password() {
    let tokens = TokenServer::start().await;
    let access = Access::Token { realm: tokens.url(), certificate: tokens.certificate() };
    let push = tokens.issue(&["public/os", "private/os"], &["pull", "push"]);
    let registry = start_registry(&access).await.authorized_by(format!("Bearer {push}"));
    let layer = gzip(&tar(&[("elemental-iso/base.iso", &iso(1))]));
    for repository in ["public/os", "private/os"] {
        registry.push_image(repository, "v1", "amd64", &[(GZIP, &layer)]).await.unwrap();
    }
    let site = Site::start(&registry, BaseImageLimits::default()).await;
    site.create_authorities("both", &[registry.authority(), &tokens.certificate()]).await;
    let fetch = async |repository: &str, pull, authorities| {
        let image = format!("{}/{repository}:v1", registry.address());
        let fetched = site.fetch(&image, pull, Some(authorities), Base::Kept).await;
        fetched.map(|found| std::fs::read(found.path).unwrap()).map_err(|error| error.reason().as_str())
    };
    assert_eq!(fetch("public/os", None, "ca").await, Err("BaseImageUntrusted"), "the server of tokens");
    assert_eq!(fetch("public/os", None, "both").await, Ok(iso(1)));
    assert_eq!(fetch("private/os", None, "both").await, Err("BaseImageUnauthorized"));
    assert_eq!(fetch("private/os", Some("wrong"), "both").await, Err("BaseImageUnauthorized"));
    assert_eq!(fetch("private/os", Some("right"), "both").await, Ok(iso(1)));
    assert!(tokens.requests() >= 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn volume_is_a_source_too() {
    let registry = start_registry(&Access::Anonymous).await;
    let volume = tempfile::tempdir().unwrap();
    std::fs::write(volume.path().join("base.iso"), iso(4)).unwrap();
    let directory = Some(volume.path().to_owned());
    let limits = BaseImageLimits { base_image_directory: directory, ..BaseImageLimits::default() };
    let site = Site::start(&registry, limits).await;
    let url = |name: &str| format!("file://{}/{name}", volume.path().display());
    let found = site.images.fetch_image(Wanted::from(&url("base.iso")), Base::Kept, None).await.unwrap();
    assert_eq!(std::fs::read(found.path).unwrap(), iso(4));
    for (name, reason) in [("none.iso", "BaseImageNotFound"), ("../../etc/passwd", "BaseImageInvalid")] {
        let error = site.images.fetch_image(Wanted::from(&url(name)), Base::Kept, None).await.unwrap_err();
        assert_eq!(error.reason().as_str(), reason, "{error}");
    }
}
