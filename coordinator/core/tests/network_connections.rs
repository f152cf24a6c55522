//! Keyfiles of `NetworkManager`: read as a network, written from one.

#![allow(clippy::needless_pass_by_value, reason = "json! is written into the calls")]

use std::collections::BTreeMap;

use coordinator_api::inventory::MachineInventorySpec;
use coordinator_api::network::{Configurator, NetworkTemplate};
use coordinator_core::network::{HostNetwork, NetworkError, host_network};
use proto::plan::Secret;
use serde_json::{Value, json};

fn texts(connections: &BTreeMap<String, Secret>) -> BTreeMap<String, String> {
    let text = |content: &Secret| String::from_utf8(content.expose().to_vec()).unwrap();
    connections.iter().map(|(name, content)| (name.clone(), text(content))).collect()
}

const BOND: &str = "[connection]\nid=Bond\nuuid=6ba7b810-9dad-41d1-80b4-00c04fd430c8\ntype=bond\ninterface-name=bond0\n\
    [bond]\nmode=802.3ad\nmiimon=100\nxmit_hash_policy=layer3+4\n[ethernet]\nmtu=9000\n[ipv4]\nmethod=disabled\n[ipv6]\nmethod=disabled\n";
const VLAN: &str = "[connection]\nid=storage\ntype=vlan\ninterface-name=bond0.12\n[vlan]\nid=12\nparent=6ba7b810-9dad-41d1-80b4-00c04fd430c8\n\
    [ipv4]\nmethod=manual\naddress1=192.0.2.7/24,192.0.2.1\nroute1=198.51.100.0/24,192.0.2.9,50\nroute-metric=200\ndns=192.0.2.53;192.0.2.54;\ndns-search=example.com;\n\
    [ipv6]\nmethod=manual\naddress1=2001:db8::7/64\nroute1=::/0,fe80::1,1024\n";

fn member(name: &str, mac: &str) -> String {
    format!(
        "[connection]\nid={name}\ntype=802-3-ethernet\nmaster=bond0\nslave-type=bond\n[802-3-ethernet]\nmac-address={mac}\nmtu=9000\n"
    )
}

fn observe(connections: Value, interfaces: Value) -> Result<HostNetwork, NetworkError> {
    let observed = json!({ "connections": connections, "interfaces": interfaces });
    host_network(&MachineInventorySpec {
        observed_network: Some(serde_json::from_value(observed).unwrap()),
        ..MachineInventorySpec::default()
    })
}

fn explicit(configurator: Configurator, config: Value) -> Result<HostNetwork, NetworkError> {
    let network = NetworkTemplate {
        configurator,
        ip_addresses: BTreeMap::from([("ip".to_owned(), "192.0.2.7".to_owned())]),
        config: Some(config),
    };
    host_network(&MachineInventorySpec { network: Some(network), ..MachineInventorySpec::default() })
}

#[test]
fn imported_keyfiles_are_replayed_in_both_languages() {
    let connections = json!({
        "bond": BOND, "storage": VLAN,
        "slave-1": member("slave-1", "02:00:00:00:00:0A"), "slave-2": member("slave-2", "02:00:00:00:00:0B"),
    });
    // As an importer wrote them: nothing says what a lease is, and containers
    // are among them.
    let interfaces = json!([
        {"name": "eno1", "mac": "02:00:00:00:00:0a", "master": "bond0"},
        {"name": "eno2", "mac": "02:00:00:00:00:0a", "permanentMac": "02:00:00:00:00:0b", "master": "bond0"},
        {"name": "bond0", "kind": "bond"},
        {"name": "bond0.12", "kind": "vlan", "addresses": ["192.0.2.7/24"]},
        {"name": "kube-ipvs0", "addresses": ["10.96.0.1/32"]}
    ]);
    let network = observe(connections.clone(), interfaces).unwrap();
    let want = "version: 2
ethernets:
  eno1:
    match:
      macaddress: \"02:00:00:00:00:0a\"
    set-name: eno1
    mtu: 9000
  eno2:
    match:
      macaddress: \"02:00:00:00:00:0b\"
    set-name: eno2
    mtu: 9000
bonds:
  bond0:
    interfaces:
    - eno1
    - eno2
    parameters:
      mode: \"802.3ad\"
      mii-monitor-interval: 100
      transmit-hash-policy: \"layer3+4\"
    mtu: 9000
vlans:
  bond0.12:
    id: 12
    link: bond0
    addresses:
    - \"192.0.2.7/24\"
    - \"2001:db8::7/64\"
    routes:
    - to: \"0.0.0.0/0\"
      via: \"192.0.2.1\"
      metric: 200
    - to: \"198.51.100.0/24\"
      via: \"192.0.2.9\"
      metric: 50
    - to: \"::/0\"
      via: \"fe80::1\"
      metric: 1024
    nameservers:
      addresses:
      - \"192.0.2.53\"
      - \"192.0.2.54\"
      search:
      - example.com
";
    assert_eq!(network.network_config.as_deref(), Some(want));
    assert_eq!(json!(texts(&network.connections)), connections, "NetworkManager gets them as they are");
}

