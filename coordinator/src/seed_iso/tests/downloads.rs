//! Downloads: which address is answered, for how long, and with which bytes.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::seed_image::SeedImage;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use kube::runtime::watcher::Event;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{SharedBase, another_base, base_server, by_hand, odd_server, serve};
use crate::clock::Clock;
use crate::key::Presence;
use crate::seed_iso::preparations::Occasion;

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
async fn fresh_replica_serves_same_bytes_in_parts() {
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
async fn changed_registration_invalidates_old_file_name() {
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
async fn download_continues_while_host_networks_change() {
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
    let fetches = Arc::default();
    let url = base_server(SharedBase::new(another_base().into()), Arc::clone(&fetches)).await;
    served.isos = Arc::new(served.replica());
    // What the server has under the URL of the status is no longer the same.
    served.edit(|spec| spec.base_image = Some(url));
    served.name(&made);
    let path = format!("secret/{}", made.file);
    for _ in 0..2 {
        assert_eq!(served.get(&path, None).await.0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(fetches.load(Ordering::Relaxed), 1, "not again and again in vain");
    }
}

#[tokio::test]
async fn download_does_not_wait_for_long_fetch() {
    let mut served = serve(by_hand()).await;
    let path = format!("secret/{}", served.complete().await.file);
    served.isos = Arc::new(served.replica());
    let slow = served.base.clone().lock_owned().await;
    tokio::time::pause();
    let (status, headers, _) = served.get(&path, None).await;
    tokio::time::resume();
    assert_eq!((status, headers["retry-after"].as_bytes()), (StatusCode::SERVICE_UNAVAILABLE, &b"10"[..]));
    drop(slow);
    assert_eq!(served.get(&path, None).await.0, StatusCode::OK);
    assert_eq!(served.fetches.load(Ordering::Relaxed), 2, "the first request has begun it");
}

#[tokio::test]
async fn replica_prepares_before_it_is_asked() {
    let mut served = serve(by_hand()).await;
    let made = served.complete().await;
    let replica = Arc::new(served.replica());
    assert_eq!(replica.announce_bases(), "");
    let mut ended = replica.preparations.follow_ends();
    let prepared = tokio::spawn(replica.clone().keep_prepared());
    ended.changed().await.unwrap();
    prepared.abort();
    assert_eq!(replica.announce_bases(), made.base.digest);
    served.isos = replica;
    *served.base.lock().await = vec![];
    assert_eq!(served.get(&format!("secret/{}", made.file), None).await.0, StatusCode::OK);
}

#[tokio::test]
async fn slow_bases_delay_no_other_preparation() {
    let mut served = serve(by_hand()).await;
    let made = served.complete().await;
    let (replica, registration) = (Arc::new(served.replica()), Arc::new(served.registration.clone()));
    let slow_source = odd_server(by_hand()).await;
    let start = |seed: SeedImage| replica.start_preparation(&Arc::new(seed), &registration, Occasion::Check);
    for number in 0..8 {
        let mut slow = served.seed.clone();
        slow.metadata.name = Some(format!("slow-{number}"));
        slow.spec.base_image = Some(format!("{slow_source}/drip.iso?{number}"));
        assert!(start(slow));
    }
    tokio::task::yield_now().await;
    let mut ended = replica.preparations.follow_ends();
    assert!(start(served.seed.clone()));
    tokio::time::timeout(Duration::from_mins(1), ended.changed()).await.unwrap().unwrap();
    assert_eq!(replica.announce_bases(), made.base.digest);
}

#[tokio::test]
async fn retrigger_closes_download_and_fetches_base_again() {
    let mut served = serve(by_hand()).await;
    let path = format!("secret/{}", served.complete().await.file);
    served.edit(|spec| spec.retrigger_build = true);
    served.seeds.apply_watcher_event(&Event::Apply(served.seed.clone()));
    assert_eq!(served.get(&path, None).await.0, StatusCode::NOT_FOUND);
    assert_eq!(served.fetches.load(Ordering::Relaxed), 1);
    // Done, but not taken back yet: neither link nor base is touched again.
    served.complete().await;
    assert_eq!(served.get(&path, None).await.0, StatusCode::OK);
    served.complete().await;
    assert_eq!(served.fetches.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn replica_with_older_base_serves_rebuilt_image() {
    let mut served = serve(by_hand()).await;
    let path = format!("secret/{}", served.complete().await.file);
    let (leader, other) = (served.isos.clone(), Arc::new(served.replica()));
    served.isos = other.clone();
    assert_eq!(served.get(&path, None).await.0, StatusCode::OK);
    *served.base.lock().await = another_base();
    served.edit(|spec| spec.retrigger_build = true);
    served.isos = leader;
    let rebuilt = served.complete().await;
    served.isos = other;
    let (status, _, iso) = served.get(&format!("secret/{}", rebuilt.file), None).await;
    assert_eq!((status, hex::encode(Sha256::digest(&iso))), (StatusCode::OK, rebuilt.sha256));
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
