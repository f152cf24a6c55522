use super::*;
use serde_json::{Value, json};

#[allow(clippy::needless_pass_by_value, reason = "literals of tests")]
fn spec(value: Value) -> IPPoolSpec {
    let mut whole = json!({ "namePrefix": "net" });
    whole.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
    serde_json::from_value(whole).unwrap()
}

fn pool(value: Value) -> Pool {
    Pool::parse(&spec(value)).unwrap()
}

const NO_HOST: HostUse<'static> = HostUse { used_by: &|_| None, node_of: &|_| None };

/// What `count` claims get, one after the other.
fn give(pool: &Pool, count: usize) -> Vec<String> {
    let mut taken: Vec<IpAddr> = vec![];
    for number in 0..count {
        match pool.choose_address(
            &format!("claim-{number}"),
            None,
            |address| taken.contains(&address),
            &NO_HOST,
        ) {
            Ok(address) => taken.push(address),
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Exhausted);
                break;
            }
        }
    }
    taken.iter().map(ToString::to_string).collect()
}

#[test]
fn ranges_give_their_addresses_in_order() {
    for (name, ranges, want) in [
        (
            "start and end",
            json!([{ "start": "10.0.0.9", "end": "10.0.0.11" }]),
            vec!["10.0.0.9", "10.0.0.10", "10.0.0.11"],
        ),
        (
            "the network is left out, the broadcast is not",
            json!([{ "subnet": "10.0.0.0/30" }]),
            vec!["10.0.0.1", "10.0.0.2", "10.0.0.3"],
        ),
        (
            "host bits of the subnet are kept",
            json!([{ "subnet": "10.0.0.5/29" }]),
            vec!["10.0.0.6", "10.0.0.7"],
        ),
        (
            "the subnet bounds",
            json!([{ "start": "10.0.0.6", "end": "10.0.0.99", "subnet": "10.0.0.0/29" }]),
            vec!["10.0.0.6", "10.0.0.7"],
        ),
        (
            "one after the other",
            json!([{ "start": "10.0.1.1", "end": "10.0.1.1" }, { "start": "10.0.0.1", "end": "10.0.0.1" }]),
            vec!["10.0.1.1", "10.0.0.1"],
        ),
        (
            "IPv6",
            json!([{ "start": "2001:db8::fffe", "end": "2001:db8::1:0" }]),
            vec!["2001:db8::fffe", "2001:db8::ffff", "2001:db8::1:0"],
        ),
        (
            "both families",
            json!([{ "start": "10.0.0.1", "end": "10.0.0.1" }, { "start": "2001:db8::1", "end": "2001:db8::1" }]),
            vec!["10.0.0.1", "2001:db8::1"],
        ),
        ("none", json!([]), vec![]),
    ] {
        assert_eq!(give(&pool(json!({ "pools": ranges })), 9), want, "{name}");
    }
}

#[test]
fn random_strategy_gives_every_address_once() {
    let ranges = json!([{ "subnet": "10.0.0.0/29" }, { "start": "10.0.1.1", "end": "10.0.1.3" }]);
    let given = give(&pool(json!({ "pools": ranges, "allocationStrategy": "random" })), 99);
    let mut sorted = given.clone();
    sorted.sort();
    assert_eq!(sorted.len(), 10, "{given:?}");
    sorted.dedup();
    assert_eq!(sorted.len(), 10, "{given:?}");
    assert_ne!(given[0], "10.0.0.1", "not in order");
}

#[test]
fn pre_allocations_and_requests_are_honoured() {
    let pool = pool(json!({
        "pools": [{ "start": "10.0.0.1", "end": "10.0.0.3" }],
        "preAllocations": { "kept": "10.0.0.1" },
    }));
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    for (name, claim, requested, taken, want) in [
        ("kept for it", "kept", None, None, Ok(address("10.0.0.1"))),
        ("kept from others", "other", None, None, Ok(address("10.0.0.2"))),
        (
            "kept, in use",
            "kept",
            None,
            Some("10.0.0.1"),
            Err(Refusal::PreAllocatedInUse(address("10.0.0.1"))),
        ),
        ("requested", "other", Some("10.0.0.3"), None, Ok(address("10.0.0.3"))),
        ("requested, kept", "other", Some("10.0.0.1"), None, Err(Refusal::NotAvailable(address("10.0.0.1")))),
        (
            "requested, in use",
            "other",
            Some("10.0.0.2"),
            Some("10.0.0.2"),
            Err(Refusal::NotAvailable(address("10.0.0.2"))),
        ),
        (
            "requested, in no range",
            "other",
            Some("10.0.0.4"),
            None,
            Err(Refusal::NotAvailable(address("10.0.0.4"))),
        ),
        ("requested, no address", "other", Some("ten"), None, Err(Refusal::BadRequest("ten".into()))),
        (
            "kept, another requested",
            "kept",
            Some("10.0.0.2"),
            None,
            Err(Refusal::Conflicting(address("10.0.0.1"))),
        ),
        ("kept and requested", "kept", Some("10.0.0.1"), None, Ok(address("10.0.0.1"))),
    ] {
        let is_taken = |address: IpAddr| taken.is_some_and(|taken| address.to_string() == taken);
        assert_eq!(pool.choose_address(claim, requested, is_taken, &NO_HOST), want, "{name}");
    }
}

