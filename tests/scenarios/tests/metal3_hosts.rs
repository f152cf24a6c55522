//! `BareMetalHost`s beside Cluster API Provider Metal3, which keeps its own kinds, and by
//! the baremetal-operator's own definition.

use coordinator_api::conditions::Reason;
use fake_apiserver::{OwnerReferences, Verb};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use scenarios::{NAMESPACE, World, bootstrap_data};
use serde_json::{Value, json};

use crate::holding::{expect_clean_by_owner, forget_owner};

const HOST: &str = "bmh-host-1";
const DIGEST: &str = "5555555555555555555555555555555555555555555555555555555555555555";

fn host_object(world: &World) -> Value {
    world.get_object("baremetalhosts.metal3.io", HOST).unwrap()
}

/// What CAPM3 writes for a machine: first the claim, then what the host is to run.
async fn provision(world: &World, image: Value) {
    let claim = json!({
        "metadata": { "labels": { "cluster.x-k8s.io/cluster-name": "c1" } },
        "spec": { "consumerRef": {
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
            "kind": "Metal3Machine", "name": "m-1", "namespace": "fleet",
        } },
    });
    world.patch("BareMetalHost", HOST, claim).await;
    let user_data = json!({ "name": "m-1-bootstrap", "namespace": "fleet" });
    let spec = json!({ "image": image, "userData": user_data, "online": true });
    world.patch("BareMetalHost", HOST, json!({ "spec": spec })).await;
}

async fn wait_state(world: &World, state: &str) {
    world.wait_until(&format!("the host is {state}"), |world| world.host_state(HOST) == state).await;
}

/// What CAPM3 writes when a machine is deleted, and once its host is free.
async fn release(world: &World) {
    let spec = json!({ "image": null, "userData": null, "online": false });
    world.patch("BareMetalHost", HOST, json!({ "spec": spec })).await;
    wait_state(world, "available").await;
    let labels = json!({ "cluster.x-k8s.io/cluster-name": null });
    let change = json!({ "metadata": { "labels": labels }, "spec": { "consumerRef": null } });
    world.patch("BareMetalHost", HOST, change).await;
    world.wait_idle().await;
}

fn running_image(world: &World) -> String {
    world.inventory("host-1").unwrap().status.unwrap().host.unwrap().image
}

fn plans(world: &World) -> Vec<String> {
    world.plans().into_iter().map(|(_, _, kind)| kind).collect()
}

