//! What the real API server accepts and refuses of our kinds.

use control_plane::parts::Parts;
use control_plane::{ControlPlane, Settings, apply};
use coordinator_api::crds;
use coordinator_api::metal3::cluster::Metal3Cluster;
use coordinator_api::metal3::ipam::IPPool;
use coordinator_api::registration::{MachineRegistration, Reset, Snapshotter};
use coordinator_api::seed_image::SeedImage;
use e2e::manifests::METAL3_RIGHTS;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{Duration, Instant, sleep};

const DEADLINE: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

const FIELD: &str = include_str!("kinds/field.yaml");
const METAL3: &str = include_str!("kinds/metal3.yaml");

/// The error is the whole chain.
async fn apply_manifest(client: &Client, manifest: &str) -> Result<(), String> {
    let chain = |error: &dyn std::error::Error| {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    };
    apply::manifest(client, manifest).await.map(drop).map_err(|error| chain(&error))
}

fn machine(spec: &str) -> String {
    format!(
        "{{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: BaremetalMachine, metadata: {{name: m, namespace: default}}, spec: {spec}}}"
    )
}

fn cluster(spec: &str) -> String {
    format!(
        "{{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: BaremetalCluster, metadata: {{name: c, namespace: default}}, spec: {spec}}}"
    )
}

fn balancer(host: &str) -> String {
    cluster(&format!("{{controlPlaneLoadBalancer: {{type: External, host: {host}, port: 6443}}}}"))
}

fn with_endpoint(endpoint: &str) -> String {
    cluster(&format!(
        "{{controlPlaneLoadBalancer: {{type: External, host: h, port: 6443}}, controlPlaneEndpoint: {endpoint}}}"
    ))
}

fn inventory(spec: &str) -> String {
    format!(
        "{{apiVersion: elemental.cattle.io/v1beta1, kind: MachineInventory, metadata: {{name: i, namespace: default}}, spec: {spec}}}"
    )
}

fn pool(name: &str, members: &str) -> String {
    format!(
        "{{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: MachineInventoryPool, metadata: {{name: {name}, namespace: default}}, spec: {{clusterName: c, machineInventories: {members}}}}}"
    )
}

