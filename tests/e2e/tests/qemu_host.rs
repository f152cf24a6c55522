//! The lifecycle of one real host: firmware, systemd, cloud-init, kubeadm.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::panic)]

use e2e::guest_site::GuestSite;
use e2e::host::Host as _;
use e2e::lifecycle::Lifecycle;

#[tokio::test(flavor = "multi_thread")]
async fn qemu_host_becomes_node_and_returns() {
    let site = GuestSite::start().await.unwrap();
    let GuestSite { environment, mut host, base, progress, watching, .. } = site;
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
