//! What is in a seed ISO, and what of it is held in memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::StatusCode;
use kube::runtime::watcher::Event;
use sha2::{Digest as _, Sha256};

use super::{Served, by_hand, odd_server, serve};
use crate::seed_iso::compose;

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
async fn seed_streams_agent_from_its_single_file() {
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
async fn deleted_seed_is_dropped_when_another_comes() {
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
    let slots = served.isos.slots.lock().unwrap();
    let mut held: Vec<_> = slots.keys().map(|seed| seed.name.as_str()).collect();
    held.sort_unstable();
    assert_eq!(held, ["kept", "new"]);
}

#[tokio::test]
async fn invalid_base_says_what_to_use_instead() {
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
