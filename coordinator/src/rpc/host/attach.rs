//! The stream of one host: it says where it stands, and gets the newest plan
//! and each later one.

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::conditions::Reason;
use coordinator_api::inventory::MachineInventory;
use coordinator_core::host::{self, Arrival};
use futures::stream::{BoxStream, StreamExt as _};
use jiff::Timestamp;
use kube::ResourceExt as _;
use proto::plan::Generation;
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Status, Streaming};
use wire::{coordinator_message, host_message};

use super::report as reports;
use crate::ca::{Peer, Role};
use crate::rpc::announcements::{News, Unfinished};
use crate::rpc::presence::{Contest, Ending, Seat};
use crate::rpc::{Context, RpcError};
use crate::store::report::{self, PlanSecretError};
use crate::telemetry::chain;

/// A host without a stream for so long is shown as unreachable: longer than a
/// server takes to restart.
pub const GRACE: Duration = Duration::from_mins(5);
/// A stream that opens and says nothing is closed.
const HELLO: Duration = Duration::from_secs(10);
/// Pause before an unreadable plan Secret is read again; doubled each time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);

type Messages = Streaming<wire::HostMessage>;

/// Runs the stream. Everything that goes wrong ends it with a status.
pub(super) fn stream(
    context: Context,
    peer: Peer,
    mut messages: Messages,
) -> BoxStream<'static, Result<wire::CoordinatorMessage, Status>> {
    let stream = async_stream::stream! {
        let mut attachment = match context.answer(open(&context, peer, &mut messages).await) {
            Ok(attachment) => attachment,
            Err(status) => {
                yield Err(status);
                return;
            }
        };
        loop {
            match attachment.turn(&mut messages).await {
                Ok(Turn::Send(message)) => yield Ok(message),
                Ok(Turn::Closed) => return,
                Err(error) => {
                    let refused: Result<(), _> = context.answer(Err(error));
                    if let Err(status) = refused {
                        yield Err(status);
                    }
                    return;
                }
            }
        }
    };
    stream.boxed()
}

/// A host on its stream.
struct Attachment {
    context: Context,
    peer: Peer,
    hello: wire::Hello,
    seat: Seat,
    news: watch::Receiver<News>,
    /// Generation and name of the plan that was sent last.
    sent: Option<(Generation, String)>,
    retry: Option<Retry>,
}

/// When an unreadable plan Secret is read again.
struct Retry {
    at: Instant,
    pause: Duration,
}

enum Turn {
    Send(wire::CoordinatorMessage),
    Closed,
}

async fn open(context: &Context, peer: Peer, messages: &mut Messages) -> Result<Attachment, RpcError> {
    let hello = hello(messages).await?;
    // Asked before and after: the wait for a seat may be long.
    context.inventory(&peer).await?;
    let seat = seat(context, &peer, boot_id(&hello)).await?;
    let inventory = context.inventory(&peer).await?;
    let news = context.announcements.subscribe(&inventory);
    let attachment =
        Attachment { context: context.clone(), peer, hello, seat, news, sent: None, retry: None };
    attachment.arrived(inventory).await?;
    tracing::info!(inventory = attachment.peer.name, boot_id = boot_id(&attachment.hello), "a host attached");
    Ok(attachment)
}

fn boot_id(hello: &wire::Hello) -> &str {
    hello.system.as_ref().map_or("", |system| &system.boot_id)
}

async fn hello(messages: &mut Messages) -> Result<wire::Hello, RpcError> {
    let first = tokio::time::timeout(HELLO, messages.message()).await;
    let message = first.ok().and_then(Result::ok).flatten().and_then(|message| message.message);
    match message {
        Some(host_message::Message::Hello(hello)) if !boot_id(&hello).is_empty() => Ok(hello),
        Some(_) | None => {
            let detail = "a stream begins with a hello that says the boot id";
            Err(RpcError::refused(Refusal::BadRequest, detail))
        }
    }
}

/// Takes the seat of the host; [`crate::rpc::presence`] has the rule.
async fn seat(context: &Context, peer: &Peer, boot_id: &str) -> Result<Seat, RpcError> {
    loop {
        let rival = match context.presence.enter(&peer.uid, boot_id) {
            Ok(seat) => return Ok(seat),
            Err(rival) => rival,
        };
        tracing::info!(inventory = peer.name, old = rival.boot_id, new = boot_id, "another boot attaches");
        if !rival.is_over().await {
            return Err(quarantine(context, peer, &rival, boot_id).await);
        }
    }
}

