//! Dumps of links, addresses and routes (rtnetlink).

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::neighbour::{NeighbourMessage, NeighbourState};
use netlink_packet_route::route::RouteMessage;
use netlink_sys::protocols::NETLINK_ROUTE;

use super::dump::Dump;
use super::netlink::exchange;
use super::translate::list_own_links;
use crate::ground::failure::{Failure, describe_cause};

/// Asks the kernel for links, addresses and routes.
pub fn dump_kernel() -> Result<Dump, Failure> {
    let mut dump = Dump::default();
    for (what, question) in [
        ("links", RouteNetlinkMessage::GetLink(LinkMessage::default())),
        ("addresses", RouteNetlinkMessage::GetAddress(AddressMessage::default())),
        ("routes", RouteNetlinkMessage::GetRoute(RouteMessage::default())),
    ] {
        for answer in ask_kernel(question).map_err(|error| no_answer(what, &error))? {
            match answer {
                RouteNetlinkMessage::NewLink(link) => dump.links.push(link),
                RouteNetlinkMessage::NewAddress(address) => dump.addresses.push(address),
                RouteNetlinkMessage::NewRoute(route) => dump.routes.push(route),
                _ => {}
            }
        }
    }
    Ok(dump)
}

/// True if a neighbour on a network of the host itself has answered, which means that the kernel
/// has learned a link-layer address.
pub fn has_neighbour() -> Result<bool, Failure> {
    let own = list_own_links(&dump_kernel()?);
    Ok(list_answering_links()?.iter().any(|link| own.contains(link)))
}

fn list_answering_links() -> Result<Vec<u32>, Failure> {
    use NeighbourState::{Delay, Probe, Reachable, Stale};
    let question = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
    let answers = ask_kernel(question).map_err(|error| no_answer("neighbours", &error))?;
    Ok(answers
        .iter()
        .filter_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(NeighbourMessage { header, .. }) => {
                matches!(header.state, Reachable | Stale | Delay | Probe).then_some(header.ifindex)
            }
            _ => None,
        })
        .collect())
}

pub(crate) fn no_answer(what: &str, error: &io::Error) -> Failure {
    let message = describe_cause(&format!("cannot ask the kernel for {what}"), error);
    Failure::input_output(message, "check the host's kernel log")
}

/// Lists. A message that cannot be decoded is left out, so that one unusual link does not hide the
/// others.
pub(crate) fn ask_kernel(question: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut answers = Vec::new();
    exchange(
        NETLINK_ROUTE,
        &encode(question, NLM_F_DUMP | NLM_F_REQUEST),
        |message| match NetlinkMessage::<RouteNetlinkMessage>::deserialize(message)
            .map(|message| message.payload)
        {
            Ok(NetlinkPayload::InnerMessage(message)) => answers.push(message),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "netlink message left out, it cannot be decoded"),
        },
    )?;
    Ok(answers)
}

/// Sends one change, and returns the kernel's verdict.
pub(crate) fn change_kernel(change: RouteNetlinkMessage) -> io::Result<()> {
    exchange(NETLINK_ROUTE, &encode(change, NLM_F_REQUEST | NLM_F_ACK), |_| ())
}

