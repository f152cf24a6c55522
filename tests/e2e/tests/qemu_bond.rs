//! A real host with a VLAN on a bond, where no DHCP answers.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::sync::Arc;

use ::qemu::{Image, ImageInputs};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use e2e::environment::{Environment, Reach};
use e2e::host::{Host, Qemu};
use e2e::lifecycle::{Lifecycle, NAMESPACE};
use e2e::manifests::{self, fill};
use e2e::progress::Progress;
use e2e::serve::serve;
use e2e::watching::Watching;
use e2e::{seed, switch};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

const TAPS: [&str; 2] = ["left", "right"];
const VLAN: u16 = 77;

/// What `check_network` of the host looks for.
fn network() -> Value {
    let card = |mac: &str, name: &str| json!({ "match": { "macaddress": mac }, "set-name": name });
    json!({
        "version": 2,
        "ethernets": {
            "eno1": card("52:54:00:4c:01:01", "eno1"),
            "eno2": card("52:54:00:4c:01:02", "eno2"),
        },
        "bonds": { "bond0": {
            "interfaces": ["eno1", "eno2"],
            "parameters": { "mode": "active-backup", "mii-monitor-interval": 100 },
        }},
        "vlans": { "bond0.77": {
            "id": VLAN,
            "link": "bond0",
            "addresses": ["10.77.0.10/24"],
            "routes": [{ "to": "0.0.0.0/0", "via": "10.77.0.2" }],
            "nameservers": { "addresses": ["10.77.0.53"], "search": ["lab.example"] },
        }},
    })
}

/// The network is in the registration, and so in the ISO.
async fn create_seed(environment: &Environment, base: &str, progress: &Progress) -> PathBuf {
    let client = environment.management.admin.clone();
    let of_registration = [("NAMESPACE", NAMESPACE), ("DEVICE", "/dev/vda"), ("EMULATE_TPM", "false")];
    environment.management.apply(&fill(manifests::REGISTRATION, &of_registration)).await.unwrap();
    let config = json!({ "network": { "configurator": "none", "config": network() } });
    let patch = Patch::Merge(json!({ "spec": { "config": config } }));
    let registrations: Api<MachineRegistration> = Api::namespaced(client.clone(), NAMESPACE);
    registrations.patch("lab", &PatchParams::default(), &patch).await.unwrap();
    let image = json!({
        "metadata": { "name": "lab" },
        "spec": { "type": "iso", "baseImage": base, "registrationRef": { "name": "lab", "namespace": NAMESPACE } },
    });
    let images: Api<SeedImage> = Api::namespaced(client, NAMESPACE);
    images.create(&PostParams::default(), &serde_json::from_value(image).unwrap()).await.unwrap();
    seed::download(environment, NAMESPACE, "lab", progress).await.unwrap()
}

/// The network that an operator wrote is in the first reprovision, what the host had when it
/// registered in the second one: the operator has taken it back.
async fn run(lifecycle: &mut Lifecycle<'_>, environment: &Environment, base: &str, progress: &Progress) {
    let iso = create_seed(environment, base, progress).await;
    let inventory = lifecycle.register(&iso).await.unwrap();
    assert!(inventory.spec.network.is_some(), "the inventory has no network of its registration");
    lifecycle.apply_cluster(&[inventory.name_any()], 1).await.unwrap();
    let node = lifecycle.await_node(&inventory, 0).await.unwrap();
    lifecycle.scale_down(&inventory).await.unwrap();
    lifecycle.check_node_is_gone(&node).await.unwrap();
    let inventories: Api<MachineInventory> = Api::namespaced(environment.management.admin.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({ "spec": { "network": null } }));
    inventories.patch(&inventory.name_any(), &PatchParams::default(), &patch).await.unwrap();
    let version = json!({ "spec": { "replicas": 1, "template": { "spec": { "version": "v1.36.3-2" } } } });
    lifecycle.scale(version).await.unwrap();
    lifecycle.await_node(&inventory, 1).await.unwrap();
}

#[test]
fn real_host_keeps_its_vlan_on_a_bond() {
    // Replaces this process by one in a network namespace of its own.
    switch::enter().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let inputs = ImageInputs::from_env().expect(
            "AGENT, KUBERNETES_BIN and CONTAINERD_BIN name what goes into the images: run `make test-lab`",
        );
        let progress = Arc::new(Progress::default());
        let base = ::qemu::build(Image::Iso, &inputs).await.unwrap();
        switch::create(&TAPS.map(str::to_owned), Some(VLAN)).unwrap();
        let environment = Environment::start(Reach::Switch, &progress).await.unwrap();
        let _watching = Watching::start(&environment.management.admin, &progress);
        let base = serve(base).await.unwrap();
        let mut host = Host::Qemu(Box::new(Qemu::on_bond(&environment, TAPS, &inputs).await.unwrap()));
        let mut lifecycle = Lifecycle::new(&environment, &mut host, progress.clone());
        run(&mut lifecycle, &environment, &base, &progress).await;
        progress.end();
    });
}