#[test]
fn interfaces_without_keyfile_keep_dhcp() {
    let keyfile = "[connection]\nid=a\ntype=ethernet\ninterface-name=eno1\n[ipv6]\nmethod=disabled\n";
    let interfaces = json!([
        {"name": "eno1", "mac": "02:00:00:00:00:01", "addresses": ["192.0.2.7/24"]},
        {"name": "eno2", "mac": "02:00:00:00:00:02", "dhcp4": true, "addresses": ["10.0.0.5/24"], "dynamicAddresses": ["10.0.0.5/24"]},
    ]);
    let network = observe(json!({ "a": keyfile }), interfaces).unwrap();
    let want = "version: 2
ethernets:
  eno1:
    match:
      macaddress: \"02:00:00:00:00:01\"
    set-name: eno1
    dhcp4: true
  eno2:
    match:
      macaddress: \"02:00:00:00:00:02\"
    set-name: eno2
    dhcp4: true
";
    assert_eq!(network.network_config.as_deref(), Some(want));
    assert_eq!(network.connections.keys().collect::<Vec<_>>(), ["a", "eno2"]);
    assert_eq!(texts(&network.connections)["a"], keyfile);
}

#[test]
fn unsupported_settings_are_named_without_values() {
    let keyfile = "[connection]\nid=a\ntype=ethernet\ninterface-name=eno1\nzone=trusted\n[802-1x]\npassword=secret\n\
        [ethernet]\nwake-on-lan=1\n[ipv4]\nmethod=manual\naddress1=192.0.2.7/24\nroute1=198.51.100.0/24,192.0.2.1\nroute1_options=table=5\n[ipv6]\nmethod=shared\n";
    let wifi = "[connection]\nid=w\ntype=wifi\n[wifi-security]\npsk=secret\n";
    let network =
        explicit(Configurator::Nmconnections, json!({ "a.nmconnection": keyfile, "w": wifi })).unwrap();
    let text = network.network_config.unwrap();
    let comments: Vec<_> = text.lines().take_while(|line| line.starts_with('#')).collect();
    assert_eq!(
        comments,
        [
            "# Only NetworkManager does this: connection w: its type, or the type of its master",
            "# Only NetworkManager does this: connection a: [ipv4] route1_options",
            "# Only NetworkManager does this: connection a: [ipv6] method",
            "# Only NetworkManager does this: connection a: [802-1x]",
            "# Only NetworkManager does this: connection a: [connection] zone",
            "# Only NetworkManager does this: connection a: [ethernet] wake-on-lan",
        ]
    );
    assert!(!text.contains("secret"), "{text}");
    assert_eq!(
        texts(&network.connections),
        BTreeMap::from([("a".to_owned(), keyfile.to_owned()), ("w".to_owned(), wifi.to_owned())])
    );
}

#[test]
fn explicit_keyfiles_take_addresses_and_win() {
    let keyfile = "[connection]\nid=a\ntype=ethernet\ninterface-name=eno1\n[ipv4]\nmethod=manual\naddress1={ip}/24\n[ipv6]\nmethod=ignore\n";
    let network = explicit(Configurator::Nmconnections, json!({ "a": keyfile })).unwrap();
    assert_eq!(
        network.network_config.as_deref(),
        Some("version: 2\nethernets:\n  eno1:\n    addresses:\n    - \"192.0.2.7/24\"\n")
    );
    assert_eq!(texts(&network.connections)["a"], keyfile.replace("{ip}", "192.0.2.7"));
    let version2 = explicit(Configurator::None, json!({ "version": 2, "ethernets": {} })).unwrap();
    assert!(version2.connections.is_empty(), "cloud-init renders what it alone understands");
}

#[test]
fn default_gateway_elsewhere_gets_a_route() {
    let keyfile = "[connection]\nid=a\ntype=ethernet\ninterface-name=eno1\n[ipv4]\nmethod=manual\naddress1=203.0.113.7/32,198.51.100.1\n[ipv6]\nmethod=disabled\n";
    let network = explicit(Configurator::Nmconnections, json!({ "a": keyfile })).unwrap();
    let want = "    routes:\n    - to: \"198.51.100.1/32\"\n      scope: link\n    - to: \"0.0.0.0/0\"\n      via: \"198.51.100.1\"\n";
    let config = network.network_config.unwrap();
    assert!(config.ends_with(want), "NetworkManager adds this route by itself: {config}");
}

