//! What the real API server accepts and refuses of our kinds.

use control_plane::parts::Parts;
use control_plane::{ControlPlane, Settings, apply};
use coordinator_api::crds;
use coordinator_api::metal3::cluster::Metal3Cluster;
use coordinator_api::registration::{MachineRegistration, Reset, Snapshotter};
use coordinator_api::seed_image::SeedImage;
use e2e::manifests::METAL3_RIGHTS;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::json;

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
    let metal3_cluster = |name: &str, spec: &str| {
        format!(
            "{{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: Metal3Cluster, metadata: {{name: {name}, namespace: default}}, spec: {spec}}}"
        )
    };
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
        match (apply_manifest(&client, &metal3_cluster(name, spec)).await, want) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.contains(part), "{name}: {error}"),
            (found, want) => panic!("{name}: {found:?}, {want:?}"),
        }
    }
    // As it is stored: the types of the coordinator have the default too.
    let resource = ApiResource::erase::<Metal3Cluster>(&());
    let clusters: Api<DynamicObject> = Api::namespaced_with(client, "default", &resource);
    let stored = clusters.get("endpoint").await.unwrap().data;
    assert_eq!(stored["spec"]["controlPlaneEndpoint"], json!({ "host": "h", "port": 6443 }));
    assert!(stored["spec"].get("cloudProviderEnabled").is_none(), "{stored}");
}
