//! What seed ISOs of one base cost: what each adds and holds, the CPU to make it, and the time to its
//! first byte; beside it what xorriso does for the same.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use axum::body::Body;
use coordinator::base_image::BaseImages;
use coordinator::base_image::limits::BaseImageLimits;
use coordinator::ca::Authority;
use coordinator::key::Presence;
use coordinator::rpc::registration_tokens::DownloadTokens;
use coordinator::seed_iso::compose::compose;
use coordinator::seed_iso::layout::Base;
use coordinator::seed_iso::{Prepared, SeedIsos, config, download};
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use coordinator_core::seed_image::{Download, Progress, seed_image_status};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::json;
use tower::ServiceExt as _;

use crate::as_f64;
use crate::figure::{Figure, median};
use crate::usage::thread_cpu;

/// Bytes of the only large file in the base.
const SYSTEM: usize = 256 * 1024 * 1024;
const ROUNDS: usize = 20;
const TOKEN: &str = "bench";

struct Bench {
    isos: Arc<SeedIsos>,
    seed: SeedImage,
    seeds: Writer<SeedImage>,
    downloads: Arc<DownloadTokens>,
    registration: MachineRegistration,
    authority: Arc<Authority>,
    // The stores read what it holds.
    _registrations: Writer<MachineRegistration>,
}

/// An ISO with one large file, made by xorriso.
fn make_base(directory: &Path) -> anyhow::Result<()> {
    let loader = directory.join("tree/boot/x86_64/loader");
    fs::create_dir_all(&loader)?;
    let mut system = File::create(loader.join("rootfs.squashfs"))?;
    let block: Vec<u8> =
        (0..1024 * 1024_u32).map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    for _ in 0..SYSTEM / block.len() {
        system.write_all(&block)?;
    }
    let (tree, base) = (directory.join("tree"), directory.join("base.iso"));
    xorriso(&["-as", "mkisofs", "-quiet", "-R", "-V", "COS_LIVE", "-o"], &[&base, &tree])
}

fn xorriso(options: &[&str], paths: &[&Path]) -> anyhow::Result<()> {
    let run = Command::new("xorriso").args(options).args(paths).output();
    let output = run.context("xorriso makes the base of this benchmark: install it (`make packages`)")?;
    ensure!(output.status.success(), "xorriso: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn object(kind: &str, spec: &serde_json::Value, status: &serde_json::Value) -> serde_json::Value {
    let metadata = json!({ "name": "bench", "namespace": "default" });
    let version = "elemental.cattle.io/v1beta1";
    json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status })
}

impl Bench {
    fn start(directory: &Path) -> anyhow::Result<Self> {
        let base = format!("file://{}", directory.join("base.iso").display());
        let spec = json!({
            "baseImage": base, "registrationRef": { "name": "bench" }, "cleanupAfterMinutes": 0,
        });
        let seed: SeedImage = serde_json::from_value(object("SeedImage", &spec, &json!({})))?;
        let url = "https://127.0.0.1:1/elemental/registration/t";
        let registration: MachineRegistration = serde_json::from_value(object(
            "MachineRegistration",
            &json!({}),
            &json!({ "registrationURL": url }),
        ))?;
        let (mut seeds, mut registrations) = (Writer::default(), Writer::default());
        seeds.apply_watcher_event(&Event::Apply(seed.clone()));
        registrations.apply_watcher_event(&Event::Apply(registration.clone()));
        let limits = BaseImageLimits {
            base_image_directory: Some(directory.to_owned()),
            ..BaseImageLimits::default()
        };
        let bases = BaseImages::new(directory.join("cache"), limits)?;
        let (downloads, authority) =
            (Arc::<DownloadTokens>::default(), Arc::new(Authority::generate(Timestamp::now())?));
        let stores = (seeds.as_reader(), downloads.clone());
        let isos = SeedIsos::new((bases, None), stores, registrations.as_reader(), authority.clone());
        let isos = Arc::new(isos);
        Ok(Self { isos, seed, seeds, downloads, registration, authority, _registrations: registrations })
    }

    /// Seconds of wall time to make the ISO ready with another cloud-config; its name.
    async fn prepare(&mut self, number: usize) -> anyhow::Result<(f64, String)> {
        self.seed.spec.cloud_config = Some(json!({ "hostname": format!("live-{number}") }));
        let start = Instant::now();
        let Prepared { file, base, .. } = self.isos.prepare_iso(&self.seed, &self.registration).await?;
        let taken = start.elapsed().as_secs_f64();
        let download = Download {
            server_url: "https://127.0.0.1:1".to_owned(),
            token: TOKEN.to_owned(),
            file: file.clone(),
            base,
        };
        let status = seed_image_status(&self.seed, &Progress::Completed(download), Timestamp::now());
        self.seed.status = Some(status);
        self.seeds.apply_watcher_event(&Event::Apply(self.seed.clone()));
        self.downloads.apply_change(&self.seed, Presence::Exists);
        Ok((taken, file))
    }

