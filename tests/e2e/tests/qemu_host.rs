//! The lifecycle of one real host: firmware, systemd, cloud-init, kubeadm.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use ::qemu::{Image, ImageInputs};
use e2e::environment::{Environment, Reach};
use e2e::host::{Host, Qemu};
use e2e::lifecycle::Lifecycle;
use e2e::progress::Progress;
use e2e::serve::serve;
use e2e::watching::Watching;

#[tokio::test(flavor = "multi_thread")]
async fn qemu_host_becomes_node_and_returns() {
    let inputs = ImageInputs::from_env()
        .expect("AGENT, KUBERNETES_BIN and CONTAINERD_BIN name what goes into the images: run `make test`");
    let progress = Arc::new(Progress::default());
    let base = ::qemu::build(Image::Iso, &inputs).await.unwrap();
    let environment = Environment::start(Reach::Guests, &progress).await.unwrap();
    let watching = Watching::start(&environment.management.admin, &progress);
    let base = serve(base).await.unwrap();
    let mut host = Host::Qemu(Box::new(Qemu::new(&environment, &inputs).await.unwrap()));
    let result = Lifecycle::new(&environment, &mut host, progress.clone()).run(&base).await;
    drop(watching);
    if let Err(error) = result {
        let console = std::fs::read_to_string(host.log()).unwrap_or_default();
        panic!(
            "in step {:?}: {error:#}\n\n{}\n\nconsole:\n{console}",
            progress.current(),
            environment.logs()
        );
    }
}
