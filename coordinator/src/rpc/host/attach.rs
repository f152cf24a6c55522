//! How a stream becomes the session of its host: `status.host.session` says
//! which replica serves it, so that one rule holds across replicas.
//!
//! The same boot wins at once, on any replica. Another boot waits until the
//! session before it is proven over: its stream ended, it was replaced, or its
//! replica is dead. One that is still open after the probe belongs to a second
//! live host: both are quarantined.

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::hardware::HardwareStatus;
use coordinator_api::inventory::{MachineInventory, MachineInventoryStatus, SessionStatus};
use coordinator_api::network::ObservedNetwork;
use coordinator_core::host::facts::{self, Attach};
use coordinator_core::host::hardware::describe_hardware;
use coordinator_core::host::statement::{HostStatement, StatementError};
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

use super::reports::parse_network;
use super::settings;
use super::statement::Statement;
use crate::ca::Peer;
use crate::rpc::refresh::refresh_metadata;
use crate::rpc::registration::check_facts;
use crate::rpc::sessions::{CloseReason, SessionGuard};
use crate::rpc::{Context, RpcError};
use crate::store;
use crate::telemetry::chain;

/// A stream that opens and states nothing is closed.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest pause between attempts to record the end of a session: shorter
/// than another replica waits for it.
const LONGEST_END_RETRY: Duration = Duration::from_secs(5);
/// How often the Lease of another replica is checked.
const REPLICA_CHECK: Duration = Duration::from_secs(1);

pub(super) type Messages = Streaming<wire::HostMessage>;

/// What a host reports beside its statement, within its bounds: stored, and not
/// kept as long as the stream.
struct Reported {
    facts: Option<wire::HostFacts>,
    hardware: Option<HardwareStatus>,
    network: Option<ObservedNetwork>,
}

/// The session of a host, stored.
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
    // A host that is refused takes no place in the table.
    context.find_inventory(&statement.peer).await?;
    let mut guard = open_locally(context, &statement).await?;
    let stored = tokio::select! {
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
            // The end of an earlier session waited for this one.
            if guard.close_session() {
                schedule_session_end(context, &statement.peer, Freshness::Live);
            }
            Err(error)
        }
    }
}

/// From where an inventory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    Cached,
    /// A write may have been accepted although its answer was lost.
    Live,
}

/// Records that this replica has no stream of the host, unless it opens one
/// soon.
pub(super) fn schedule_session_end(context: &Context, peer: &Peer, freshness: Freshness) {
    let record = record_session_end(context.clone(), peer.clone(), context.now(), freshness);
    context.sessions.schedule_end(&peer.key, context.timing.end_delay, record.in_current_span());
}

/// An end that is not recorded makes the next boot of the host a duplicate.
async fn record_session_end(context: Context, peer: Peer, ended: Timestamp, mut freshness: Freshness) {
    let mut attempt = 0;
    loop {
        let error = match end_own_session(&context, &peer, ended, freshness).await {
            Ok(()) => return tracing::info!("host detached"),
            Err(error) if error.is_inventory_gone() => return,
            Err(error) => error,
        };
        attempt += 1;
        freshness = Freshness::Live;
        tracing::warn!(error = chain(&error), attempt, "cannot record the end of the session: retrying");
        tokio::time::sleep(failure_backoff(attempt).min(LONGEST_END_RETRY)).await;
    }
}

async fn end_own_session(
    context: &Context,
    peer: &Peer,
    ended: Timestamp,
    freshness: Freshness,
) -> Result<(), RpcError> {
    let cached = match freshness {
        Freshness::Cached => context.cached_inventory(&peer.key),
        Freshness::Live => None,
    };
    // A quarantined host has no session either.
    let inventory = match cached {
        Some(cached) => cached,
        None => context.read_any_inventory(peer).await?,
    };
    let record = |status: &mut MachineInventoryStatus| {
        facts::record_session_end(status, &context.replica.name, ended);
    };
    context.update_status(inventory, record).await.map(drop)
}

