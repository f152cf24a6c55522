//! Generated files are equal to the output of their source. `UPDATE=1` writes them.

mod explained;
mod faults;
mod operations;
mod reference;
mod source;

use std::fs;

use contract::documents::checkout;

/// First line of a generated manifest, because its schema is too large to review by hand.
const HEADER: &str = "# Generated from coordinator/api by `make generate`.\n";

/// Asserts that a file is up to date, or writes the file with `UPDATE=1`.
fn committed(path: &str, want: &str) {
    let path = checkout(path);
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, want).unwrap();
    }
    let have = fs::read_to_string(&path).unwrap_or_default();
    assert!(have == want, "{} differs from its source: run `make generate`", path.display());
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
