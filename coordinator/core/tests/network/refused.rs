//! Networks that cannot work: refused, with the interface named.

use coordinator_core::network::NetworkError;
use serde_json::{Value, json};

use super::replay;

#[test]
fn unworkable_network_is_refused_naming_interface() {
    let nic = |extra: Value| {
        let mut nic = json!({"name": "eno1", "mac": "02:00:00:00:00:01", "addresses": ["192.0.2.7/24"]});
        nic.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        nic
    };
    let missing = |interface: &str, role, missing: &str| NetworkError::InterfaceMissing {
        interface: interface.into(),
        role,
        missing: missing.into(),
    };
    let value = |place: &str, value: &str, wanted| NetworkError::Value {
        place: place.into(),
        value: value.into(),
        wanted,
    };
    let route = |extra: Value| {
        let mut route = json!({"destination": "198.51.100.0/24", "interface": "eno1"});
        route.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({"interfaces": [nic(json!({}))], "routes": [route]})
    };
    let destination = "198.51.100.0/24".parse().unwrap();
    let cases = [
        (
            "no MAC",
            json!({"interfaces": [nic(json!({"mac": "00:00:00:00:00:00"}))]}),
            NetworkError::MacMissing { interface: "eno1".into() },
        ),
        (
            "bad MAC",
            json!({"interfaces": [nic(json!({"mac": "02:00"}))]}),
            value("interface eno1", "02:00", "MAC address of six octets"),
        ),
        (
            "bad address",
            json!({"interfaces": [nic(json!({"addresses": ["192.0.2.7"]}))]}),
            value("interface eno1", "192.0.2.7", "address with a prefix length"),
        ),
        (
            "name that is none",
            json!({"interfaces": [nic(json!({"name": "a\nb"}))]}),
            value("interfaces", "a\nb", "name of an interface (1 to 15 of a-z A-Z 0-9 - _ . : @)"),
        ),
        (
            "name twice",
            json!({"interfaces": [nic(json!({})), nic(json!({}))]}),
            NetworkError::Duplicate { place: "interfaces".into(), value: "eno1".into() },
        ),
        (
            "MAC twice",
            json!({"interfaces": [nic(json!({})), nic(json!({"name": "eno2", "addresses": ["192.0.2.8/24"]}))]}),
            NetworkError::Duplicate { place: "interface eno2".into(), value: "02:00:00:00:00:01".into() },
        ),
        (
            "address twice",
            json!({"interfaces": [nic(json!({})), nic(json!({"name": "eno2", "mac": "02:00:00:00:00:02"}))]}),
            NetworkError::Duplicate { place: "interface eno2".into(), value: "192.0.2.7".into() },
        ),
        (
            "master gone",
            json!({"interfaces": [nic(json!({"master": "bond0"}))]}),
            missing("eno1", "master", "bond0"),
        ),
        (
            "parent gone",
            json!({"interfaces": [nic(json!({"kind": "vlan", "vlan": {"id": 1, "link": "eno9"}}))]}),
            missing("eno1", "parent", "eno9"),
        ),
        (
            "a bond of none",
            json!({"interfaces": [nic(json!({"kind": "bond"}))]}),
            missing("eno1", "member", "(none names it as master)"),
        ),
        (
            "primary that is no member",
            json!({"interfaces": [nic(json!({"kind": "bond", "bond": {"mode": "active-backup", "primary": "eno9"}})),
                               {"name": "eno2", "mac": "02:00:00:00:00:02", "master": "eno1"}]}),
            missing("eno1", "primary", "eno9"),
        ),
        (
            "VLAN id",
            json!({"interfaces": [nic(json!({"kind": "vlan", "vlan": {"id": 4095, "link": "eno1"}}))]}),
            value("interface eno1", "4095", "VLAN id (1 to 4094)"),
        ),
        (
            "MTU of a VLAN",
            json!({"interfaces": [nic(json!({})), {"name": "v", "kind": "vlan", "mtu": 9000, "vlan": {"id": 1, "link": "eno1"}}]}),
            NetworkError::Mtu { interface: "v".into(), mtu: 9000, parent: "eno1".into(), parent_mtu: 1500 },
        ),
        (
            "gateway elsewhere",
            route(json!({"gateway": "203.0.113.1"})),
            NetworkError::GatewayUnreachable {
                interface: "eno1".into(),
                gateway: "203.0.113.1".parse().unwrap(),
            },
        ),
        (
            "gateway of the other family",
            route(json!({"gateway": "fe80::1"})),
            NetworkError::Family {
                interface: "eno1".into(),
                destination,
                gateway: "fe80::1".parse().unwrap(),
            },
        ),
        (
            "route without interface",
            route(json!({"interface": "eno9"})),
            NetworkError::RouteWithoutInterface { destination },
        ),
        (
            "resolver",
            json!({"interfaces": [nic(json!({}))], "dnsServers": ["a b"]}),
            value("dnsServers", "a b", "IP address"),
        ),
        (
            "search domain",
            json!({"interfaces": [nic(json!({}))], "searchDomains": ["a\nb"]}),
            value("searchDomains", "a\nb", "domain"),
        ),
    ];
    for (name, given, want) in cases {
        assert_eq!(replay(given), Err(want), "{name}");
    }
}