async fn quarantine(context: &Context, peer: &Peer, rival: &Contest, boot_id: &str) -> RpcError {
    let boots = [rival.boot_id.as_str(), boot_id];
    let why = boots.join(" ");
    let marked = async {
        let inventory = context.inventory(peer).await?;
        let api = context.inventory_api(&peer.namespace);
        let marked = report::quarantine(&api, &inventory, &why).await?;
        let now = Timestamp::now();
        report::status(&api, marked, |known| host::duplicate(known, boots, now)).await?;
        Ok::<_, RpcError>(())
    };
    let marked = marked.await;
    rival.quarantine();
    match marked {
        Err(error @ RpcError::Report(_)) => error,
        _ => RpcError::refused(Refusal::Quarantined, format!("boot ids {why}")),
    }
}

impl Attachment {
    async fn write(
        &self,
        inventory: Arc<MachineInventory>,
        project: impl Fn(&MachineInventory) -> coordinator_api::inventory::MachineInventoryStatus,
    ) -> Result<(), RpcError> {
        let api = self.context.inventory_api(&self.peer.namespace);
        report::status(&api, inventory, project).await?;
        Ok(())
    }

    /// The status of a host that is there; no write when it says so already.
    async fn arrived(&self, inventory: Arc<MachineInventory>) -> Result<(), RpcError> {
        let (system, now) = (self.hello.system.clone().unwrap_or_default(), Timestamp::now());
        let arrival = Arrival {
            system: &system,
            agent_version: &self.hello.agent_version,
            generation: self.sent.as_ref().map_or(self.hello.generation, |(sent, _)| sent.0),
        };
        self.write(inventory, |known| host::attached(known, arrival, now)).await
    }

    /// Runs until there is something to send or nobody to send it to.
    async fn turn(&mut self, messages: &mut Messages) -> Result<Turn, RpcError> {
        loop {
            let news = self.news.borrow_and_update().clone();
            let refused = |refusal| Err(RpcError::refused(refusal, self.peer.name.clone()));
            if news.gone {
                return refused(Refusal::InventoryGone);
            }
            if news.quarantined {
                return refused(Refusal::Quarantined);
            }
            if let Some(message) = self.next(&news).await? {
                return Ok(Turn::Send(message));
            }
            let retry = self.retry.as_ref().map(|retry| retry.at);
            tokio::select! {
                _ = self.news.changed() => {}
                ending = self.seat.ending() => return Err(ended(ending, &self.peer)),
                () = at(retry) => {}
                message = messages.message() => match message {
                    Ok(Some(message)) => self.hear(message).await?,
                    Ok(None) | Err(_) => return Ok(Turn::Closed),
                },
            }
        }
    }

    /// The plan to send, when there is one that was not sent yet.
    async fn next(&mut self, news: &News) -> Result<Option<wire::CoordinatorMessage>, RpcError> {
        let unsent = news.plan.as_ref().filter(|plan| {
            let sent = self.sent.as_ref();
            sent.is_none_or(|(generation, _)| *generation < plan.generation)
        });
        let Some(plan) = unsent else {
            self.retry = None;
            // A status that calls this host lost was written elsewhere.
            if news.doubted {
                self.believed().await?;
            }
            return Ok(None);
        };
        if self.retry.as_ref().is_some_and(|retry| Instant::now() < retry.at) {
            return Ok(None);
        }
        let secrets = self.context.secret_api(&self.peer.namespace);
        match report::plan(&secrets, &plan.secret, plan.generation).await {
            // Written and not announced yet. What the host reports of it before
            // would be taken back by the announcement, which is on its way.
            Ok(read) if read.stored.plan.generation > plan.generation => {
                self.retry = None;
                Ok(None)
            }
            Ok(read) => {
                let plan = &read.stored.plan;
                let message = coordinator_message::Message::Plan(plan.into());
                self.sent = Some((plan.generation, plan.id.to_string()));
                self.retry = None;
                tracing::info!(
                    inventory = self.peer.name,
                    plan = plan.id.as_str(),
                    generation = plan.generation.0,
                    "sending a plan"
                );
                self.context.plans.keep(&self.peer.uid, Arc::new(read));
                if news.doubted {
                    self.believed().await?;
                }
                Ok(Some(wire::CoordinatorMessage { message: Some(message) }))
            }
            Err(error) => {
                self.unusable(plan, &error).await?;
                Ok(None)
            }
        }
    }

