//! Texts of hosts that a status keeps, and names of objects and nodes.

/// Longest value of a label, and therefore of the host name that a kubelet writes into one.
const LONGEST_NODE: usize = 63;

/// Longest text that a host can put into a status, bytes.
const TEXT_BYTES: usize = 2048;

pub(crate) fn truncate_text(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES)].to_owned()
}

/// The text is an RFC 1123 subdomain.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|part| {
            !part.is_empty()
                && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
                && !part.starts_with('-')
                && !part.ends_with('-')
        })
}

/// A kubelet can have this name: it is also the value of the label `kubernetes.io/hostname`.
pub(crate) fn is_node_name(text: &str) -> bool {
    text.len() <= LONGEST_NODE && is_name(text)
}
