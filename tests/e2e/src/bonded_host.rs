//! The lifecycle of a QEMU host with a VLAN on a bond, where no DHCP answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::guest::{ImageInputs, Network};
use anyhow::{Context as _, ensure};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::environment::{Environment, Reach};
use crate::guest_site::enter_with_images;
use crate::host::{GuestHost, Host as _};
use crate::lifecycle::{Lifecycle, NAMESPACE};
use crate::manifests::{self, fill};
use crate::progress::Progress;
use crate::requests::retry;
use crate::serve::serve;
use crate::watching::Watching;
use crate::{seed, switch};

const TAPS: [&str; 2] = ["left", "right"];
const VLAN: u16 = 77;
const MACS: [&str; 2] = ["52:54:00:4c:01:01", "52:54:00:4c:01:02"];

/// Runs it on images of `network`, through two reprovisions.
pub fn run(network: Network) -> anyhow::Result<()> {
    let inputs = ImageInputs::from_env().context(
        "AGENT, KUBERNETES_BIN and CONTAINERD_BIN name what goes into the images: run `make test-lab`",
    )?;
    let inputs = ImageInputs { network, ..inputs };
    let base = enter_with_images(&inputs)?;
    Runtime::new()?.block_on(play(&inputs, base))
}

async fn play(inputs: &ImageInputs, base: PathBuf) -> anyhow::Result<()> {
    let progress = Arc::new(Progress::default());
    switch::create(&TAPS.map(str::to_owned), Some(VLAN))?;
    let environment = Environment::start(Reach::Switch, &progress).await?;
    let _watching = Watching::start(&environment.management.admin, &progress);
    let base = serve(base).await?;
    let mut host = GuestHost::on_bond(&environment, TAPS, inputs).await?;
    let iso = create_seed(&environment, &base, inputs.network, &progress).await?;
    let mut lifecycle = Lifecycle::new(&environment, &mut host, progress.clone());
    let ended = reprovision_twice(&mut lifecycle, &environment, &iso).await;
    let console = || std::fs::read_to_string(host.log()).unwrap_or_default();
    ended.with_context(|| {
        format!("in step {:?}; {}\nconsole:\n{}", progress.current(), environment.logs(), console())
    })?;
    progress.end();
    Ok(())
}

/// What `check_network` of the host looks for, as network-config v2.
fn network_config() -> Value {
    let [first, second] = MACS;
    let card = |mac: &str, name: &str| json!({ "match": { "macaddress": mac }, "set-name": name });
    json!({
        "version": 2,
        "ethernets": { "eno1": card(first, "eno1"), "eno2": card(second, "eno2") },
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

/// The same as keyfiles of `NetworkManager`.
fn keyfiles() -> Value {
    let port = |mac: &str| {
        format!(
            "[connection]\nid={mac}\ntype=ethernet\nmaster=bond0\nslave-type=bond\n[ethernet]\nmac-address={mac}\n"
        )
    };
    let [first, second] = MACS.map(port);
    json!({
        "port1": first,
        "port2": second,
        "bond0": "[connection]\nid=bond0\ntype=bond\ninterface-name=bond0\n[bond]\nmode=active-backup\nmiimon=100\n\
            [ipv4]\nmethod=disabled\n[ipv6]\nmethod=disabled\n",
        "vlan": format!(
            "[connection]\nid=vlan\ntype=vlan\ninterface-name=bond0.{VLAN}\n[vlan]\nid={VLAN}\nparent=bond0\n\
             [ipv4]\nmethod=manual\naddress1=10.77.0.10/24,10.77.0.2\ndns=10.77.0.53;\ndns-search=lab.example;\n\
             [ipv6]\nmethod=disabled\n"
        ),
    })
}

/// The network is in the registration, and so in the ISO.
async fn create_seed(
    environment: &Environment,
    base: &str,
    network: Network,
    progress: &Progress,
) -> anyhow::Result<PathBuf> {
    let client = environment.management.admin.clone();
    let of_registration = [("NAMESPACE", NAMESPACE), ("DEVICE", "/dev/vda"), ("EMULATE_TPM", "false")];
    environment.management.apply(&fill(manifests::REGISTRATION, &of_registration)).await?;
    let (configurator, config) = match network {
        Network::Networkd => ("none", network_config()),
        Network::NetworkManager => ("nmconnections", keyfiles()),
    };
    let config = json!({ "network": { "configurator": configurator, "config": config } });
    let patch = Patch::Merge(json!({ "spec": { "config": config } }));
    let registrations: Api<MachineRegistration> = Api::namespaced(client.clone(), NAMESPACE);
    retry("set the network", async || registrations.patch("lab", &PatchParams::default(), &patch).await)
        .await?;
    let image = json!({
        "metadata": { "name": "lab" },
        "spec": { "type": "iso", "baseImage": base, "registrationRef": { "name": "lab", "namespace": NAMESPACE } },
    });
    let image: SeedImage = serde_json::from_value(image)?;
    let images: Api<SeedImage> = Api::namespaced(client, NAMESPACE);
    retry("create a SeedImage", async || images.create(&PostParams::default(), &image).await).await?;
    seed::download(environment, NAMESPACE, "lab", progress).await
}

/// The network that an operator wrote is in the first reprovision, what the host had when it
/// registered in the second one: the operator has taken it back.
async fn reprovision_twice(
    lifecycle: &mut Lifecycle<'_>,
    environment: &Environment,
    iso: &Path,
) -> anyhow::Result<()> {
    let inventory = lifecycle.register(iso).await?;
    ensure!(inventory.spec.network.is_some(), "the inventory has no network of its registration");
    lifecycle.apply_cluster(&[inventory.name_any()], 1).await?;
    let node = lifecycle.await_node(&inventory, 0).await?;
    lifecycle.scale_down(&inventory).await?;
    lifecycle.check_node_is_gone(&node).await?;
    let inventories: Api<MachineInventory> = Api::namespaced(environment.management.admin.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({ "spec": { "network": null } }));
    let name = inventory.name_any();
    retry("take the network back", async || inventories.patch(&name, &PatchParams::default(), &patch).await)
        .await?;
    let version = json!({ "spec": { "replicas": 1, "template": { "spec": { "version": "v1.36.3-2" } } } });
    lifecycle.scale(version).await?;
    lifecycle.await_node(&inventory, 1).await?;
    Ok(())
}
