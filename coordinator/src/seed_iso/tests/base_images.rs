//! Base images: fetched from servers that fail, redirect or are slow, compared
//! with their digest, and evicted.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coordinator_api::conditions::Reason;
use coordinator_api::seed_image::{SeedImage, SeedImageSpec};
use coordinator_core::seed_image::Base;
use coordinator_core::seed_image::platform::Platform;
use http::StatusCode;
use sha2::{Digest as _, Sha256};

use super::{SharedBase, another_base, base_server, by_hand, limits, odd_server, serve};
use crate::base_image::limits::BaseImageLimits;
use crate::base_image::{BaseImageError, BaseImages, Wanted};
use crate::seed_iso::{SeedIsoError, SeedIsos};

fn files(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn odd_servers_leave_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let limits = BaseImageLimits { base_image_size: 100_000, ..limits() };
    let images = BaseImages::new(directory.path().to_owned(), limits).unwrap();
    let server = odd_server(by_hand()).await;
    let fetch = async |path: &str| images.fetch_image(&format!("{server}/{path}"), Base::Kept, None).await;
    assert!(matches!(fetch("endless.iso").await, Err(BaseImageError::TooLarge { .. })));
    assert!(matches!(fetch("loop.iso").await, Err(BaseImageError::Fetch { .. })));
    assert!(matches!(fetch("none.iso").await, Err(BaseImageError::Status { .. })));
    assert_eq!(files(directory.path()), Vec::<String>::new());
    assert_eq!(fetch("moved.iso").await.unwrap().size, by_hand().len() as u64);
}

#[tokio::test]
async fn target_platform_is_that_of_the_agent() {
    let directory = tempfile::tempdir().unwrap();
    let base = Some(format!("{}/moved.iso", odd_server(by_hand()).await));
    for (hosts, asked, refusal) in [
        (Platform::Amd64, "linux/x86_64", None),
        (Platform::Amd64, "linux/arm64", Some("spec.targetPlatform is linux/arm64")),
        (Platform::Arm64, "linux/aarch64", None),
        (Platform::Arm64, "linux/amd64", Some("the agent is for linux/arm64")),
    ] {
        let images = BaseImages::new(directory.path().to_owned(), limits()).unwrap().for_hosts(hosts);
        let target_platform = Some(asked.to_owned());
        let spec = SeedImageSpec { base_image: base.clone(), target_platform, ..SeedImageSpec::default() };
        let wanted = Wanted::of(&SeedImage::new("hosts", spec));
        let refused = images.fetch_image(wanted, Base::Kept, None).await.err();
        assert_eq!(refused.is_some(), refusal.is_some(), "{hosts}: {refused:?}");
        if let (Some(error), Some(refusal)) = (refused, refusal) {
            assert_eq!(error.reason(), Reason::BaseImagePlatformMismatch);
            assert!(error.to_string().contains(refusal), "{error}");
        }
    }
}

#[tokio::test]
async fn redirection_to_an_internal_address_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let images = BaseImages::new(directory.path().to_owned(), limits()).unwrap();
    let to = odd_server(by_hand()).await.replace("http://127.0.0.1", "http://user:secret@127.0.0.2");
    let to = format!("{to}/base.iso?token=secret");
    let router =
        axum::Router::new().fallback(move || async move { axum::response::Redirect::temporary(&to) });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/base.iso", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let error = images.fetch_image(&url, Base::Kept, None).await.unwrap_err();
    assert!(error.to_string().contains("not allowed") && !error.to_string().contains("secret"), "{error}");
    let shown = SeedIsoError::from(error).status_text();
    assert!(!shown.contains("127.0.0") && shown.contains("coordinator's log"), "{shown}");
}

/// A server whose bases never end, and the number of requests that it has taken.
async fn endless_server() -> (String, tokio::sync::watch::Receiver<usize>) {
    let (taken, requests) = tokio::sync::watch::channel(0);
    let drip = async move || {
        taken.send_modify(|count| *count += 1);
        axum::body::Body::from_stream(futures::stream::pending::<Result<axum::body::Bytes, Infallible>>())
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(drip)).await });
    (format!("http://{address}"), requests)
}

#[tokio::test]
async fn slow_bases_of_a_namespace_hold_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let images = BaseImages::new(directory.path().to_owned(), limits()).unwrap();
    let (server, (slow_server, mut requests)) = (odd_server(by_hand()).await, endless_server().await);
    let fetch = async |namespace: &str, base: String| {
        let mut seed =
            SeedImage::new("hosts", SeedImageSpec { base_image: Some(base), ..SeedImageSpec::default() });
        seed.metadata.namespace = Some(namespace.to_owned());
        images.fetch_image(Wanted::of(&seed), Base::Kept, None).await
    };
    let dripping = (0..16).map(|number| fetch("a", format!("{slow_server}/{number}.iso")));
    let mut slow = std::pin::pin!(futures::future::join_all(dripping));
    tokio::select! {
        _ = &mut slow => panic!("a base that never ends has arrived"),
        all = requests.wait_for(|taken| *taken == 16) => drop(all.unwrap()),
    }
    let queued = fetch("a", format!("{server}/moved.iso"));
    let honest = fetch("b", format!("{server}/moved.iso"));
    let first = tokio::select! {
        _ = slow => "slow",
        _ = queued => "queued",
        fetched = honest => if fetched.is_ok() { "honest" } else { "refused" },
    };
    assert_eq!(first, "honest", "a share of one namespace is taken, and the base that it waits for is not");
}

