use super::*;
use coordinator_api::capi::{self, MachineSpec};
use coordinator_api::metal3::data::{Metal3Data, Metal3DataClaim};
use coordinator_api::metal3::names;
use jiff::Timestamp;
use serde_json::{Value, json};

fn machine() -> Machine {
    let mut machine = Machine::new("machine-1", &capi::machine("v1beta2"), MachineSpec::default());
    machine.labels_mut().insert("mylabelkey".into(), "of the machine".into());
    machine.annotations_mut().insert("primary-mac".into(), "52:54:00:00:00:AA".into());
    machine.annotations_mut().insert("pool".into(), "pool-2".into());
    machine
}

fn metal3_machine() -> Metal3Machine {
    let mut machine =
        Metal3Machine::new("m3m-1", coordinator_api::metal3::machine::Metal3MachineSpec::default());
    machine.metadata.namespace = Some("fleet".into());
    machine
}

fn host() -> BareMetalHost {
    serde_json::from_value(json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": { "name": "bmh-1", "namespace": "fleet", "uid": "uid-1" },
        "spec": {
            "bootMACAddress": "52:54:00:00:00:0b",
            "consumerRef": { "kind": "Metal3Machine", "name": "m3m-1", "namespace": "fleet" },
        },
        "status": { "hardware": { "nics": [
            { "name": "eth0", "mac": "52:54:00:00:00:01" }, { "name": "eth1", "mac": "52:54:00:00:00:02" },
        ] } },
    }))
    .unwrap()
}

fn address(address: &str, prefix: i32, gateway: &str, dns: &[&str]) -> IPAddressSpec {
    IPAddressSpec {
        address: address.into(),
        prefix: Some(prefix),
        gateway: Some(gateway.into()),
        dns_servers: dns.iter().map(|server| (*server).to_owned()).collect(),
        ..IPAddressSpec::default()
    }
}

fn addresses() -> BTreeMap<PoolId, IPAddressSpec> {
    [
        ("pool-1", address("10.0.0.5", 24, "10.0.0.1", &["10.0.0.53", "10.0.0.54"])),
        ("pool-2", address("10.2.0.5", 16, "10.2.0.1", &[])),
        ("pool-wrong", address("10.6.0.5", 64, "10.6.0.1", &[])),
        ("pool6-1", address("2001:db8::5", 64, "2001:db8::1", &["2001:db8::53"])),
    ]
    .map(|(name, address)| (PoolId::of_metal3(name), address))
    .into()
}