fn encode(message: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
    let mut request = NetlinkMessage::from(message);
    request.header.flags = flags;
    request.header.sequence_number = 1;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
pub(crate) mod in_namespace {
    use std::process::Command;

    pub(crate) fn run_ip(arguments: &str) {
        let done = Command::new("ip").args(arguments.split(' ')).status().unwrap();
        assert!(done.success(), "ip {arguments}");
    }

    /// On a thread of its own: a network namespace belongs to a thread. Where
    /// the test may not make one it is skipped, which root may always; with
    /// `NO_SKIPS`, which `make test` sets, it fails.
    pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
        let thread = std::thread::spawn(move || {
            if let Err(error) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
                assert!(!nix::unistd::geteuid().is_root(), "root cannot make a network namespace: {error}");
                let may_skip = std::env::var_os("NO_SKIPS").is_none();
                assert!(may_skip, "a network namespace needs root: run this test as root: {error}");
                println!("SKIPPED: a network namespace needs root: {error}");
                return;
            }
            test();
        });
        thread.join().unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::in_namespace::{in_namespace, run_ip};
    use super::*;
    use crate::host::network::translate::translate_dump;
    use netlink_packet_route::link::LinkAttribute;

    /// A pair of links replaces a network interface, which a test cannot create.
    fn as_card(link: &mut LinkMessage, cards: &[&str]) {
        let is_card = |attribute: &LinkAttribute| match attribute {
            LinkAttribute::IfName(name) => cards.contains(&name.as_str()),
            _ => false,
        };
        if !link.attributes.iter().any(is_card) {
            return;
        }
        link.attributes.retain(|attribute| !matches!(attribute, LinkAttribute::LinkInfo(_)));
    }

    #[test]
    fn a_real_kernels_dump_matches_its_configuration() {
        in_namespace(|| {
            run_ip("link set lo up");
            run_ip("link add eth7 address 02:00:00:00:00:07 mtu 1400 type veth peer name cali7");
            run_ip("link set cali7 up");
            run_ip("addr add 192.0.2.7/24 dev eth7");
            run_ip("addr add 198.51.100.9/25 dev eth7 valid_lft 3600 preferred_lft 3600");
            run_ip("link set eth7 up");
            run_ip("route add 203.0.113.0/24 via 192.0.2.1 metric 77");
            run_ip("route add default via 198.51.100.1 proto dhcp metric 100");
            let mut dump = dump_kernel().unwrap();
            assert_eq!(
                translate_dump(&dump).interfaces,
                [],
                "a link between containers is not a hardware interface"
            );
            dump.links.iter_mut().for_each(|link| as_card(link, &["eth7"]));
            let network = translate_dump(&dump);
            let [card] = network.interfaces.as_slice() else {
                panic!("{:?}", network.interfaces);
            };
            assert_eq!(
                (card.name.as_str(), card.mac.as_str(), card.mtu),
                ("eth7", "02:00:00:00:00:07", 1400)
            );
            assert_eq!(card.addresses, ["192.0.2.7/24", "198.51.100.9/25"]);
            assert_eq!(card.dynamic_addresses, ["198.51.100.9/25"]);
            assert!(card.dhcp4);
            let routes: Vec<_> = network
                .routes
                .iter()
                .map(|r| {
                    (r.destination.as_str(), r.gateway.as_str(), r.interface.as_str(), r.metric, r.dynamic)
                })
                .collect();
            assert_eq!(
                routes,
                [
                    ("0.0.0.0/0", "198.51.100.1", "eth7", 100, true),
                    ("203.0.113.0/24", "192.0.2.1", "eth7", 77, false),
                ]
            );
        });
    }

    #[test]
    fn real_gateways_on_the_link_are_told() {
        in_namespace(|| {
            run_ip("link add eth7 type veth peer name peer7");
            run_ip("link set eth7 up");
            run_ip("link set peer7 up");
            run_ip("addr add 203.0.113.7/32 dev eth7");
            run_ip("addr add 203.0.113.8 peer 192.0.2.8/32 dev eth7");
            run_ip("addr add 198.51.100.7/24 dev eth7");
            run_ip("addr add 2001:db8::7/128 dev eth7 nodad");
            run_ip("route add default via 192.0.2.1 dev eth7 onlink");
            run_ip("route add 10.1.0.0/16 via 192.0.2.8 dev eth7");
            run_ip("route add 10.2.0.0/16 via 198.51.100.1 dev eth7");
            run_ip(
                "route add 10.3.0.0/16 nexthop via 192.0.2.3 dev eth7 onlink nexthop via 198.51.100.1 dev eth7",
            );
            run_ip("-6 route add default via 2001:db8:ff::1 dev eth7 onlink");
            let mut dump = dump_kernel().unwrap();
            dump.links.iter_mut().for_each(|link| as_card(link, &["eth7"]));
            let network = translate_dump(&dump);
            let told: Vec<_> = network
                .routes
                .iter()
                .map(|route| (route.destination.as_str(), route.gateway.as_str(), route.on_link))
                .collect();
            let want = [
                ("0.0.0.0/0", "192.0.2.1", true),
                ("10.1.0.0/16", "192.0.2.8", true),
                ("10.2.0.0/16", "198.51.100.1", false),
                ("10.3.0.0/16", "192.0.2.3", true),
                ("10.3.0.0/16", "198.51.100.1", false),
                ("::/0", "2001:db8:ff::1", true),
            ];
            assert_eq!(told, want);
        });
    }

    #[test]
    fn a_real_bridge_is_told_with_its_card() {
        in_namespace(|| {
            run_ip("link add eth7 type veth peer name peer7");
            run_ip("link add eth8 type veth peer name peer8");
            for (bridge, port) in [("br-mgmt", "eth7"), ("br-0a1b2c", "eth8")] {
                run_ip(&format!("link add {bridge} type bridge"));
                run_ip(&format!("link set {port} master {bridge}"));
            }
            run_ip("addr add 192.0.2.7/24 dev br-mgmt");
            run_ip("addr add 198.51.100.7/24 dev br-0a1b2c");
            let mut dump = dump_kernel().unwrap();
            dump.links.iter_mut().for_each(|link| as_card(link, &["eth7"]));
            let told: Vec<_> = translate_dump(&dump)
                .interfaces
                .into_iter()
                .map(|one| (one.name, one.master, one.addresses.join(" ")))
                .collect();
            let want = [("br-mgmt", "", "192.0.2.7/24"), ("eth7", "br-mgmt", "")];
            assert_eq!(
                told,
                want.map(|(name, master, address)| (name.into(), master.into(), address.into()))
            );
        });
    }

    #[test]
    fn a_neighbour_that_was_configured_has_not_answered() {
        in_namespace(|| {
            run_ip("link add eth7 type veth peer name peer7");
            run_ip("link set eth7 up");
            run_ip("link set peer7 up");
            run_ip("addr add 192.0.2.7/24 dev eth7");
            let index = nix::net::if_::if_nametoindex("eth7").unwrap();
            run_ip("neigh add 192.0.2.8 lladdr 02:00:00:00:00:08 nud permanent dev eth7");
            assert!(!list_answering_links().unwrap().contains(&index));
            run_ip("neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 nud stale dev eth7");
            assert!(list_answering_links().unwrap().contains(&index));
            assert!(!has_neighbour().unwrap(), "a link of containers is not the host's");
        });
    }
}
