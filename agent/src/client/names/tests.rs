use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA};
use hickory_resolver::proto::rr::{RData, Record};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};

use super::*;

/// What a server does with a question.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Code(ResponseCode),
    Silent,
    /// Over UDP an answer that does not fit; the whole over TCP.
    Truncated,
    /// First the answer to another question.
    Forged,
    Answers,
}

const KNOWN: &str = "c.example.";
const FOUR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 8);
const SIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 8);

fn answer(question: &[u8], manner: Manner, over_tcp: bool) -> Option<Vec<u8>> {
    let mut message = Message::from_vec(question).unwrap().into_response();
    let query = message.queries[0].clone();
    let data = match query.query_type() {
        RecordType::A => RData::A(A(FOUR)),
        _ => RData::AAAA(AAAA(SIX)),
    };
    match manner {
        Manner::Silent => return None,
        Manner::Code(code) => message.metadata.response_code = code,
        Manner::Truncated if !over_tcp => message.metadata.truncation = true,
        _ if query.name().to_ascii() == KNOWN => {
            message.add_answer(Record::from_rdata(query.name().clone(), 60, data));
        }
        _ => message.metadata.response_code = ResponseCode::NXDomain,
    }
    Some(message.to_vec().unwrap())
}

fn forge(question: &[u8]) -> Vec<u8> {
    let mut bytes = answer(question, Manner::Answers, false).unwrap();
    bytes[0] ^= 0xff;
    bytes
}

/// Serves UDP and TCP until the test ends; counts the questions.
async fn serve(udp: UdpSocket, tcp: TcpListener, manner: Manner, asked: Arc<AtomicUsize>) {
    let datagrams = async {
        let mut buffer = [0; 2048];
        loop {
            let (length, peer) = udp.recv_from(&mut buffer).await.unwrap();
            asked.fetch_add(1, Ordering::SeqCst);
            if manner == Manner::Forged {
                udp.send_to(&forge(&buffer[..length]), peer).await.unwrap();
            }
            if let Some(bytes) = answer(&buffer[..length], manner, false) {
                udp.send_to(&bytes, peer).await.unwrap();
            }
        }
    };
    let streams = async {
        loop {
            let (mut stream, _) = tcp.accept().await.unwrap();
            tokio::spawn(async move {
                while let Ok(length) = stream.read_u16().await {
                    let mut question = vec![0; length.into()];
                    stream.read_exact(&mut question).await.unwrap();
                    if let Some(bytes) = answer(&question, manner, true) {
                        stream.write_u16(bytes.len().try_into().unwrap()).await.unwrap();
                        stream.write_all(&bytes).await.unwrap();
                    }
                }
            });
        }
    };
    tokio::join!(datagrams, streams);
}

/// Name servers on loopback, one address each, and a host that uses them.
struct Site {
    names: Names,
    asked: Vec<Arc<AtomicUsize>>,
    root: TempDir,
}

impl Site {
    async fn start(manners: &[Manner]) -> Self {
        let mut port = 0;
        let mut asked = Vec::new();
        let mut text = "search example\n".to_owned();
        for (number, manner) in manners.iter().enumerate() {
            let address = Ipv4Addr::new(127, 53, 0, u8::try_from(number).unwrap() + 1);
            let tcp = TcpListener::bind((address, port)).await.unwrap();
            port = tcp.local_addr().unwrap().port();
            let udp = UdpSocket::bind((address, port)).await.unwrap();
            let count = Arc::new(AtomicUsize::new(0));
            asked.push(count.clone());
            tokio::spawn(serve(udp, tcp, *manner, count));
            let _ = writeln!(text, "nameserver {address}");
        }
        Self { asked, ..Self::with_files(&text, "", port) }
    }

    fn with_files(resolv_conf: &str, hosts: &str, port: u16) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/resolv.conf"), resolv_conf).unwrap();
        fs::write(root.path().join("etc/hosts"), hosts).unwrap();
        let names = Names { root: Root::at(root.path()), port, deadline: Duration::from_secs(1) };
        Self { names, asked: Vec::new(), root }
    }

    fn questions(&self) -> Vec<usize> {
        self.asked.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    }
}

fn both() -> Vec<IpAddr> {
    vec![FOUR.into(), SIX.into()]
}