async fn check_defaults(client: &Client) {
    let least = "{apiVersion: elemental.cattle.io/v1beta1, kind: MachineRegistration, metadata: {name: least, namespace: default}, spec: {config: {elemental: {install: {}, registration: {}}}}}";
    apply_manifest(client, least).await.unwrap();
    let registrations: Api<MachineRegistration> = Api::namespaced(client.clone(), "default");
    let elemental = registrations.get("least").await.unwrap().spec.config.unwrap().elemental.unwrap();
    assert_eq!(elemental.reset, Some(Reset::default()));
    assert_eq!(elemental.install.unwrap().snapshotter, Some(Snapshotter::default()));
    assert_eq!(elemental.registration.unwrap().auth.as_deref(), Some("tpm"));
    let images: Api<SeedImage> = Api::namespaced(client.clone(), "default");
    for (name, size, want) in [
        ("default", "", Ok(json!(6_442_450_944_u64))),
        ("named", "size: 6Gi", Ok(json!("6Gi"))),
        ("odd", "size: much", Err("spec.size")),
    ] {
        let image = format!(
            "{{apiVersion: elemental.cattle.io/v1beta1, kind: SeedImage, metadata: {{name: {name}, namespace: default}}, spec: {{registrationRef: {{name: least}}, {size}}}}}"
        );
        match (apply_manifest(client, &image).await, want) {
            (Ok(()), Ok(want)) => {
                let spec = images.get(name).await.unwrap().spec;
                assert_eq!((spec.size, spec.cleanup_after_minutes), (Some(want), 60), "{name}");
            }
            (Err(error), Err(part)) => assert!(error.contains(part), "{name}: {error}"),
            (answer, want) => panic!("{name}: {answer:?}, wanted {want:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn known_manifests_are_accepted_and_immutable_fields_kept() {
    let parts = Parts::from_environment().unwrap();
    let management = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
    let client = management.admin().await.unwrap();
    for crd in crds::all() {
        apply::manifest(&client, &crds::yaml(&crd).unwrap()).await.unwrap();
    }
    apply_manifest(&client, FIELD).await.unwrap();
    check_defaults(&client).await;
    let steps: [(&str, String, Result<(), &str>); 16] = [
        ("a machine", machine("{machineInventoryPoolRef: {name: a}}"), Ok(())),
        (
            "its providerID once",
            machine("{machineInventoryPoolRef: {name: a}, providerID: 'baremetal:///h'}"),
            Ok(()),
        ),
        (
            "another providerID",
            machine("{machineInventoryPoolRef: {name: a}, providerID: 'baremetal:///x'}"),
            Err("providerID never changes"),
        ),
        (
            "another pool",
            machine("{machineInventoryPoolRef: {name: b}, providerID: 'baremetal:///h'}"),
            Err("machineInventoryPoolRef never changes"),
        ),
        (
            "a pool without name",
            machine("{machineInventoryPoolRef: {name: ''}}"),
            Err("machineInventoryPoolRef.name"),
        ),
        ("a cluster", balancer("h"), Ok(())),
        (
            "vrid of an external balancer, a warning",
            cluster("{controlPlaneLoadBalancer: {type: External, host: h, port: 6443, vrid: 7}}"),
            Ok(()),
        ),
        ("a port that is none", with_endpoint("{host: h, port: 70000}"), Err("controlPlaneEndpoint.port")),
        ("an endpoint", with_endpoint("{host: h, port: 6443}"), Ok(())),
        (
            "another endpoint",
            with_endpoint("{host: other, port: 6443}"),
            Err("controlPlaneEndpoint never changes"),
        ),
        ("another balancer", balancer("other"), Err("controlPlaneLoadBalancer never change")),
        ("an inventory", inventory("{tpmHash: a}"), Ok(())),
        ("another identity", inventory("{tpmHash: b}"), Err("tpmHash is the identity")),
        ("a pool", pool("p", "[{name: a, hostname: n1}, {name: b}]"), Ok(())),
        ("an empty pool", pool("empty", "[]"), Ok(())),
        ("a member twice", pool("twice", "[{name: a}, {name: a}]"), Err("duplicate")),
    ];
    for (name, manifest, want) in steps {
        match (apply_manifest(&client, &manifest).await, want) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.contains(part), "{name}: {error}"),
            (answer, want) => panic!("{name}: {answer:?}, wanted {want:?}"),
        }
    }
}

/// Definitions, roles and policy of the kinds of Metal3, and manifests as the documentation of
/// Cluster API Provider Metal3 has them.
#[tokio::test(flavor = "multi_thread")]
async fn metal3_manifests_are_taken_strictly() {
    let parts = Parts::from_environment().unwrap();
    let management = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
    let client = management.admin().await.unwrap();
    for crd in coordinator_api::metal3::crds() {
        apply_manifest(&client, &crds::yaml(&crd).unwrap()).await.unwrap();
    }
    for manifest in METAL3_RIGHTS {
        apply_manifest(&client, manifest).await.unwrap();
    }
    apply_manifest(&client, METAL3).await.unwrap();
    for (name, spec, want) in [
        ("endpoint", "{controlPlaneEndpoint: {host: h}}", Ok(())),
        ("no-host", "{cloudProviderEnabled: false}", Err("host is required")),
        ("empty-host", "{controlPlaneEndpoint: {host: '', port: 1}}", Err("host is required")),
        (
            "conflict",
            "{controlPlaneEndpoint: {host: h}, cloudProviderEnabled: true, noCloudProvider: true}",
            Err("conflicts the value of noCloudProvider"),
        ),
    ] {
        match (apply_manifest(&client, &metal3(&format!("Metal3Cluster/{name}"), spec)).await, want) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.contains(part), "{name}: {error}"),
            (found, want) => panic!("{name}: {found:?}, {want:?}"),
        }
    }
    await_namespace_policy(&client).await;
    for (object, spec, want) in METAL3_STEPS {
        match (apply_manifest(&client, &metal3(object, spec)).await, want) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.contains(part), "{object} {spec}: {error}"),
            (found, want) => panic!("{object} {spec}: {found:?}, {want:?}"),
        }
    }
    refuse_stranded_addresses(&client).await;
    // As it is stored: the types of the coordinator have the default too.
    let resource = ApiResource::erase::<Metal3Cluster>(&());
    let clusters: Api<DynamicObject> = Api::namespaced_with(client, "default", &resource);
    let stored = clusters.get("endpoint").await.unwrap().data;
    assert_eq!(stored["spec"]["controlPlaneEndpoint"], json!({ "host": "h", "port": 6443 }));
    assert!(stored["spec"].get("cloudProviderEnabled").is_none(), "{stored}");
}

