//! The story with one real host: firmware, systemd, cloud-init, kubeadm.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use ::qemu::{Image, ImageInputs};
use e2e::metal::{Metal, Qemu};
use e2e::play::Play;
use e2e::progress::Progress;
use e2e::serve::serve;
use e2e::stage::{Reach, Stage};
use e2e::watching::Watching;

#[tokio::test(flavor = "multi_thread")]
async fn a_qemu_host_becomes_a_node_and_comes_back() {
    let inputs = ImageInputs::from_env()
        .expect("AGENT, KUBERNETES_BIN and CONTAINERD_BIN name what goes into the images: run `make test`");
    let progress = Arc::new(Progress::default());
    let base = ::qemu::build(Image::Iso, &inputs).await.unwrap();
    let stage = Stage::set(Reach::Guests, &progress).await.unwrap();
    let watching = Watching::start(&stage.admin, &progress);
    let base = serve(base).await.unwrap();
    let mut metal = Metal::Qemu(Box::new(Qemu::new(&stage, &inputs).await.unwrap()));
    let played = Play::new(&stage, &mut metal, progress.clone()).all(&base).await;
    drop(watching);
    if let Err(error) = played {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let coordinator = read(&stage.directory.path().join("coordinator.log").display().to_string());
        let console = read(&metal.log());
        panic!(
            "in step {:?}: {error:#}\n\ncoordinator:\n{coordinator}\n\nconsole:\n{console}",
            progress.current()
        );
    }
}