#[tokio::test]
async fn digest_of_the_base_is_compared() {
    let mut served = serve(by_hand()).await;
    served.complete().await;
    let digest = |bytes: &[u8]| Some(format!("sha256:{}", hex::encode(Sha256::digest(bytes))));
    served.edit(|spec| spec.base_image_digest = digest(&by_hand()));
    served.complete().await;
    assert_eq!(served.fetches.load(Ordering::Relaxed), 1);
    served.edit(|spec| spec.base_image_digest = digest(b"another"));
    let error = served.isos.prepare_iso(&served.seed, &served.registration).await.unwrap_err();
    assert!(error.is_fetched_in_vain() && error.status_text().contains("baseImageDigest"), "{error}");
}

#[tokio::test]
async fn slow_base_has_a_deadline_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let limits = BaseImageLimits { base_image_timeout: Duration::from_secs(2), ..limits() };
    let images = BaseImages::new(directory.path().to_owned(), limits).unwrap();
    let server = odd_server(by_hand()).await;
    let (slow, other) = (format!("{server}/drip.iso"), format!("{server}/base.iso"));
    let mut dripping = std::pin::pin!(images.fetch_image(&slow, Base::Kept, None));
    let quick = std::pin::pin!(images.fetch_image(&other, Base::Kept, None));
    let first = futures::future::select(&mut dripping, quick).await;
    assert!(matches!(first, futures::future::Either::Right((Ok(_), _))), "another base is not delayed");
    assert!(matches!(dripping.await, Err(BaseImageError::Slow { .. })));
    assert_eq!(files(directory.path()).len(), 3, "an image and its pointers");
}

#[tokio::test]
async fn failed_fetch_keeps_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let images = BaseImages::new(directory.path().to_owned(), limits()).unwrap();
    let (server, fails) = flaky_server(by_hand()).await;
    let kept = images.fetch_image(&server, Base::Kept, None).await.unwrap();
    fails.store(true, Ordering::Relaxed);
    assert!(images.fetch_image(&server, Base::Fresh, None).await.is_err());
    assert_eq!(images.fetch_image(&server, Base::Kept, None).await.unwrap().sha256, kept.sha256);
}

async fn flaky_server(iso: Vec<u8>) -> (String, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let switch = fails.clone();
    let answer = move || {
        let (iso, fails) = (iso.clone(), switch.load(Ordering::Relaxed));
        async move { if fails { Err(StatusCode::SERVICE_UNAVAILABLE) } else { Ok(iso) } }
    };
    let router = axum::Router::new().route("/base.iso", axum::routing::get(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (format!("http://{address}/base.iso"), fails)
}

#[tokio::test]
async fn evicted_base_is_fetched_again_for_a_download() {
    let mut served = serve(by_hand()).await;
    let other = base_server(SharedBase::new(another_base().into()), Arc::default()).await;
    let limits = BaseImageLimits { cache_size: 100_000, ..limits() };
    let bases = BaseImages::new(served.directory.path().join("small"), limits).unwrap();
    let seeds = (served.seeds.as_reader(), served.downloads.clone());
    let registrations = served.registrations.as_reader();
    let authority = served.isos.authority.clone();
    served.isos = Arc::new(SeedIsos::new((bases, None), seeds, registrations, authority));
    let path = format!("secret/{}", served.complete().await.file);
    served.isos.bases.fetch_image(&other, Base::Kept, None).await.unwrap();
    assert_eq!(files(&served.directory.path().join("small")).len(), 3, "one image and its pointers");
    assert_eq!(served.get(&path, None).await.0, StatusCode::OK);
    assert_eq!(served.fetches.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn recorded_base_is_kept_beside_a_newer_one() {
    let mut served = serve(by_hand()).await;
    let old = served.complete().await;
    *served.base.lock().await = another_base();
    let url = served.seed.spec.base_image.clone().unwrap();
    served.isos.bases.fetch_image(&url, Base::Fresh, None).await.unwrap();
    assert_eq!(served.complete().await, old, "another seed image has fetched what the server has now");
    assert_eq!(served.fetches.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn leader_without_the_recorded_base_takes_another() {
    let mut served = serve(by_hand()).await;
    let old = served.complete().await;
    *served.base.lock().await = another_base();
    served.isos = Arc::new(served.replica());
    let new = served.complete().await;
    assert_ne!(new.base, old.base);
    assert_eq!(served.get(&format!("secret/{}", new.file), None).await.0, StatusCode::OK);
}
