//! Makes a stream the session of its host. `status.host.session` names the replica of the session, so
//! that the same rule holds across replicas.
//!
//! The same boot wins at once, on any replica. Another boot waits until the earlier session has ended:
//! its stream ended, it was replaced, or its replica is dead. A session that is open even after the
//! probe belongs to a second live host, and both are quarantined, unless nothing is known of the
//! replica of the session.
//!
//! The record of a session is compared with the table of streams at each event, so that a session
//! whose end was not written ends nevertheless.

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::hardware::HardwareStatus;
use coordinator_api::inventory::{MachineInventory, MachineInventoryStatus, SessionStatus};
use coordinator_api::network::ObservedNetwork;
use coordinator_api::object::{Key, Namespace};
use coordinator_core::host::certified::is_replaced;
use coordinator_core::host::facts::{self, Attach};
use coordinator_core::host::hardware::describe_hardware;
use coordinator_core::host::statement::HostStatement;
use coordinator_core::ids::Uid;
use coordinator_core::retry::failure_backoff;
use jiff::Timestamp;
use kube::ResourceExt as _;
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use tokio::time::Instant;
use tonic::Streaming;
use tracing::Instrument as _;
use wire::host_message;

use super::reports::parse_smaller_network;
use super::settings;
use super::statement::Statement;
use crate::ca::{HostKey, Peer};
use crate::lease::replica::ReplicaLife;
use crate::rpc::refresh::{find_stale_labels, refresh_metadata};
use crate::rpc::registration::check_facts;
use crate::rpc::sessions::{CloseReason, SessionGuard};
use crate::rpc::{Context, RpcError};
use crate::store;
use crate::telemetry::chain;

/// Deadline of the first message of a stream.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest pause between attempts to record the end of a session. It is shorter than the time for
/// which another replica waits for the record.
const LONGEST_END_RETRY: Duration = Duration::from_secs(5);
/// Interval of checks of another replica's Lease.
const REPLICA_CHECK: Duration = Duration::from_secs(1);

pub(super) type Messages = Streaming<wire::HostMessage>;

/// The report of a host beside its statement, within the bounds of the contract. It is stored, and
/// not kept as long as the stream.
struct Reported {
    facts: Option<wire::HostFacts>,
    hardware: Option<HardwareStatus>,
    network: Option<ObservedNetwork>,
}

/// The stored session of a host.
pub(super) struct OpenSession {
    pub(super) statement: Statement,
    pub(super) guard: SessionGuard,
    pub(super) inventory: Arc<MachineInventory>,
    /// The session that the caches may still show.
    pub(super) former: Option<SessionStatus>,
}

/// Reads the statement of a host and makes its stream the host's session.
pub(super) async fn open_session(
    context: &Context,
    peer: Peer,
    messages: &mut Messages,
) -> Result<OpenSession, RpcError> {
    let (stated, reported) = read_hello(messages, &peer).await?;
    let statement = Statement { peer, stated };
    // Checked first, so that a refused host takes no place in the table.
    context.find_inventory(&statement.peer).await?;
    let mut guard = open_locally(context, &statement).await?;
    let stored = tokio::select! {
        // An isolated replica accepts nobody, even if nothing has to be written.
        biased;
        reason = guard.wait_closed() => Err(close_error(reason, &statement.peer)),
        stored = store_session(context, &statement, &reported) => stored,
    };
    match stored {
        Ok((inventory, former)) => {
            let inventory = match reported.facts {
                Some(facts) => refresh_metadata(context, inventory, &facts).await,
                None => inventory,
            };
            Ok(OpenSession { statement, guard, inventory, former })
        }
        Err(error) => {
            // Opening this session cancelled the record of an earlier end.
            if guard.close_session() {
                schedule_session_end(context, &statement.peer.key, &statement.peer.name_hint);
            }
            Err(error)
        }
    }
}

/// Ends the open sessions that name this replica although it has no stream of the host; never
/// returns. The end of a stream may have been recorded on a cache that lacked the beginning.
pub async fn end_lost_sessions(context: Context) {
    let mut seen = context.caches.notifications.follow_open_sessions();
    while let Some(key) = seen.recv().await {
        let inventory =
            context.cached_inventory(&key).filter(|inventory| has_open_session(&context, inventory));
        let Some(inventory) = inventory.filter(|_| !context.sessions.contains_host(&key)) else { continue };
        schedule_session_end(&context, &key, &inventory.name_any());
    }
}

/// Records that this replica has no stream of the host, unless the host opens one soon.
pub(super) fn schedule_session_end(context: &Context, key: &HostKey, name: &str) {
    let record = record_session_end(context.clone(), key.clone(), name.to_owned(), context.now());
    context.sessions.schedule_end(key, context.timing.end_delay, record.in_current_span());
}

