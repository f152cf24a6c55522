//! The number of fields of a message, counted on the wire.

/// Fields of a message of any size, and bytes for each field above them. The fields of the largest facts of a
/// host have twelve bytes on average.
const FIELDS: usize = 4096;
const BYTES_PER_FIELD: usize = 8;
/// Messages within each other; the contract has five levels.
const DEPTH: usize = 12;

/// Tells whether a message has few enough texts, bytes and messages for its size.
pub fn are_bounded(message: &[u8]) -> bool {
    let mut left = FIELDS + message.len() / BYTES_PER_FIELD;
    count_fields(message, DEPTH, &mut left);
    left > 0
}

/// Counts up to the first byte that is no field, because a decoder keeps what stands before it. A text is
/// counted as if it were a message, which adds little: most letters begin no field, or one of many bytes.
/// The contents of a group count as if they stood in its place, because a decoder skips an unknown group and
/// reads what follows it.
fn count_fields(mut bytes: &[u8], depth: usize, left: &mut usize) {
    while let Some(tag) = take_number(&mut bytes) {
        let skipped = match tag & 7 {
            0 => take_number(&mut bytes).map(|_| 0),
            1 => Some(8),
            2 => take_number(&mut bytes),
            3 | 4 => Some(0),
            5 => Some(4),
            _ => None,
        };
        let Some(field) = skipped.and_then(|len| bytes.split_off(..usize::try_from(len).ok()?)) else {
            return;
        };
        if tag & 7 == 2 {
            *left = left.saturating_sub(1);
            if *left == 0 {
                return;
            }
            if depth > 0 {
                count_fields(field, depth - 1, left);
            }
        }
    }
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::{limits, v1alpha1 as wire};

    fn hello(facts: wire::HostFacts) -> Vec<u8> {
        let hello = wire::Hello { facts: Some(facts), ..wire::Hello::default() };
        wire::HostMessage { message: Some(wire::host_message::Message::Hello(hello)) }.encode_to_vec()
    }

    #[test]
    fn empty_messages_are_counted_before_decoding() {
        let nics = wire::HostFacts { nics: vec![wire::Nic::default(); 131_072], ..Default::default() };
        let mut bomb = hello(nics);
        assert!(!are_bounded(&bomb));
        bomb.extend([0xff; 3]);
        assert!(!are_bounded(&bomb), "what a decoder keeps before the error counts");
        let disks = vec![wire::Disk::default(); 100_000];
        assert!(!are_bounded(&wire::HostFacts { disks, ..Default::default() }.encode_to_vec()));
    }

    #[test]
    fn skipped_fields_hide_nothing() {
        let empty = vec![wire::Nic::default(); 131_072];
        let facts = wire::HostFacts { nics: empty, ..Default::default() }.encode_to_vec();
        let in_request = |facts: &[u8]| {
            let mut request = vec![];
            prost::encoding::bytes::encode(3, &facts.to_vec(), &mut request);
            request
        };
        // Fields 2047, which no message has, of each type, and groups within a group.
        let skipped: [&[u8]; 5] = [
            b"\xf8\x7f\x07",
            b"\xf9\x7f12345678",
            b"\xfa\x7f\x01x",
            b"\xfb\x7f\xfb\x7f\xf8\x7f\x07\xfc\x7f\xfc\x7f",
            b"\xfd\x7f1234",
        ];
        for prefix in skipped {
            for bytes in [[prefix, &in_request(&facts)].concat(), in_request(&[prefix, &facts].concat())] {
                let decoded = wire::CompleteRequest::decode(bytes.as_slice()).unwrap();
                assert_eq!(decoded.facts.unwrap().nics.len(), 131_072, "a decoder skips it");
                assert!(!are_bounded(&bytes), "{prefix:?}");
            }
        }
    }

    #[test]
    fn largest_honest_messages_are_bounded() {
        let disk = wire::Disk { name: "sda".into(), serial: "S12".into(), ..Default::default() };
        let nic = wire::Nic {
            name: "eth0".into(),
            mac: "52:54:00:00:00:01".into(),
            addresses: vec!["10.0.0.1/8".into(); 8],
            ..Default::default()
        };
        let facts = wire::HostFacts {
            disks: vec![disk; limits::DISKS],
            nics: vec![nic; limits::INTERFACES],
            ..Default::default()
        };
        assert!(are_bounded(&hello(facts)));
        let text = "[connection]\nid=bond0\ntype=bond\n[ipv4]\naddress1=10.0.0.1/24\n".repeat(1500);
        let report = wire::StepReport { plan_id: text, ..Default::default() };
        assert!(are_bounded(&report.encode_to_vec()));
    }

    #[test]
    fn any_bytes_are_counted_in_time() {
        for byte in [0x0a, 0x12, 0x62, 0x80, 0xff, 0] {
            are_bounded(&vec![byte; limits::PLAN_BYTES]);
        }
        let mut nested = vec![];
        for _ in 0..1000 {
            let length = nested.len();
            let mut field = vec![0x0a];
            prost::encoding::encode_varint(length as u64, &mut field);
            field.extend(nested);
            nested = field;
        }
        assert!(are_bounded(&nested));
    }
}
