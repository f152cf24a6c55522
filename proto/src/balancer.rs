//! The checked duty of a control-plane host for the internal endpoint of its cluster.

use std::net::IpAddr;
use std::num::{NonZeroU8, NonZeroU16};

use crate::limits;
use crate::v1alpha1 as wire;

/// Why a duty is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DutyError {
    /// Not an IP address.
    #[error("{0:?} is no IP address")]
    Address(String),
    /// Members and address are not of one family.
    #[error("{0} is of another address family than the address that the members hold")]
    Family(IpAddr),
    /// Not a TCP port.
    #[error("{0} is no TCP port")]
    Port(u32),
    /// Not an id of VRRP.
    #[error("{0} is no virtual router id: 1 to 255")]
    RouterId(u32),
    /// Not the name of a network interface.
    #[error("{0:?} is no name of a network interface")]
    Interface(String),
    /// The position names no member.
    #[error("position {position} of {members} members")]
    Position {
        /// Counted from zero.
        position: u32,
        /// Number of members.
        members: usize,
    },
    /// A member is named twice, or has the address of the endpoint.
    #[error("{0} is named twice")]
    Duplicate(IpAddr),
}

/// The duty of a member of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duty {
    /// Number of the duty, which rises with each change.
    pub generation: u64,
    /// The address, which one member holds at a time.
    pub address: IpAddr,
    /// Port of the address and of each member's API server.
    pub port: NonZeroU16,
    /// Virtual router id of VRRP.
    pub router_id: NonZeroU8,
    /// Interface of the address; `None` stands for the interface that routes to it.
    pub interface: Option<String>,
    /// Members in the order of their precedence, including this host.
    pub members: Vec<IpAddr>,
    /// Position of this host among the members.
    pub position: usize,
    /// The host holds the address until its API server answered for the first time.
    pub holds_first: bool,
}

impl Duty {
    /// Parses a message; `None` stands for a host without duty.
    pub fn parse(duty: &wire::LoadBalancerDuty) -> Result<Option<Self>, DutyError> {
        if duty.address.is_empty() {
            return Ok(None);
        }
        let address = parse_address(&duty.address)?;
        let members = duty.members.iter().take(limits::ADDRESSES + 1).map(|member| parse_address(member));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        for (index, member) in members.iter().enumerate() {
            if member.is_ipv4() != address.is_ipv4() {
                return Err(DutyError::Family(*member));
            }
            if *member == address || members[..index].contains(member) {
                return Err(DutyError::Duplicate(*member));
            }
        }
        let position = usize::try_from(duty.position).ok().filter(|position| *position < members.len());
        let position = position.filter(|_| members.len() <= limits::ADDRESSES);
        let wrong = DutyError::Position { position: duty.position, members: members.len() };
        let position = position.ok_or(wrong)?;
        let port = u16::try_from(duty.port).ok().and_then(NonZeroU16::new);
        let router_id = u8::try_from(duty.router_id).ok().and_then(NonZeroU8::new);
        let interface = Some(&duty.interface).filter(|name| !name.is_empty());
        if let Some(name) = interface.filter(|name| !is_interface_name(name)) {
            return Err(DutyError::Interface(name.clone()));
        }
        Ok(Some(Self {
            generation: duty.generation,
            address,
            port: port.ok_or(DutyError::Port(duty.port))?,
            router_id: router_id.ok_or(DutyError::RouterId(duty.router_id))?,
            interface: interface.cloned(),
            members,
            position,
            holds_first: duty.holds_first,
        }))
    }

    /// The address of this host.
    pub fn own_address(&self) -> IpAddr {
        self.members[self.position]
    }

    /// The other members.
    pub fn peers(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.members.iter().copied().filter(|member| *member != self.own_address())
    }
}

fn parse_address(text: &str) -> Result<IpAddr, DutyError> {
    let address = text
        .parse::<IpAddr>()
        .ok()
        .filter(|address| !(address.is_unspecified() || address.is_loopback() || address.is_multicast()));
    address.ok_or_else(|| DutyError::Address(text.to_owned()))
}

/// The kernel accepts the name, and no byte of it ends a word in a configuration file.
pub fn is_interface_name(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte))
        && name != "."
        && name != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duty() -> wire::LoadBalancerDuty {
        wire::LoadBalancerDuty {
            generation: 3,
            address: "10.0.0.100".into(),
            port: 6443,
            router_id: 51,
            interface: "bond0".into(),
            members: vec!["10.0.0.1".into(), "10.0.0.2".into()],
            position: 1,
            holds_first: false,
        }
    }

    #[test]
    fn a_duty_names_this_host_and_its_peers() {
        let parsed = Duty::parse(&duty()).unwrap().unwrap();
        assert_eq!(parsed.own_address().to_string(), "10.0.0.2");
        assert_eq!(parsed.peers().map(|peer| peer.to_string()).collect::<Vec<_>>(), ["10.0.0.1"]);
        assert_eq!(Duty::parse(&wire::LoadBalancerDuty { generation: 4, ..Default::default() }), Ok(None));
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        type Change = fn(&mut wire::LoadBalancerDuty);
        let cases: [(&str, Change); 10] = [
            ("address", |duty| duty.address = "vip.example".into()),
            ("loopback", |duty| duty.address = "127.0.0.1".into()),
            ("member", |duty| duty.members[0] = String::new()),
            ("family", |duty| duty.members[0] = "2001:db8::1".into()),
            ("port", |duty| duty.port = 65536),
            ("router id", |duty| duty.router_id = 0),
            ("position", |duty| duty.position = 2),
            ("interface", |duty| duty.interface = "a b".into()),
            ("twice", |duty| duty.members[0] = "10.0.0.2".into()),
            ("held by a member", |duty| duty.members[0] = "10.0.0.100".into()),
        ];
        for (name, change) in cases {
            let mut duty = duty();
            change(&mut duty);
            assert!(Duty::parse(&duty).is_err(), "{name}");
        }
    }
}
