//! Limits of connections: per source before a byte is read, per host after its certificate was
//! verified.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::failure::Failure;
use super::known_hosts::{KnownHosts, Source, decrement};
use crate::ca::{HostKey, Peer};
use crate::config::ConnectionLimits;
use crate::permits::{Permit, Permits};
use crate::rpc::{Buckets, Rate};

/// Connections that each known host of a source adds to the limits of the source: its connection, the
/// connection that it replaces, and a retry of each.
const HOST_RESERVE: usize = 4;

/// Messages of registrations that are read at a time, and those of one source. Each has up to 256 KiB.
const MESSAGES: usize = 256;
const SOURCE_MESSAGES: usize = 16;
/// Requests of a host, and KiB that it sends. The rate of each call is below them; these count before a
/// message is read. The whole journal of a host has 2 MiB.
const HOST_REQUESTS: Rate = Rate { interval: Duration::from_millis(20), burst: 2400 };
const HOST_KIB: Rate = Rate { interval: Duration::from_millis(4), burst: 8192 };

/// Number of shares of the registrations that are handled at a time. A source has a single share.
const SHARES: usize = 4;

#[derive(Default)]
struct Counts {
    open: usize,
    anonymous: usize,
    handshakes: usize,
    /// Connections without certificate that are in the reserve of the source.
    reserved: usize,
}

#[derive(Default)]
struct Table {
    sources: HashMap<Source, Counts>,
    hosts: HashMap<HostKey, usize>,
    /// Connections without certificate, those in the reserve of a source left out.
    unknown: usize,
    /// Registrations that are handled now.
    registrations: HashMap<Source, usize>,
}

/// Counts the open connections and rejects those above a limit.
pub(super) struct Admission {
    limits: ConnectionLimits,
    known: Arc<KnownHosts>,
    table: Mutex<Table>,
    handshakes: Semaphore,
    /// Permits for sources with known hosts.
    reserved_handshakes: Semaphore,
    registrations: Semaphore,
    messages: Permits<Source>,
    host_requests: Buckets<HostKey>,
    host_bytes: Buckets<HostKey>,
    /// Requests without a certificate.
    requests: Buckets<Source>,
    /// New connections.
    connections: Buckets<Source>,
}

/// The stage of a connection.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Handshake,
    Anonymous,
    Host(HostKey),
}

/// An accepted connection; dropping it counts its end.
pub(super) struct Connection {
    admission: Arc<Admission>,
    source: Source,
    /// The connection is in the reserve of its source.
    is_reserved: bool,
    stage: Stage,
}

impl Admission {
    pub(super) fn new(limits: ConnectionLimits, known: Arc<KnownHosts>) -> Self {
        Self {
            handshakes: new_semaphore(limits.handshakes),
            reserved_handshakes: new_semaphore(limits.handshakes),
            registrations: new_semaphore(limits.registrations),
            messages: Permits::new(MESSAGES, SOURCE_MESSAGES),
            host_requests: Buckets::default(),
            host_bytes: Buckets::default(),
            requests: Buckets::default(),
            connections: Buckets::default(),
            limits,
            known,
            table: Mutex::default(),
        }
    }

    pub(super) fn limits(&self) -> &ConnectionLimits {
        &self.limits
    }

    fn lock_table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that the known hosts of a source add to its limits.
    fn reserve_of(&self, source: Source) -> usize {
        self.known.count_hosts(source).saturating_mul(HOST_RESERVE)
    }

