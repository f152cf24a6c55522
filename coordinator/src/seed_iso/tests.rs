use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use coordinator_api::inventory::MachineInventory;
use coordinator_core::seed_image::{Base, Download, Progress};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use serde_json::json;
use tower::ServiceExt as _;

use super::*;
use crate::cache::Presence;
use crate::config::BaseImageLimits;

/// An ISO without Rock Ridge by hand: a descriptor, a path table and a root
/// directory with one file, and something after it.
pub(crate) fn by_hand() -> Vec<u8> {
    let both = |value: u32| [value.to_le_bytes(), value.to_be_bytes()].concat();
    let record = |block: u32, len: u32, name: &[u8]| {
        let mut record = vec![0; 33];
        record[2..10].copy_from_slice(&both(block));
        record[10..18].copy_from_slice(&both(len));
        record[25] = if name.len() == 1 { 2 } else { 0 };
        record[32] = u8::try_from(name.len()).unwrap();
        record.extend(name);
        record.resize(record.len().next_multiple_of(2), 0);
        record[0] = u8::try_from(record.len()).unwrap();
        record
    };
    let mut iso = vec![7; 32 * 2048];
    iso[..20 * 2048].fill(0);
    let descriptor = &mut iso[16 * 2048..17 * 2048];
    descriptor[..6].copy_from_slice(b"\x01CD001");
    descriptor[80..88].copy_from_slice(&both(32));
    descriptor[132..140].copy_from_slice(&both(10));
    descriptor[140..144].copy_from_slice(&19_u32.to_le_bytes());
    descriptor[156..190].copy_from_slice(&record(18, 2048, &[0]));
    let records = [record(18, 2048, &[0]), record(18, 2048, &[1]), record(20, 4 * 2048, b"KERNEL.;1")];
    let root = records.concat();
    iso[18 * 2048..18 * 2048 + root.len()].copy_from_slice(&root);
    iso[19 * 2048..19 * 2048 + 10].copy_from_slice(&[1, 0, 18, 0, 0, 0, 1, 0, 0, 0]);
    iso
}

/// With the loopback servers of these tests.
fn limits() -> BaseImageLimits {
    BaseImageLimits { allow_base: vec!["127.0.0.1".parse().unwrap()], ..BaseImageLimits::default() }
}

struct Served {
    isos: Arc<SeedIsos>,
    seed: SeedImage,
    registration: MachineRegistration,
    fetches: Arc<AtomicUsize>,
    seeds: Writer<SeedImage>,
    downloads: Arc<DownloadTokens>,
    registrations: Writer<MachineRegistration>,
    directory: tempfile::TempDir,
}

