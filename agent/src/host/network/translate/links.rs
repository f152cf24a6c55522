//! Links: their kind according to the kernel, and the choice of the host's own links.

use std::collections::HashSet;

use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use proto::v1alpha1::Bond;

use super::bonds::parse_bond;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Card,
    Bond(Box<Bond>, Option<u32>),
    Vlan { id: u16, parent: u32 },
    Bridge,
}

#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mac: String,
    pub(super) permanent_mac: String,
    pub(super) mtu: u32,
    /// The link is up, and its cable is plugged in.
    pub(super) carries: bool,
    pub(super) master: Option<u32>,
    pub(super) kind: Kind,
}

pub(super) fn format_mac(bytes: &[u8]) -> String {
    let octets: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    octets.join(":")
}

/// Parses a link of a kind that the host may own; `None` for other kinds.
pub(super) fn parse_link(message: &LinkMessage) -> Option<Link> {
    if message.header.link_layer_type != LinkLayerType::Ether {
        return None;
    }
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mac: String::new(),
        permanent_mac: String::new(),
        mtu: 0,
        carries: message.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        master: None,
        kind: Kind::Card,
    };
    let mut parent = 0;
    let mut information: &[LinkInfo] = &[];
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Address(bytes) => link.mac = format_mac(bytes),
            LinkAttribute::PermAddress(bytes) => link.permanent_mac = format_mac(bytes),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Controller(index) => link.master = Some(*index),
            LinkAttribute::Link(index) => parent = *index,
            LinkAttribute::LinkInfo(info) => information = info,
            _ => {}
        }
    }
    link.kind = parse_kind(information, parent)?;
    Some(link)
}

fn parse_kind(information: &[LinkInfo], parent: u32) -> Option<Kind> {
    let data = information.iter().find_map(|info| match info {
        LinkInfo::Data(data) => Some(data),
        _ => None,
    });
    let kind = information.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind),
        _ => None,
    });
    match (kind, data) {
        (None, _) => Some(Kind::Card),
        (Some(InfoKind::Bridge), _) => Some(Kind::Bridge),
        (Some(InfoKind::Bond), Some(InfoData::Bond(data))) => {
            let (bond, primary) = parse_bond(data);
            Some(Kind::Bond(Box::new(bond), primary))
        }
        (Some(InfoKind::Vlan), Some(InfoData::Vlan(data))) => data.iter().find_map(|part| match part {
            InfoVlan::Id(id) => Some(Kind::Vlan { id: *id, parent }),
            _ => None,
        }),
        _ => None,
    }
}

/// Chooses hardware interfaces and the devices above them. A bond or bridge without a chosen
/// member, and a VLAN without a chosen parent, belong to containers or are unused. Names are no
/// criterion: `br-ex` may hold the card of the host or the containers of docker.
pub(super) fn select_links(links: Vec<Link>) -> Vec<Link> {
    let mut kept: HashSet<u32> = HashSet::new();
    loop {
        let before = kept.len();
        for link in &links {
            let stands = match &link.kind {
                Kind::Card => true,
                Kind::Bond(..) | Kind::Bridge => links
                    .iter()
                    .any(|member| member.master == Some(link.index) && kept.contains(&member.index)),
                Kind::Vlan { parent, .. } => kept.contains(parent),
            };
            if stands {
                kept.insert(link.index);
            }
        }
        if kept.len() == before {
            return links.into_iter().filter(|link| kept.contains(&link.index)).collect();
        }
    }
}
