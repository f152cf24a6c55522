//! Checks of a release: each SBOM names the packages of its program and no others, the licences name
//! all of them, and no program names a path of the machine that built it.

use std::collections::BTreeSet;

use memchr::memmem;
use serde::Deserialize;

use crate::packages::{LIBRARIES, Package, has_package};

/// Programs of a release. The package of a program is the title of its licences; the SBOM has
/// another name.
pub const PROGRAMS: [(&str, &str); 3] = [
    ("agent", "baremetal-agent"),
    ("coordinator", "baremetal-coordinator"),
    ("kubectl-baremetal", "kubectl-baremetal"),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bill {
    bom_format: String,
    metadata: Metadata,
    #[serde(default)]
    components: Vec<Component>,
}

#[derive(Deserialize)]
struct Metadata {
    component: Component,
}

#[derive(Deserialize)]
struct Component {
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    licenses: Vec<serde_json::Value>,
}

/// The faults of the SBOM of a program that is made of `packages`. `paths` are paths of the machine.
pub fn check_bill(
    text: &str,
    packages: &BTreeSet<Package>,
    paths: &[&str],
) -> Result<Vec<String>, serde_json::Error> {
    let Bill { bom_format, metadata, components } = serde_json::from_str(text)?;
    let mut wrong = vec![];
    if bom_format != "CycloneDX" {
        wrong.push(format!("it is in the format {bom_format:?}"));
    }
    let all: Vec<_> = components.iter().chain([&metadata.component]).collect();
    for Package { name, version, .. } in packages {
        match all.iter().find(|component| component.name == *name && component.version == *version) {
            None => wrong.push(format!("{name} {version} is missing")),
            Some(found) if found.licenses.is_empty() => {
                wrong.push(format!("{name} {version} has no licence"));
            }
            Some(_) => {}
        }
    }
    for Component { name, version, .. } in &components {
        if !has_package(packages, Some(name), Some(version))
            && LIBRARIES.iter().all(|(library, _)| library != name)
        {
            wrong.push(format!("{name} {version} is no part of the program"));
        }
    }
    let missing = LIBRARIES.iter().filter(|(name, _)| all.iter().all(|component| component.name != *name));
    wrong.extend(missing.map(|(name, _)| format!("{name} is missing")));
    let named = find_paths(text.as_bytes(), paths);
    wrong.extend(named.into_iter().map(|path| format!("it names {path}, a path of this machine")));
    Ok(wrong)
}

/// The paths of the machine that a file of a release names. Programs name such paths in messages of
/// panics if the compiler did not get the prefixes of the Makefile.
pub fn find_paths<'a>(file: &[u8], paths: &[&'a str]) -> Vec<&'a str> {
    paths.iter().filter(|path| memmem::find(file, path.as_bytes()).is_some()).copied().collect()
}

/// The packages without an entry among the licences of a program, which stand behind `# PROGRAM`.
/// An entry is a line of name, version and repository.
pub fn check_notices(text: &str, program: &str, packages: &BTreeSet<Package>) -> Vec<String> {
    let mut entries = BTreeSet::new();
    let mut is_inside = false;
    for line in text.lines() {
        // Other lines that begin with `# ` belong to a licence.
        let title = line.strip_prefix("# ");
        if let Some(title) = title.filter(|title| PROGRAMS.iter().any(|(known, _)| known == title)) {
            is_inside = title == program;
        }
        let mut words = line.split_whitespace();
        if is_inside && line.starts_with("  ") {
            entries.extend(words.next().zip(words.next()));
        }
    }
    let missing = packages
        .iter()
        .filter(|package| !package.is_own && !entries.contains(&(&*package.name, &*package.version)));
    missing.map(|package| format!("{} {} has no entry", package.name, package.version)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::packages::parse_tree;

    const TREE: &str =
        "agent v0.1.0 (/checkout/agent)\nserde v1.0.1\nserde_derive v1.0.2 (proc-macro)\nserde v1.0.1 (*)\n";

    fn bill(components: &serde_json::Value) -> String {
        let own =
            json!({ "name": "agent", "version": "0.1.0", "licenses": [{ "expression": "Apache-2.0" }] });
        json!({ "bomFormat": "CycloneDX", "metadata": { "component": own }, "components": components })
            .to_string()
    }

    #[test]
    fn bill_has_every_package_of_the_tree() {
        let packages = parse_tree(TREE);
        assert_eq!(packages.len(), 3);
        let licence = json!([{ "expression": "MIT" }]);
        let serde = json!({ "name": "serde", "version": "1.0.1", "licenses": licence });
        let derive = json!({ "name": "serde_derive", "version": "1.0.2", "licenses": licence });
        let [glibc, libgcc] = LIBRARIES.map(|(name, _)| json!({ "name": name, "licenses": licence }));
        let check = |components| check_bill(&bill(&components), &packages, &["/checkout"]).unwrap();
        assert_eq!(check(json!([serde, derive, glibc, libgcc])), Vec::<String>::new());
        let bare = json!({ "name": "serde_derive", "version": "1.0.2", "purl": "file:///checkout" });
        let old = json!({ "name": "serde", "version": "1.0.0", "licenses": licence });
        let want = [
            "serde 1.0.1 is missing",
            "serde_derive 1.0.2 has no licence",
            "serde 1.0.0 is no part of the program",
            "libgcc is missing",
            "it names /checkout, a path of this machine",
        ];
        assert_eq!(check(json!([old, bare, glibc])), want);
        assert!(check_bill("{}", &packages, &[]).is_err());
    }

    #[test]
    fn paths_of_the_machine_are_found() {
        let paths = ["/home/a/.cargo", "/build"];
        for (program, want) in [
            ("\0/cargo/registry/src/serde/lib.rs\0", vec![]),
            ("\0/home/a/.cargo/registry\0", vec!["/home/a/.cargo"]),
            ("/build", vec!["/build"]),
            ("/home/a/.cargo/x\0/build/y", vec!["/home/a/.cargo", "/build"]),
            ("", vec![]),
        ] {
            assert_eq!(find_paths(program.as_bytes(), &paths), want, "{program}");
        }
    }

    #[test]
    fn notices_are_those_of_the_program() {
        let packages = parse_tree(TREE);
        let text =
            "# coordinator\n\nMIT\n  serde 1.0.1 https://a\n# agent\n\nMIT\n  serde_derive 1.0.2 https://b\n";
        assert_eq!(check_notices(text, "agent", &packages), ["serde 1.0.1 has no entry"]);
        assert_eq!(check_notices(text, "coordinator", &packages), ["serde_derive 1.0.2 has no entry"]);
    }
}
