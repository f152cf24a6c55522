//! Profiles of `NetworkManager` that an operator wrote, as far as they hold no secrets.

use std::collections::HashMap;
use std::fs;

use crate::ground::paths::Root;

const DIRECTORY: &str = "etc/NetworkManager/system-connections";
const SUFFIX: &str = ".nmconnection";
/// Largest profile that is reported, in bytes.
const FILE_BYTES: usize = 64 * 1024;
/// Size of all profiles together, in bytes; a registration has no room for more.
const TOTAL_BYTES: usize = 128 * 1024;
/// Sections and keys that hold or surround secrets. The profiles are stored in a resource that more
/// users than the host's root may read.
const SECRET: [&str; 12] = [
    "[wifi-security]",
    "[802-1x]",
    "[vpn-secrets]",
    "psk",
    "password",
    "password-raw",
    "preshared-key",
    "private-key",
    "private-key-password",
    "mka-cak",
    "pin",
    "wep-key",
];

/// Reads every profile without secrets, by file name without suffix.
pub fn read_connections(root: &Root) -> HashMap<String, String> {
    let Ok(entries) = fs::read_dir(root.join(DIRECTORY)) else {
        return HashMap::new();
    };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut connections = HashMap::new();
    let mut total = 0;
    for path in files {
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(SUFFIX)) else {
            continue;
        };
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        if text.len() > FILE_BYTES || total + text.len() > TOTAL_BYTES || holds_secret(&text) {
            tracing::warn!(
                connection = name,
                "NetworkManager profile left out, it is too large or holds a secret"
            );
            continue;
        }
        total += text.len();
        connections.insert(name.to_owned(), text);
    }
    connections
}

fn holds_secret(text: &str) -> bool {
    text.lines().map(str::trim).any(|line| {
        let key = line.split_once('=').map_or(line, |(key, _)| key.trim_end());
        let lower = key.to_ascii_lowercase();
        // WEP keys are numbered, and WireGuard peers have their key in the section.
        SECRET.contains(&lower.as_str())
            || lower.starts_with("wep-key")
            || lower.starts_with("[wireguard")
            || lower.contains("password")
            || lower.contains("secret")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_with_a_secret_is_recognised() {
        for (name, given, want) in [
            ("plain", "[connection]\nid=a\ntype=ethernet\n[ipv4]\nmethod=auto\n", false),
            ("wifi", "[wifi-security]\nkey-mgmt=wpa-psk\n", true),
            ("spaces", "[x]\n psk = abc\n", true),
            ("wireguard", "[wireguard]\nprivate-key=abc\n", true),
            ("macsec", "[macsec]\nmka-cak=00\n", true),
            ("sim", "[gsm]\npin=1234\n", true),
            ("wep", "[x]\nwep-key0=abc\n", true),
            ("a word inside a value", "[connection]\nid=psk\n", false),
        ] {
            assert_eq!(holds_secret(given), want, "{name}");
        }
    }

    #[test]
    fn profiles_with_secrets_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join(DIRECTORY);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("lan.nmconnection"), "[connection]\nid=lan\n").unwrap();
        fs::write(directory.join("vpn.nmconnection"), "[vpn-secrets]\npassword=x\n").unwrap();
        fs::write(directory.join("notes.txt"), "nothing").unwrap();
        let connections = read_connections(&Root::at(root.path()));
        assert_eq!(connections.keys().collect::<Vec<_>>(), ["lan"]);
    }
}
