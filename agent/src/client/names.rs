//! Names to addresses without `getaddrinfo`: a static file has no name service
//! modules to load. Literals, `/etc/hosts`, then plain DNS over UDP.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, TYPE};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::error::NextAction;
use crate::host::network::resolver::{Resolver, parse_resolv_conf};
use crate::paths::Root;

/// How long a server has for one answer; each is asked twice.
const DEADLINE: Duration = Duration::from_secs(2);
const ROUNDS: usize = 2;
/// What fits a datagram that is never fragmented.
const ANSWER_BYTES: usize = 4096;

/// Why a name has no address.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// No file and no server resolves the name.
    #[error("the name {name} has no address: {reason}")]
    Unknown {
        /// As asked.
        name: String,
        /// Which servers were asked.
        reason: String,
    },
}

impl NextAction for NameError {
    fn next_action(&self) -> Option<&str> {
        Some("correct DNS, or use an address in the coordinator's server URL")
    }
}

/// Where names are looked up.
#[derive(Clone, Debug)]
pub struct Names {
    etc: PathBuf,
    /// UDP port of the name servers; another one than 53 only in tests.
    port: u16,
}

impl Names {
    /// The names of the host below `root`.
    #[must_use]
    pub fn below(root: &Root) -> Self {
        Self { etc: root.join("/etc"), port: 53 }
    }

    /// Addresses of `host`, IPv4 first.
    ///
    /// # Errors
    /// [`NameError::Unknown`].
    pub async fn resolve_host(&self, host: &str) -> Result<Vec<IpAddr>, NameError> {
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        let read = |name: &str| fs::read_to_string(self.etc.join(name)).unwrap_or_default();
        let known = parse_hosts(&read("hosts"), host);
        if !known.is_empty() {
            return Ok(known);
        }
        let resolver = parse_resolv_conf(&read("resolv.conf"));
        for name in list_candidates(host, &resolver) {
            let found = self.ask_resolver(&name, &resolver).await;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let reason = if resolver.servers.is_empty() {
            "/etc/resolv.conf names no server".to_owned()
        } else {
            format!("asked {}", resolver.servers.join(", "))
        };
        Err(NameError::Unknown { name: host.to_owned(), reason })
    }

    async fn ask_resolver(&self, name: &str, resolver: &Resolver) -> Vec<IpAddr> {
        let mut found = Vec::new();
        for kind in [TYPE::A, TYPE::AAAA] {
            found.extend(self.ask_any(name, kind, resolver).await);
        }
        found
    }

    async fn ask_any(&self, name: &str, kind: TYPE, resolver: &Resolver) -> Vec<IpAddr> {
        for _ in 0..ROUNDS {
            for server in resolver.servers.iter().filter_map(|server| server.parse().ok()) {
                let server = SocketAddr::new(server, self.port);
                if let Some(addresses) = ask_one(server, name, kind).await {
                    return addresses;
                }
            }
        }
        Vec::new()
    }
}

/// `None` is no answer; an answer may be that there is no address.
async fn ask_one(server: SocketAddr, name: &str, kind: TYPE) -> Option<Vec<IpAddr>> {
    match timeout(DEADLINE, send_query(server, name, kind)).await {
        Ok(answer) => {
            answer.inspect_err(|error| tracing::debug!(%server, name, %error, "no answer to a name")).ok()
        }
        Err(_elapsed) => {
            tracing::debug!(%server, name, "no answer to a name in time");
            None
        }
    }
}

/// Names to ask for, in order: as given, then in each search domain; the other
/// way round for a name without a dot.
fn list_candidates(host: &str, resolver: &Resolver) -> Vec<String> {
    let absolute = host.trim_end_matches('.').to_owned();
    if host.ends_with('.') {
        return vec![absolute];
    }
    let mut names: Vec<_> = resolver.search.iter().map(|domain| format!("{absolute}.{domain}")).collect();
    let at = if absolute.contains('.') { 0 } else { names.len() };
    names.insert(at, absolute);
    names
}

/// hosts(5): addresses whose line holds `host`, IPv4 first.
fn parse_hosts(text: &str, host: &str) -> Vec<IpAddr> {
    let wanted = host.trim_end_matches('.');
    let mut found: Vec<IpAddr> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split('#').next()?.split_whitespace();
            let address = words.next()?.parse().ok()?;
            words.any(|name| name.eq_ignore_ascii_case(wanted)).then_some(address)
        })
        .collect();
    found.sort_by_key(IpAddr::is_ipv6);
    found
}

