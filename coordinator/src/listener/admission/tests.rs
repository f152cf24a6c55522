use std::net::Ipv4Addr;

use coordinator_api::inventory::MachineInventory;
use serde_json::json;

use super::*;
use crate::key::Presence;
use crate::listener::known_hosts;

const HOSTS: usize = 10_000;

fn small() -> ConnectionLimits {
    ConnectionLimits {
        source_connections: 8,
        source_anonymous: 5,
        source_handshakes: 3,
        anonymous_connections: 7,
        host_connections: 2,
        ..ConnectionLimits::default()
    }
}

fn admission(limits: ConnectionLimits) -> (Arc<Admission>, Arc<KnownHosts>) {
    let known = Arc::<KnownHosts>::default();
    (Arc::new(Admission::new(limits, known.clone())), known)
}

fn address(number: usize) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(number).unwrap()).into()
}

fn peer(host: usize) -> Peer {
    known_hosts::tests::peer(host, Timestamp::MAX)
}

fn stated(host: usize, address: IpAddr) -> MachineInventory {
    let inventory = json!({
        "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineInventory",
        "metadata": { "name": format!("m-{host}"), "namespace": "fleet" }, "spec": {},
        "status": { "host": { "addresses": [address] } },
    });
    serde_json::from_value(inventory).unwrap()
}

/// As many as are admitted, and why the next one is not.
fn fill(admission: &Arc<Admission>, remote: IpAddr, peer: Option<&Peer>) -> (Vec<Connection>, Failure) {
    let mut open = vec![];
    loop {
        let mut connection = match admission.admit_connection(remote, Instant::now()) {
            Ok(connection) => connection,
            Err(failure) => return (open, failure),
        };
        if let Err(failure) = connection.end_handshake(peer, Timestamp::UNIX_EPOCH) {
            return (open, failure);
        }
        open.push(connection);
    }
}

fn silent(admission: &Arc<Admission>, remote: IpAddr) -> (Vec<Connection>, Failure) {
    let mut open = vec![];
    loop {
        match admission.admit_connection(remote, Instant::now()) {
            Ok(connection) => open.push(connection),
            Err(failure) => return (open, failure),
        }
    }
}

#[test]
fn each_stage_has_its_limit() {
    let (admission, _) = admission(small());
    let (open, failure) = silent(&admission, address(1));
    assert_eq!((open.len(), failure), (3, Failure::SourceHandshakes));
    drop(open);
    let (open, failure) = fill(&admission, address(1), None);
    assert_eq!((open.len(), failure), (5, Failure::SourceAnonymous));
    let (more, failure) = silent(&admission, address(2));
    assert_eq!((more.len(), failure), (2, Failure::AnonymousConnections));
    drop((open, more));
    let (open, failure) = fill(&admission, address(1), Some(&peer(1)));
    assert_eq!((open.len(), failure), (2, Failure::HostConnections));
    drop(open);
    let table = admission.lock_table();
    assert_eq!((table.sources.len(), table.hosts.len(), table.unknown), (0, 0, 0));
}

#[test]
fn authenticated_connections_count_for_their_source() {
    let limits = ConnectionLimits { host_connections: 100, ..small() };
    let (admission, _) = admission(limits);
    let (open, failure) = fill(&admission, address(1), Some(&peer(1)));
    assert_eq!((open.len(), failure), (8 + HOST_RESERVE, Failure::SourceConnections));
}

#[test]
fn fleet_returns_at_once_despite_a_flood() {
    let (admission, known) = admission(ConnectionLimits::default());
    for host in 0..HOSTS {
        known.apply_change(&stated(host, address(host)), Presence::Exists);
    }
    let mut flood = vec![];
    for source in 0..100 {
        flood.push(silent(&admission, address(HOSTS + source)).0);
    }
    let held: usize = flood.iter().map(Vec::len).sum();
    assert_eq!(held, ConnectionLimits::default().anonymous_connections);
    let hosts: Vec<_> = (0..HOSTS)
        .filter_map(|host| admission.admit_connection(address(host), Instant::now()).ok())
        .collect();
    assert_eq!(hosts.len(), HOSTS);
    assert!(admission.admit_connection(address(HOSTS + 100), Instant::now()).is_err());
}

