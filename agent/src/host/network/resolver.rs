//! DNS as the resolver has it.

use std::fs;

use crate::paths::Root;

/// Servers and search domains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    /// Addresses, in the order of the file.
    pub servers: Vec<String>,
    /// Domains, in the order of the file.
    pub search: Vec<String>,
}

/// Address of the stub of systemd-resolved: true on every host and useful on
/// none.
const STUB: [&str; 2] = ["127.0.0.53", "127.0.0.54"];

/// Reads `resolv.conf`; behind systemd-resolved's stub, its list of upstreams.
#[must_use]
pub fn read_resolver(root: &Root) -> Resolver {
    let parse = |path: &str| fs::read_to_string(root.join(path)).map(|text| parse_resolv_conf(&text)).ok();
    let direct = parse("etc/resolv.conf").unwrap_or_default();
    if direct.servers.iter().any(|server| STUB.contains(&server.as_str())) {
        return parse("run/systemd/resolve/resolv.conf").unwrap_or_default();
    }
    direct
}

/// resolv.conf(5): `nameserver` adds; the last `search` or `domain` wins.
#[must_use]
pub fn parse_resolv_conf(text: &str) -> Resolver {
    let mut resolver = Resolver::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => resolver.servers.extend(words.next().map(str::to_owned)),
            Some("search" | "domain") => {
                resolver.search = words.filter(|word| *word != ".").map(str::to_owned).collect();
            }
            _ => {}
        }
    }
    resolver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver(servers: &[&str], search: &[&str]) -> Resolver {
        Resolver {
            servers: servers.iter().map(ToString::to_string).collect(),
            search: search.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn a_resolv_conf_is_read_line_by_line() {
        for (name, given, want) in [
            ("empty", "", resolver(&[], &[])),
            ("comment", "# nameserver 192.0.2.1\n", resolver(&[], &[])),
            (
                "both families",
                "nameserver 192.0.2.1\nnameserver 2001:db8::1\n",
                resolver(&["192.0.2.1", "2001:db8::1"], &[]),
            ),
            (
                "last search wins",
                "domain a.example\nsearch b.example c.example\n",
                resolver(&[], &["b.example", "c.example"]),
            ),
            ("root is no domain", "search .\noptions edns0\n", resolver(&[], &[])),
        ] {
            assert_eq!(parse_resolv_conf(given), want, "{name}");
        }
    }

    #[test]
    fn behind_the_stub_the_upstreams_are_told() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc")).unwrap();
        fs::create_dir_all(root.path().join("run/systemd/resolve")).unwrap();
        fs::write(root.path().join("etc/resolv.conf"), "nameserver 127.0.0.53\n").unwrap();
        fs::write(root.path().join("run/systemd/resolve/resolv.conf"), "nameserver 192.0.2.53\n").unwrap();
        assert_eq!(read_resolver(&Root::at(root.path())), resolver(&["192.0.2.53"], &[]));
    }
}