fn with_sources<T>(host: &BareMetalHost, run: impl FnOnce(&Sources<'_>) -> T) -> T {
    let (machine, metal3_machine, addresses) = (machine(), metal3_machine(), addresses());
    run(&Sources {
        machine: &machine,
        metal3_machine: &metal3_machine,
        host,
        index: 3,
        addresses: &addresses,
    })
}

fn template(spec: Value) -> Metal3DataTemplate {
    let mut template = Metal3DataTemplate::new("nodepool-1", serde_json::from_value(spec).unwrap());
    template.metadata.namespace = Some("fleet".into());
    template
}

/// Every item of the documented example.
fn documented() -> Metal3DataTemplate {
    template(json!({
        "metaData": {
            "strings": [{ "key": "abc", "value": "def" }],
            "objectNames": [
                { "key": "name_m3m", "object": "metal3machine" },
                { "key": "name_machine", "object": "machine" },
                { "key": "name_bmh", "object": "baremetalhost" },
            ],
            "indexes": [
                { "key": "index", "offset": 0, "step": 1 },
                { "key": "index_2", "offset": 5, "step": 2, "prefix": "a-", "suffix": "-z" },
                { "key": "index_0", "step": 0 },
            ],
            "ipAddressesFromIPPool": [{ "key": "ip", "name": "pool-1" }],
            "prefixesFromIPPool": [{ "key": "prefix", "name": "pool-1" }],
            "gatewaysFromIPPool": [{ "key": "gateway", "name": "pool-1", "apiGroup": "ipam.metal3.io", "kind": "IPPool" }],
            "dnsServersFromIPPool": [{ "key": "dns", "name": "pool-1" }],
            "fromHostInterfaces": [{ "key": "mac", "interface": "eth0" }, { "key": "boot", "fromBootMAC": true }],
            "fromLabels": [
                { "key": "label-1", "object": "machine", "label": "mylabelkey" },
                { "key": "label-2", "object": "baremetalhost", "label": "absent" },
            ],
            "fromAnnotations": [{ "key": "annotation-1", "object": "machine", "annotation": "primary-mac" }],
            "namespaces": [{ "key": "namespace" }],
        },
        "networkData": {
            "links": {
                "ethernets": [
                    { "type": "phy", "id": "enp1s0", "mtu": 1500, "macAddress": { "fromAnnotation": { "object": "machine", "annotation": "primary-mac" } } },
                    { "type": "phy", "id": "enp2s0", "macAddress": { "fromHostInterface": "eth1" } },
                ],
                "bonds": [{ "id": "bond0", "mtu": 1500, "macAddress": { "string": "52:54:00:00:00:0c" }, "bondMode": "802.3ad", "bondXmitHashPolicy": "layer3+4", "parameters": { "miimon": 100 }, "bondLinks": ["enp1s0", "enp2s0"] }],
                "vlans": [{ "id": "vlan1", "mtu": 1500, "macAddress": { "string": "52:54:00:00:00:0d" }, "vlanID": 1, "vlanLink": "bond0" }],
            },
            "networks": {
                "ipv4DHCP": [{ "id": "provisioning", "link": "bond0" }],
                "ipv4": [
                    { "id": "Baremetal", "link": "vlan1", "ipAddressFromIPPool": "pool-1", "routes": [
                        { "network": "0.0.0.0", "prefix": 0, "gateway": { "fromIPPool": "pool-1" }, "services": { "dns": ["8.8.4.4"], "dnsFromIPPool": "pool-1" } },
                    ] },
                    { "id": "by-annotation", "link": "bond0", "ipAddressFromIPPool": "pool-1", "fromPoolAnnotation": { "object": "machine", "annotation": "pool" } },
                ],
                "ipv6DHCP": [{ "id": "provisioning6", "link": "bond0" }],
                "ipv6SLAAC": [{ "id": "provisioning6slaac", "link": "bond0" }],
                "ipv6": [{ "id": "Baremetal6", "link": "vlan1", "fromPoolRef": { "name": "pool6-1" }, "routes": [
                    { "network": "::", "gateway": { "string": "2001:db8::9" }, "services": { "dns": ["2001:4860:4860::8844"], "dnsFromIPPool": "pool6-1" } },
                ] }],
            },
            "services": { "dns": ["8.8.8.8", "2001:4860:4860::8888"] },
        },
    }))
}

#[test]
fn every_documented_item_of_meta_data_is_rendered() {
    let spec = documented().spec.meta_data.unwrap();
    let data = with_sources(&host(), |sources| render_meta_data(&spec, sources)).unwrap();
    let want = json!({
        "abc": "def", "name_m3m": "m3m-1", "name_machine": "machine-1", "name_bmh": "bmh-1",
        "index": "3", "index_2": "a-11-z", "index_0": "3",
        "ip": "10.0.0.5", "prefix": "24", "gateway": "10.0.0.1", "dns": "10.0.0.53,10.0.0.54",
        "mac": "52:54:00:00:00:01", "boot": "52:54:00:00:00:0b",
        "label-1": "of the machine", "label-2": "", "annotation-1": "52:54:00:00:00:AA",
        "namespace": "fleet", "providerid": "fleet/bmh-1/m3m-1",
    });
    assert_eq!(json!(data), want);
}

/// CAPM3 1.13 and later read their objects at v1beta1 with a value for each source, empty where nobody wrote one.
#[test]
fn empty_sources_of_a_dump_are_absent() {
    let fill = |place: &mut Value, empty: Value| {
        for (key, value) in empty.as_object().unwrap() {
            place.as_object_mut().unwrap().entry(key).or_insert_with(|| value.clone());
        }
    };
    let known = documented();
    let mut dump = json!(known.spec);
    let network = &mut dump["networkData"];
    for kind in ["ethernets", "bonds", "vlans"] {
        for link in network["links"][kind].as_array_mut().unwrap() {
            fill(&mut link["macAddress"], json!({ "string": "", "fromHostInterface": "" }));
            fill(link, json!({ "name": "" }));
        }
    }
    for family in ["ipv4", "ipv6"] {
        for layer in network["networks"][family].as_array_mut().unwrap() {
            fill(layer, json!({ "ipAddressFromIPPool": "", "fromPoolRef": { "kind": "", "name": "" } }));
            let routes = layer.get_mut("routes").and_then(Value::as_array_mut);
            for route in routes.into_iter().flatten() {
                let empty = json!({ "fromIPPool": "", "fromPoolRef": { "kind": "", "name": "" } });
                fill(&mut route["gateway"], empty);
                fill(&mut route["services"], json!({ "dnsFromIPPool": "" }));
            }
        }
    }
    fill(&mut network["services"], json!({ "dnsFromIPPool": "" }));
    let dump = template(dump);
    assert_eq!(dump.spec, known.spec);
    let [dump, known] = [dump, known].map(|template| template.spec.network_data.unwrap());
    let render = |spec| with_sources(&host(), |sources| render_network_data(spec, sources)).unwrap();
    assert_eq!(render(&dump), render(&known));
}

#[test]
fn user_defined_key_replaces_provider_id() {
    let spec: coordinator_api::metal3::data_template::MetaDataSpec =
        serde_json::from_value(json!({ "strings": [{ "key": "providerid", "value": "mine" }] })).unwrap();
    let data = with_sources(&host(), |sources| render_meta_data(&spec, sources)).unwrap();
    assert_eq!(json!(data), json!({ "providerid": "mine" }));
}

#[test]
fn labels_and_annotations_are_of_the_named_object() {
    const OBJECTS: [&str; 3] = ["machine", "metal3machine", "baremetalhost"];
    let (mut machine, mut metal3_machine, mut host) = (machine(), metal3_machine(), host());
    for (maps, object) in [
        (&mut machine.metadata, OBJECTS[0]),
        (&mut metal3_machine.metadata, OBJECTS[1]),
        (&mut host.metadata, OBJECTS[2]),
    ] {
        maps.labels = Some([("rack".to_owned(), format!("label of {object}"))].into());
        maps.annotations = Some([("rack".to_owned(), format!("annotation of {object}"))].into());
    }
    let labels =
        OBJECTS.map(|object| json!({ "key": format!("l-{object}"), "object": object, "label": "rack" }));
    let annotations =
        OBJECTS.map(|object| json!({ "key": format!("a-{object}"), "object": object, "annotation": "rack" }));
    let template = template(json!({ "metaData": { "fromLabels": labels, "fromAnnotations": annotations } }));
    let (spec, addresses) = (template.spec.meta_data.unwrap(), addresses());
    let sources = Sources {
        machine: &machine,
        metal3_machine: &metal3_machine,
        host: &host,
        index: 3,
        addresses: &addresses,
    };
    let data = render_meta_data(&spec, &sources).unwrap();
    for object in OBJECTS {
        assert_eq!(data[&format!("l-{object}")], format!("label of {object}"));
        assert_eq!(data[&format!("a-{object}")], format!("annotation of {object}"));
    }
}

#[test]
fn every_documented_item_of_network_data_is_rendered() {
    let spec = documented().spec.network_data.unwrap();
    let data = with_sources(&host(), |sources| render_network_data(&spec, sources)).unwrap();
    let dns = |address: &str| json!({ "type": "dns", "address": address });
    assert_eq!(
        data["links"],
        json!([
            { "type": "bond", "id": "bond0", "mtu": 1500, "bond_mode": "802.3ad", "bond_xmit_hash_policy": "layer3+4", "bond_miimon": 100, "bond_links": ["enp1s0", "enp2s0"], "ethernet_mac_address": "52:54:00:00:00:0c" },
            { "type": "phy", "id": "enp1s0", "mtu": 1500, "ethernet_mac_address": "52:54:00:00:00:AA" },
            { "type": "phy", "id": "enp2s0", "mtu": 1500, "ethernet_mac_address": "52:54:00:00:00:02" },
            { "type": "vlan", "id": "vlan1", "mtu": 1500, "vlan_id": 1, "vlan_link": "bond0", "vlan_mac_address": "52:54:00:00:00:0d" },
        ])
    );
    assert_eq!(
        data["networks"],
        json!([
            { "type": "ipv4", "id": "Baremetal", "link": "vlan1", "netmask": "255.255.255.0", "ip_address": "10.0.0.5", "routes": [
                { "network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.0.0.1", "services": [dns("8.8.4.4"), dns("10.0.0.53"), dns("10.0.0.54")] },
            ] },
            { "type": "ipv4", "id": "by-annotation", "link": "bond0", "netmask": "255.255.0.0", "ip_address": "10.2.0.5", "routes": [] },
            { "type": "ipv6", "id": "Baremetal6", "link": "vlan1", "netmask": "ffff:ffff:ffff:ffff::", "ip_address": "2001:db8::5", "routes": [
                { "network": "::", "netmask": "::", "gateway": "2001:db8::9", "services": [dns("2001:4860:4860::8844"), dns("2001:db8::53")] },
            ] },
            { "type": "ipv4_dhcp", "id": "provisioning", "link": "bond0", "routes": [] },
            { "type": "ipv6_dhcp", "id": "provisioning6", "link": "bond0", "routes": [] },
            { "type": "ipv6_slaac", "id": "provisioning6slaac", "link": "bond0", "routes": [] },
        ])
    );
    assert_eq!(data["services"], json!([dns("8.8.8.8"), dns("2001:4860:4860::8888")]));
}

#[test]
fn one_address_of_each_pool_is_claimed() {
    let pools = with_sources(&host(), |sources| list_pools(&documented().spec, sources)).unwrap();
    assert_eq!(pools.into_iter().collect::<Vec<_>>(), ["pool-1", "pool-2", "pool6-1"].map(PoolId::of_metal3));
}

#[test]
fn rendered_network_data_is_what_hosts_are_given() {
    let rendered = with_sources(&host(), |sources| render_data(&documented(), sources)).unwrap();
    let document = rendered.network_data.as_deref().unwrap();
    let network = crate::network::network_data(document, None).unwrap();
    assert_eq!(network.network_data.unwrap().expose(), document.as_bytes());
    let config = network.network_config.unwrap();
    for part in ["bond0", "bond0.1", "10.0.0.5/24", "2001:db8::5/64", "10.2.0.5/16", "2001:db8::9"] {
        assert!(config.contains(part), "{part}: {config}");
    }
    assert!(rendered.meta_data.unwrap().contains("name_bmh: bmh-1"));
}

#[test]
fn what_cannot_be_rendered_names_the_item() {
    let mac = |mac: Value| json!({ "networkData": { "links": { "ethernets": [{ "type": "phy", "id": "card", "macAddress": mac }] } } });
    let net = |net: Value| json!({ "networkData": { "networks": { "ipv4": [net] } } });
    assert_refused(vec![
        (
            "no interface \"eth9\"",
            json!({ "metaData": { "fromHostInterfaces": [{ "key": "k", "interface": "eth9" }] } }),
        ),
        (
            "no spec.bootMACAddress",
            json!({ "metaData": { "fromHostInterfaces": [{ "key": "k", "fromBootMAC": true }] } }),
        ),
        (
            "no address of pool absent",
            json!({ "metaData": { "ipAddressesFromIPPool": [{ "key": "k", "name": "absent" }] } }),
        ),
        ("no MAC address", mac(json!({ "string": "XX:XX:XX:XX:XX:XX" }))),
        ("no MAC address", mac(json!({ "fromAnnotation": { "object": "machine", "annotation": "absent" } }))),
        ("no interface \"eth0\"", mac(json!({ "fromHostInterface": "eth0" }))),
        ("no pool is named", net(json!({ "id": "n", "link": "l" }))),
        (
            "no pool is named",
            net(
                json!({ "id": "n", "link": "l", "fromPoolAnnotation": { "object": "machine", "annotation": "absent" } }),
            ),
        ),
        ("no IP address", net(json!({ "id": "n", "link": "l", "ipAddressFromIPPool": "pool6-1" }))),
        (
            "no IP address",
            json!({ "networkData": { "networks": { "ipv4DHCP": [{ "id": "n", "link": "l", "routes": [{ "network": "ten" }] }] } } }),
        ),
        (
            "n: 10.0.0.0/33 has a prefix longer",
            json!({ "networkData": { "networks": { "ipv4DHCP": [{ "id": "n", "link": "l", "routes": [{ "network": "10.0.0.0", "prefix": 33 }] }] } } }),
        ),
        (
            "n: 10.6.0.5/64 has a prefix longer",
            net(json!({ "id": "n", "link": "l", "ipAddressFromIPPool": "pool-wrong" })),
        ),
        (
            "has its own field in the template",
            json!({ "networkData": { "links": { "bonds": [{ "id": "b", "bondMode": "802.3ad", "parameters": { "mode": "x" } }] } } }),
        ),
    ]);
}

#[test]
fn pool_of_another_provider_is_named() {
    let net = |net: Value| json!({ "networkData": { "networks": { "ipv4": [net] } } });
    assert_refused(vec![
        (
            "Subnets p of ipam.metal3.io is of no kind of pools",
            net(json!({ "id": "n", "link": "l", "fromPoolRef": { "name": "p", "kind": "Subnets" } })),
        ),
        (
            "InClusterIPPool p of ipam.cluster.x-k8s.io has no DNS servers",
            json!({ "metaData": { "dnsServersFromIPPool": [{ "key": "k", "name": "p", "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool" }] } }),
        ),
        (
            "no address of pool InClusterIPPool p of ipam.cluster.x-k8s.io was claimed",
            net(
                json!({ "id": "n", "link": "l", "fromPoolRef": { "name": "p", "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool" } }),
            ),
        ),
    ]);
}

/// Each data template is refused for a host without card and boot MAC.
fn assert_refused(cases: Vec<(&str, Value)>) {
    let mut bare = host();
    bare.spec.boot_mac_address = None;
    bare.status = None;
    for (want, spec) in cases {
        let error =
            with_sources(&bare, |sources| render_data(&template(spec), sources)).unwrap_err().to_string();
        assert!(error.contains(want), "{want}: {error}");
    }
}

#[allow(clippy::needless_pass_by_value, reason = "literals of tests")]
fn claim(metadata: Value) -> Metal3DataClaim {
    let mut object = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3DataClaim",
        "metadata": {
            "name": "m3m-1", "namespace": "fleet",
            "ownerReferences": [{ "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine", "name": "m3m-1", "uid": "u" }],
        },
        "spec": { "template": { "name": "nodepool-1" } },
    });
    object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

