//! Tables of nftables, which also hold the rules of iptables' newer program, and the names of the
//! older iptables' tables.

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::request::{self, Raw, attribute, find_attribute, frame};
use crate::state::before_node::KernelItem;

// linux/netfilter/nfnetlink.h and nf_tables.h.
const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const GET_TABLE: u16 = SUBSYSTEM << 8 | 1;
const DELETE_TABLE: u16 = SUBSYSTEM << 8 | 2;
const TABLE_NAME: u16 = 1;

/// Address families, as `nft` names them.
const FAMILIES: [(u8, &str); 6] =
    [(1, "inet"), (2, "ip"), (3, "arp"), (5, "netdev"), (7, "bridge"), (10, "ip6")];

/// The header of netfilter before the attributes: family, version, and a number for batches.
fn header(family: u8, number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    vec![family, 0, high, low]
}

/// A kernel without nftables has no tables.
pub(super) fn list_tables() -> Vec<KernelItem> {
    let question = Raw { kind: GET_TABLE, payload: header(0, 0) };
    let answers = request::dump(NETLINK_NETFILTER, &question).unwrap_or_else(|error| {
        tracing::debug!(%error, "the kernel lists no tables of nftables");
        Vec::new()
    });
    answers.iter().filter(|answer| answer.kind == NEW_TABLE).filter_map(parse_table).collect()
}

fn parse_table(answer: &Raw) -> Option<KernelItem> {
    let (family, _) = FAMILIES
        .iter()
        .map(|(number, name)| (name, number))
        .find(|(_, number)| answer.payload.first() == Some(number))?;
    let name = find_attribute(answer.payload.get(4..)?, TABLE_NAME)?;
    let name = String::from_utf8_lossy(name.strip_suffix(b"\0").unwrap_or(name));
    Some(KernelItem::FilterTable(format!("{family} {name}")))
}

/// Each table in a batch of its own, so that one that cannot be removed does not keep the others.
pub(super) fn remove_tables(tables: impl Iterator<Item = KernelItem>) {
    for table in tables {
        let KernelItem::FilterTable(text) = &table else { continue };
        let named = text
            .split_once(' ')
            .and_then(|(family, name)| Some((FAMILIES.iter().find(|(_, known)| *known == family)?.0, name)));
        let Some((family, name)) = named else { continue };
        if let Err(error) =
            request::exchange(NETLINK_NETFILTER, &render_change(DELETE_TABLE, 0, family, name))
        {
            tracing::info!(item = %table, %error, "not removed from the kernel");
        }
    }
}

/// A change of one table, as a batch.
fn render_change(kind: u16, flags: u16, family: u8, name: &str) -> Vec<u8> {
    let mut payload = header(family, 0);
    payload.extend(attribute(TABLE_NAME, &[name.as_bytes(), b"\0"].concat()));
    let batch = |kind| frame(&Raw { kind, payload: header(0, SUBSYSTEM) }, NLM_F_REQUEST);
    let change = frame(&Raw { kind, payload }, NLM_F_REQUEST | NLM_F_ACK | flags);
    [batch(BATCH_BEGIN), change, batch(BATCH_END)].concat()
}

#[cfg(test)]
pub(super) mod tests {
    use netlink_packet_core::NLM_F_CREATE;

    use super::*;

    pub(in super::super) fn add_table(family: u8, name: &str) {
        let change = render_change(NEW_TABLE, NLM_F_CREATE, family, name);
        request::exchange(NETLINK_NETFILTER, &change).unwrap();
    }
}