#[test]
fn addresses_that_other_hosts_use_are_left_out() {
    let pool = pool(json!({
        "pools": [{ "start": "10.0.0.1", "end": "10.0.0.3" }],
        "preAllocations": { "kept": "10.0.0.1" },
    }));
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let used = |used: &'static [&str]| {
        move |address: IpAddr| used.contains(&&*address.to_string()).then(|| "host-1".to_owned())
    };
    let refused = Refusal::UsedByHost { address: address("10.0.0.2"), host: "host-1".into() };
    for (name, claim, requested, used_by, want) in [
        ("the next one", "other", None, used(&["10.0.0.2"]), Ok(address("10.0.0.3"))),
        ("all of them", "other", None, used(&["10.0.0.2", "10.0.0.3"]), Err(refused)),
        ("asked for", "other", Some("10.0.0.2"), used(&["10.0.0.2"]), Ok(address("10.0.0.2"))),
        ("kept for it", "kept", None, used(&["10.0.0.1"]), Ok(address("10.0.0.1"))),
    ] {
        let hosts = HostUse { used_by: &used_by, ..NO_HOST };
        assert_eq!(pool.choose_address(claim, requested, |_| false, &hosts), want, "{name}");
    }
    let by_host = used(&["10.0.0.2"]);
    let hosts = HostUse { used_by: &by_host, ..NO_HOST };
    let none = pool.choose_address("other", None, |_| true, &hosts);
    assert_eq!(none, Err(Refusal::Exhausted), "claims have them");
    let by_node = used(&["10.0.0.1", "10.0.0.2"]);
    let hosts = HostUse { used_by: &by_node, node_of: &by_node };
    for (claim, requested, text) in [("kept", None, "10.0.0.1"), ("other", Some("10.0.0.2"), "10.0.0.2")] {
        let refused = Refusal::UsedByNode { address: address(text), host: "host-1".into() };
        assert_eq!(pool.choose_address(claim, requested, |_| false, &hosts), Err(refused), "{claim}");
    }
}

#[test]
fn unusable_pools_name_the_field() {
    for (want, value) in [
        ("spec.pools[0].start", json!({ "pools": [{ "start": "ten" }] })),
        ("spec.pools[0].subnet", json!({ "pools": [{ "subnet": "10.0.0.0" }] })),
        ("neither start nor subnet", json!({ "pools": [{ "end": "10.0.0.1" }] })),
        ("is empty", json!({ "pools": [{ "start": "10.0.0.2", "end": "10.0.0.1" }] })),
        ("is empty", json!({ "pools": [{ "start": "10.0.1.2", "subnet": "10.0.0.0/24" }] })),
        ("is empty", json!({ "pools": [{ "start": "10.0.0.2", "end": "2001:db8::1" }] })),
        (
            "spec.pools[1] has no end",
            json!({ "pools": [{ "subnet": "10.0.0.0/24" }, { "start": "10.0.1.1" }], "allocationStrategy": "random" }),
        ),
        ("prefix 64 is longer", json!({ "pools": [{ "subnet": "10.0.0.0/24" }], "prefix": 64 })),
        ("spec.gateway", json!({ "pools": [{ "subnet": "10.0.0.0/24" }], "gateway": "x" })),
        ("spec.pools[0].dnsServers", json!({ "pools": [{ "subnet": "10.0.0.0/24", "dnsServers": ["x"] }] })),
        (
            "is in no range",
            json!({ "pools": [{ "subnet": "10.0.0.0/24" }], "preAllocations": { "a": "10.0.1.1" } }),
        ),
        (
            "reserved for another claim",
            json!({ "pools": [{ "subnet": "2001:db8::/64" }], "preAllocations": { "a": "2001:db8::1", "b": "2001:db8:0::1" } }),
        ),
    ] {
        let error = Pool::parse(&spec(value)).unwrap_err().to_string();
        assert!(error.contains(want), "{want}: {error}");
    }
}

