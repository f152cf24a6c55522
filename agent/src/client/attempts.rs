//! Connects to a server with several addresses as RFC 8305 says, so that an address that does not
//! answer costs a quarter of a second.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time until the next address is tried beside those that do not answer.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Addresses that are tried; a name server may report any number.
const MAX_ADDRESSES: usize = 8;

/// The addresses in the order of the attempts: IPv6 and IPv4 in turn, beginning with IPv6.
pub(super) fn order_addresses(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let (sixes, fours): (Vec<_>, Vec<_>) = addresses.into_iter().partition(IpAddr::is_ipv6);
    let pairs = sixes.len().max(fours.len());
    let in_turn = (0..pairs).flat_map(|at| [sixes.get(at), fours.get(at)]);
    in_turn.flatten().copied().take(MAX_ADDRESSES).collect()
}

/// Tries the addresses in their order, and returns the first connection. An attempt ends after
/// `deadline`; one that fails is followed by the next at once.
pub(super) async fn connect_first<T, F>(
    addresses: Vec<IpAddr>,
    deadline: Duration,
    connect: impl Fn(IpAddr) -> F,
) -> io::Result<T>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let mut waiting = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut failure = io::Error::from(ErrorKind::AddrNotAvailable);
    loop {
        if let Some(address) = waiting.next() {
            attempts.spawn(timeout(deadline, connect(address)));
        }
        let pause = if waiting.as_slice().is_empty() { deadline } else { ATTEMPT_DELAY };
        let ended = match timeout(pause, attempts.join_next()).await {
            Err(_elapsed) => continue,
            Ok(None) => return Err(failure),
            Ok(Some(ended)) => ended,
        };
        let error = match ended {
            Ok(Ok(Ok(connection))) => return Ok(connection),
            Ok(Ok(Err(error))) => error,
            Ok(Err(_elapsed)) => ErrorKind::TimedOut.into(),
            Err(error) => io::Error::other(error),
        };
        // A refusal says more than the silence of another address.
        if failure.kind() != ErrorKind::ConnectionRefused {
            failure = error;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn families_are_tried_in_turn() {
        let many: Vec<_> = (1..=20).map(|number| format!("192.0.2.{number}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).chain(["2001:db8::1"]).collect();
        let first: Vec<_> = [many[20], many[0], many[1], many[2], many[3], many[4], many[5], many[6]].into();
        for (name, given, want) in [
            ("none", vec![], vec![]),
            ("one family", vec!["192.0.2.1", "192.0.2.2"], vec!["192.0.2.1", "192.0.2.2"]),
            (
                "both",
                vec!["192.0.2.1", "192.0.2.2", "2001:db8::1"],
                vec!["2001:db8::1", "192.0.2.1", "192.0.2.2"],
            ),
            (
                "more of IPv6",
                vec!["192.0.2.1", "2001:db8::1", "2001:db8::2"],
                vec!["2001:db8::1", "192.0.2.1", "2001:db8::2"],
            ),
            ("too many", many, first),
        ] {
            assert_eq!(order_addresses(addresses(&given)), addresses(&want), "{name}");
        }
    }

    /// Behaviour of the server at an address.
    #[derive(Clone, Copy)]
    enum Server {
        Silent,
        Fails(ErrorKind),
        AnswersAfter(u64),
    }

    /// The number of the server that was connected, or the error; with the milliseconds that it
    /// took, and the number of attempts.
    async fn race(servers: &[Server]) -> (Result<usize, ErrorKind>, u128, usize) {
        let begin = Instant::now();
        let numbered: Vec<_> =
            (0..servers.len()).map(|at| IpAddr::from([192, 0, 2, u8::try_from(at).unwrap()])).collect();
        let tried = Cell::new(0);
        let connected = connect_first(numbered.clone(), Duration::from_secs(10), |address| {
            tried.set(tried.get() + 1);
            let number = numbered.iter().position(|other| *other == address).unwrap();
            let server = servers[number];
            async move {
                match server {
                    Server::Silent => std::future::pending().await,
                    Server::Fails(kind) => Err(kind.into()),
                    Server::AnswersAfter(pause) => {
                        tokio::time::sleep(Duration::from_millis(pause)).await;
                        Ok(number)
                    }
                }
            }
        });
        let connected = connected.await.map_err(|error| error.kind());
        (connected, begin.elapsed().as_millis(), tried.get())
    }

    #[tokio::test(start_paused = true)]
    async fn silent_address_costs_a_quarter_second() {
        use Server::{AnswersAfter, Fails, Silent};
        let closed = ErrorKind::ConnectionRefused;
        let unreachable = ErrorKind::NetworkUnreachable;
        for (name, servers, want) in [
            ("first answers", vec![AnswersAfter(100), AnswersAfter(0)], (Ok(0), 100, 1)),
            ("first is silent", vec![Silent, AnswersAfter(10)], (Ok(1), 260, 2)),
            ("two are silent", vec![Silent, Silent, AnswersAfter(0)], (Ok(2), 500, 3)),
            ("first fails", vec![Fails(unreachable), AnswersAfter(0)], (Ok(1), 0, 2)),
            ("first is slow and second slower", vec![AnswersAfter(300), AnswersAfter(100)], (Ok(0), 300, 2)),
            ("all fail", vec![Fails(closed), Fails(unreachable)], (Err(closed), 0, 2)),
            ("all are silent", vec![Silent, Silent], (Err(ErrorKind::TimedOut), 10_250, 2)),
            ("silent beside closed", vec![Silent, Fails(closed)], (Err(closed), 10_000, 2)),
            ("no address", vec![], (Err(ErrorKind::AddrNotAvailable), 0, 0)),
        ] {
            assert_eq!(race(&servers).await, want, "{name}");
        }
    }
}