fn data(name: &str, claim: &str) -> Metal3Data {
    let spec = json!({ "index": 2, "claim": { "name": claim }, "template": { "name": "nodepool-1" } });
    Metal3Data::new(name, serde_json::from_value(spec).unwrap())
}

fn describe(step: &ClaimStep) -> String {
    match step {
        ClaimStep::Create(data) => format!("create {}", data.name_any()),
        ClaimStep::Report(status) => match (&status.rendered_data, &status.error_message) {
            (Some(data), None) => format!("report {}", data.name),
            (_, error) => error.clone().unwrap_or_default(),
        },
        step => format!("{step:?}"),
    }
}

#[test]
fn data_claim_steps_from_index_to_release() {
    let note = json!({ names::CHOSEN_INDEX: "2" });
    let chosen = json!({ "annotations": note });
    let deleted = json!({
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [names::DATA_CLAIM_FINALIZER], "annotations": note,
    });
    let template = documented();
    for (what, metadata, template, existing, want) in [
        ("new", json!({}), Some(&template), None, "Choose"),
        ("chosen", chosen.clone(), Some(&template), None, "create nodepool-1-2"),
        ("created", chosen.clone(), Some(&template), Some("m3m-1"), "report nodepool-1-2"),
        ("the index is another's", chosen.clone(), Some(&template), Some("other"), "Choose"),
        ("no template", chosen, None, None, "no Metal3DataTemplate nodepool-1 in this namespace: create it"),
        ("deleted", deleted.clone(), Some(&template), Some("m3m-1"), "Release(\"nodepool-1-2\")"),
        ("deleted, data of another", deleted.clone(), Some(&template), Some("other"), "RemoveFinalizer"),
        ("deleted, nothing left", deleted, Some(&template), None, "RemoveFinalizer"),
    ] {
        let existing = existing.map(|claim| data("nodepool-1-2", claim));
        let find = |name: &str| existing.as_ref().filter(|data| data.name_any() == name);
        assert_eq!(describe(&decide_claim(&claim(metadata), template, None, find)), want, "{what}");
    }
    // An object of before the policy that compares names and indexes.
    let mut misnamed = data("nodepool-1-2", "other");
    misnamed.spec.index = 7;
    let chosen = claim(json!({ "annotations": note }));
    let step = decide_claim(&chosen, Some(&template), None, |name| {
        Some(&misnamed).filter(|data| data.name_any() == name)
    });
    assert_eq!(
        describe(&step),
        "Metal3Data nodepool-1-2 has the index 7, which does not fit its name: delete it"
    );
}