async fn send_query(server: SocketAddr, name: &str, kind: TYPE) -> io::Result<Vec<IpAddr>> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    let mut id = [0; 2];
    SystemRandom::new().fill(&mut id).map_err(|_| io::Error::other("no randomness"))?;
    let id = u16::from_be_bytes(id);
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let question = Name::new(name).map_err(invalid)?;
    packet.questions.push(Question::new(question, QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN), false));
    let bytes = packet.build_bytes_vec().map_err(invalid)?;
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    // Connected: the kernel drops what others send to this port.
    socket.connect(server).await?;
    socket.send(&bytes).await?;
    let mut answer = vec![0; ANSWER_BYTES];
    loop {
        let length = socket.recv(&mut answer).await?;
        if let Some(addresses) = parse_answer(&answer[..length], id) {
            return Ok(addresses);
        }
    }
}

/// Addresses of an answer to the question `id`; nothing when it answers
/// another one.
fn parse_answer(bytes: &[u8], id: u16) -> Option<Vec<IpAddr>> {
    let packet = Packet::parse(bytes).ok()?;
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) {
        return None;
    }
    Some(
        packet
            .answers
            .iter()
            .filter_map(|record| match &record.rdata {
                RData::A(address) => Some(IpAddr::V4(address.address.into())),
                RData::AAAA(address) => Some(IpAddr::V6(address.address.into())),
                _ => None,
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::A;

    #[test]
    fn a_hosts_file_answers_for_its_names() {
        let text =
            "127.0.0.1 localhost\n2001:db8::5 c.example C2 # here\n192.0.2.5\tc.example\nbad c.example\n";
        for (name, host, want) in [
            ("both families", "c.example", vec!["192.0.2.5", "2001:db8::5"]),
            ("alias without case", "c2", vec!["2001:db8::5"]),
            ("comment is no name", "here", vec![]),
            ("final dot", "localhost.", vec!["127.0.0.1"]),
        ] {
            let want: Vec<IpAddr> = want.into_iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(parse_hosts(text, host), want, "{name}");
        }
    }

    #[test]
    fn search_domains_help_short_names_first() {
        let resolver = Resolver { servers: vec![], search: vec!["a.example".into()] };
        for (name, host, want) in [
            ("short", "c", vec!["c.a.example", "c"]),
            ("dotted", "c.b", vec!["c.b", "c.b.a.example"]),
            ("absolute", "c.b.", vec!["c.b"]),
        ] {
            assert_eq!(list_candidates(host, &resolver), want, "{name}");
        }
    }

    #[tokio::test]
    async fn dns_answers_must_match_the_question() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
        let names = Names { etc: root.path().join("etc"), port: server.local_addr().unwrap().port() };
        let serve = async {
            let mut buffer = [0; 512];
            loop {
                let (length, peer) = server.recv_from(&mut buffer).await.unwrap();
                let question = Packet::parse(&buffer[..length]).unwrap();
                for id in [question.id().wrapping_add(1), question.id()] {
                    let mut answer = Packet::new_reply(id);
                    answer.questions.clone_from(&question.questions);
                    if question.questions[0].qtype == QTYPE::TYPE(TYPE::A) {
                        let address = if id == question.id() { [192, 0, 2, 8] } else { [192, 0, 2, 66] };
                        answer.answers.push(ResourceRecord::new(
                            question.questions[0].qname.clone(),
                            CLASS::IN,
                            60,
                            RData::A(A { address: u32::from_be_bytes(address) }),
                        ));
                    }
                    server.send_to(&answer.build_bytes_vec().unwrap(), peer).await.unwrap();
                }
            }
        };
        tokio::select! {
            () = serve => {}
            found = names.resolve_host("c.example") => {
                assert_eq!(found.unwrap(), [IpAddr::from([192, 0, 2, 8])]);
            }
        }
    }

    #[tokio::test]
    async fn a_missing_name_server_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let error = Names::below(&Root::at(root.path())).resolve_host("c.example").await.unwrap_err();
        assert!(error.to_string().contains("names no server"), "{error}");
        assert!(error.next_action().is_some_and(|action| action.contains("correct DNS")), "{error}");
        assert!(Names::below(&Root::at(root.path())).resolve_host("192.0.2.1").await.is_ok());
    }
}