/// Records the end until it is stored, because without the record the next boot of the host would be
/// taken for a duplicate.
async fn record_session_end(context: Context, key: HostKey, name: String, ended: Timestamp) {
    let mut attempt = 0;
    loop {
        let error = match end_own_session(&context, &key, &name, ended).await {
            Ok(()) => return tracing::info!("host detached"),
            Err(error) if error.is_inventory_gone() => return,
            Err(error) => error,
        };
        attempt += 1;
        tracing::warn!(error = chain(&error), attempt, "cannot record the end of the session, retrying");
        tokio::time::sleep(failure_backoff(attempt).min(LONGEST_END_RETRY)).await;
    }
}

async fn end_own_session(
    context: &Context,
    key: &HostKey,
    name: &str,
    ended: Timestamp,
) -> Result<(), RpcError> {
    // A cache without the open session may be behind, and its answer would leave the session open.
    let cached = context.cached_inventory(key).filter(|cached| has_open_session(context, cached));
    // The session of a quarantined host ends too, so that its inventory is read as well.
    let inventory = match cached {
        Some(cached) => cached,
        None => context.read_any_inventory(key, name).await?,
    };
    let written = context.update_status(inventory, |status| {
        facts::record_session_end(status, &context.replica.name, ended);
    });
    written.await.map(drop)
}

async fn read_hello(messages: &mut Messages, peer: &Peer) -> Result<(HostStatement, Reported), RpcError> {
    let first = tokio::time::timeout(HELLO_TIMEOUT, messages.message()).await;
    let message = first.ok().and_then(Result::ok).flatten().and_then(|message| message.message);
    let Some(host_message::Message::Hello(mut hello)) = message else {
        let detail = "the first message of a stream is a Hello";
        return Err(RpcError::from_refusal(Refusal::BadRequest, detail));
    };
    let facts = hello.facts.take().filter(|facts| check_facts(facts).is_ok());
    let network = hello.network.take();
    let network = network.and_then(|network| parse_smaller_network(network, &peer.name_hint));
    let stated = HostStatement::parse(hello)
        .map_err(|error| RpcError::from_refusal(Refusal::BadRequest, error.to_string()))?;
    Ok((stated, Reported { hardware: facts.as_ref().map(describe_hardware), facts, network }))
}

/// Registers the stream in this replica.
async fn open_locally(context: &Context, statement: &Statement) -> Result<SessionGuard, RpcError> {
    let (peer, boot_id) = (&statement.peer, statement.boot_id());
    loop {
        let conflict = match context.sessions.open_session(&peer.key, boot_id) {
            Ok(guard) => return Ok(guard),
            Err(conflict) => conflict,
        };
        tracing::info!(
            open = conflict.boot_id,
            new = boot_id,
            "another boot attaches, waiting for the end of the open stream"
        );
        if !conflict.ends_within(context.timing.probe).await {
            let inventory = context.find_inventory(peer).await?;
            let error = quarantine_host(context, &inventory, [&conflict.boot_id, boot_id]).await;
            conflict.close_other();
            return Err(error);
        }
    }
}

/// Writes the session as soon as no other session is open. Returns the inventory with the session, and
/// the session before.
async fn store_session(
    context: &Context,
    statement: &Statement,
    reported: &Reported,
) -> Result<(Arc<MachineInventory>, Option<SessionStatus>), RpcError> {
    let mut inventory = context.find_inventory(&statement.peer).await?;
    loop {
        if let Some(other) = find_conflict(context, inventory.status.as_ref(), statement.boot_id()) {
            inventory = wait_for_end(context, statement, inventory, &other).await?;
            continue;
        }
        let former = session_of(&inventory).cloned();
        let written = record_session(context, statement, reported, inventory).await?;
        if is_own(context, statement, session_of(&written)) {
            return Ok((written, former));
        }
        // Another replica wrote first, perhaps for a newer key of the host.
        inventory = context.refuse_former_key(&statement.peer, written)?;
    }
}

/// Writes session and statement, unless another session is open by then.
async fn record_session(
    context: &Context,
    statement: &Statement,
    reported: &Reported,
    inventory: Arc<MachineInventory>,
) -> Result<Arc<MachineInventory>, RpcError> {
    let now = context.now();
    let key = Key::of(&*inventory);
    let compared = settings::compare_settings(context, &inventory, statement);
    let facts = reported.facts.as_ref();
    let stale = facts.map(|facts| find_stale_labels(context, &inventory, facts));
    let attach = Attach {
        namespace: &key.namespace,
        name: &key.name,
        replica: &context.replica.name,
        statement: &statement.stated,
        hardware: reported.hardware.as_ref(),
        network: reported.network.as_ref(),
        settings: compared.as_ref().map(|(state, checksum)| (*state, checksum.as_str())),
        stale_labels: stale.as_ref(),
        now,
    };
    let peer = &statement.peer;
    let written = context.update_host(peer, inventory, |status| {
        let known = status.host.as_ref().and_then(|host| host.certified_key.as_ref());
        let is_replaced = is_replaced(known, peer.shown_key());
        if !is_replaced && find_conflict(context, Some(&*status), statement.boot_id()).is_none() {
            facts::record_attach(status, attach);
        }
    });
    written.await
}

