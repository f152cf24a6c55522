//! Network interfaces: what `/sys/class/net` shows with a device behind it.

use std::fs;
use std::path::Path;

use proto::v1alpha1::Nic;

use crate::paths::Root;

/// Every hardware interface, by name.
#[must_use]
pub fn read_nics(root: &Root) -> Vec<Nic> {
    let Ok(entries) = fs::read_dir(root.join("/sys/class/net")) else {
        return Vec::new();
    };
    let mut nics: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.path().join("device").exists())
        .filter_map(|entry| Some(read_nic(&entry.path(), entry.file_name().to_str()?)))
        .collect();
    nics.sort_by(|a, b| a.name.cmp(&b.name));
    nics
}

fn read_nic(path: &Path, name: &str) -> Nic {
    let text = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default().trim().to_owned();
    Nic {
        name: name.to_owned(),
        mac: text("address"),
        carrier: text("carrier") == "1",
        // Without a link the kernel reports -1, or an error.
        speed_mbit: text("speed").parse().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_with_a_device_are_cards() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        for (name, card, speed) in
            [("ens3", true, "1000\n"), ("ens4", true, "-1\n"), ("veth0", false, "10000\n")]
        {
            let path = root.join("/sys/class/net").join(name);
            fs::create_dir_all(path.join(if card { "device" } else { "queues" })).unwrap();
            fs::write(path.join("address"), "02:00:00:00:00:01\n").unwrap();
            fs::write(path.join("carrier"), "1\n").unwrap();
            fs::write(path.join("speed"), speed).unwrap();
        }
        let nics: Vec<_> =
            read_nics(&root).into_iter().map(|nic| (nic.name, nic.speed_mbit, nic.carrier)).collect();
        assert_eq!(nics, [("ens3".to_owned(), 1000, true), ("ens4".to_owned(), 0, true)]);
    }
}
