//! The API server's defaults are those of the replaced systems,
//! and what it fills in can be read back.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use coordinator_api::crds;
use coordinator_api::seed_image::SeedImage;
use serde_json::{Value, json};

/// The default at a path below `spec` in the schema of a kind.
fn default_of(kind: &str, path: &str) -> Value {
    let crd = crds::all().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = json!(crd.spec.versions[0].schema);
    let place = format!("/openAPIV3Schema/properties/spec/properties/{}", path.replace('/', "/properties/"));
    schema.pointer(&place).unwrap_or_else(|| panic!("no {path}"))["default"].clone()
}

#[test]
fn defaults_are_those_of_the_field() {
    let elemental = |path: &str| default_of("MachineRegistration", &format!("config/elemental/{path}"));
    for (path, want) in [
        ("install/snapshotter", json!({ "maxSnaps": 2, "type": "loopdevice" })),
        ("install/snapshotter/maxSnaps", json!(2)),
        ("install/snapshotter/type", json!("loopdevice")),
        ("install/reboot", Value::Null),
        ("registration/auth", json!("tpm")),
        ("reset", json!({ "reboot": true, "reset-oem": true, "reset-persistent": true })),
        ("reset/reboot", json!(true)),
        ("reset/reset-oem", json!(true)),
        ("reset/reset-persistent", json!(true)),
        ("reset/enabled", Value::Null),
    ] {
        assert_eq!(elemental(path), want, "{path}");
    }
    for (kind, path, want) in [
        ("MachineRegistration", "config/network/configurator", json!("none")),
        ("MachineInventory", "network/configurator", json!("none")),
        ("SeedImage", "size", json!(6_442_450_944_u64)),
        ("SeedImage", "cleanupAfterMinutes", json!(60)),
        ("SeedImage", "type", json!("iso")),
        ("BaremetalCluster", "controlPlaneLoadBalancer/type", json!("Internal")),
    ] {
        assert_eq!(default_of(kind, path), want, "{kind} {path}");
    }
}

#[test]
fn a_size_is_read_however_it_is_written() {
    for size in [default_of("SeedImage", "size"), json!("6Gi"), json!(1)] {
        let image = json!({
            "apiVersion": "elemental.cattle.io/v1beta1", "kind": "SeedImage", "metadata": { "name": "s" },
            "spec": { "registrationRef": { "name": "r" }, "size": size },
        });
        let image: SeedImage = serde_json::from_value(image).unwrap();
        assert_eq!(image.spec.size, Some(size));
    }
}
