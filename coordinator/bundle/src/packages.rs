//! The packages of a program, as cargo names them, and the libraries beside the crates.

use std::collections::BTreeSet;

/// The libraries that each program is linked to, with their licences.
pub const LIBRARIES: [(&str, &str); 2] =
    [("glibc", "LGPL-2.1-or-later"), ("libgcc", "GPL-3.0-or-later WITH GCC-exception-3.1")];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// A package of this checkout has the licence of the checkout and needs no notice.
    pub is_own: bool,
}

impl Package {
    /// A line is a name, a version behind `v`, and for packages of the checkout their path.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (name, version) = (words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned());
        Some(Self { name, version, is_own: words.any(|word| word.starts_with("(/")) })
    }
}

/// The packages in the output of `cargo tree --prefix none --format {p}`.
pub fn parse_tree(text: &str) -> BTreeSet<Package> {
    text.lines().filter_map(Package::parse).collect()
}

/// `true` if a package has this name and version.
pub fn has_package(packages: &BTreeSet<Package>, name: Option<&str>, version: Option<&str>) -> bool {
    packages.iter().any(|package| (name, version) == (Some(&package.name), Some(&package.version)))
}
