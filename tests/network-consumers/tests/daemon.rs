//! Keyfiles on a guest with `NetworkManager`: the agent places them in early boot, and
//! the real daemon brings them up on cards of its own.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use agent::boot;
use agent::ground::paths::Root;
use agent::state::seed;
use coordinator_api::inventory::MachineInventorySpec;
use coordinator_core::network::host_network;
use proto::plan::{Secret, Seed};
use serde_json::{Value, json};
use simulated_host::SimulatedSystem;

const CARDS: &str = "eno1 02:00:00:00:00:01\neno2 02:00:00:00:00:02\n";

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}:\n{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// What a host with the network of this inventory has after its boot.
struct Booted {
    addresses: Value,
    routes: Value,
    resolvers: String,
}

impl Booted {
    fn with(spec: Value) -> Self {
        let spec: MachineInventorySpec = serde_json::from_value(spec).unwrap();
        let network = host_network(&spec).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("cards"), CARDS).unwrap();
        boot_agent(&path("host"), network.connections);
        let tree = run(&mut Command::new(script("tree.sh")));
        run(Command::new(script("daemon.sh")).arg(tree.trim_end()).arg(directory.path()));
        let read = |name: &str| fs::read_to_string(path(name)).unwrap();
        let parse = |name: &str| serde_json::from_str(&read(name)).unwrap();
        Self { addresses: parse("addresses"), routes: parse("routes"), resolvers: read("resolv.conf") }
    }

    /// Those of a card that are no link's own.
    fn addresses_of(&self, name: &str) -> Vec<String> {
        let links = self.addresses.as_array().unwrap().iter().filter(|link| link["ifname"] == name);
        let addresses = links.flat_map(|link| link["addr_info"].as_array().unwrap());
        let global = addresses.filter(|address| address["scope"] == "global");
        global.map(|one| format!("{}/{}", one["local"].as_str().unwrap(), one["prefixlen"])).collect()
    }

    fn has_route(&self, destination: &str, gateway: &str, card: &str) -> bool {
        let is_it = |route: &&Value| {
            route["dst"] == destination && route["gateway"] == gateway && route["dev"] == card
        };
        self.routes.as_array().unwrap().iter().any(|route| is_it(&route))
    }
}

/// Early boot of an installed host whose seed has these connections.
fn boot_agent(path: &Path, connections: BTreeMap<String, Secret>) {
    let root = Root::at(path);
    SimulatedSystem::installed(root.clone(), "oci:lab/os:v1").unwrap();
    let wants = root.join("/etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants).unwrap();
    symlink("/usr/lib/systemd/system/NetworkManager.service", wants.join("NetworkManager.service")).unwrap();
    let meta_data = "instance-id: 1\n".to_owned();
    let seed = Seed { user_data: None, meta_data, network_config: None, connections, network_data: None };
    seed::store(&root.state(), &seed).unwrap();
    let summary = boot::run(&root);
    assert!(summary.problems.is_empty(), "{:?}", summary.problems);
}

#[test]
fn keyfiles_of_a_registration_come_up() {
    let keyfile = "[connection]\nid=uplink\ntype=ethernet\n[ethernet]\nmac-address=02:00:00:00:00:02\n\
        [ipv4]\nmethod=manual\naddress1={address}/24,192.0.2.1\ndns=192.0.2.53;\ndns-search=example.com;\n[ipv6]\nmethod=disabled\n";
    let config = json!({ "uplink": keyfile });
    let network = json!({ "configurator": "nmconnections", "config": config, "ipAddresses": { "address": "192.0.2.7" } });
    let booted = Booted::with(json!({ "network": network }));
    assert_eq!(booted.addresses_of("eno2"), ["192.0.2.7/24"]);
    assert_eq!(booted.addresses_of("eno1"), [""; 0], "it has no connection");
    assert!(booted.has_route("default", "192.0.2.1", "eno2"), "{}", booted.routes);
    let resolvers = &booted.resolvers;
    assert!(resolvers.contains("nameserver 192.0.2.53") && resolvers.contains("example.com"), "{resolvers}");
}

#[test]
fn rendered_networks_come_up() {
    let cards = |addresses: Value| {
        json!([
            { "name": "eno1", "mac": "02:00:00:00:00:01", "addresses": addresses, "mtu": 1400 },
            { "name": "eno2", "mac": "02:00:00:00:00:02", "addresses": ["198.51.100.7/24"] },
        ])
    };
    let routes = json!([
        { "destination": "0.0.0.0/0", "gateway": "192.0.2.1", "interface": "eno1", "metric": 50 },
        { "destination": "203.0.113.0/24", "gateway": "198.51.100.1", "interface": "eno2" },
    ]);
    let observed = json!({
        "interfaces": cards(json!(["192.0.2.7/24", "2001:db8::7/64"])),
        "routes": routes, "dnsServers": ["192.0.2.53"],
    });
    let booted = Booted::with(json!({ "observedNetwork": observed }));
    assert_eq!(booted.addresses_of("eno1"), ["192.0.2.7/24", "2001:db8::7/64"]);
    assert_eq!(booted.addresses_of("eno2"), ["198.51.100.7/24"]);
    assert!(booted.has_route("default", "192.0.2.1", "eno1"), "{}", booted.routes);
    assert!(booted.has_route("203.0.113.0/24", "198.51.100.1", "eno2"), "{}", booted.routes);
    let mtu = booted.addresses.as_array().unwrap().iter().find(|link| link["ifname"] == "eno1");
    assert_eq!(mtu.unwrap()["mtu"], 1400);
    assert!(booted.resolvers.contains("nameserver 192.0.2.53"), "{}", booted.resolvers);
}

#[test]
fn a_rendered_bridge_comes_up() {
    let interfaces = json!([
        { "name": "br0", "kind": "bridge", "mac": "02:00:00:00:00:01", "addresses": ["192.0.2.7/24"] },
        { "name": "eno1", "mac": "02:00:00:00:00:01", "master": "br0" },
    ]);
    let routes = json!([{ "destination": "0.0.0.0/0", "gateway": "192.0.2.1", "interface": "br0" }]);
    let observed = json!({ "interfaces": interfaces, "routes": routes });
    let booted = Booted::with(json!({ "observedNetwork": observed }));
    assert_eq!(booted.addresses_of("br0"), ["192.0.2.7/24"]);
    assert!(booted.has_route("default", "192.0.2.1", "br0"), "{}", booted.routes);
    let member = booted.addresses.as_array().unwrap().iter().find(|link| link["ifname"] == "eno1").unwrap();
    assert_eq!(member["master"], "br0");
}
