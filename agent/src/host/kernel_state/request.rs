//! Requests to the kernel by netlink, with their answers as bytes.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::rule::RuleMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::ground::failure::Failure;
use crate::host::network::kernel::{DATAGRAM, ask_kernel, no_answer};

/// Length of the header of each message, in bytes.
const HEADER: usize = 16;
/// linux/netlink.h: types of messages that every protocol has.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// A message of a protocol without a crate: its type, and all after the header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Raw {
    pub(super) kind: u16,
    pub(super) payload: Vec<u8>,
}

pub(super) fn list_rules() -> Result<Vec<RuleMessage>, Failure> {
    let answers = ask_kernel(RouteNetlinkMessage::GetRule(RuleMessage::default()));
    let answers = answers.map_err(|error| no_answer("rules", &error))?;
    let rules = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewRule(rule) => Some(rule),
        _ => None,
    });
    Ok(rules.collect())
}

/// Sends one change, and returns the kernel's verdict.
pub(super) fn change_kernel(change: RouteNetlinkMessage) -> io::Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(change));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    exchange(NETLINK_ROUTE, &bytes).map(drop)
}

/// Lists by a protocol without a crate.
pub(super) fn dump(protocol: isize, question: &Raw) -> io::Result<Vec<Raw>> {
    exchange(protocol, &frame(question, NLM_F_DUMP | NLM_F_REQUEST))
}

pub(super) fn ask(protocol: isize, question: &Raw) -> io::Result<Vec<Raw>> {
    exchange(protocol, &frame(question, NLM_F_REQUEST | NLM_F_ACK))
}

pub(super) fn frame(message: &Raw, flags: u16) -> Vec<u8> {
    let length = u32::try_from(HEADER + message.payload.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(message.kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // Sequence number and port.
    bytes.extend([0; 8]);
    bytes.extend(&message.payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// An attribute with its length and kind, padded.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The value of the first attribute of this kind.
pub(super) fn find_attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let [a, b, c, d, ..] = *bytes {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = bytes.get(4..length)?;
        if u16::from_ne_bytes([c, d]) == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

/// Sends the bytes, and reads until the verdict or the end of the list.
pub(super) fn exchange(protocol: isize, bytes: &[u8]) -> io::Result<Vec<Raw>> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(bytes, 0)?;
    let mut answers = Vec::new();
    let mut buffer = Vec::with_capacity(DATAGRAM);
    loop {
        buffer.clear();
        if socket.recv(&mut buffer, 0)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if read_answers(&buffer, &mut answers)? {
            return Ok(answers);
        }
    }
}

/// True if the datagram ends the answer.
fn read_answers(mut bytes: &[u8], answers: &mut Vec<Raw>) -> io::Result<bool> {
    while let Some(length) = bytes.first_chunk::<4>().map(|length| u32::from_ne_bytes(*length) as usize) {
        let (Some(message), Some(kind)) = (bytes.get(..length), bytes.get(4..6)) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let payload = message.get(HEADER..).ok_or(io::ErrorKind::InvalidData)?;
        match u16::from_ne_bytes([kind[0], kind[1]]) {
            DONE => return Ok(true),
            ERROR => {
                let code = payload.first_chunk::<4>().map_or(0, |code| i32::from_ne_bytes(*code));
                return if code == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(-code)) };
            }
            kind => answers.push(Raw { kind, payload: payload.to_vec() }),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_answers_are_errors() {
        let error = |code: i32| {
            let payload = code.to_ne_bytes().to_vec();
            frame(&Raw { kind: ERROR, payload }, 0)
        };
        for (name, bytes, want) in [
            ("nothing", vec![], Some(false)),
            ("acknowledged", error(0), Some(true)),
            ("refused", error(-1), None),
            ("listed", frame(&Raw { kind: 0x0a00, payload: vec![1; 5] }, 0), Some(false)),
            ("no header", 8u32.to_ne_bytes().repeat(2), None),
            ("too long", [200u32.to_ne_bytes(), [0; 4]].concat(), None),
            ("no length", vec![0; 16], None),
        ] {
            assert_eq!(read_answers(&bytes, &mut vec![]).ok(), want, "{name}");
        }
        assert_eq!(find_attribute(&[0, 0, 1, 0], 1), None, "an attribute shorter than itself");
        assert_eq!(find_attribute(&attribute(1, b"name\0"), 1), Some(&b"name\0"[..]));
    }
}