#[test]
fn range_values_override_pool_values() {
    let spec = spec(json!({
        "pools": [
            { "start": "10.0.0.1", "end": "10.0.0.1", "prefix": 25, "gateway": "10.0.0.126", "dnsServers": ["10.0.0.53"] },
            { "subnet": "10.1.0.0/16" },
        ],
        "prefix": 24, "gateway": "10.9.9.9", "dnsServers": ["10.9.9.53", "2001:db8::53"],
    }));
    let parsed = Pool::parse(&spec).unwrap();
    let mut object = IPPool::new("pool-1", spec);
    object.metadata.namespace = Some("fleet".into());
    let first = parsed.describe_address(&object, "claim", "10.0.0.1".parse().unwrap());
    assert_eq!(first.name_any(), "net-10-0-0-1");
    assert_eq!((first.spec.prefix, first.spec.gateway.as_deref()), (Some(25), Some("10.0.0.126")));
    assert_eq!(first.spec.dns_servers, ["10.0.0.53"]);
    let second = parsed.describe_address(&object, "claim", "10.1.0.1".parse().unwrap()).spec;
    assert_eq!((second.prefix, second.gateway.as_deref()), (Some(24), Some("10.9.9.9")));
    assert_eq!(second.dns_servers, ["10.9.9.53", "2001:db8::53"]);
    // A range that it had is gone.
    let third = parsed.describe_address(&object, "claim", "10.5.0.1".parse().unwrap()).spec;
    assert_eq!((third.prefix, third.gateway.as_deref()), (Some(24), Some("10.9.9.9")));
    assert_eq!(third.dns_servers, ["10.9.9.53", "2001:db8::53"]);
    assert_eq!((second.claim.name.as_str(), second.pool.name.as_str()), ("claim", "pool-1"));
}

#[test]
fn address_names_are_those_of_metal3() {
    for (address, want) in [("192.168.0.15", "abcpref-192-168-0-15"), ("2001:db8::", "abcpref-2001-db8")] {
        assert_eq!(address_name("abcpref", address.parse().unwrap()), want);
    }
}

#[test]
fn routers_and_dns_servers_get_no_claim() {
    let spec = |pre_allocations: serde_json::Value| {
        pool(json!({
            "pools": [
                { "start": "10.0.0.1", "end": "10.0.0.4", "gateway": "10.0.0.1", "dnsServers": ["10.0.0.3"] },
            ],
            "preAllocations": pre_allocations,
        }))
    };
    assert_eq!(give(&spec(json!({})), 9), ["10.0.0.2", "10.0.0.4"]);
    let [router, server] = ["10.0.0.1", "10.0.0.3"].map(|text| text.parse::<IpAddr>().unwrap());
    for address in [router, server] {
        let asked = spec(json!({})).choose_address("c", Some(&address.to_string()), |_| false, &NO_HOST);
        assert_eq!(asked, Err(Refusal::NotAvailable(address)));
    }
    let named = spec(json!({ "dns": "10.0.0.3" })).choose_address("dns", None, |_| false, &NO_HOST);
    assert_eq!(named, Ok(server), "an operator knows the host");
    let own =
        json!({ "start": "10.0.0.1", "end": "10.0.0.4", "gateway": "10.0.0.9", "dnsServers": ["10.0.0.9"] });
    let empty =
        json!({ "start": "10.0.0.9", "end": "10.0.0.8", "gateway": "10.0.0.1", "dnsServers": ["10.0.0.3"] });
    for (what, spec) in [
        ("overridden", json!({ "pools": [own], "gateway": "10.0.0.1", "dnsServers": ["10.0.0.3"] })),
        ("of a skipped range", json!({ "pools": [empty, own] })),
    ] {
        let (usable, _) = Pool::parse_usable(&self::spec(spec));
        assert_eq!(give(&usable, 9), ["10.0.0.2", "10.0.0.4"], "{what}");
    }
}

#[test]
fn invalid_entries_stop_no_other_claim() {
    let (usable, error) = Pool::parse_usable(&spec(json!({
        "pools": [{ "start": "10.0.0.9", "end": "10.0.0.1" }, { "start": "10.0.1.1", "end": "10.0.1.2" }],
        "preAllocations": { "lost": "10.9.9.9", "kept": "10.0.1.1" },
    })));
    assert!(error.unwrap().to_string().contains("spec.pools[0] is empty"), "the first one is named");
    assert_eq!(give(&usable, 9), ["10.0.1.2"]);
}