#[tokio::test(start_paused = true)]
async fn hosts_serve_another_manager_of_machines() {
    let mut world = World::with_bare_metal_hosts().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    // Another manager's, as everything of its kinds.
    world.apply_metal3_cluster("c1").await;
    world.apply_metal3_machine("m-1", json!({})).await;
    world.wait_idle().await;
    assert_eq!(world.metal3_machine("m-1").unwrap()["status"], Value::Null);
    let url = "oci://registry.example/os:v1";
    for (image, want) in [
        // Up to 1.13, and with the template's format left out in 1.13.
        (
            json!({ "url": url, "checksum": DIGEST, "checksumType": "sha256", "format": "" }),
            format!("registry.example/os:v1@sha256:{DIGEST}"),
        ),
        // Later versions.
        (json!({ "url": url, "checksum": "", "format": "" }), "registry.example/os:v1".to_owned()),
    ] {
        provision(&world, image).await;
        wait_state(&world, "provisioned").await;
        assert!(running_image(&world).ends_with(&want), "{}", running_image(&world));
        let identity = std::fs::read_to_string(world.host("host-1").disk().state().node_identity()).unwrap();
        assert!(identity.contains("metal3://fleet/bmh-host-1/m-1"), "{identity}");
        world.wait_idle().await;
        let recorded =
            &host_object(&world)["metadata"]["annotations"]["baremetal.cluster.io/provisioned-image"];
        assert_eq!(recorded, &format!("oci://{want}"));
        release(&world).await;
        wait_state(&world, "available").await;
    }
    assert_eq!(plans(&world), ["reprovision", "clean", "reprovision", "clean"]);
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn copy_of_the_status_ends_with_the_pause() {
    let mut world = World::with_bare_metal_hosts().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_bootstrap("m-1", &bootstrap_data()).await;
    provision(&world, json!({ "url": "oci://registry.example/os:v1" })).await;
    wait_state(&world, "provisioned").await;
    let (pause, copy) = ("baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/status");
    let annotate = |changes: Value| json!({ "metadata": { "annotations": changes } });
    // What CAPM3 writes with the pause of a Cluster, and at its end.
    world.patch("BareMetalHost", HOST, annotate(json!({ pause: "metal3.io/capm3", copy: "{}" }))).await;
    world.wait_idle().await;
    let annotation = |key: &str| host_object(&world)["metadata"]["annotations"][key].clone();
    assert_eq!(annotation(copy), "{}");
    world.patch("BareMetalHost", HOST, annotate(json!({ pause: null }))).await;
    world.wait_idle().await;
    assert_eq!((annotation(pause), annotation(copy)), (Value::Null, Value::Null));
    assert_eq!(plans(&world), ["reprovision"]);
    world.check_invariants().await;
}

// Fault: the BareMetalHost of a host with a node is removed by force, with and without the annotations of its owner.
// Shown: reason `OwnerMissing` or `HostCarriesNode` of the inventory, and the command that cleans it.
#[tokio::test(start_paused = true)]
async fn host_of_a_lost_object_is_cleaned() {
    for has_claim in [true, false] {
        let mut world = World::with_bare_metal_hosts().await;
        world.register_bare_metal_hosts(&["host-1"]).await;
        world.apply_metal3_cluster("c1").await;
        world.apply_bootstrap("m-1", &bootstrap_data()).await;
        provision(&world, json!({ "url": "oci://registry.example/os:v1" })).await;
        wait_state(&world, "provisioned").await;
        world.fake.take_out("baremetalhosts.metal3.io", NAMESPACE, HOST);
        if !has_claim {
            forget_owner(&world, "host-1").await;
        }
        let reason = if has_claim { Reason::OwnerMissing } else { Reason::HostCarriesNode };
        let action = "kubectl baremetal clean host-1 --owner OWNER";
        world
            .expect_why("machineinventory/host-1", reason, "--owner BareMetalHost/bmh-host-1`", action)
            .await;
        assert_eq!(world.inventory("host-1").unwrap().claim().is_some(), has_claim);
        expect_clean_by_owner(world, "BareMetalHost/bmh-host-1").await;
    }
}

// Fault: the template of another manager names a whole-disk image, which hosts with a BMC need.
// Shown: condition `ImageResolved` of the BareMetalHost, reason `FieldUnsupported`, until its annotation names an OS image.
#[tokio::test(start_paused = true)]
async fn annotation_replaces_the_image_of_a_template() {
    let mut world = World::with_bare_metal_hosts().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_bootstrap("m-1", &bootstrap_data()).await;
    let image = json!({
        "url": "https://images.example/os.raw", "checksum": "https://images.example/os.raw.sha256sum",
        "checksumType": "sha256", "format": "raw",
    });
    provision(&world, image).await;
    let message = |world: &World| host_object(world)["status"]["errorMessage"].to_string();
    world.wait_until("it is refused", |world| message(world).contains("baremetal.cluster.io/os-image")).await;
    let object = format!("BareMetalHost/{HOST}");
    world.expect_why(&object, Reason::FieldUnsupported, "os-image", "correct the field").await;
    let annotate = |tag: &str| {
        let image = format!("oci://registry.example/os:{tag}");
        json!({ "metadata": { "annotations": { "baremetal.cluster.io/os-image": image } } })
    };
    for tag in ["v1", "v2"] {
        world.patch("BareMetalHost", HOST, annotate(tag)).await;
        let runs =
            |world: &World| world.host_state(HOST) == "provisioned" && running_image(world).ends_with(tag);
        world.wait_until(&format!("{tag} runs"), runs).await;
    }
    world.wait_idle().await;
    let host = host_object(&world);
    assert_eq!(host["status"]["provisioning"]["image"], json!({ "url": "oci://registry.example/os:v2" }));
    release(&world).await;
    assert_eq!(plans(&world), ["reprovision", "clean", "reprovision", "clean"]);
    world.check_invariants().await;
}

// Fault: a BareMetalHost vanishes while its host runs a node, finalizers or not.
// Shown: the inventory is `Unavailable`, Event `OwnerMissing`; the node stays. The host is taken again when the object is restored.
#[tokio::test(start_paused = true)]
async fn vanished_host_keeps_its_node() {
    let mut world = World::with_bare_metal_hosts().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_cluster("c1").await;
    world.apply_bootstrap("m-1", &bootstrap_data()).await;
    provision(&world, json!({ "url": "oci://registry.example/os:v1" })).await;
    wait_state(&world, "provisioned").await;
    world.wait_idle().await;
    let state = |world: &World| {
        world.inventory("host-1").unwrap().metadata.annotations.unwrap()["baremetal.alauda.io/allocation-state"]
            .clone()
    };
    let host = world.fake.take_out("baremetalhosts.metal3.io", NAMESPACE, HOST).unwrap();
    world.wait_until("the inventory is held", |world| state(world) == "Unavailable").await;
    world.wait_idle().await;
    let note = format!("BareMetalHost {HOST} held this host and does not exist");
    world.expect_event("MachineInventory", "host-1", "OwnerMissing", &note);
    let command = format!("kubectl baremetal clean host-1 --owner BareMetalHost/{HOST}");
    world.expect_why("machineinventory/host-1", Reason::OwnerMissing, &command, "restore the machine").await;
    world.fake.put_back(host, OwnerReferences::Keep).unwrap();
    wait_state(&world, "provisioned").await;
    world.wait_until("it is taken again", |world| state(world) == "Allocated").await;
    assert_eq!(plans(&world), ["reprovision"]);
    world.check_invariants().await;
}

/// In shape that of the baremetal-operator: what it demands of a status, and that it
/// has no conditions (up to 0.12) and counts failures (from 0.14).
fn foreign_definition() -> CustomResourceDefinition {
    let text = json!({ "type": "string" });
    let number = json!({ "type": "integer" });
    let reference = json!({ "type": "object", "properties": {
        "apiVersion": text, "kind": text, "name": text, "namespace": text,
    } });
    let image = json!({ "type": "object", "required": ["url"], "properties": {
        "url": text, "checksum": text,
        "checksumType": { "type": "string", "enum": ["md5", "sha256", "sha512", "auto"] },
        "format": { "type": "string", "enum": ["raw", "qcow2", "vdi", "vmdk", "live-iso"] },
    } });
    let spec = json!({ "type": "object", "required": ["online"], "properties": {
        "online": { "type": "boolean" }, "consumerRef": reference, "image": image, "userData": reference,
        "automatedCleaningMode": {
            "type": "string", "enum": ["metadata", "disabled"], "default": "metadata",
        },
    } });
    let mac = json!({ "type": "string", "pattern": "[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}" });
    let nic = json!({ "type": "object", "properties": { "name": text, "ip": text, "mac": mac } });
    let status = json!({
        "type": "object",
        "required": [
            "errorCount", "errorMessage", "operationalStatus", "poweredOn", "provisioning", "provisioningFailCount",
        ],
        "properties": {
            "errorCount": number, "errorMessage": text, "poweredOn": { "type": "boolean" },
            "errorType": { "type": "string", "enum": ["registration error", "inspection error", "provisioning error"] },
            "operationalStatus": { "type": "string", "enum": ["", "OK", "discovered", "error"] },
            "provisioningFailCount": number, "lastUpdated": { "type": "string", "format": "date-time" },
            "hardware": { "type": "object", "properties": {
                "hostname": text, "nics": { "type": "array", "items": nic }, "ramMebibytes": number,
                "cpu": { "type": "object", "properties": { "arch": text, "model": text, "count": number } },
                "storage": { "type": "array", "items": { "type": "object", "properties": {
                    "name": text, "rotational": { "type": "boolean" }, "sizeBytes": number, "model": text,
                    "serialNumber": text,
                } } },
            } },
            "provisioning": { "type": "object", "required": ["ID", "state"], "properties": {
                "ID": text, "state": text, "image": image,
            } },
        },
    });
    let schema = json!({ "type": "object", "properties": { "spec": spec, "status": status } });
    let definition = json!({
        "metadata": { "name": "baremetalhosts.metal3.io" },
        "spec": {
            "group": "metal3.io", "scope": "Namespaced",
            "names": { "kind": "BareMetalHost", "plural": "baremetalhosts" },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema }, "subresources": { "status": {} },
            }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

#[tokio::test(start_paused = true)]
async fn hosts_fit_the_definition_of_their_operator() {
    let mut world = World::with_foreign_hosts(&foreign_definition()).await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    provision(&world, json!({ "url": "oci://registry.example/os:v1", "checksum": DIGEST })).await;
    let message = |world: &World| host_object(world)["status"]["errorMessage"].to_string();
    world.wait_until("it names its Secret", |world| message(world).contains("m-1-bootstrap")).await;
    assert_eq!(host_object(&world)["status"]["operationalStatus"], "OK");
    world.apply_bootstrap("m-1", &bootstrap_data()).await;
    wait_state(&world, "provisioned").await;
    world.wait_idle().await;
    let host = host_object(&world);
    assert_eq!((message(&world).as_str(), &host["status"]["conditions"]), ("\"\"", &Value::Null));
    assert!(!host["status"]["hardware"]["nics"].as_array().unwrap().is_empty());
    let mark = world.fake.journal().mark();
    for value in ["1", "2", "3"] {
        let label = json!({ "metadata": { "labels": { "rack": value } } });
        world.patch("BareMetalHost", HOST, label).await;
        world.wait_idle().await;
        world.advance_time(std::time::Duration::from_secs(2)).await;
    }
    let writes = world.requests_since(mark).into_iter().filter(|entry| entry.request.verb == Verb::Patch);
    assert_eq!(writes.count(), 0, "dropped conditions are no reason to write");
    release(&world).await;
    assert_eq!(plans(&world), ["reprovision", "clean"]);
    world.check_invariants().await;
}

// Fault: the user data of a BareMetalHost is Ignition, of an unknown format, or empty.
// Shown: condition `BootstrapReady` of the host: `BootstrapInvalid`; the host runs no plan until it is corrected.
#[tokio::test(start_paused = true)]
async fn user_data_that_cloud_init_ignores_is_refused() {
    let mut world = World::with_bare_metal_hosts().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    for (data, want) in [
        (r#"{"ignition":{"version":"3.4.0"}}"#, "JSON (Ignition)"),
        ("variant: fcos", "unknown format"),
        ("", "is empty"),
        ("#cloud-config\nruncmd: [", "not valid YAML"),
    ] {
        world.fake.take_out("secrets", NAMESPACE, "m-1-bootstrap");
        world.apply_bootstrap("m-1", data).await;
        provision(&world, json!({ "url": "oci://registry.example/os:v1" })).await;
        world
            .wait_until("the host refuses it", |world| {
                host_object(world)["status"].to_string().contains(want)
            })
            .await;
        let object = format!("BareMetalHost/{HOST}");
        world.expect_why(&object, Reason::BootstrapInvalid, "", "correct the bootstrap configuration").await;
        assert!(plans(&world).is_empty(), "{want}: the host is touched");
        release(&world).await;
    }
    world.fake.take_out("secrets", NAMESPACE, "m-1-bootstrap");
    world.apply_bootstrap("m-1", &bootstrap_data()).await;
    provision(&world, json!({ "url": "oci://registry.example/os:v1" })).await;
    wait_state(&world, "provisioned").await;
    world.check_invariants().await;
}
