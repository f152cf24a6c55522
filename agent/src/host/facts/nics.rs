//! Network interfaces: entries of `/sys/class/net` with a device.

use std::fs;
use std::path::Path;

use proto::limits;
use proto::v1alpha1::{Nic, ObservedNetwork};

use super::without_prefix;
use crate::ground::paths::Root;
use crate::host::sysfs::read_line;

/// Every hardware interface, sorted by name, with its addresses in `network`.
pub fn read_nics(root: &Root, network: Option<&ObservedNetwork>) -> Vec<Nic> {
    let Ok(entries) = fs::read_dir(root.join("/sys/class/net")) else {
        return Vec::new();
    };
    let mut nics: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.path().join("device").exists())
        .filter_map(|entry| Some(read_nic(&entry.path(), entry.file_name().to_str()?, network)))
        .collect();
    nics.sort_by(|a, b| a.name.cmp(&b.name));
    nics
}

fn read_nic(path: &Path, name: &str, network: Option<&ObservedNetwork>) -> Nic {
    Nic {
        name: name.to_owned(),
        mac: read_line(&path.join("address")),
        // The kernel reports -1 or an error if the interface has no link.
        speed_mbit: read_line(&path.join("speed")).parse().unwrap_or(0),
        addresses: find_addresses(network, name),
        duplex: match read_line(&path.join("duplex")) {
            duplex if duplex == "unknown" => String::new(),
            duplex => duplex,
        },
        pci_address: read_pci_address(path).unwrap_or_default(),
    }
}

fn find_addresses(network: Option<&ObservedNetwork>, name: &str) -> Vec<String> {
    let interfaces = network.map_or(&[][..], |network| network.interfaces.as_slice());
    let found = interfaces.iter().filter(|interface| interface.name == name);
    let addresses = found.flat_map(|interface| interface.addresses.iter());
    addresses.map(|address| without_prefix(address)).take(limits::ADDRESSES).collect()
}

/// The PCI address of the device; a virtio device has the address of its parent.
fn read_pci_address(path: &Path) -> Option<String> {
    let device = fs::canonicalize(path.join("device")).ok()?;
    let names = device.ancestors().take(2).filter_map(|path| path.file_name()?.to_str());
    names
        .filter(|name| name.len() == 12 && name.as_bytes()[4] == b':' && name.as_bytes()[10] == b'.')
        .map(str::to_owned)
        .next()
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
            fs::write(path.join("speed"), speed).unwrap();
        }
        let nics: Vec<_> = read_nics(&root, None).into_iter().map(|nic| (nic.name, nic.speed_mbit)).collect();
        assert_eq!(nics, [("ens3".to_owned(), 1000), ("ens4".to_owned(), 0)]);
    }

    #[test]
    fn card_has_its_addresses_and_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let device = root.join("/sys/devices/pci0000:00/0000:00:03.0/virtio1");
        let path = root.join("/sys/class/net/eth0");
        fs::create_dir_all(&device).unwrap();
        fs::create_dir_all(&path).unwrap();
        std::os::unix::fs::symlink(&device, path.join("device")).unwrap();
        fs::write(path.join("duplex"), "full\n").unwrap();
        let interface = |name: &str, address: &str| proto::v1alpha1::Interface {
            name: name.to_owned(),
            addresses: vec![address.to_owned()],
            ..Default::default()
        };
        let interfaces = vec![interface("eth1", "192.0.2.2/24"), interface("eth0", "192.0.2.1/24")];
        let network = ObservedNetwork { interfaces, ..ObservedNetwork::default() };
        let nics = read_nics(&root, Some(&network));
        assert_eq!(
            (nics[0].addresses.as_slice(), nics[0].duplex.as_str()),
            (&["192.0.2.1".to_owned()][..], "full")
        );
        assert_eq!(nics[0].pci_address, "0000:00:03.0");
    }
}
