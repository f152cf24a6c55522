//! Graphics cards: entries of `/sys/class/drm` with a PCI device.

use std::fs;
use std::path::Path;

use proto::v1alpha1::GraphicsCard;

use crate::ground::paths::Root;

/// Every card, in the kernel's order. Vendor and product are numbers, because the host has no
/// database of names.
pub fn read_cards(root: &Root) -> Vec<GraphicsCard> {
    let entries = fs::read_dir(root.join("/sys/class/drm")).into_iter().flatten().flatten();
    let mut cards: Vec<_> = entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix("card")?.parse::<u32>().ok()?;
            Some((number, read_card(&entry.path().join("device"))?))
        })
        .collect();
    cards.sort_by_key(|(number, _)| *number);
    cards.into_iter().map(|(_, card)| card).collect()
}

fn read_card(device: &Path) -> Option<GraphicsCard> {
    let driver = fs::read_link(device.join("driver")).ok();
    let driver = driver.as_deref().and_then(|path| path.file_name()?.to_str()).unwrap_or("");
    let (vendor, product) = (read_number(&device.join("vendor"))?, read_number(&device.join("device"))?);
    Some(GraphicsCard { driver: driver.to_owned(), vendor, product })
}

/// The digits of a number; `None` if the device is not on PCI.
fn read_number(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().trim_start_matches("0x").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_read_and_their_connectors_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        for (name, product) in [("card10", "0x1111"), ("card2", "0x2222")] {
            let device = root.join("/sys/class/drm").join(name).join("device");
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("vendor"), "0x10de\n").unwrap();
            fs::write(device.join("device"), format!("{product}\n")).unwrap();
            std::os::unix::fs::symlink("../../bus/pci/drivers/nvidia", device.join("driver")).unwrap();
        }
        for other in ["card2-HDMI-A-1", "renderD128", "card3"] {
            fs::create_dir_all(root.join("/sys/class/drm").join(other)).unwrap();
        }
        let card = |product: &str| GraphicsCard {
            driver: "nvidia".into(),
            vendor: "10de".into(),
            product: product.into(),
        };
        assert_eq!(read_cards(&root), [card("2222"), card("1111")]);
    }
}
