//! What a `Metal3DataTemplate` renders is read by cloud-init's own converter as by ours.

use std::collections::BTreeMap;
use std::fs;

use coordinator_api::capi::Machine;
use coordinator_api::metal3::data_template::NetworkDataSpec;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::ipam::IPAddressSpec;
use coordinator_api::metal3::machine::Metal3Machine;
use coordinator_core::metal3::data::{PoolId, Sources, render_network_data};
use coordinator_core::network::network_data;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Consumed, ETHERNET};

const CARDS: [(&str, &str); 4] = [
    ("eno1", "02:00:00:00:00:01"),
    ("eno2", "02:00:00:00:00:02"),
    ("eno3", "02:00:00:00:00:03"),
    ("eno4", "02:00:00:00:00:04"),
];

fn object<T: DeserializeOwned>(api: &str, kind: &str, rest: Value) -> T {
    let mut object = rest;
    object["apiVersion"] = json!(api);
    object["kind"] = json!(kind);
    object["metadata"] = json!({ "name": "n", "namespace": "fleet" });
    serde_json::from_value(object).unwrap()
}

/// As the controller renders it for a host with these cards.
fn render(spec: Value) -> Value {
    let spec: NetworkDataSpec = serde_json::from_value(spec).unwrap();
    let nics: Vec<_> = CARDS.iter().map(|(name, mac)| json!({ "name": name, "mac": mac })).collect();
    let host: BareMetalHost = object(
        "metal3.io/v1alpha1",
        "BareMetalHost",
        json!({ "spec": { "online": true }, "status": { "hardware": { "nics": nics } } }),
    );
    let infrastructure = "infrastructure.cluster.x-k8s.io/v1beta1";
    let metal3_machine: Metal3Machine = object(infrastructure, "Metal3Machine", json!({ "spec": {} }));
    let machine: Machine = object(
        "cluster.x-k8s.io/v1beta2",
        "Machine",
        json!({ "spec": { "clusterName": "c1", "bootstrap": {}, "infrastructureRef": {} } }),
    );
    let address = |address: &str, prefix: i32, gateway: &str| IPAddressSpec {
        address: address.to_owned(),
        prefix: Some(prefix),
        gateway: Some(gateway.to_owned()),
        dns_servers: vec!["192.0.2.53".to_owned()],
        ..IPAddressSpec::default()
    };
    let addresses = BTreeMap::from([
        (PoolId::of_metal3("pool"), address("192.0.2.7", 24, "192.0.2.1")),
        (PoolId::of_metal3("pool6"), address("2001:db8::7", 64, "2001:db8::1")),
    ]);
    let sources = Sources {
        machine: &machine,
        metal3_machine: &metal3_machine,
        host: &host,
        index: 0,
        addresses: &addresses,
    };
    render_network_data(&spec, &sources).unwrap()
}

/// The consumers' files of the document, by cloud-init's converter below `openstack/`.
fn consume(document: &Value) -> Consumed {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("network_data.json", &document.to_string());
    write("cards", &CARDS.map(|(name, mac)| format!("{name},{mac}\n")).concat());
    let interfaces: Vec<_> =
        CARDS.iter().map(|(name, mac)| json!({ "name": name, "mac": mac, "permanentMac": mac })).collect();
    let observed = serde_json::from_value(json!({ "interfaces": interfaces })).unwrap();
    let network = network_data(&document.to_string(), Some(&observed)).unwrap();
    write("network-config", &network.network_config.unwrap());
    fs::create_dir(directory.path().join("connections")).unwrap();
    Consumed::consume(directory)
}

fn card(name: &str) -> Value {
    json!({ "type": "phy", "id": name, "mtu": 1500, "macAddress": { "fromHostInterface": name } })
}

#[test]
fn cloud_init_converts_network_data_alike() {
    let bond = json!({
        "id": "bond0", "mtu": 1500, "bondMode": "802.3ad", "bondXmitHashPolicy": "layer3+4",
        "macAddress": { "fromHostInterface": "eno1" }, "bondLinks": ["eno1", "eno2"],
        "parameters": { "miimon": 100 },
    });
    let vlan = json!({
        "id": "vlan1", "mtu": 1500, "vlanID": 7, "vlanLink": "bond0",
        "macAddress": { "fromHostInterface": "eno1" },
    });
    let route = |network: &str, prefix: i32, pool: &str| {
        json!({ "network": network, "prefix": prefix, "gateway": { "fromIPPool": pool },
                "services": { "dnsFromIPPool": pool } })
    };
    let on_vlan = |pool: &str, network: &str| json!({ "id": pool, "link": "vlan1", "ipAddressFromIPPool": pool, "routes": [route(network, 0, pool)] });
    let dynamic = |link: &str| json!({ "id": format!("on-{link}"), "link": link, "routes": [] });
    let cases = [
        (
            "bond, VLAN, both families",
            json!({
                "links": { "ethernets": [card("eno1"), card("eno2")], "bonds": [bond], "vlans": [vlan] },
                "networks": { "ipv4": [on_vlan("pool", "0.0.0.0")], "ipv6": [on_vlan("pool6", "::")] },
            }),
            vec![
                "bond0.netdev [NetDev] Name=bond0 Kind=bond",
                "bond0.netdev [Bond] Mode=802.3ad MIIMonitorSec=100ms TransmitHashPolicy=layer3+4",
                "eno1.network [Network] Bond=bond0",
                "eno2.network [Network] Bond=bond0",
                "bond0.7.netdev [VLAN] Id=7",
                "bond0.7.network [Network] Address=192.0.2.7/24 Address=2001:db8::7/64 DNS=192.0.2.53",
                "bond0.7.network [Route] Destination=0.0.0.0/0 Gateway=192.0.2.1",
                "bond0.7.network [Route] Destination=::/0 Gateway=2001:db8::1",
            ],
        ),
        (
            "static, DHCP and SLAAC on cards",
            json!({
                "links": { "ethernets": [card("eno1"), card("eno2"), card("eno3"), card("eno4")] },
                "networks": {
                    "ipv4": [{ "id": "n", "link": "eno1", "ipAddressFromIPPool": "pool",
                               "routes": [{ "network": "198.51.100.0", "prefix": 24,
                                            "gateway": { "string": "192.0.2.9" } }] }],
                    "ipv4DHCP": [dynamic("eno2")],
                    "ipv6DHCP": [dynamic("eno3")],
                    "ipv6SLAAC": [dynamic("eno4")],
                },
            }),
            vec![
                "eno1.network [Network] Address=192.0.2.7/24",
                "eno1.network [Route] Destination=198.51.100.0/24 Gateway=192.0.2.9",
                "eno2.network [Network] DHCP=ipv4",
                "eno3.network [Network] DHCP=ipv6",
            ],
        ),
    ];
    for (case, spec, wants) in cases {
        let consumed = consume(&render(spec));
        if case.contains("SLAAC") {
            // cloud-init asks DHCPv6 too, and leaves router advertisements to networkd's default.
            consumed.assert_holds(case, &format!("{ETHERNET}eno4.network [Network] IPv6AcceptRA=yes"));
            let theirs = ETHERNET.trim_start_matches("netplan");
            consumed.assert_holds(case, &format!("openstack{theirs}eno4.network [Network] DHCP=ipv6"));
        }
        for want in wants {
            consumed.assert_holds(case, &format!("{ETHERNET}{want}"));
            consumed
                .assert_holds(case, &format!("openstack{}{want}", ETHERNET.trim_start_matches("netplan")));
        }
    }
}
