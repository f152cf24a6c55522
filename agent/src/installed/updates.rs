//! Updates of the agent on the stream to the coordinator. An update is announced, read in parts,
//! and tried at the next start while no plan runs; it is kept after it has attached, else given up.

use std::pin::Pin;
use std::time::Duration;

use proto::v1alpha1::host_client::HostClient;
use proto::v1alpha1::host_message::Message;
use proto::v1alpha1::{AgentUpdate, AgentUpdateState, FailureReason, HostMessage, ReadAgentRequest};
use semver::Version;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;

use crate::client::calls::unary_request;
use crate::client::error::CallError;
use crate::ground::failure::Failure;
use crate::ground::paths::Root;
use crate::state::message::Console;
use crate::update::offer::{Offer, Trust};
use crate::update::record::{Failed, Record};
use crate::update::{keys, launch};

/// An agent on trial that has not attached for this time is given up.
const DEADLINE: Duration = Duration::from_mins(5);
/// A stream of this length proves the agent, even if the coordinator sends nothing.
const PROOF: Duration = Duration::from_secs(30);
/// Pause between two parts, so that a host reads at most 2.5 MiB a second.
const PAUSE: Duration = Duration::from_millis(100);

/// The download of an agent on one stream.
pub(super) struct BinaryDownload {
    offer: Offer,
    file: Pin<Box<dyn Future<Output = Result<Vec<u8>, CallError>> + Send>>,
}

impl BinaryDownload {
    /// Waits for the end of the download; never returns if there is none.
    pub(super) async fn end(download: &mut Option<Self>) -> Result<Vec<u8>, CallError> {
        match download {
            Some(download) => download.file.as_mut().await,
            None => std::future::pending().await,
        }
    }
}

pub(super) struct Updates<'a> {
    root: &'a Root,
    version: Version,
    begin: Instant,
    is_on_trial: bool,
    /// Time at which the current stream proves the agent on trial.
    proof_due: Option<Instant>,
    offer: Option<Offer>,
    file: Option<Vec<u8>>,
}

impl<'a> Updates<'a> {
    pub(super) fn new(root: &'a Root, version: Version) -> Self {
        let is_on_trial = read_record(root).is_on_trial(&version);
        let begin = Instant::now();
        Self { root, version, begin, is_on_trial, proof_due: None, offer: None, file: None }
    }

    pub(super) fn version(&self) -> String {
        self.version.to_string()
    }

    pub(super) fn state(&self) -> AgentUpdateState {
        let failed = read_record(self.root).failed;
        AgentUpdateState {
            failed_version: failed.as_ref().map_or_else(String::new, |failed| failed.version.to_string()),
            failure: failed.map(|failed| Failure::refused(failed.message, failed.next_action).into()),
            on_trial: self.is_on_trial,
        }
    }

    /// Starts over on a new stream, because a download of the former stream is read again.
    pub(super) fn record_attached(&mut self) {
        self.drop_offer();
        self.proof_due = self.is_on_trial.then(|| Instant::now() + PROOF);
    }

    pub(super) fn proof_due(&self) -> Option<Instant> {
        self.proof_due
    }

    /// Keeps the agent on trial, because the coordinator has accepted its Hello.
    pub(super) fn keep_proven(&mut self) {
        if !self.is_on_trial {
            return;
        }
        match launch::keep_proven(self.root, &self.version) {
            Ok(()) => {
                (self.is_on_trial, self.proof_due) = (false, None);
                tracing::info!(version = %self.version, "updated agent attached, keeping it");
            }
            Err(error) => {
                tracing::warn!(%error, "cannot keep the updated agent, retrying");
                self.proof_due = self.proof_due.map(|_| Instant::now() + PROOF);
            }
        }
    }

    /// Called after a failed attempt to attach. Returns true if this agent has to exit, so that the
    /// former one starts.
    pub(super) fn is_over(&mut self, error: &CallError, console: &mut Console) -> bool {
        self.proof_due = None;
        if !self.is_on_trial || self.begin.elapsed() < DEADLINE {
            return false;
        }
        let minutes = self.begin.elapsed().as_secs() / 60;
        let why = format!("it did not attach for {minutes} minutes: {}", error.failure.message);
        console.print_message(&format!("agent {} is given up: {why}", self.version));
        launch::give_up(self.root, &self.version, why)
            .inspect_err(|error| {
                tracing::warn!(%error, "cannot return to the former agent, retrying");
            })
            .is_ok()
    }

