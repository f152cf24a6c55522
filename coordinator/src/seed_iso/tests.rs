//! Seed ISOs over HTTP: a server of base images on the loopback, and replicas
//! that send what they make of them.

mod base_images;
mod contents;
mod downloads;
pub(crate) mod fetcher;

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use bytes::Bytes;
use coordinator_api::seed_image::SeedImageSpec;
use coordinator_core::seed_image::{Download, Progress};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use serde_json::json;
use tower::ServiceExt as _;

use super::*;
use crate::base_image::limits::BaseImageLimits;
use crate::key::Presence;

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

/// It differs in a block that no seed changes.
fn another_base() -> Vec<u8> {
    let mut iso = by_hand();
    iso[30 * 2048] ^= 1;
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
    /// What the server of the base sends.
    base: SharedBase,
    fetches: Arc<AtomicUsize>,
    seeds: Writer<SeedImage>,
    downloads: Arc<DownloadTokens>,
    registrations: Writer<MachineRegistration>,
    directory: tempfile::TempDir,
}

/// A server that answers once nothing holds the lock.
type SharedBase = Arc<tokio::sync::Mutex<Vec<u8>>>;

async fn base_server(iso: SharedBase, fetches: Arc<AtomicUsize>) -> String {
    let answer = move || {
        fetches.fetch_add(1, Ordering::Relaxed);
        let iso = iso.clone();
        async move { iso.lock().await.clone() }
    };
    let router = axum::Router::new().route("/base.iso", axum::routing::get(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/base.iso")
}

async fn serve(iso: Vec<u8>) -> Served {
    let (base, fetches) = (SharedBase::new(iso.into()), Arc::new(AtomicUsize::new(0)));
    let url = base_server(base.clone(), fetches.clone()).await;
    let object = |kind: &str, name: &str, spec: serde_json::Value, status: serde_json::Value| {
        json!({
            "apiVersion": "elemental.cattle.io/v1beta1", "kind": kind,
            "metadata": { "name": name, "namespace": "fleet", "generation": 1 },
            "spec": spec, "status": status,
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
    let isos = Arc::new(isos);
    Served { isos, seed, registration, base, fetches, seeds, downloads, registrations, directory }
}

impl Served {
    /// What the leader does: prepare, then the status.
    async fn complete(&mut self) -> Prepared {
        let prepared = self.isos.prepare_iso(&self.seed, &self.registration).await.unwrap();
        self.name(&prepared);
        prepared
    }

    fn edit(&mut self, change: impl FnOnce(&mut SeedImageSpec)) {
        change(&mut self.seed.spec);
        self.seed.metadata.generation = self.seed.metadata.generation.map(|generation| generation + 1);
    }

    fn name(&mut self, prepared: &Prepared) {
        let download = Download {
            server_url: "https://127.0.0.1:1".into(),
            token: "secret".into(),
            file: prepared.file.clone(),
            base: prepared.base.clone(),
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