pub(super) fn session_of(inventory: &MachineInventory) -> Option<&SessionStatus> {
    session_in(inventory.status.as_ref()?)
}

fn session_in(status: &MachineInventoryStatus) -> Option<&SessionStatus> {
    status.host.as_ref()?.session.as_ref()
}

/// The inventory shows an open session of this replica.
fn has_open_session(context: &Context, inventory: &MachineInventory) -> bool {
    session_of(inventory)
        .is_some_and(|session| session.replica == context.replica.name && session.ended.is_none())
}

/// The session is the open one of this stream.
pub(super) fn is_own(context: &Context, statement: &Statement, session: Option<&SessionStatus>) -> bool {
    session.is_some_and(|session| {
        session.replica == context.replica.name
            && session.boot_id == statement.boot_id()
            && session.ended.is_none()
    })
}

/// The open session of another boot on another replica that is not dead. Sessions of this replica are
/// in its own table.
fn find_conflict(
    context: &Context,
    status: Option<&MachineInventoryStatus>,
    boot_id: &str,
) -> Option<SessionStatus> {
    let session = session_in(status?)?;
    let is_open = session.ended.is_none()
        && session.replica != context.replica.name
        && (context.replica.life_of)(&session.replica) != ReplicaLife::Dead;
    (is_open && session.boot_id != boot_id).then(|| session.clone())
}

/// Waits for the end of the session of another boot on another replica, and quarantines both hosts if
/// it does not end on a replica that is alive. Returns the inventory after the end.
async fn wait_for_end(
    context: &Context,
    statement: &Statement,
    inventory: Arc<MachineInventory>,
    other: &SessionStatus,
) -> Result<Arc<MachineInventory>, RpcError> {
    let (peer, boot_id) = (&statement.peer, statement.boot_id());
    tracing::info!(
        replica = other.replica,
        open = other.boot_id,
        new = boot_id,
        "another boot attaches, waiting for the end of its session on another replica"
    );
    // There is a second time after an answer of the API server, because the other replica may have
    // waited for the API server too.
    let mut live = inventory.clone();
    for limit in [context.timing.probe, context.timing.probe / 2] {
        let has_ended = has_ended_within(context, peer, &inventory, other, limit).await?;
        live = context.read_inventory(peer).await?;
        if has_ended || session_of(&live) != Some(other) {
            return Ok(live);
        }
    }
    if (context.replica.life_of)(&other.replica) == ReplicaLife::Unknown {
        return Err(RpcError::ReplicaUnknown(other.replica.clone()));
    }
    Err(quarantine_host(context, &live, [&other.boot_id, boot_id]).await)
}

/// Waits for the caches to show the end of the session; `false` if they do not within `limit`.
async fn has_ended_within(
    context: &Context,
    peer: &Peer,
    inventory: &MachineInventory,
    other: &SessionStatus,
    limit: Duration,
) -> Result<bool, RpcError> {
    let mut state = context.caches.notifications.subscribe(&peer.key, inventory);
    let deadline = Instant::now() + limit;
    // The caches may be behind `inventory`.
    let mut was_seen = false;
    loop {
        let latest = state.latest_state();
        if let Some(refusal) = latest.refusal_of(peer.shown_key()) {
            return Err(RpcError::from_refusal(refusal, peer.name_hint.clone()));
        }
        let is_seen = latest.session.as_ref() == Some(other);
        if (was_seen && !is_seen) || (context.replica.life_of)(&other.replica) == ReplicaLife::Dead {
            return Ok(true);
        }
        was_seen |= is_seen;
        tokio::select! {
            () = state.wait_changed() => {}
            () = tokio::time::sleep(REPLICA_CHECK) => {}
            () = tokio::time::sleep_until(deadline) => return Ok(false),
        }
    }
}

/// Marks the inventory, so that the streams of every replica end.
async fn quarantine_host(context: &Context, inventory: &MachineInventory, boot_ids: [&str; 2]) -> RpcError {
    let why = boot_ids.join(" ");
    let api = context.inventory_api(&Namespace::of(inventory));
    match store::host::quarantine(&api, inventory, &why).await {
        Ok(_) => {
            tracing::warn!(
                boot_ids = why,
                "host quarantined: two live systems have its identity; switch one off, reinstall it, then remove the annotation"
            );
            RpcError::from_refusal(Refusal::Quarantined, format!("boot ids {why}"))
        }
        Err(error) => error.into(),
    }
}

pub(super) fn close_error(reason: CloseReason, peer: &Peer) -> RpcError {
    match reason {
        CloseReason::Replaced => RpcError::Replaced,
        CloseReason::Quarantined => RpcError::from_refusal(Refusal::Quarantined, peer.name_hint.clone()),
        CloseReason::ShuttingDown => RpcError::ShuttingDown,
        CloseReason::Isolated => RpcError::Isolated,
    }
}

pub(super) fn uid_of(inventory: &MachineInventory) -> Option<Uid> {
    inventory.uid().as_deref().and_then(Uid::parse)
}
