//! What is committed as generated is what its source says. `UPDATE=1` writes
//! it.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod explained;
mod faults;
mod reference;
mod source;

use std::fs;

use contract::documents::checkout;

/// Above a generated manifest: the schema is too large to review by hand.
const HEADER: &str = "# Generated from coordinator/api by `make generate`.\n";

/// Compares, or with `UPDATE=1` writes.
fn committed(path: &str, want: &str) {
    let path = checkout(path);
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, want).unwrap();
    }
    let have = fs::read_to_string(&path).unwrap_or_default();
    assert!(have == want, "{} is not what its source says: run `make generate`", path.display());
}

#[test]
fn agent_contract_is_generated_from_proto_files() {
    let out = tempfile::tempdir().unwrap();
    proto::generate::generate(&checkout("proto"), out.path()).unwrap();
    let file = "baremetal.v1alpha1.rs";
    let want = fs::read_to_string(out.path().join(file)).unwrap();
    committed(&format!("proto/src/generated/{file}"), &want);
}

#[test]
fn the_definitions_are_generated_from_the_kinds() {
    for crd in coordinator_api::crds::all() {
        let want = format!("{HEADER}{}", coordinator_api::crds::yaml(&crd).unwrap());
        let name = crd.metadata.name.unwrap();
        committed(&format!("coordinator/config/crd/{name}.yaml"), &want);
    }
    for crd in coordinator_api::metal3::crds() {
        let want = format!("{HEADER}{}", coordinator_api::crds::yaml(&crd).unwrap());
        let name = crd.metadata.name.unwrap();
        committed(&format!("coordinator/config/metal3/crd/{name}.yaml"), &want);
    }
}