    async fn believed(&self) -> Result<(), RpcError> {
        let inventory = self.context.inventory(&self.peer).await?;
        self.arrived(inventory).await
    }

    /// Shows why the plan is not sent, and looks again later: whoever restores
    /// the Secret changes nothing that is watched.
    async fn unusable(&mut self, plan: &Unfinished, error: &PlanSecretError) -> Result<(), RpcError> {
        let pause = self.retry.as_ref().map_or(PAUSE, |retry| (retry.pause * 2).min(PAUSE_MAX));
        self.retry = Some(Retry { at: Instant::now() + pause, pause });
        tracing::warn!(
            inventory = self.peer.name,
            secret = plan.secret,
            error = chain(error),
            "cannot send the plan"
        );
        let reason = match error {
            PlanSecretError::Missing { .. } => Reason::PlanSecretMissing,
            PlanSecretError::Invalid { .. } | PlanSecretError::Older { .. } => Reason::PlanSecretInvalid,
            // The API server is away: nothing is wrong with the plan.
            PlanSecretError::Read { .. } => return Ok(()),
        };
        let (message, now) = (error.to_string(), Timestamp::now());
        let inventory = self.context.inventory(&self.peer).await?;
        self.write(inventory, |known| host::plan_unusable(known, reason, message.clone(), now)).await
    }

    async fn hear(&self, message: wire::HostMessage) -> Result<(), RpcError> {
        match message.message {
            Some(host_message::Message::Acknowledgement(answer)) if !answer.refusal.is_empty() => {
                tracing::warn!(
                    inventory = self.peer.name,
                    plan = answer.plan_id,
                    refusal = answer.refusal,
                    "the host refuses a plan"
                );
                match reports::refused(&self.context, &self.peer, &answer).await {
                    // It refused what is not its newest plan: nobody waits for that.
                    Err(RpcError::Refused { refusal: Refusal::StalePlan, .. }) => Ok(()),
                    other => other,
                }
            }
            Some(host_message::Message::Acknowledgement(_) | host_message::Message::Hello(_)) | None => {
                Ok(())
            }
        }
    }
}

fn ended(ending: Ending, peer: &Peer) -> RpcError {
    match ending {
        Ending::Replaced => RpcError::Replaced,
        Ending::Quarantined => RpcError::refused(Refusal::Quarantined, peer.name.clone()),
        Ending::Leaving => RpcError::Leaving,
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.context.plans.forget(&self.peer.uid);
        let (context, peer, number) = (self.context.clone(), self.peer.clone(), self.seat.number());
        // Outside a runtime the process is ending, and nobody is lost by that.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(GRACE).await;
                if context.presence.stayed_away(&peer.uid, number) {
                    lost(&context, &peer).await;
                }
            });
        }
    }
}

/// Shows a host as unreachable. One that attached to another replica is put
/// right by its stream there.
async fn lost(context: &Context, peer: &Peer) {
    let written = async {
        let inventory = context.inventory(peer).await?;
        let now = Timestamp::now();
        let api = context.inventory_api(&peer.namespace);
        report::status(&api, inventory, |known| host::unreachable(known, now)).await?;
        Ok(())
    };
    tell(peer, written.await);
}

fn tell(peer: &Peer, lost: Result<(), RpcError>) {
    let trouble = match lost {
        // Deleted or quarantined: that says more.
        Ok(()) | Err(RpcError::Refused { .. }) => None,
        Err(error) => Some(chain(&error)),
    };
    tracing::warn!(inventory = peer.name, trouble, "a host is away");
}

/// Shows every installed host without a stream as unreachable: called once, a
/// [`GRACE`] after the start, since nobody noticed who left while no
/// coordinator ran.
pub async fn sweep(context: &Context) {
    for inventory in context.inventories.state() {
        let uid = inventory.uid().unwrap_or_default();
        let is_news = host::has_attached(&inventory) && !host::is_unreachable(&inventory);
        if is_news && !context.presence.has(&uid) {
            let peer = Peer {
                namespace: inventory.namespace().unwrap_or_default(),
                name: inventory.name_any(),
                uid,
                role: Role::Installed,
                public_key_hash: String::new(),
                serial: String::new(),
            };
            lost(context, &peer).await;
        }
    }
}
