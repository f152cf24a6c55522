//! The rules on kinds of Metal3: invalid values are refused when they are written.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use serde_json::{Value, json};

use super::{CaseResult, Fixture, Mismatch, define_cases, resource_of};

define_cases![pools_refuse_ranges_without_addresses, data_templates_refuse_values_without_effect];

fn definition(kind: &str) -> Result<CustomResourceDefinition, Mismatch> {
    let mut all = coordinator_api::metal3::crds().into_iter();
    Ok(all.find(|crd| crd.spec.names.kind == kind).ok_or_else(|| format!("no kind {kind}"))?)
}

/// Creates objects with these specs in a dry run; `None` is for one that is accepted, and else there is a part of
/// the refusal.
async fn check(
    api: &Api<DynamicObject>,
    resource: &ApiResource,
    cases: Vec<(Value, Option<&str>)>,
) -> CaseResult {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for (spec, want) in cases {
        let mut object = DynamicObject::new("checked", resource);
        object.data = json!({ "spec": spec });
        match (api.create(&dry_run, &object).await, want) {
            (Ok(_), None) => {}
            (Err(error), Some(part)) if error.to_string().contains(part) => {}
            (found, want) => return Err(format!("{}: {found:?}, {want:?}", object.data).into()),
        }
    }
    Ok(())
}

async fn pools_refuse_ranges_without_addresses(fixture: Fixture) -> CaseResult {
    let crd = definition("IPPool")?;
    fixture.install(&crd).await?;
    let resource = resource_of(&crd);
    let api = Api::namespaced_with(fixture.client.clone(), &fixture.namespace, &resource);
    let pool = |ranges: Value| json!({ "namePrefix": "n", "pools": ranges });
    let mut cases = vec![];
    for (range, want) in [
        (json!({ "end": "10.0.0.1" }), Some("start or subnet is required")),
        (json!({ "start": "10.0.0.2", "end": "10.0.0.1" }), Some("start is above end")),
        (json!({ "start": "9.0.0.1", "end": "10.0.0.1" }), None),
        (json!({ "start": "10.0.0.9", "end": "10.0.0.10" }), None),
        (json!({ "start": "10.0.0.1", "end": "10.0.0.1" }), None),
        (json!({ "start": "2001:db8::f", "end": "2001:DB8::10" }), None),
        (json!({ "start": "::1", "end": "1::" }), None),
        (json!({ "start": "10.0.0.1", "end": "2001:db8::1" }), Some("of another family")),
        (json!({ "start": "10.0.0.1", "subnet": "2001:db8::/64" }), Some("have the family of subnet")),
        (json!({ "start": "10.0.1.1", "subnet": "10.0.0.0/24" }), Some("the range is empty")),
        (json!({ "start": "10.0.1.1", "subnet": "10.0.0.0/23" }), None),
        (json!({ "start": "10.0.0.1", "subnet": "10.0.0.0/0" }), None),
        (json!({ "subnet": "10.0.0.0/24", "end": "10.0.0.0" }), Some("the range is empty")),
        (json!({ "subnet": "10.0.0.0/24", "end": "10.9.9.9" }), None),
        (json!({ "subnet": "10.0.0.5/32" }), Some("the range is empty")),
        (json!({ "start": "10.0.0.5", "subnet": "10.0.0.5/32" }), None),
        (json!({ "subnet": "10.0.0.255/24" }), Some("the range is empty")),
        (json!({ "subnet": "255.255.255.254/31" }), None),
        (json!({ "subnet": "10.0.0.0/33" }), Some("subnet")),
        (json!({ "subnet": "2001:db8::/129" }), Some("subnet")),
        (json!({ "subnet": "2001:db8::1/128" }), Some("the range is empty")),
        (json!({ "subnet": "2001:db8::/64", "end": "10.0.0.1" }), Some("have the family of subnet")),
        (json!({ "start": "10.0.0.1", "prefix": 33 }), Some("prefix is longer")),
        (json!({ "start": "2001:db8::1", "prefix": 64 }), None),
        (json!({ "subnet": "10.0.0.0/8", "prefix": 64 }), Some("prefix is longer")),
        (json!({ "start": "1::2::3" }), Some("start")),
        (json!({ "start": ":::" }), Some("start")),
        (json!({ "start": "12345::" }), Some("start")),
        (json!({ "start": "1:2:3:4:5:6:7:8:9" }), Some("start")),
        (json!({ "start": "010.0.0.1" }), Some("start")),
        (json!({ "start": "::ffff:10.0.0.1" }), None),
    ] {
        cases.push((pool(json!([range])), want));
    }
    let ranges = json!([{ "start": "10.0.0.1" }]);
    cases.extend([
        (
            json!({ "namePrefix": "n", "pools": ranges, "allocationStrategy": "random" }),
            Some("allocationStrategy is random"),
        ),
        (json!({ "namePrefix": "n", "pools": ranges, "prefix": 64 }), Some("prefix is longer")),
        (json!({ "namePrefix": "n", "pools": [{ "start": "10.0.0.1", "prefix": 24 }], "prefix": 64 }), None),
        (
            json!({ "namePrefix": "n", "pools": ranges, "preAllocations": { "a": "ten" } }),
            Some("preAllocations"),
        ),
        (json!({ "namePrefix": "n", "pools": ranges, "preAllocations": { "a": "10.0.0.2" } }), None),
    ]);
    check(&api, &resource, cases).await
}