    fn rate_of(&self, source: Source, limit: usize) -> Rate {
        let count = limit.saturating_add(self.reserve_of(source));
        Rate::per_minute(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Takes a request without a certificate from the budget of its source; `false` if none is left.
    pub(super) fn take_request(&self, remote: IpAddr, now: Instant) -> bool {
        let source = Source::from(remote);
        let rate = self.rate_of(source, self.limits.source_requests);
        self.requests.take_token(source, rate, now)
    }

    /// Takes a request of a host, before its message is read; `false` if it has sent too many.
    pub(super) fn take_host_request(&self, host: &HostKey, now: Instant) -> bool {
        self.host_requests.take_token(host.clone(), HOST_REQUESTS, now)
    }

    /// Takes bytes that a host has sent, before they are decoded; `false` if it has sent too many.
    pub(super) fn take_host_bytes(&self, host: &HostKey, bytes: usize, now: Instant) -> bool {
        let count = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        self.host_bytes.take_tokens(host.clone(), count, HOST_KIB, now)
    }

    /// Waits until a message of this source may be read. Sources take turns.
    pub(super) async fn wait_message(&self, remote: IpAddr) -> Option<Permit<Source>> {
        self.messages.acquire(&Source::from(remote)).await
    }

    /// Counts a registration, unless its source has its share already, so that slow messages of a source
    /// do not delay other sources.
    pub(super) fn start_registration(self: &Arc<Self>, remote: IpAddr) -> Option<SourceRegistration> {
        let source = Source::from(remote);
        let share = self.limits.registrations.div_ceil(SHARES).saturating_add(self.reserve_of(source));
        let mut table = self.lock_table();
        let running = table.registrations.entry(source).or_default();
        if *running >= share {
            return None;
        }
        *running += 1;
        drop(table);
        Some(SourceRegistration { admission: self.clone(), source })
    }

    /// Waits until another registration may be read and decoded.
    pub(super) async fn wait_registration(&self) -> Option<SemaphorePermit<'_>> {
        self.registrations.acquire().await.ok()
    }

    /// Counts a new connection, or returns the limit that it exceeds.
    pub(super) fn admit_connection(
        self: &Arc<Self>,
        remote: IpAddr,
        now: Instant,
    ) -> Result<Connection, Failure> {
        let source = Source::from(remote);
        let reserve = self.reserve_of(source);
        let limits = &self.limits;
        let rate = self.rate_of(source, limits.source_rate);
        let mut table = self.lock_table();
        let Table { sources, unknown, .. } = &mut *table;
        let default = Counts::default();
        let counts = sources.get(&source).unwrap_or(&default);
        for (count, limit, failure) in [
            (counts.handshakes, limits.source_handshakes, Failure::SourceHandshakes),
            (counts.anonymous, limits.source_anonymous, Failure::SourceAnonymous),
            (counts.open, limits.source_connections, Failure::SourceConnections),
        ] {
            if count >= limit.saturating_add(reserve) {
                return Err(failure);
            }
        }
        let is_reserved = counts.reserved < reserve;
        if !is_reserved && *unknown >= limits.anonymous_connections {
            return Err(Failure::AnonymousConnections);
        }
        // Counted last, because a connection that a limit rejects costs no handshake.
        if !self.connections.take_token(source, rate, now) {
            return Err(Failure::SourceRate);
        }
        let counts = sources.entry(source).or_default();
        if is_reserved {
            counts.reserved += 1;
        } else {
            *unknown += 1;
        }
        counts.open += 1;
        counts.anonymous += 1;
        counts.handshakes += 1;
        drop(table);
        Ok(Connection { admission: self.clone(), source, is_reserved, stage: Stage::Handshake })
    }
}

fn new_semaphore(permits: usize) -> Semaphore {
    Semaphore::new(permits.min(Semaphore::MAX_PERMITS))
}

/// A registration that is handled now; dropping it counts its end.
pub(super) struct SourceRegistration {
    admission: Arc<Admission>,
    source: Source,
}

impl Drop for SourceRegistration {
    fn drop(&mut self) {
        decrement(&mut self.admission.lock_table().registrations, &self.source);
    }
}

impl Connection {
    /// Waits until another handshake may cost a signature.
    pub(super) async fn wait_handshake(&self) -> Option<SemaphorePermit<'_>> {
        let Admission { handshakes, reserved_handshakes, .. } = &*self.admission;
        let turns = if self.is_reserved { reserved_handshakes } else { handshakes };
        turns.acquire().await.ok()
    }

    /// Ends the handshake; `peer` is the host of the client certificate, if the client has one.
    pub(super) fn end_handshake(&mut self, peer: Option<&Peer>, now: Timestamp) -> Result<(), Failure> {
        let mut table = self.admission.lock_table();
        let Table { sources, hosts, unknown, .. } = &mut *table;
        let Some(counts) = sources.get_mut(&self.source).filter(|_| self.stage == Stage::Handshake) else {
            return Ok(());
        };
        let Some(peer) = peer else {
            counts.handshakes -= 1;
            self.stage = Stage::Anonymous;
            return Ok(());
        };
        let open = hosts.entry(peer.key.clone()).or_default();
        if *open >= self.admission.limits.host_connections {
            return Err(Failure::HostConnections);
        }
        *open += 1;
        counts.handshakes -= 1;
        counts.anonymous -= 1;
        if self.is_reserved {
            counts.reserved -= 1;
        } else {
            *unknown -= 1;
        }
        self.stage = Stage::Host(peer.key.clone());
        drop(table);
        self.admission.known.note_host(peer, self.source, now);
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut table = self.admission.lock_table();
        let Table { sources, hosts, unknown, .. } = &mut *table;
        let Some(counts) = sources.get_mut(&self.source) else { return };
        counts.open -= 1;
        match &self.stage {
            Stage::Host(key) => decrement(hosts, key),
            _ if self.is_reserved => counts.reserved -= 1,
            _ => *unknown -= 1,
        }
        match &self.stage {
            Stage::Handshake => {
                counts.handshakes -= 1;
                counts.anonymous -= 1;
            }
            Stage::Anonymous => counts.anonymous -= 1,
            Stage::Host(_) => {}
        }
        if counts.open == 0 {
            sources.remove(&self.source);
        }
    }
}

#[cfg(test)]
mod tests;