/// The ranges of a pool may not leave out an address in use.
async fn refuse_stranded_addresses(client: &Client) {
    let pools: Api<IPPool> = Api::namespaced(client.clone(), "default");
    let used = json!({ "status": { "indexes": { "claim": "10.0.0.7" } } });
    pools.patch_status("o", &PatchParams::default(), &Patch::Merge(&used)).await.unwrap();
    for (spec, want) in [
        ("{namePrefix: o, pools: [{start: 10.0.0.1, end: 10.0.0.6}]}", Err("an address in use")),
        ("{namePrefix: o, pools: [{start: 10.0.0.1, end: 10.0.0.7}]}", Ok(())),
        ("{namePrefix: o, pools: [{start: 10.0.0.1, end: 10.0.0.7}], gateway: 10.0.0.1}", Ok(())),
    ] {
        match (apply_manifest(client, &metal3("IPPool/o", spec)).await, want) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.contains(part), "{spec}: {error}"),
            (found, want) => panic!("{spec}: {found:?}, {want:?}"),
        }
    }
}

/// An object of Metal3, by KIND/NAME.
fn metal3(object: &str, spec: &str) -> String {
    let (kind, name) = object.split_once('/').unwrap();
    let version = match kind {
        "IPPool" | "IPClaim" | "IPAddress" => "ipam.metal3.io/v1alpha1",
        _ => "infrastructure.cluster.x-k8s.io/v1beta1",
    };
    format!(
        "{{apiVersion: {version}, kind: {kind}, metadata: {{name: {name}, namespace: default}}, spec: {spec}}}"
    )
}

/// A policy acts some time after it was applied.
async fn await_namespace_policy(client: &Client) {
    let end = Instant::now() + DEADLINE;
    // One that was created before stays as it is.
    for number in 0.. {
        let name = format!("Metal3DataClaim/probe-{number}");
        if apply_manifest(client, &metal3(&name, "{template: {name: t, namespace: other}}")).await.is_err() {
            return;
        }
        assert!(Instant::now() < end, "the policy does not act");
        sleep(POLL_INTERVAL).await;
    }
}

