//! One question to the kernel by netlink, and its whole answer.

use std::io;

use netlink_sys::{Socket, SocketAddr};

/// Largest datagram that the kernel sends, in bytes.
pub(crate) const DATAGRAM: usize = 64 * 1024;
/// Length of the header of each message, in bytes.
pub(crate) const HEADER: usize = 16;
/// linux/netlink.h: types of messages that every protocol has.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// Sends the bytes of a request, and gives each message of the answer with its header to `take`, until
/// the verdict or the end of the list.
pub(crate) fn exchange(protocol: isize, request: &[u8], mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(request, 0)?;
    let mut buffer = Vec::with_capacity(DATAGRAM);
    loop {
        buffer.clear();
        if socket.recv(&mut buffer, 0)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if read_datagram(&buffer, &mut take)? {
            return Ok(());
        }
    }
}

/// The type of a message.
pub(crate) fn kind_of(message: &[u8]) -> u16 {
    message.get(4..6).map_or(0, |kind| u16::from_ne_bytes([kind[0], kind[1]]))
}

/// True if the datagram ends the answer.
fn read_datagram(mut bytes: &[u8], take: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    while let Some(length) = bytes.first_chunk::<4>().map(|length| u32::from_ne_bytes(*length) as usize) {
        let message = bytes.get(..length).filter(|message| message.len() >= HEADER);
        let message = message.ok_or(io::ErrorKind::InvalidData)?;
        match kind_of(message) {
            DONE => return Ok(true),
            ERROR => {
                let code = message[HEADER..].first_chunk::<4>().map_or(0, |code| i32::from_ne_bytes(*code));
                return if code == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(-code)) };
            }
            _ => take(message),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u16, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + payload.len()).unwrap();
        let head = [length.to_ne_bytes().as_slice(), &kind.to_ne_bytes(), &[0; 10], payload].concat();
        [head.clone(), vec![0; head.len().next_multiple_of(4) - head.len()]].concat()
    }

    #[test]
    fn malformed_answers_are_errors() {
        for (name, bytes, want) in [
            ("nothing", vec![], Some(false)),
            ("acknowledged", frame(ERROR, &0i32.to_ne_bytes()), Some(true)),
            ("refused", frame(ERROR, &(-1i32).to_ne_bytes()), None),
            ("listed", frame(0x0a00, &[1; 5]), Some(false)),
            ("no header", 8u32.to_ne_bytes().repeat(2), None),
            ("too long", [200u32.to_ne_bytes(), [0; 4]].concat(), None),
            ("no length", vec![0; 16], None),
        ] {
            assert_eq!(read_datagram(&bytes, &mut |_| ()).ok(), want, "{name}");
        }
    }

    #[test]
    fn malformed_netlink_datagram_is_error() {
        for (name, bytes) in [("short", vec![3, 0, 0, 0]), ("long", vec![255, 0, 0, 0, 1, 2])] {
            assert!(read_datagram(&bytes, &mut |_| ()).is_err(), "{name}");
        }
    }
}
