//! Loopback ports for servers that take a number and not a socket.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::net::TcpSocket;

/// Below Linux's ephemeral range (32768 and up): a port from that range, once closed here, may be
/// taken by an outgoing connection before the server binds it.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A loopback TCP port without a listener, never returned twice by this process.
///
/// # Errors
/// When every port of the range is in use.
pub fn free() -> io::Result<u16> {
    let start = offset_of_process(std::process::id());
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + (start + step) % COUNT;
        if bind(port).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no free loopback port between 20000 and 31999"))
}

/// Fails where something listens. It never listens itself: a process that starts at that moment has a
/// copy of the socket until it runs its program, and a copy that listens would keep the port.
fn bind(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    Ok(socket)
}

/// Processes that run side by side start far apart, so that they seldom probe the same port in the
/// moment between probing and binding.
fn offset_of_process(id: u32) -> u16 {
    let spread = id.wrapping_mul(2_654_435_761) % u32::from(COUNT);
    u16::try_from(spread).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::TcpListener;

    #[test]
    fn copy_of_the_probe_keeps_no_port() {
        let port = free().unwrap();
        let copy = bind(port).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        drop(copy);
        assert!(bind(port).is_err());
        drop(listener);
    }

    #[test]
    fn ports_are_distinct_and_not_ephemeral() {
        let ports: Vec<u16> = (0..50).map(|_| free().unwrap()).collect();
        let distinct: BTreeSet<_> = ports.iter().collect();
        assert_eq!(distinct.len(), ports.len());
        assert!(ports.iter().all(|port| (FIRST..32_768).contains(port)));
    }
}
