//! Requests to the kernel by netlink, with their answers as bytes.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::rule::RuleMessage;

use crate::ground::failure::Failure;
use crate::host::network::kernel::{ask_kernel, no_answer};
use crate::host::network::netlink::{self, HEADER};

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

/// Sends framed messages, and returns the messages of the answer.
pub(super) fn exchange(protocol: isize, bytes: &[u8]) -> io::Result<Vec<Raw>> {
    let mut answers = Vec::new();
    netlink::exchange(protocol, bytes, |message| {
        answers.push(Raw { kind: netlink::kind_of(message), payload: message[HEADER..].to_vec() });
    })?;
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_by_their_kind() {
        assert_eq!(find_attribute(&[0, 0, 1, 0], 1), None, "an attribute shorter than itself");
        assert_eq!(find_attribute(&attribute(1, b"name\0"), 1), Some(&b"name\0"[..]));
    }
}