async fn read_hello(messages: &mut Messages, peer: &Peer) -> Result<(HostStatement, Reported), RpcError> {
    let first = tokio::time::timeout(HELLO_TIMEOUT, messages.message()).await;
    let message = first.ok().and_then(Result::ok).flatten().and_then(|message| message.message);
    let refused = |detail: String| RpcError::from_refusal(Refusal::BadRequest, detail);
    match message {
        Some(host_message::Message::Hello(mut hello)) => {
            let facts = hello.facts.take().filter(|facts| check_facts(facts).is_ok());
            let network = hello.network.take().map(|network| parse_network(network, &peer.name_hint));
            let stated = HostStatement::parse(hello);
            let stated = stated.map_err(|error: StatementError| refused(error.to_string()))?;
            Ok((stated, Reported { hardware: facts.as_ref().map(describe_hardware), facts, network }))
        }
        Some(_) | None => Err(refused("the first message of a stream is a Hello".to_owned())),
    }
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
            "another boot attaches: waiting for the end of the open stream"
        );
        if !conflict.ends_within(context.timing.probe).await {
            let inventory = context.find_inventory(peer).await?;
            let error = quarantine_host(context, &inventory, [&conflict.boot_id, boot_id]).await;
            conflict.close_other();
            return Err(error);
        }
    }
}

/// Writes the session, once no other one is open. The answer is the inventory
/// with it, and the session before.
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
        // Another replica wrote first.
        inventory = written;
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
    let (namespace, name) = (inventory.namespace().unwrap_or_default(), inventory.name_any());
    let (namespace, name) = (namespace.as_str(), name.as_str());
    let (replica, stated) = (context.replica.name.as_str(), &statement.stated);
    let settings = settings::judge_statement(context, &inventory, statement);
    let (hardware, network) = (reported.hardware.as_ref(), reported.network.as_ref());
    let attach = Attach { namespace, name, replica, statement: stated, hardware, network, settings, now };
    let record = |status: &mut MachineInventoryStatus| {
        if find_conflict(context, Some(&*status), statement.boot_id()).is_none() {
            facts::record_attach(status, attach);
        }
    };
    context.update_status(inventory, record).await
}

pub(super) fn session_of(inventory: &MachineInventory) -> Option<&SessionStatus> {
    session_in(inventory.status.as_ref()?)
}

fn session_in(status: &MachineInventoryStatus) -> Option<&SessionStatus> {
    status.host.as_ref()?.session.as_ref()
}

/// Whether it is the open session of this stream.
pub(super) fn is_own(context: &Context, statement: &Statement, session: Option<&SessionStatus>) -> bool {
    session.is_some_and(|session| {
        session.replica == context.replica.name
            && session.boot_id == statement.boot_id()
            && session.ended.is_none()
    })
}

/// The open session of another boot on another replica that is alive. Those of
/// this replica are in its own table.
fn find_conflict(
    context: &Context,
    status: Option<&MachineInventoryStatus>,
    boot_id: &str,
) -> Option<SessionStatus> {
    let session = session_in(status?)?;
    let is_open = session.ended.is_none()
        && session.replica != context.replica.name
        && !(context.replica.is_dead)(&session.replica);
    (is_open && session.boot_id != boot_id).then(|| session.clone())
}

/// Waits until the session of another boot on another replica is over, and
/// quarantines both when it is not. The answer is the inventory as it is then.
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
        "another boot attaches: waiting for the end of its session on another replica"
    );
    // The second time begins when the API server answers: the other replica may
    // have waited for that too.
    let mut live = inventory.clone();
    for limit in [context.timing.probe, context.timing.probe / 2] {
        let has_ended = has_ended_within(context, peer, &inventory, other, limit).await?;
        live = context.read_inventory(peer).await?;
        if has_ended || session_of(&live) != Some(other) {
            return Ok(live);
        }
    }
    Err(quarantine_host(context, &live, [&other.boot_id, boot_id]).await)
}

/// Whether the caches show within `limit` that the session is over.
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
        if let Some(refusal) = latest.refusal {
            return Err(RpcError::from_refusal(refusal, peer.name_hint.clone()));
        }
        let is_seen = latest.session.as_ref() == Some(other);
        if (was_seen && !is_seen) || (context.replica.is_dead)(&other.replica) {
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

/// Marks the inventory: streams of every replica end by it.
async fn quarantine_host(context: &Context, inventory: &MachineInventory, boot_ids: [&str; 2]) -> RpcError {
    let why = boot_ids.join(" ");
    let api = context.inventory_api(&inventory.namespace().unwrap_or_default());
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
    }
}

pub(super) fn uid_of(inventory: &MachineInventory) -> Option<Uid> {
    inventory.uid().as_deref().and_then(Uid::parse)
}
