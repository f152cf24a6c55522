//! Announcements of changes of links, addresses and routes (rtnetlink).

use std::future::poll_fn;
use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{AsyncSocket as _, TokioSocket};

use super::netlink::DATAGRAM;

// linux/rtnetlink.h, RTNLGRP_*: links, addresses and routes of both families.
const GROUPS: [u32; 5] = [1, 5, 7, 9, 11];

/// Signals that some part of the network changed.
pub struct NetworkChanges {
    socket: TokioSocket,
}

impl NetworkChanges {
    pub fn open_watch() -> io::Result<Self> {
        let mut watch = TokioSocket::new(NETLINK_ROUTE)?;
        let socket = watch.socket_mut();
        socket.bind_auto()?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        // If a burst overflows the buffer, the signal is still correct, because the network is read
        // again after it.
        socket.set_no_enobufs(true)?;
        Ok(Self { socket: watch })
    }

    /// Waits for the next change.
    pub async fn next(&self) -> io::Result<()> {
        let mut buffer = Vec::with_capacity(DATAGRAM);
        poll_fn(|context| self.socket.poll_recv(context, &mut buffer)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::network::kernel::in_namespace::{in_namespace, run_ip};

    #[test]
    fn a_change_of_the_network_is_announced() {
        in_namespace(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let changes = NetworkChanges::open_watch().unwrap();
                run_ip("link set lo up");
                let announced = tokio::time::timeout(std::time::Duration::from_secs(10), changes.next());
                announced.await.expect("no change was announced").unwrap();
            });
        });
    }
}