    /// Milliseconds from the request to the first bytes.
    async fn first_byte(&self, file: &str) -> anyhow::Result<f64> {
        let router = download::download_router(self.isos.clone());
        let request = Request::get(format!("/elemental/seedimage/{TOKEN}/{file}")).body(Body::empty())?;
        let start = Instant::now();
        let response = router.oneshot(request).await?;
        ensure!(response.status() == StatusCode::OK, "the download answers {}", response.status());
        let frame = response.into_body().frame().await.context("the ISO is empty")??;
        ensure!(frame.data_ref().is_some_and(|data| !data.is_empty()), "no bytes");
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    /// Bytes that are held for one seed, and milliseconds of CPU to lay it over the base.
    fn compose(&self, directory: &Path) -> anyhow::Result<(f64, f64)> {
        let hosts = std::collections::BTreeMap::new();
        let files =
            config::render_files(&self.seed, &self.registration, self.authority.certificates(), &hosts)?;
        let start = thread_cpu()?;
        let overlay = compose(&mut Base::new(File::open(directory.join("base.iso"))?)?, &files)?;
        let taken = thread_cpu()?.saturating_sub(start).as_secs_f64() * 1e3;
        Ok((as_f64(usize::try_from(overlay.stored())?), taken))
    }
}

/// What the same costs by xorriso.
struct Injected {
    /// Seconds of CPU.
    cpu: f64,
    /// Seconds until the ISO can be read.
    ready: f64,
    /// Bytes on the disk.
    bytes: f64,
}

fn inject_by_xorriso(directory: &Path) -> anyhow::Result<Injected> {
    let (file, out) = (directory.join("livecd-cloud-config.yaml"), directory.join("injected.iso"));
    fs::write(&file, "elemental: {}\n")?;
    let cpu = || -> anyhow::Result<f64> {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let seconds = |time: nix::sys::time::TimeVal| {
            std::time::Duration::new(u64::try_from(time.tv_sec()).unwrap_or_default(), 0).as_secs_f64()
                + f64::from(u32::try_from(time.tv_usec()).unwrap_or_default()) / 1e6
        };
        Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
    };
    let (before, start) = (cpu()?, Instant::now());
    let run = Command::new("xorriso")
        .arg("-indev")
        .arg(directory.join("base.iso"))
        .arg("-outdev")
        .arg(&out)
        .args(["-boot_image", "any", "keep", "-map"])
        .arg(&file)
        .arg("/livecd-cloud-config.yaml")
        .output()?;
    ensure!(run.status.success(), "xorriso: {}", String::from_utf8_lossy(&run.stderr));
    let (ready, bytes) = (start.elapsed().as_secs_f64(), as_f64(usize::try_from(fs::metadata(&out)?.len())?));
    Ok(Injected { cpu: cpu()? - before, ready, bytes })
}

pub(crate) async fn run() -> anyhow::Result<Vec<Figure>> {
    eprintln!("seed image: {ROUNDS} seeds of a base of {} MB", SYSTEM >> 20);
    let directory = tempfile::tempdir()?;
    make_base(directory.path())?;
    let mut bench = Bench::start(directory.path())?;
    // The first one copies the base into the cache.
    bench.prepare(0).await?;
    let (mut ready, mut first, mut composed, mut held) = (vec![], vec![], vec![], 0.0);
    for number in 1..=ROUNDS {
        let (taken, file) = bench.prepare(number).await?;
        ready.push(taken * 1e3);
        first.push(bench.first_byte(&file).await?);
        let (bytes, taken) = bench.compose(directory.path())?;
        composed.push(taken);
        held = f64::max(held, bytes);
    }
    let Injected { cpu, ready: written, bytes } = inject_by_xorriso(directory.path())?;
    Ok(vec![
        Figure::at_most("seed image: bytes held for each", held, 65_536.0, "bytes"),
        Figure::measured("seed image: CPU to lay it over its base", median(&composed), "ms")
            .with_range(&composed),
        Figure::measured("seed image: ready, with its checksum", median(&ready), "ms").with_range(&ready),
        Figure::at_most("seed image: first byte", median(&first), 50.0, "ms").with_range(&first),
        Figure::measured("seed image: bytes, xorriso", bytes, "bytes"),
        Figure::measured("seed image: CPU, xorriso", cpu * 1e3, "ms"),
        Figure::measured("seed image: ready, xorriso", written * 1e3, "ms")
            .with_note("its first byte can be sent once it is written, without a checksum"),
    ])
}
