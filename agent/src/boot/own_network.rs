//! Finds the network of this host among the networks of single hosts in the seed ISO.

use std::fs;
use std::io;
use std::process::Command;

use serde::Deserialize;
use serde_norway::Value;

use crate::ground::paths::Root;
use crate::host::facts::{nics, smbios};

#[derive(Deserialize)]
struct File {
    hosts: Vec<Host>,
}

#[derive(Deserialize)]
struct Host {
    #[serde(default)]
    macs: Vec<String>,
    #[serde(default)]
    uuid: Option<String>,
    network: Value,
}

/// The ISO's network for this host. If the file cannot be read, the host uses the network of its
/// registration.
pub(super) fn find_own(root: &Root) -> Option<Value> {
    let text = match fs::read(root.live_networks()) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(%error, "cannot read the networks of single hosts in the seed ISO, burn it again");
            return None;
        }
    };
    let file: File = serde_json::from_slice(&text)
        .inspect_err(
            |error| tracing::warn!(%error, "networks of single hosts in the seed ISO are damaged, burn it again"),
        )
        .ok()?;
    let uuid = smbios::read_uuid(root);
    let found = choose(&file.hosts, |host| host.has_uuid(uuid.as_deref())).or_else(|| {
        wait_for_cards(root);
        let macs: Vec<_> = nics::read_nics(root, None).into_iter().map(|nic| nic.mac).collect();
        choose(&file.hosts, |host| macs.iter().any(|mac| host.has_mac(mac)))
    });
    found.map(|host| host.network.clone())
}

/// The only matching entry; several matching entries identify no host.
fn choose(hosts: &[Host], is_own: impl Fn(&Host) -> bool) -> Option<&Host> {
    let mut own = hosts.iter().filter(|host| is_own(host));
    own.next().filter(|_| own.next().is_none())
}

/// The drivers are still loading.
fn wait_for_cards(root: &Root) {
    let udevadm = root.join("/usr/bin/udevadm");
    if !udevadm.exists() {
        return;
    }
    if let Err(error) = Command::new(udevadm).args(["settle", "--timeout=30"]).status() {
        tracing::warn!(%error, "cannot wait for udev, a network card may be missing");
    }
}

impl Host {
    fn has_uuid(&self, uuid: Option<&str>) -> bool {
        let uuids = self.uuid.as_deref().zip(uuid);
        uuids.is_some_and(|(own, uuid)| own.eq_ignore_ascii_case(uuid))
    }

    fn has_mac(&self, mac: &str) -> bool {
        self.macs.iter().any(|own| own.eq_ignore_ascii_case(mac))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_with(cards: &[&str]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        for (number, mac) in cards.iter().enumerate() {
            let card = root.join(format!("/sys/class/net/eno{number}"));
            fs::create_dir_all(card.join("device")).unwrap();
            fs::write(card.join("address"), format!("{mac}\n")).unwrap();
        }
        fs::create_dir_all(root.live_networks().parent().unwrap()).unwrap();
        (directory, root)
    }

    #[test]
    fn one_host_alone_is_this_one() {
        let hosts = r#"{"hosts": [
            {"macs": ["02:00:00:00:00:01", "02:00:00:00:00:02"], "network": "a"},
            {"macs": ["02:00:00:00:00:03"], "network": "b"},
            {"macs": ["02:00:00:00:00:03", "02:00:00:00:00:04"], "uuid": "u-1", "network": "c"}
        ]}"#;
        for (name, text, cards, want) in [
            ("first card", hosts, &["02:00:00:00:00:09", "02:00:00:00:00:01"][..], Some("a")),
            ("second card, upper case", hosts, &["02:00:00:00:00:02"], Some("a")),
            ("both cards", hosts, &["02:00:00:00:00:02", "02:00:00:00:00:01"], Some("a")),
            ("two hosts have it", hosts, &["02:00:00:00:00:03"], None),
            ("cards of two hosts", hosts, &["02:00:00:00:00:01", "02:00:00:00:00:04"], None),
            ("unknown", hosts, &["02:00:00:00:00:09"], None),
            ("no cards", hosts, &[], None),
            ("torn", "{", &["02:00:00:00:00:01"], None),
        ] {
            let (_directory, root) = host_with(cards);
            fs::write(root.live_networks(), text).unwrap();
            assert_eq!(find_own(&root).as_ref().and_then(Value::as_str), want, "{name}");
        }
    }

    #[test]
    fn missing_file_means_no_single_host_network() {
        let (_directory, root) = host_with(&["02:00:00:00:00:01"]);
        assert_eq!(find_own(&root), None);
    }

    #[test]
    fn the_uuid_tells_more_than_a_card() {
        let host = |uuid: Option<&str>, macs: &[&str], network: &str| Host {
            macs: macs.iter().map(|mac| (*mac).to_owned()).collect(),
            uuid: uuid.map(str::to_owned),
            network: Value::String(network.to_owned()),
        };
        let hosts =
            [host(Some("U-1"), &[], "a"), host(Some("u-2"), &["m"], "b"), host(Some("u-2"), &[], "c")];
        let network =
            |uuid: &str| Some(choose(&hosts, |host| host.has_uuid(Some(uuid)))?.network.as_str().unwrap());
        assert_eq!(network("u-1"), Some("a"));
        assert_eq!(network("u-2"), None, "a UUID that a series of boards shares");
        assert_eq!(network("u-3"), None);
    }
}