#[test]
fn fleet_behind_one_address_returns_at_once() {
    let (shared, start) = (address(0), Instant::now());
    let (admission, _) = admission(ConnectionLimits::default());
    // They connect one after the other, and then all are cut.
    for host in 0..HOSTS {
        let mut connection = admission.admit_connection(shared, start).ok().unwrap();
        connection.end_handshake(Some(&peer(host)), Timestamp::UNIX_EPOCH).unwrap();
    }
    let later = start + std::time::Duration::from_mins(1);
    let hosts: Vec<_> = (0..HOSTS).filter_map(|_| admission.admit_connection(shared, later).ok()).collect();
    assert_eq!(hosts.len(), HOSTS);
}

/// A token admits any number of hosts, and each states what it likes.
#[test]
fn statements_reserve_for_one_host_alone() {
    let (admission, known) = admission(small());
    for host in 0..100 {
        known.apply_change(&stated(host, address(1)), Presence::Exists);
    }
    let (open, failure) = silent(&admission, address(1));
    assert_eq!((open.len(), failure), (3 + HOST_RESERVE, Failure::SourceHandshakes));
    assert_eq!(admission.lock_table().unknown, 3, "what exceeds the reserve counts as of an unknown host");
    let (more, failure) = silent(&admission, address(2));
    assert_eq!((more.len(), failure), (3, Failure::SourceHandshakes));
    drop((open, more));
    let table = admission.lock_table();
    assert_eq!((table.sources.len(), table.unknown), (0, 0));
}

#[test]
fn new_connections_of_a_source_have_a_rate() {
    let (admission, start) = (admission(ConnectionLimits { source_rate: 60, ..small() }).0, Instant::now());
    let admitted = |source, second| {
        let now = start + std::time::Duration::from_secs(second);
        let mut failures = (0..1000).map(|_| admission.admit_connection(address(source), now).err());
        let count = failures.by_ref().take_while(Option::is_none).count();
        assert_eq!(failures.next().flatten(), Some(Failure::SourceRate));
        count
    };
    assert_eq!((admitted(1, 0), admitted(2, 0)), (60, 60));
    assert_eq!((admitted(2, 2), admitted(2, 600)), (2, 60));
}

#[test]
fn flood_from_a_known_address_is_bounded() {
    let (admission, known) = admission(ConnectionLimits::default());
    known.apply_change(&stated(1, address(1)), Presence::Exists);
    let (open, failure) = silent(&admission, address(1));
    let limit = ConnectionLimits::default().source_handshakes + HOST_RESERVE;
    assert_eq!((open.len(), failure), (limit, Failure::SourceHandshakes));
}

#[tokio::test]
async fn known_hosts_have_handshakes_of_their_own() {
    let (admission, known) = admission(ConnectionLimits { handshakes: 1, ..ConnectionLimits::default() });
    known.apply_change(&stated(1, address(1)), Presence::Exists);
    let [host, first, second] =
        [1, 2, 3].map(|source| admission.admit_connection(address(source), Instant::now()).ok().unwrap());
    let _held = first.wait_handshake().await.unwrap();
    assert!(futures::FutureExt::now_or_never(second.wait_handshake()).is_none(), "waits");
    assert!(futures::FutureExt::now_or_never(host.wait_handshake()).is_some());
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_source_have_a_rate() {
    let (admission, known) =
        admission(ConnectionLimits { source_requests: 60, ..ConnectionLimits::default() });
    known.apply_change(&stated(1, address(1)), Presence::Exists);
    let start = Instant::now();
    let allowed = |source, second| {
        let now = start + std::time::Duration::from_secs(second);
        (0..1000).filter(|_| admission.take_request(address(source), now)).count()
    };
    assert_eq!((allowed(1, 0), allowed(2, 0)), (60 + HOST_RESERVE, 60));
    assert_eq!((allowed(2, 0), allowed(2, 2), allowed(2, 600)), (0, 2, 60));
}

#[test]
fn source_has_a_share_of_the_registrations() {
    let (admission, _) = admission(ConnectionLimits { registrations: 8, ..ConnectionLimits::default() });
    let start = |source| admission.start_registration(address(source));
    let held: Vec<_> = (0..9).filter_map(|_| start(1)).collect();
    assert_eq!(held.len(), 8 / SHARES);
    assert!(start(2).is_some());
    drop(held);
    assert!(admission.lock_table().registrations.is_empty());
}