async fn base_server(iso: Vec<u8>, fetches: Arc<AtomicUsize>) -> String {
    let answer = move || {
        fetches.fetch_add(1, Ordering::Relaxed);
        let iso = iso.clone();
        async move { iso }
    };
    let router = axum::Router::new().route("/base.iso", axum::routing::get(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/base.iso")
}

async fn serve(iso: Vec<u8>) -> Served {
    let fetches = Arc::new(AtomicUsize::new(0));
    let url = base_server(iso, fetches.clone()).await;
    let object = |kind: &str, name: &str, spec: serde_json::Value, status: serde_json::Value| {
        json!({
            "apiVersion": "elemental.cattle.io/v1beta1", "kind": kind,
            "metadata": { "name": name, "namespace": "fleet" }, "spec": spec, "status": status,
        })
    };
    let seed: SeedImage = serde_json::from_value(object(
        "SeedImage",
        "seed",
        json!({ "baseImage": url, "registrationRef": { "name": "reg" }, "cleanupAfterMinutes": 0 }),
        json!({}),
    ))
    .unwrap();
    let registration: MachineRegistration = serde_json::from_value(object(
        "MachineRegistration",
        "reg",
        json!({}),
        json!({
            "registrationURL": "https://127.0.0.1:1/elemental/registration/t",
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "SuccessfullyCreated", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }),
    ))
    .unwrap();
    let (mut seeds, mut registrations) = (Writer::default(), Writer::default());
    seeds.apply_watcher_event(&Event::Apply(seed.clone()));
    registrations.apply_watcher_event(&Event::Apply(registration.clone()));
    let (directory, downloads) = (tempfile::tempdir().unwrap(), Arc::<DownloadTokens>::default());
    let isos = SeedIsos::new(
        (BaseImages::new(directory.path().join("cache"), limits()).unwrap(), None),
        (seeds.as_reader(), downloads.clone()),
        registrations.as_reader(),
        Arc::new(Authority::generate(Timestamp::now()).unwrap()),
    );
    Served { isos: Arc::new(isos), seed, registration, fetches, seeds, downloads, registrations, directory }
}

impl Served {
    /// What the leader does: prepare, then the status.
    async fn complete(&mut self) -> Prepared {
        let prepared = self.isos.prepare_iso(&self.seed, &self.registration).await.unwrap();
        self.name(&prepared.file);
        prepared
    }

    fn name(&mut self, file: &str) {
        let download = Download {
            server_url: "https://127.0.0.1:1".into(),
            token: "secret".into(),
            file: file.to_owned(),
        };
        let progress = Progress::Completed(download);
        self.seed.status = Some(seed_image::seed_image_status(&self.seed, &progress, Timestamp::now()));
        self.seeds.apply_watcher_event(&Event::Apply(self.seed.clone()));
        self.downloads.apply_change(&self.seed, Presence::Exists);
    }

    /// Another replica, which has made nothing yet and sees the same objects.
    fn replica(&self) -> SeedIsos {
        SeedIsos::new(
            (
                BaseImages::new(self.directory.path().join("other"), limits()).unwrap(),
                self.isos.agent.clone(),
            ),
            (self.seeds.as_reader(), self.downloads.clone()),
            self.registrations.as_reader(),
            self.isos.authority.clone(),
        )
    }

    async fn get(&self, path: &str, range: Option<&str>) -> (StatusCode, http::HeaderMap, Vec<u8>) {
        let mut request = Request::get(format!("/elemental/seedimage/{path}"));
        if let Some(range) = range {
            request = request.header("range", range);
        }
        let router = download::download_router(self.isos.clone());
        let response = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        (parts.status, parts.headers, body.collect().await.unwrap().to_bytes().to_vec())
    }
}

#[tokio::test]
async fn a_seed_is_its_base_with_files_added() {
    let mut served = serve(by_hand()).await;
    let base = by_hand();
    let prepared = served.complete().await;
    let (status, headers, iso) = served.get(&format!("secret/{}", prepared.file), None).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers["etag"], format!("\"{}\"", prepared.sha256));
    assert_eq!(headers["content-length"], prepared.size.to_string());
    assert_eq!(iso.len() as u64, prepared.size);
    assert_eq!(hex::encode(Sha256::digest(&iso)), prepared.sha256);
    assert!(iso[20 * 2048..base.len()] == base[20 * 2048..], "contents of the base stay in their places");
    assert!(iso[base.len()..].starts_with(b"elemental:"), "files are appended");
    let held = served.isos.held_iso(&served.seed).unwrap().overlay.stored();
    let config = served.isos.render_files(&served.seed, &served.registration);
    let config: u64 = config.unwrap().iter().map(|file| content_len(&file.content)).sum();
    assert!(held < config + 16 * 2048, "{held} bytes are held for {config} of configuration");
    let (_, _, sum) = served.get(&format!("secret/{}.sha256", prepared.file), None).await;
    assert_eq!(String::from_utf8(sum).unwrap(), format!("{}  {}\n", prepared.sha256, prepared.file));
    let again = served.isos.prepare_iso(&served.seed, &served.registration).await.unwrap();
    assert_eq!(again, prepared);
    assert_eq!(served.fetches.load(Ordering::Relaxed), 1, "fetched once");
}

fn content_len(content: &compose::Content) -> u64 {
    match content {
        compose::Content::Text(bytes) => bytes.len() as u64,
        compose::Content::Agent { len } => *len,
    }
}

#[tokio::test]
async fn a_download_ends_with_its_time() {
    let mut served = serve(by_hand()).await;
    served.seed.spec.cleanup_after_minutes = 60;
    let path = format!("secret/{}", served.complete().await.file);
    for (minutes, want) in [(59, StatusCode::OK), (61, StatusCode::NOT_FOUND)] {
        let then = Timestamp::now() + SignedDuration::from_mins(minutes);
        served.isos = Arc::new(served.replica().with_clock(Clock::new(move || then)));
        assert_eq!(served.get(&path, None).await.0, want, "after {minutes} minutes");
    }
}

#[tokio::test]
async fn a_seed_brings_the_agent_from_its_one_file() {
    let mut served = serve(by_hand()).await;
    let without = served.complete().await;
    let held = |served: &Served| served.isos.held_iso(&served.seed).unwrap().overlay.stored();
    let held_without = held(&served);
    let agent = vec![9; 300_000];
    let path = served.directory.path().join("agent");
    std::fs::write(&path, &agent).unwrap();
    let mut replica = served.replica();
    replica.agent = Some(path.clone());
    served.isos = Arc::new(replica);
    let with = served.complete().await;
    assert_ne!(with.file, without.file);
    let (status, _, iso) = served.get(&format!("secret/{}", with.file), None).await;
    assert_eq!((status, hex::encode(Sha256::digest(&iso))), (StatusCode::OK, with.sha256));
    assert!(iso.windows(agent.len()).any(|bytes| bytes == agent), "the agent is in it");
    assert!(held(&served) < held_without + 8 * 2048, "and not in memory");
    std::fs::remove_file(path).unwrap();
    let error = served.isos.prepare_iso(&served.seed, &served.registration).await.unwrap_err();
    assert!(error.to_string().contains("--agent-path") && !error.is_terminal(), "{error}");
}

#[tokio::test]
async fn a_part_is_the_same_bytes_and_a_replica_serves_what_it_never_made() {
    let mut served = serve(by_hand()).await;
    let path = format!("secret/{}", served.complete().await.file);
    served.isos = Arc::new(served.replica());
    let (status, _, whole) = served.get(&path, None).await;
    assert_eq!(status, StatusCode::OK, "made ready by the download");
    let size = whole.len();
    for (range, from, to) in [
        ("bytes=0-99", 0, 100),
        ("bytes=33200-33300", 33200, 33301),
        ("bytes=65500-65600", 65500, 65601),
        ("bytes=-10", size - 10, size),
    ] {
        let (status, headers, part) = served.get(&path, Some(range)).await;
        assert_eq!(status, StatusCode::PARTIAL_CONTENT, "{range}");
        assert_eq!(headers["content-range"], format!("bytes {from}-{}/{size}", to - 1));
        assert!(part == whole[from..to], "{range}");
    }
    let (status, ..) = served.get(&path, Some(&format!("bytes={size}-"))).await;
    assert_eq!(status, StatusCode::RANGE_NOT_SATISFIABLE);
}

#[tokio::test]
async fn a_seed_that_is_gone_leaves_when_another_comes() {
    let mut served = serve(by_hand()).await;
    let named = |name: &str| {
        let mut seed = served.seed.clone();
        seed.metadata.name = Some(name.to_owned());
        seed
    };
    let (gone, kept, new) = (served.seed.clone(), named("kept"), named("new"));
    for seed in [&gone, &kept] {
        served.seeds.apply_watcher_event(&Event::Apply(seed.clone()));
        served.isos.prepare_iso(seed, &served.registration).await.unwrap();
    }
    served.seeds.apply_watcher_event(&Event::Delete(gone));
    served.isos.prepare_iso(&new, &served.registration).await.unwrap();
    let isos = served.isos.isos.lock().unwrap();
    let mut held: Vec<_> = isos.keys().map(|seed| seed.name.as_str()).collect();
    held.sort_unstable();
    assert_eq!(held, ["kept", "new"]);
}

#[tokio::test]
async fn every_wrong_address_looks_the_same() {
    let mut served = serve(by_hand()).await;
    let file = served.complete().await.file;
    let mut answers = vec![];
    for path in [
        format!("guess/{file}"),
        format!("secre/{file}"),
        format!("%20/{file}"),
        "secret/any.iso".to_owned(),
        "secret/any.iso.sha256".to_owned(),
        "secret/any.raw".to_owned(),
        "secret/".to_owned(),
    ] {
        let (status, _, body) = served.get(&path, None).await;
        answers.push((status, body));
    }
    assert!(answers.iter().all(|answer| *answer == (StatusCode::NOT_FOUND, vec![])), "{answers:?}");
}

#[tokio::test]
async fn a_base_that_is_no_image_says_what_to_use_instead() {
    let mut garbled = by_hand();
    garbled[18 * 2048 + 2] = b'x';
    garbled[18 * 2048] = 250;
    garbled[16 * 2048 + 140] = 200;
    for (name, base, want) in [
        ("no ISO", vec![0; 100_000], "no ISO 9660"),
        ("empty", vec![], "no ISO 9660"),
        ("garbled", garbled, "garbled"),
    ] {
        let served = serve(base).await;
        let error = served.isos.prepare_iso(&served.seed, &served.registration).await.unwrap_err();
        assert!(error.to_string().contains(want), "{name}: {error}");
        assert!(error.to_string().contains("use an Elemental live ISO") && error.is_terminal(), "{name}");
    }
}

#[tokio::test]
async fn what_has_changed_is_not_sent_under_the_old_name() {
    let mut served = serve(by_hand()).await;
    let old = served.complete().await;
    let (old_path, old_sum) = (format!("secret/{}", old.file), format!("secret/{}.sha256", old.file));
    assert_eq!(served.get(&old_path, None).await.0, StatusCode::OK);
    let status = served.registration.status.as_mut().unwrap();
    status.registration_url = Some("https://127.0.0.1:1/elemental/registration/rotated".into());
    served.registrations.apply_watcher_event(&Event::Apply(served.registration.clone()));
    for path in [&old_path, &old_sum] {
        assert_eq!(served.get(path, None).await.0, StatusCode::NOT_FOUND, "before the status follows");
    }
    let new = served.complete().await;
    assert_ne!(new.file, old.file);
    assert_eq!(served.get(&old_path, None).await.0, StatusCode::NOT_FOUND);
    let (status, _, iso) = served.get(&format!("secret/{}", new.file), None).await;
    assert_eq!((status, hex::encode(Sha256::digest(&iso))), (StatusCode::OK, new.sha256));
}

fn host_with(address: &str) -> MachineInventory {
    let card = json!({ "match": { "macaddress": "02:00:00:00:00:01" }, "addresses": [address] });
    let network = json!({ "config": { "version": 2, "ethernets": { "eno1": card } } });
    serde_json::from_value(json!({
        "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineInventory",
        "metadata": {
            "name": "host-1", "namespace": "fleet",
            "annotations": { "baremetal.cluster.io/registration": "reg" },
        },
        "spec": { "network": network },
    }))
    .unwrap()
}

#[tokio::test]
async fn a_download_goes_on_while_networks_of_hosts_change() {
    let mut served = serve(by_hand()).await;
    let networks = served.isos.networks.clone();
    let old = served.complete().await;
    let old_path = format!("secret/{}", old.file);
    networks.apply_change(&host_with("192.0.2.7/24"), Presence::Exists);
    assert_eq!(networks.publish().len(), 1);
    let (status, _, iso) = served.get(&old_path, None).await;
    assert_eq!(
        (status, hex::encode(Sha256::digest(&iso))),
        (StatusCode::OK, old.sha256),
        "until the status follows"
    );
    let new = served.complete().await;
    assert_ne!(new.file, old.file);
    assert_eq!(served.get(&old_path, None).await.0, StatusCode::NOT_FOUND);
    let (_, _, iso) = served.get(&format!("secret/{}", new.file), None).await;
    let text = String::from_utf8_lossy(&iso);
    assert!(text.contains(r#"{"hosts":[{"macs":["02:00:00:00:00:01"]"#) && text.contains("192.0.2.7/24"));
}

#[tokio::test]
async fn a_replica_with_another_base_sends_nothing() {
    let mut served = serve(by_hand()).await;
    let made = served.complete().await;
    let mut other = by_hand();
    other[30 * 2048] ^= 1;
    let url = base_server(other, Arc::default()).await;
    served.isos = Arc::new(served.replica());
    // What the server has under the URL of the status is no longer the same.
    served.seed.spec.base_image = Some(url);
    served.name(&made.file);
    assert_eq!(served.get(&format!("secret/{}", made.file), None).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_retrigger_closes_the_download_at_once_and_asks_for_the_base_again() {
    let mut served = serve(by_hand()).await;
    served.seed.metadata.generation = Some(1);
    let path = format!("secret/{}", served.complete().await.file);
    served.seed.spec.retrigger_build = true;
    served.seed.metadata.generation = Some(2);
    served.seeds.apply_watcher_event(&Event::Apply(served.seed.clone()));
    assert_eq!(served.get(&path, None).await.0, StatusCode::NOT_FOUND);
    assert_eq!(served.fetches.load(Ordering::Relaxed), 1);
    // Done, but not taken back yet: neither link nor base is touched again.
    served.complete().await;
    assert_eq!(served.get(&path, None).await.0, StatusCode::OK);
    served.complete().await;
    assert_eq!(served.fetches.load(Ordering::Relaxed), 2);
}

/// Serves `iso` at `/base.iso` and nothing usable elsewhere.
async fn odd_server(iso: Vec<u8>) -> String {
    let endless = || async {
        let bytes =
            futures::stream::repeat(Ok::<_, std::convert::Infallible>(Bytes::from_static(&[7; 4096])));
        Body::from_stream(bytes)
    };
    let drip = || async {
        let first =
            futures::stream::once(async { Ok::<_, std::convert::Infallible>(Bytes::from_static(b"x")) });
        Body::from_stream(futures::StreamExt::chain(first, futures::stream::pending()))
    };
    let redirect = |to: &'static str| move || async move { axum::response::Redirect::temporary(to) };
    let router = axum::Router::new()
        .route("/base.iso", axum::routing::get(move || async { iso }))
        .route("/endless.iso", axum::routing::get(endless))
        .route("/drip.iso", axum::routing::get(drip))
        .route("/moved.iso", axum::routing::get(redirect("/base.iso")))
        .route("/loop.iso", axum::routing::get(redirect("/loop.iso")));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

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
async fn redirection_to_an_internal_address_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let images = BaseImages::new(directory.path().to_owned(), limits()).unwrap();
    let to = odd_server(by_hand()).await.replace("127.0.0.1", "127.0.0.2");
    let router =
        axum::Router::new().fallback(move || async move { axum::response::Redirect::temporary(&to) });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/base.iso", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let error = images.fetch_image(&url, Base::Kept, None).await.unwrap_err();
    assert!(error.to_string().contains("not allowed"), "{error}");
    let shown = SeedIsoError::from(error).status_text();
    assert!(!shown.contains("127.0.0") && shown.contains("coordinator's log"), "{shown}");
}

#[tokio::test]
async fn digest_of_the_base_is_compared() {
    let mut served = serve(by_hand()).await;
    served.complete().await;
    let digest = |bytes: &[u8]| Some(format!("sha256:{}", hex::encode(Sha256::digest(bytes))));
    served.seed.spec.base_image_digest = digest(&by_hand());
    served.complete().await;
    assert_eq!(served.fetches.load(Ordering::Relaxed), 1);
    served.seed.spec.base_image_digest = digest(b"another");
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
    assert_eq!(files(directory.path()).len(), 2, "an image and its pointer");
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
    let mut other = by_hand();
    other[30 * 2048] ^= 1;
    let other = base_server(other, Arc::default()).await;
    let limits = BaseImageLimits { cache_size: 100_000, ..limits() };
    let bases = BaseImages::new(served.directory.path().join("small"), limits).unwrap();
    let seeds = (served.seeds.as_reader(), served.downloads.clone());
    let registrations = served.registrations.as_reader();
    let authority = served.isos.authority.clone();
    served.isos = Arc::new(SeedIsos::new((bases, None), seeds, registrations, authority));
    let path = format!("secret/{}", served.complete().await.file);
    served.isos.bases.fetch_image(&other, Base::Kept, None).await.unwrap();
    assert_eq!(files(&served.directory.path().join("small")).len(), 2, "one image and its pointer");
    assert_eq!(served.get(&path, None).await.0, StatusCode::OK);
    assert_eq!(served.fetches.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn build_runs_beside_its_reconcile() {
    let mut served = serve(by_hand()).await;
    let registration = Arc::new(served.registration.clone());
    let base = odd_server(by_hand()).await;
    served.seed.spec.base_image = Some(format!("{base}/drip.iso"));
    let slow = Arc::new(served.seed.clone());
    assert!(served.isos.poll_build(&slow, &registration, || panic!("it never ends")).is_none());
    assert!(served.isos.poll_build(&slow, &registration, || panic!("one at a time")).is_none());
    // The spec was corrected.
    served.seed.spec.base_image = Some(format!("{base}/base.iso"));
    let (seed, woken) = (Arc::new(served.seed.clone()), Arc::new(tokio::sync::Notify::new()));
    let wake = woken.clone();
    assert!(served.isos.poll_build(&seed, &registration, move || wake.notify_one()).is_none());
    woken.notified().await;
    assert!(matches!(served.isos.poll_build(&seed, &registration, || ()), Some(Ok(_))));
}

#[tokio::test]
async fn sha256sum_finds_a_download_beside_its_checksum() {
    let mut served = serve(by_hand()).await;
    let file = served.complete().await.file;
    let directory = tempfile::tempdir().unwrap();
    for name in [file.clone(), format!("{file}.sha256")] {
        let (_, _, body) = served.get(&format!("secret/{name}"), None).await;
        std::fs::write(directory.path().join(name), body).unwrap();
    }
    let checked = Command::new("sha256sum")
        .args(["--check", "--strict", &format!("{file}.sha256")])
        .current_dir(directory.path())
        .status();
    assert!(checked.unwrap().success());
}
