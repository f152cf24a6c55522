//! A port in a VLAN of the switch. Kernels of test machines may have no VLANs: tags are put on and
//! taken off here.

use std::sync::Arc;
use std::thread;

use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::run_ip;

/// Both addresses of a frame; the tag is behind them.
const ADDRESSES: usize = 12;
/// The protocol of the tag, and the tag.
const TAG: usize = 4;
const PROTOCOL: [u8; 2] = [0x81, 0x00];
/// The low bits of the tag; the others are priorities.
const ID: u16 = 0x0fff;
/// The largest frame with its tag.
const FRAME: usize = 2048;

/// The device of the port, which is up.
///
/// # Errors
/// When a command fails.
pub(super) fn plug(id: u16) -> anyhow::Result<&'static str> {
    let (trunk, port) = (open("trunk")?, open("port")?);
    run_ip("link set trunk master br0 up")?;
    run_ip("link set port up")?;
    relay(trunk.clone(), port.clone(), move |frame| untag(frame, id));
    relay(port, trunk, move |frame| tag(frame, id));
    Ok("port")
}

fn open(name: &str) -> anyhow::Result<Arc<SyncDevice>> {
    Ok(Arc::new(DeviceBuilder::new().name(name).layer(Layer::L2).build_sync()?))
}

/// For as long as this program runs.
fn relay(
    from: Arc<SyncDevice>,
    to: Arc<SyncDevice>,
    change: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static,
) {
    thread::spawn(move || {
        let mut buffer = [0; FRAME];
        while let Ok(length) = from.recv(&mut buffer) {
            let frame = buffer.get(..length).and_then(&change);
            // As on a wire, a frame may be lost.
            let _ = frame.map(|frame| to.send(&frame));
        }
    });
}

fn tag(frame: &[u8], id: u16) -> Option<Vec<u8>> {
    let (addresses, rest) = frame.split_at_checked(ADDRESSES)?;
    Some([addresses, &PROTOCOL, &id.to_be_bytes(), rest].concat())
}

/// The frame without its tag, when it is of this VLAN.
fn untag(frame: &[u8], id: u16) -> Option<Vec<u8>> {
    let (addresses, rest) = frame.split_at_checked(ADDRESSES)?;
    let (tag, rest) = rest.split_at_checked(TAG)?;
    let (protocol, found) = tag.split_at_checked(PROTOCOL.len())?;
    let found = u16::from_be_bytes(found.try_into().ok()?);
    (protocol == PROTOCOL && found & ID == id).then(|| [addresses, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_on_and_off() {
        let plain = [&[1_u8; ADDRESSES][..], &[8, 0, 5, 6]].concat();
        let tagged = tag(&plain, 77).unwrap();
        assert_eq!(tagged, [&[1_u8; ADDRESSES][..], &[0x81, 0, 0, 77, 8, 0, 5, 6]].concat());
        let prioritised = [&[1_u8; ADDRESSES][..], &[0x81, 0, 0xe0, 77, 8, 0, 5, 6]].concat();
        for (name, frame, want) in [
            ("its own", &tagged, Some(plain.clone())),
            ("with a priority", &prioritised, Some(plain.clone())),
            ("without a tag", &plain, None),
            ("of another VLAN", &tag(&plain, 78).unwrap(), None),
            ("cut short", &plain[..9].to_vec(), None),
        ] {
            assert_eq!(untag(frame, 77), want, "{name}");
        }
    }
}
