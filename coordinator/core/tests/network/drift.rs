//! Changes of a network that count as drift, and their description.

use coordinator_core::network::describe_drift;
use serde_json::{Value, json};

type Change = fn(&mut Value);

#[test]
fn only_changed_intended_values_count_as_drift() {
    let intended = json!({
        "interfaces": [
            {"name": "eno1", "mac": "02:00:00:00:00:01", "mtu": 1500, "dhcp4": true, "addresses": ["10.0.0.5/24"], "dynamicAddresses": ["10.0.0.5/24"]},
            {"name": "eno2", "mac": "02:00:00:00:00:02", "mtu": 9000, "addresses": ["192.0.2.7/24"]},
            {"name": "eno3", "mac": "02:00:00:00:00:03"},
            {"name": "v12", "kind": "vlan", "vlan": {"id": 12, "link": "eno2"}},
            {"name": "bond0", "kind": "bond", "bond": {"mode": "802.3ad"}}
        ],
        "routes": [{"destination": "198.51.100.0/24", "gateway": "192.0.2.1", "interface": "eno2", "metric": 5},
                   {"destination": "0.0.0.0/0", "gateway": "192.0.2.1", "interface": "eno2"}],
        "dnsServers": ["10.0.0.1"]
    });
    let cases: [(&str, Change, Option<&str>); 15] = [
        ("nothing", |_| {}, None),
        (
            "another lease and its resolver",
            |n| {
                n["interfaces"][0]["addresses"] = json!(["10.0.0.9/24"]);
                n["interfaces"][0]["dynamicAddresses"] = json!(["10.0.0.9/24"]);
                n["dnsServers"] = json!(["10.0.0.2"]);
            },
            None,
        ),
        ("an unused card gone, an unused one new", |n| n["interfaces"][2]["name"] = json!("eno4"), None),
        (
            "an advertised route",
            |n| n["routes"].as_array_mut().unwrap().push(json!({"destination": "::/0", "dynamic": true})),
            None,
        ),
        (
            "another form of the same routes",
            |n| {
                let connected = json!({"destination": "192.0.2.0/24", "gateway": "", "interface": "eno2"});
                n["routes"].as_array_mut().unwrap().push(connected);
                n["routes"][1]["destination"] = json!("default");
            },
            None,
        ),
        (
            "VLAN",
            |n| n["interfaces"][3]["vlan"]["id"] = json!(13),
            Some("v12: VLAN is 13 of eno2 instead of 12 of eno2"),
        ),
        (
            "bond",
            |n| n["interfaces"][4]["bond"]["mode"] = json!("balance-rr"),
            Some("bond0: mode is balance-rr instead of 802.3ad"),
        ),
        (
            "parameters of the bond",
            |n| n["interfaces"][4]["bond"]["upDelay"] = json!(200),
            Some("bond0: updelay is 200 instead of none"),
        ),
        (
            "the route to a gateway outside of the subnets",
            |n| {
                let routes = n["routes"].as_array_mut().unwrap();
                routes.push(json!({"destination": "192.0.2.1/32", "interface": "eno2"}));
                routes[1]["onLink"] = json!(true);
            },
            None,
        ),
        ("another MTU by DHCP", |n| n["interfaces"][0]["mtu"] = json!(9000), None),
        (
            "a static address",
            |n| n["interfaces"][1]["addresses"] = json!(["192.0.2.8/24"]),
            Some("eno2: address 192.0.2.7/24 is gone; eno2: address 192.0.2.8/24 is new"),
        ),
        (
            "a lease frozen",
            |n| {
                n["interfaces"][0]["dhcp4"] = json!(false);
                n["interfaces"][0]["dynamicAddresses"] = json!([]);
            },
            Some("eno1: IPv4 no longer comes from DHCP; eno1: address 10.0.0.5/24 is new"),
        ),
        (
            "the route",
            |n| n["routes"] = json!([]),
            Some(
                "route 0.0.0.0/0 via 192.0.2.1 dev eno2 is gone; route 198.51.100.0/24 via 192.0.2.1 dev eno2 is gone",
            ),
        ),
        (
            "another card, another MTU",
            |n| {
                n["interfaces"][1]["mac"] = json!("02:00:00:00:00:09");
                n["interfaces"][1]["mtu"] = json!(1500);
            },
            Some(
                "eno2: MAC address is 02:00:00:00:00:09 instead of 02:00:00:00:00:02; eno2: MTU is 1500 instead of 9000",
            ),
        ),
        (
            "an interface",
            |n| drop(n["interfaces"].as_array_mut().unwrap().remove(1)),
            Some("interface eno2 is gone"),
        ),
    ];
    for (name, change, want) in cases {
        let mut later = intended.clone();
        change(&mut later);
        let network = |value: Value| serde_json::from_value(value).unwrap();
        assert_eq!(describe_drift(&network(intended.clone()), &network(later)).as_deref(), want, "{name}");
    }
}

#[test]
fn long_change_list_is_cut_and_counted() {
    let addresses: Vec<_> = (1..=20).map(|host| format!("192.0.2.{host}/32")).collect();
    let with = |addresses: Vec<String>| {
        serde_json::from_value(json!({"interfaces": [{"name": "a", "addresses": addresses}]})).unwrap()
    };
    let message = describe_drift(&with(addresses), &with(vec!["198.51.100.1/32".into()])).unwrap();
    assert!(message.ends_with("; and 13 more"), "{message}");
}

#[test]
fn pinned_mtu_counts_beside_dhcp() {
    let with = |mtu: i64| {
        serde_json::from_value(
            json!({"interfaces": [{"name": "bond0", "kind": "bond", "mtu": mtu, "dhcp4": true}]}),
        )
        .unwrap()
    };
    let drift = describe_drift(&with(9000), &with(1500));
    assert_eq!(drift.as_deref(), Some("bond0: MTU is 1500 instead of 9000"));
}
