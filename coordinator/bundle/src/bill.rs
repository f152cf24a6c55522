//! The SBOM of a single program. `cargo cyclonedx` resolves the features of the whole workspace, so
//! that its SBOM names packages of other programs; and it knows no library beside the crates.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::packages::{LIBRARIES, Package, has_package};

/// The SBOM of the program that is made of `packages`, and of the libraries in these versions.
pub fn reduce_bill(
    text: &str,
    packages: &BTreeSet<Package>,
    versions: [&str; 2],
) -> Result<String, serde_json::Error> {
    let mut bill: Value = serde_json::from_str(text)?;
    let mut removed = BTreeSet::new();
    if let Some(Value::Array(components)) = bill.get_mut("components") {
        components.retain(|component| {
            let [name, version] = ["name", "version"].map(|field| component[field].as_str());
            let is_part = has_package(packages, name, version);
            if !is_part {
                removed.insert(component["bom-ref"].to_string());
            }
            is_part
        });
        components.extend(LIBRARIES.iter().zip(versions).map(describe_library));
    }
    remove_references(&mut bill, &removed);
    serde_json::to_string_pretty(&bill)
}

fn describe_library((&(name, licence), version): (&(&str, &str), &str)) -> Value {
    let purl = format!("pkg:generic/{name}@{version}");
    json!({
        "type": "library", "bom-ref": purl, "name": name, "version": version, "scope": "required",
        "licenses": [{ "expression": licence }], "purl": purl,
    })
}

fn remove_references(bill: &mut Value, removed: &BTreeSet<String>) {
    let Some(Value::Array(dependencies)) = bill.get_mut("dependencies") else { return };
    dependencies.retain(|dependency| !removed.contains(&dependency["ref"].to_string()));
    for dependency in dependencies {
        if let Some(Value::Array(references)) = dependency.get_mut("dependsOn") {
            references.retain(|reference| !removed.contains(&reference.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::check_bill;
    use crate::packages::parse_tree;

    #[test]
    fn bill_names_the_packages_of_one_program() {
        let packages = parse_tree("agent v0.1.0 (/checkout/agent)\nserde v1.0.1\n");
        let licences = json!([{ "expression": "MIT" }]);
        let component = |name: &str, version: &str| json!({ "name": name, "version": version, "bom-ref": format!("{name}@{version}"), "licenses": licences });
        let text = json!({
            "bomFormat": "CycloneDX",
            "metadata": { "component": component("agent", "0.1.0") },
            "components": [component("serde", "1.0.1"), component("serde", "1.0.2"), component("kube", "3.0.0")],
            "dependencies": [
                { "ref": "agent@0.1.0", "dependsOn": ["serde@1.0.1", "kube@3.0.0"] },
                { "ref": "kube@3.0.0", "dependsOn": ["serde@1.0.2"] },
                { "ref": "serde@1.0.1" },
            ],
        })
        .to_string();
        assert_eq!(
            check_bill(&text, &packages, &[]).unwrap(),
            [
                "serde 1.0.2 is no part of the program",
                "kube 3.0.0 is no part of the program",
                "glibc is missing",
                "libgcc is missing",
            ]
        );
        let reduced = reduce_bill(&text, &packages, ["2.41", "14.2.0"]).unwrap();
        assert_eq!(check_bill(&reduced, &packages, &[]).unwrap(), Vec::<String>::new());
        let bill: Value = serde_json::from_str(&reduced).unwrap();
        assert_eq!(
            bill["dependencies"],
            json!([{ "ref": "agent@0.1.0", "dependsOn": ["serde@1.0.1"] }, { "ref": "serde@1.0.1" }])
        );
        assert_eq!(bill["components"][2]["purl"], "pkg:generic/libgcc@14.2.0");
        assert!(reduce_bill("", &packages, ["", ""]).is_err());
    }
}