/// One after the other; those of one name are changes of one object.
const METAL3_STEPS: &[(&str, &str, Result<(), &str>)] = &[
    ("Metal3DataTemplate/t", "{templateReference: r, metaData: {strings: [{key: a, value: b}]}}", Ok(())),
    (
        "Metal3DataTemplate/t",
        "{templateReference: r, metaData: {strings: [{key: a, value: c}]}}",
        Err("metaData is immutable"),
    ),
    (
        "Metal3DataTemplate/t",
        "{templateReference: r, metaData: {strings: [{key: a, value: b}]}, networkData: {links: {}, networks: {}, services: {}}}",
        Err("networkData is immutable"),
    ),
    (
        "Metal3DataTemplate/t",
        "{templateReference: s, metaData: {strings: [{key: a, value: b}]}}",
        Err("templateReference is immutable"),
    ),
    (
        "Metal3DataTemplate/t",
        "{clusterName: c, templateReference: r, metaData: {strings: [{key: a, value: b}]}}",
        Ok(()),
    ),
    (
        "Metal3DataTemplate/boot",
        "{metaData: {fromHostInterfaces: [{key: a, interface: eth0, fromBootMAC: true}]}}",
        Err("exactly one of interface and fromBootMAC"),
    ),
    (
        "Metal3DataTemplate/boot",
        "{metaData: {fromHostInterfaces: [{key: a}]}}",
        Err("exactly one of interface and fromBootMAC"),
    ),
    ("Metal3DataTemplate/boot", "{metaData: {fromHostInterfaces: [{key: a, fromBootMAC: true}]}}", Ok(())),
    (
        "Metal3DataTemplate/net",
        "{networkData: {links: {}, networks: {ipv4: [{id: n, link: l}]}, services: {}}}",
        Err("one of ipAddressFromIPPool, fromPoolRef and fromPoolAnnotation"),
    ),
    (
        "Metal3DataTemplate/net",
        "{networkData: {links: {}, networks: {ipv6: [{id: n, link: l}]}, services: {}}}",
        Err("one of ipAddressFromIPPool, fromPoolRef and fromPoolAnnotation"),
    ),
    (
        "Metal3DataTemplate/net",
        "{networkData: {links: {}, networks: {ipv4: [{id: n, link: l, ipAddressFromIPPool: p, routes: [{network: 10.0.0.0, prefix: 33}]}]}, services: {}}}",
        Err("prefix"),
    ),
    (
        "Metal3DataTemplate/net",
        "{networkData: {links: {}, networks: {ipv4DHCP: [{id: n, link: l, routes: [{network: 10.0.0.0, prefix: 33}]}]}, services: {}}}",
        Err("prefix"),
    ),
    (
        "Metal3DataTemplate/net",
        "{networkData: {links: {}, networks: {ipv4DHCP: [{id: n, link: l, routes: [{network: ten}]}]}, services: {}}}",
        Err("network"),
    ),
    (
        "Metal3DataTemplate/net",
        "{networkData: {links: {}, networks: {ipv4DHCP: [{id: n, link: l, routes: [{network: 10.0.0.0, gateway: {string: ten}}]}]}, services: {}}}",
        Err("gateway"),
    ),
    (
        "Metal3DataTemplate/net",
        "{networkData: {links: {}, networks: {}, services: {dns: [10.0.0.256]}}}",
        Err("dns"),
    ),
    (
        "Metal3DataTemplate/net",
        "{networkData: {links: {}, networks: {ipv6DHCP: [{id: n, link: l, routes: [{network: '2001:db8::', prefix: 64, gateway: {string: 'fe80::1'}}]}]}, services: {dns: ['::1', 10.0.0.53]}}}",
        Ok(()),
    ),
    ("Metal3DataClaim/c", "{template: {name: t, namespace: default}}", Ok(())),
    ("Metal3DataClaim/c", "{template: {name: other}}", Err("template is immutable")),
    ("Metal3DataClaim/d", "{template: {name: t, namespace: other}}", Err("in the namespace of the object")),
    ("Metal3Data/t-0", "{index: 0, claim: {name: c}, template: {name: t}}", Ok(())),
    (
        "Metal3Data/t-0",
        "{index: 1, claim: {name: c}, template: {name: t}}",
        Err("index, template and claim are immutable"),
    ),
    (
        "Metal3Data/t-0",
        "{index: 0, claim: {name: d}, template: {name: t}}",
        Err("index, template and claim are immutable"),
    ),
    (
        "Metal3Data/t-0",
        "{index: 0, claim: {name: c}, template: {name: u}}",
        Err("index, template and claim are immutable"),
    ),
    (
        "Metal3DataTemplate/no-pool",
        "{networkData: {networks: {ipv4: [{id: a, link: b, ipAddressFromIPPool: '', fromPoolRef: {name: ''}}]}}}",
        Err("one of ipAddressFromIPPool, fromPoolRef and fromPoolAnnotation"),
    ),
    ("Metal3Data/t-1", "{index: -1, claim: {name: c}, template: {name: t}}", Err("index")),
    ("IPPool/p", "{namePrefix: p, pools: [{subnet: 10.0.0.0/24}], gateway: 10.0.0.1}", Ok(())),
    ("IPPool/p", "{namePrefix: q, pools: [{subnet: 10.0.0.0/24}]}", Err("namePrefix cannot be modified")),
    (
        "IPPool/p",
        "{namePrefix: p, pools: [{subnet: 10.0.0.0/24}], allocationStrategy: random}",
        Err("allocationStrategy cannot be modified"),
    ),
    ("IPPool/p", "{namePrefix: p, pools: [{}]}", Err("at least one of start, end and subnet")),
    ("IPPool/p", "{namePrefix: p, pools: [{start: ten}]}", Err("start")),
    ("IPPool/p", "{namePrefix: p, pools: [{end: 10.0.0}]}", Err("end")),
    ("IPPool/p", "{namePrefix: p, pools: [{subnet: 10.0.0.0}]}", Err("subnet")),
    ("IPPool/p", "{namePrefix: p, pools: [{start: 10.0.0.1, gateway: x}]}", Err("gateway")),
    ("IPPool/p", "{namePrefix: p, gateway: x}", Err("gateway")),
    ("IPPool/p", "{namePrefix: p, dnsServers: [x]}", Err("dnsServers")),
    ("IPPool/p", "{namePrefix: p, pools: [{start: '2001:db8::1', dnsServers: [x]}]}", Err("dnsServers")),
    ("IPPool/p", "{namePrefix: p, pools: [{subnet: '2001:db8::/64'}], dnsServers: ['::1']}", Ok(())),
    (
        "IPPool/o",
        "{namePrefix: o, pools: [{subnet: 10.0.0.0/24}, {start: 10.0.0.9, end: 10.0.0.9}]}",
        Err("share addresses"),
    ),
    (
        "IPPool/o",
        "{namePrefix: o, pools: [{start: 10.0.0.1, end: 10.0.0.9}, {subnet: 10.0.0.9/24, end: 10.0.0.99}]}",
        Ok(()),
    ),
    (
        "IPPool/six",
        "{namePrefix: six, pools: [{start: '2001:db8:0:1::', end: '2001:db8::ffff'}]}",
        Err("start of a range"),
    ),
    ("IPPool/six", "{namePrefix: six, pools: [{start: '2001:db8::f', end: '2001:DB8::10'}]}", Ok(())),
    (
        "IPPool/o",
        "{namePrefix: o, pools: [{start: 10.0.0.1, end: 10.0.0.9}], preAllocations: {a: 10.0.0.10}}",
        Err("in no range"),
    ),
    (
        "IPPool/o",
        "{namePrefix: o, pools: [{start: 10.0.0.1, end: 10.0.0.9}], preAllocations: {a: 10.0.0.9, b: 10.0.0.9}}",
        Err("one address for two claims"),
    ),
    (
        "IPPool/o",
        "{namePrefix: o, pools: [{start: 10.0.0.1}, {subnet: '2001:db8::/64'}], preAllocations: {a: 10.0.0.9, b: '2001:db8::7'}}",
        Ok(()),
    ),
    (
        "Metal3Data/n-0",
        "{index: 0, claim: {name: c, namespace: other}, template: {name: n}}",
        Err("in the namespace"),
    ),
    ("Metal3Data/x-1", "{index: 2, claim: {name: c}, template: {name: x}}", Err("a dash and the index")),
    ("Metal3Data/x-1", "{index: 1, claim: {name: c}, template: {name: z}}", Err("a dash and the index")),
    ("Metal3Data/x-1", "{index: 1, claim: {name: c}, template: {name: z}, templateReference: x}", Ok(())),
    ("IPClaim/o", "{pool: {name: p, namespace: other}}", Err("in the namespace of the object")),
    ("IPClaim/i", "{pool: {name: p}}", Ok(())),
    ("IPClaim/i", "{pool: {name: q}}", Err("pool cannot be modified")),
    ("IPAddress/a", "{address: 10.0.0.1, claim: {name: i}, pool: {name: p}}", Ok(())),
    ("IPAddress/a", "{address: 10.0.0.2, claim: {name: i}, pool: {name: p}}", Err("cannot be modified")),
    ("IPAddress/a", "{address: 10.0.0.1, claim: {name: j}, pool: {name: p}}", Err("cannot be modified")),
    ("IPAddress/a", "{address: 10.0.0.1, claim: {name: i}, pool: {name: q}}", Err("cannot be modified")),
    ("Metal3Machine/m", "{image: {url: 'oci://r/os:v1'}}", Ok(())),
    ("Metal3Machine/m", "{image: {url: os}}", Err("image.url is an absolute URI")),
    ("Metal3Machine/m", "{image: {url: 'oci://r/os:v1', checksum: ''}}", Ok(())),
    ("Metal3Machine/m", "{image: {url: 'oci://r/os:v1', checksum: a}}", Err("must be empty for OCI images")),
    ("Metal3Machine/m", "{image: {url: 'OCI://r/os:v1', checksum: a}}", Err("must be empty for OCI images")),
    (
        "Metal3Machine/m",
        "{image: {url: 'oci://r/os:v1', checksumType: md5}}",
        Err("must be empty for OCI images"),
    ),
    ("Metal3Machine/m", "{image: {url: 'http://r/os.raw'}}", Err("image.checksum is required")),
    ("Metal3Machine/m", "{image: {url: 'http://r/os.iso', format: live-iso}}", Ok(())),
    ("Metal3Machine/m", "{image: {url: os}, customDeploy: {method: m}}", Ok(())),
    ("Metal3Machine/m", "{userData: {name: s, namespace: other}}", Err("in the namespace of the object")),
    ("Metal3Machine/m", "{metaData: {name: s, namespace: other}}", Err("in the namespace of the object")),
    ("Metal3Machine/m", "{networkData: {name: s, namespace: other}}", Err("in the namespace of the object")),
    ("Metal3Machine/m", "{dataTemplate: {name: t, namespace: other}}", Err("in the namespace of the object")),
    ("Metal3Machine/m", "{networkData: {name: s, namespace: default}, dataTemplate: {name: t}}", Ok(())),
    (
        "Metal3MachineTemplate/m",
        "{template: {spec: {image: {url: 'http://r/os.raw'}}}}",
        Err("image.checksum is required"),
    ),
    ("Metal3MachineTemplate/m", "{template: {spec: {image: {url: 'http://r/os.raw', checksum: a}}}}", Ok(())),
    ("Metal3Remediation/r", "{strategy: {type: Reboot, timeout: 99s}}", Err("min duration is 100s")),
    ("Metal3Remediation/r", "{strategy: {type: Reboot, retryLimit: 0}}", Err("retryLimit")),
    ("Metal3Remediation/r", "{strategy: {type: PowerCycle}}", Err("type")),
    ("Metal3Remediation/r", "{strategy: {type: Reboot, timeout: 100s}}", Ok(())),
];
