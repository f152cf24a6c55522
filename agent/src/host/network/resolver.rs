//! The DNS configuration of the resolver.

use crate::ground::paths::{Root, read_or_empty};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    /// Addresses, in the order of the file.
    pub servers: Vec<String>,
    /// Domains, in the order of the file.
    pub search: Vec<String>,
}

const RESOLV_CONF: &str = "/etc/resolv.conf";
const RESOLVED: &str = "/run/systemd/resolve/resolv.conf";
/// Addresses of the stub of systemd-resolved. Every host has them, so reporting them would be
/// useless.
const STUB: [&str; 2] = ["127.0.0.53", "127.0.0.54"];

impl Resolver {
    fn names_stub(&self) -> bool {
        self.servers.iter().any(|server| STUB.contains(&server.as_str()))
    }
}

/// Reads `resolv.conf`; if it names systemd-resolved's stub, reads the upstream servers instead.
pub fn read_resolver(root: &Root) -> Resolver {
    let direct = read_file(root, RESOLV_CONF);
    if direct.names_stub() { read_file(root, RESOLVED) } else { direct }
}

/// The servers for looking up names: first systemd-resolved's stub, which knows the servers of each
/// link, then the upstream servers.
pub fn read_name_servers(root: &Root) -> Resolver {
    let mut resolver = read_file(root, RESOLV_CONF);
    if resolver.servers.is_empty() || resolver.names_stub() {
        let behind = read_file(root, RESOLVED);
        resolver.servers.extend(behind.servers);
        if resolver.search.is_empty() {
            resolver.search = behind.search;
        }
    }
    resolver
}

fn read_file(root: &Root, path: &str) -> Resolver {
    parse_resolv_conf(&read_or_empty(root.join(path)))
}

/// resolv.conf(5): `nameserver` adds; the last `search` or `domain` wins.
fn parse_resolv_conf(text: &str) -> Resolver {
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
    use std::fs;

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
        let stub = "nameserver 127.0.0.53\nsearch a.example\n";
        let upstreams = "nameserver 192.0.2.53\nnameserver fe80::1%2\nsearch b.example\n";
        for (name, direct, observed, asked) in [
            (
                "stub",
                Some(stub),
                resolver(&["192.0.2.53", "fe80::1%2"], &["b.example"]),
                resolver(&["127.0.0.53", "192.0.2.53", "fe80::1%2"], &["a.example"]),
            ),
            (
                "no stub",
                Some("nameserver 192.0.2.1\n"),
                resolver(&["192.0.2.1"], &[]),
                resolver(&["192.0.2.1"], &[]),
            ),
            ("no file", None, resolver(&[], &[]), resolver(&["192.0.2.53", "fe80::1%2"], &["b.example"])),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let root = Root::at(directory.path());
            fs::create_dir_all(root.join("/etc")).unwrap();
            fs::create_dir_all(root.join("/run/systemd/resolve")).unwrap();
            if let Some(text) = direct {
                fs::write(root.join(RESOLV_CONF), text).unwrap();
            }
            fs::write(root.join(RESOLVED), upstreams).unwrap();
            assert_eq!(read_resolver(&root), observed, "{name}: observed");
            assert_eq!(read_name_servers(&root), asked, "{name}: asked");
        }
    }
}