#[test]
fn data_names_its_secrets_and_its_claim() {
    let claim = claim(json!({ "annotations": { names::CHOSEN_INDEX: "2" } }));
    let ClaimStep::Create(data) = decide_claim(&claim, Some(&documented()), None, |_| None) else { panic!() };
    let secret =
        |reference: &Option<coordinator_api::metal3::SecretRef>| reference.clone().unwrap().name.unwrap();
    assert_eq!(secret(&data.spec.meta_data), "m3m-1-metadata");
    assert_eq!(secret(&data.spec.network_data), "m3m-1-networkdata");
    assert_eq!((data.spec.index, data.spec.claim.name.as_str()), (2, "m3m-1"));
    let only_meta = template(json!({ "metaData": {} }));
    let ClaimStep::Create(data) = decide_claim(&claim, Some(&only_meta), None, |_| None) else { panic!() };
    assert_eq!(data.spec.network_data, None);
}

#[test]
fn templates_share_indexes_by_reference() {
    let old = documented();
    let mut new = documented();
    new.metadata.name = Some("nodepool-2".into());
    new.spec.template_reference = Some("nodepool-1".into());
    let mut of_new = data("nodepool-1-2", "m3m-1");
    of_new.spec.template.name = "nodepool-2".into();
    of_new.spec.template_reference = Some("nodepool-1".into());
    let of_old = data("nodepool-1-2", "m3m-1");
    let groups =
        [group_of_template(&old), group_of_template(&new), group_of_data(&of_old), group_of_data(&of_new)];
    assert_eq!(groups, ["nodepool-1"; 4]);
    assert_eq!(data_name(&new, 4), "nodepool-1-4");
}

#[test]
fn the_status_of_a_template_lists_its_claims() {
    let status = project_template(&documented(), vec![(2, "m3m-1".into())], Timestamp::UNIX_EPOCH);
    assert_eq!(status.indexes, [("m3m-1".to_owned(), 2)].into());
    let mut again = documented();
    again.status = Some(status.clone());
    assert_eq!(project_template(&again, vec![(2, "m3m-1".into())], Timestamp::MAX), status);
}