#[test]
fn keyfiles_that_cannot_work_are_refused() {
    let ethernet = |rest: &str| format!("[connection]\nid=a\ntype=ethernet\ninterface-name=eno1\n{rest}");
    let value = |value: &str, wanted| NetworkError::Value {
        place: "connection a".into(),
        value: value.into(),
        wanted,
    };
    let vlan = "[connection]\nid=a\ntype=vlan\ninterface-name=v\n[vlan]\nid=4095\nparent=eno1\n".to_owned();
    let cases = [
        ("no keyfile", "type=ethernet".to_owned(), NetworkError::Keyfile { connection: "a".into(), line: 1 }),
        ("no value", ethernet("[ipv4]\nmethod\n"), NetworkError::Keyfile { connection: "a".into(), line: 6 }),
        (
            "no type",
            "[connection]\nid=a\n".to_owned(),
            NetworkError::KeyMissing { connection: "a".into(), key: "type" },
        ),
        (
            "address",
            ethernet("[ipv4]\naddress1=1.2.3/24\n"),
            value("1.2.3/24", "address with a prefix length"),
        ),
        ("metric", ethernet("[ipv4]\nroute1=10.0.0.0/8,1.2.3.4,x\n"), value("x", "metric of a route")),
        ("VLAN id", vlan, value("4095", "VLAN id (1 to 4094)")),
        (
            "gateway elsewhere",
            ethernet("[ipv4]\nmethod=manual\naddress1=192.0.2.7/24\nroute1=10.0.0.0/8,203.0.113.1\n"),
            NetworkError::GatewayUnreachable {
                interface: "eno1".into(),
                gateway: "203.0.113.1".parse().unwrap(),
            },
        ),
    ];
    for (name, keyfile, want) in cases {
        let config = json!({ "a": keyfile });
        assert_eq!(observe(config.clone(), json!([])), Err(want.clone()), "{name}");
        assert_eq!(explicit(Configurator::Nmconnections, config), Err(want), "{name}");
    }
    let twice = json!({ "a": ethernet(""), "b": ethernet("") });
    let error = explicit(Configurator::Nmconnections, twice).unwrap_err();
    assert_eq!(error, NetworkError::Duplicate { place: "connection b".into(), value: "eno1".into() });
    for config in [json!([]), json!({ "a": 1 }), json!({})] {
        assert_eq!(explicit(Configurator::Nmconnections, config), Err(NetworkError::NoKeyfiles));
    }
    let outside = explicit(Configurator::Nmconnections, json!({ "../a": ethernet("") })).unwrap_err();
    assert!(matches!(outside, NetworkError::Value { .. }), "{outside}");
}

#[test]
fn a_reported_network_becomes_keyfiles() {
    let interfaces = json!([
        {"name": "bond0", "kind": "bond", "mac": "02:00:00:00:00:0a", "mtu": 9000,
         "bond": {"mode": "active-backup", "miimon": 100, "primary": "eno1"}},
        {"name": "eno1", "permanentMac": "02:00:00:00:00:0a", "mtu": 9000, "master": "bond0"},
        {"name": "v12", "kind": "vlan", "vlan": {"id": 12, "link": "bond0"}, "addresses": ["192.0.2.7/24"]},
    ]);
    let observed = json!({
        "interfaces": interfaces,
        "routes": [{"destination": "0.0.0.0/0", "gateway": "192.0.2.1", "interface": "v12"},
                   {"destination": "198.51.100.0/24", "interface": "v12", "metric": 7}],
        "dnsServers": ["192.0.2.53", "2001:db8::53"], "searchDomains": ["example.com"],
    });
    let network = host_network(&MachineInventorySpec {
        observed_network: Some(serde_json::from_value(observed).unwrap()),
        ..MachineInventorySpec::default()
    })
    .unwrap();
    let without_uuids = |text: &str| -> String {
        let lines = text.lines().filter(|line| !line.starts_with("uuid=") && !line.starts_with("parent="));
        lines.map(|line| line.to_owned() + "\n").collect()
    };
    let found: BTreeMap<_, _> =
        texts(&network.connections).into_iter().map(|(name, text)| (name, without_uuids(&text))).collect();
    let want = [
        (
            "bond0",
            "[connection]\nid=bond0\ntype=bond\ninterface-name=bond0\n\n[ethernet]\ncloned-mac-address=02:00:00:00:00:0a\nmtu=9000\n\n\
             [bond]\nmode=active-backup\nmiimon=100\nprimary=eno1\n\n[ipv4]\nmethod=disabled\n\n[ipv6]\nmethod=disabled\n",
        ),
        (
            "eno1",
            "[connection]\nid=eno1\ntype=ethernet\nmaster=bond0\nslave-type=bond\n\n[ethernet]\nmac-address=02:00:00:00:00:0a\nmtu=9000\n",
        ),
        (
            "v12",
            "[connection]\nid=v12\ntype=vlan\ninterface-name=v12\n\n[vlan]\nid=12\n\n[ipv4]\nmethod=manual\naddress1=192.0.2.7/24\n\
             route1=0.0.0.0/0,192.0.2.1\nroute2=198.51.100.0/24,0.0.0.0,7\ndns=192.0.2.53;\ndns-search=example.com;\n\n[ipv6]\nmethod=disabled\n",
        ),
    ];
    assert_eq!(found, want.map(|(name, text)| (name.to_owned(), text.to_owned())).into());
    let texts = texts(&network.connections);
    let again = texts["v12"].lines().find(|line| line.starts_with("parent=")).unwrap();
    assert!(texts["bond0"].contains(&again.replace("parent=", "uuid=")), "{again}");
}