async fn data_templates_refuse_values_without_effect(fixture: Fixture) -> CaseResult {
    let crd = definition("Metal3DataTemplate")?;
    fixture.install(&crd).await?;
    let resource = resource_of(&crd);
    let api = Api::namespaced_with(fixture.client.clone(), &fixture.namespace, &resource);
    let links = |links: Value| json!({ "networkData": { "links": links, "networks": {}, "services": {} } });
    let vlan = |id: i64| links(json!({ "vlans": [{ "id": "v", "vlanID": id, "vlanLink": "e" }] }));
    let bond = |parameters: Value| {
        links(json!({ "bonds": [{ "id": "b", "bondMode": "802.3ad", "parameters": parameters }] }))
    };
    let ethernet = |mtu: i64| {
        links(json!({ "ethernets": [{ "id": "e", "type": "phy", "mtu": mtu, "macAddress": {} }] }))
    };
    let interface = |item: Value| json!({ "metaData": { "fromHostInterfaces": [item] } });
    let pool = |list: &str, pool: Value| {
        let mut item = pool;
        item["key"] = json!("k");
        json!({ "metaData": { list: [item] } })
    };
    let given = json!({ "name": "p", "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool" });
    let no_kind = Some("a pool of Metal3 is an IPPool");
    let route = |pool: Value| {
        let routes = json!([{ "network": "10.0.0.0", "prefix": 8, "gateway": { "fromPoolRef": pool } }]);
        let networks = json!({ "ipv4DHCP": [{ "id": "n", "link": "l", "routes": routes }] });
        json!({ "networkData": { "links": {}, "networks": networks, "services": {} } })
    };
    let bonds = Some("parameters may be miimon, lacp_rate and primary");
    let source = Some("exactly one of interface and fromBootMAC");
    let cases = vec![
        (pool("ipAddressesFromIPPool", given.clone()), None),
        (pool("ipAddressesFromIPPool", json!({ "name": "p", "kind": "IPPool" })), None),
        (pool("ipAddressesFromIPPool", json!({ "name": "p", "kind": "InClusterIPPool" })), no_kind),
        (pool("dnsServersFromIPPool", given.clone()), Some("have no DNS servers")),
        (pool("dnsServersFromIPPool", json!({ "name": "p" })), None),
        (route(given), None),
        (route(json!({ "name": "p", "kind": "Subnet" })), no_kind),
        (vlan(0), Some("vlanID")),
        (vlan(1), None),
        (vlan(4094), None),
        (vlan(4095), Some("vlanID")),
        (vlan(4096), Some("vlanID")),
        (ethernet(-1), Some("mtu")),
        (ethernet(0), Some("mtu")),
        (ethernet(9000), None),
        (bond(json!({ "miimon": 100, "lacp_rate": "fast", "primary": "e" })), None),
        (bond(json!({ "arp_interval": 5 })), bonds),
        (bond(json!({ "mode": "802.3ad" })), bonds),
        (interface(json!({ "key": "a", "interface": "" })), source),
        (interface(json!({ "key": "a", "interface": "", "fromBootMAC": true })), None),
        (interface(json!({ "key": "a", "interface": "eth0" })), None),
    ];
    check(&api, &resource, cases).await
}