    /// The coordinator asks for an agent, or for none.
    pub(super) fn take_update(
        &mut self,
        update: &AgentUpdate,
        authorities: &str,
        outbound: &mpsc::Sender<HostMessage>,
    ) {
        if update.version.is_empty() {
            self.drop_offer();
            return self.forget_failure();
        }
        if update.version == self.version() {
            return self.drop_offer();
        }
        match self.check_offer(update, authorities) {
            Ok(offer) if self.offer.as_ref() == Some(&offer) => {}
            Ok(offer) => {
                self.drop_offer();
                self.offer = Some(offer);
            }
            Err(error) => {
                self.drop_offer();
                self.refuse(&update.version, error, outbound);
            }
        }
    }

    fn check_offer(&self, update: &AgentUpdate, authorities: &str) -> Result<Offer, Failure> {
        // The keys are those of the install, or of an update that they signed: no message names them.
        let keys = keys::read(&self.root.state())?;
        Offer::check(update, Trust { authorities, keys: keys.as_ref() }, &self.version)
    }

    fn drop_offer(&mut self) {
        (self.offer, self.file) = (None, None);
    }

    fn forget_failure(&self) {
        let record = read_record(self.root);
        if record.failed.is_none() {
            return;
        }
        if let Err(error) = record.without_failed().write(&self.root.state()) {
            tracing::warn!(%error, "cannot forget the failed agent update");
        }
    }

    /// Starts the download of the announced agent, and ends one that is not wanted any more.
    pub(super) fn poll_offer(&self, download: &mut Option<BinaryDownload>, client: &HostClient<Channel>) {
        download.take_if(|download| self.offer.as_ref() != Some(&download.offer));
        let Some(offer) = self.offer.as_ref().filter(|_| download.is_none() && self.file.is_none()) else {
            return;
        };
        tracing::info!(version = %offer.program.version, "downloading agent");
        let file = Box::pin(read_agent(client.clone(), offer.clone()));
        *download = Some(BinaryDownload { offer: offer.clone(), file });
    }

    /// Another agent may be wanted by now.
    pub(super) fn record_download(
        &mut self,
        download: Option<BinaryDownload>,
        read: Result<Vec<u8>, CallError>,
        outbound: &mpsc::Sender<HostMessage>,
    ) {
        if download.map(|download| download.offer) != self.offer {
            return;
        }
        match read {
            Ok(file) => self.file = Some(file),
            // After a broken connection the agent is announced again on the next one.
            Err(error) => {
                let Some(offer) = self.offer.take() else { return };
                tracing::warn!(%error, "cannot download the announced agent");
                let failure = error.failure.context("it cannot be read");
                send_failure(&offer.program.version.to_string(), failure, outbound);
            }
        }
    }

    /// Stores the downloaded agent for its trial. Returns true if this agent has to exit, so that
    /// the new one starts. Must be called only while no plan runs.
    pub(super) fn switch(&mut self, outbound: &mpsc::Sender<HostMessage>) -> bool {
        let Some(file) = self.file.take() else { return false };
        let Some(offer) = self.offer.take() else { return false };
        match offer.keep(self.root, &file) {
            Ok(()) => true,
            Err(error) => {
                self.refuse(&offer.program.version.to_string(), error, outbound);
                false
            }
        }
    }

    /// Reports the refusal now, and with each Hello until the coordinator asks for no agent.
    fn refuse(&self, version: &str, failure: Failure, outbound: &mpsc::Sender<HostMessage>) {
        if let Ok(version) = Version::parse(version)
            && version > self.version
        {
            let (message, next_action) = (failure.message.clone(), failure.next_action.clone());
            if let Err(error) = launch::refuse(self.root, Failed { version, message, next_action }) {
                tracing::warn!(%error, "cannot store the refusal of the announced agent");
            }
        }
        send_failure(version, failure, outbound);
    }
}

fn read_record(root: &Root) -> Record {
    Record::read(&root.state()).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the agent update record");
        Record::default()
    })
}

/// If the queue is full, the next Hello reports the failure.
fn send_failure(version: &str, failure: Failure, outbound: &mpsc::Sender<HostMessage>) {
    tracing::warn!(version, cause = failure.message, "announced agent refused");
    let failure = Some(failure.report_as(FailureReason::Refused));
    let state = AgentUpdateState { failed_version: version.to_owned(), failure, on_trial: false };
    let _ = outbound.try_send(HostMessage { message: Some(Message::AgentUpdate(state)) });
}

async fn read_agent(mut client: HostClient<Channel>, offer: Offer) -> Result<Vec<u8>, CallError> {
    let mut file = Vec::with_capacity(offer.size);
    while file.len() < offer.size {
        let offset = u64::try_from(file.len()).unwrap_or(u64::MAX);
        let request = ReadAgentRequest { checksum: offer.program.checksum.clone(), offset };
        let part = client.read_agent(unary_request(request)).await?.into_inner().data;
        if part.is_empty() {
            break;
        }
        file.extend(part);
        sleep(PAUSE).await;
    }
    Ok(file)
}