#[tokio::test]
async fn a_failing_server_is_followed_by_the_next() {
    for manner in [
        Manner::Code(ResponseCode::ServFail),
        Manner::Code(ResponseCode::Refused),
        Manner::Code(ResponseCode::NXDomain),
        Manner::Silent,
    ] {
        let site = Site::start(&[manner, Manner::Answers]).await;
        assert_eq!(site.names.resolve_host("c.example").await.unwrap(), both(), "{manner:?}");
        assert!(site.questions().iter().all(|count| *count > 0), "{manner:?}: {:?}", site.questions());
    }
}

#[tokio::test]
async fn a_truncated_answer_is_asked_for_over_tcp() {
    let site = Site::start(&[Manner::Truncated]).await;
    assert_eq!(site.names.resolve_host("c.example").await.unwrap(), both());
}

#[tokio::test]
async fn the_answer_to_another_question_is_dropped() {
    let site = Site::start(&[Manner::Forged]).await;
    assert_eq!(site.names.resolve_host("c.example").await.unwrap(), both());
}

#[tokio::test]
async fn search_domains_complete_names() {
    let site = Site::start(&[Manner::Answers]).await;
    for (name, host, found) in
        [("short", "c", true), ("absolute", "c.", false), ("whole", "c.example", true), ("other", "d", false)]
    {
        assert_eq!(site.names.resolve_host(host).await.is_ok(), found, "{name}");
    }
}

#[tokio::test]
async fn an_error_tells_what_each_server_did() {
    let site = Site::start(&[Manner::Code(ResponseCode::Refused), Manner::Silent, Manner::Answers]).await;
    let error = site.names.resolve_host("d.example").await.unwrap_err();
    let told = error.to_string();
    for part in ["127.53.0.1 failed (", "127.53.0.2 failed (", "timed out", "127.53.0.3 knows none"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(error.next_action.contains("correct DNS"), "{error}");
}

#[tokio::test]
async fn a_hosts_file_answers_for_its_names() {
    let hosts = "127.0.0.1 localhost\n2001:db8::5 c.example C2 # here\n192.0.2.5\tc.example\nbad c.example\n";
    let site = Site::with_files("", hosts, 53);
    for (name, host, want) in [
        ("both families", "c.example", vec!["192.0.2.5", "2001:db8::5"]),
        ("without case", "c2", vec!["2001:db8::5"]),
        ("without case either", "C.Example", vec!["192.0.2.5", "2001:db8::5"]),
        ("comment is no name", "here", vec![]),
        ("final dot", "localhost.", vec!["127.0.0.1"]),
        ("an address", "192.0.2.1", vec!["192.0.2.1"]),
    ] {
        let want: Vec<IpAddr> = want.into_iter().map(|address| address.parse().unwrap()).collect();
        assert_eq!(site.names.resolve_host(host).await.unwrap_or_default(), want, "{name}");
    }
    fs::remove_dir_all(site.root.path().join("etc")).unwrap();
    let error = site.names.resolve_host("c.example").await.unwrap_err();
    assert!(error.to_string().contains("names no server"), "{error}");
}

#[test]
fn link_local_server_is_asked_on_its_link() {
    use crate::host::network::kernel::in_namespace::{in_namespace, run_ip};
    in_namespace(|| {
        run_ip("link set lo up");
        run_ip("addr add fe80::53/64 dev lo nodad");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let link = nix::net::if_::if_nametoindex("lo").unwrap();
            let address =
                SocketAddr::V6(std::net::SocketAddrV6::new("fe80::53".parse().unwrap(), 53, 0, link));
            for manner in [Manner::Answers, Manner::Truncated] {
                let (udp, tcp) =
                    (UdpSocket::bind(address).await.unwrap(), TcpListener::bind(address).await.unwrap());
                let serving = tokio::spawn(serve(udp, tcp, manner, Arc::default()));
                for (scope, found) in
                    [("lo".to_owned(), true), (link.to_string(), true), ("eth9".to_owned(), false)]
                {
                    let site = Site::with_files(&format!("nameserver fe80::53%{scope}\n"), "", 53);
                    let resolved = site.names.resolve_host("c.example").await;
                    assert_eq!(resolved.is_ok(), found, "{scope}, {manner:?}: {resolved:?}");
                }
                serving.abort();
                serving.await.unwrap_err();
            }
        });
    });
}
