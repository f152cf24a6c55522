//! Registration of a host as a `MachineInventory`: first its claimed identity, then the proof. Before
//! the proof the handlers read nothing from the API, write only Events at a bounded rate, and return
//! only a nonce and a challenge.

mod admission;
mod file;
mod install;
mod inventories;

use std::sync::Arc;

use coordinator_api::inventory::{KeyClass, LiveTpm, MachineInventory};
use coordinator_api::names::annotation;
use coordinator_api::registration::MachineRegistration;
use coordinator_core::attestation::Opened;
use coordinator_core::host::HostRecord;
use coordinator_core::host::certified::{KeyTime, ShownKey};
use coordinator_core::host::facts::Registered;
use coordinator_core::host::hardware::describe_hardware;
use coordinator_core::inventory::{self, Hardware};
use coordinator_core::network;
use coordinator_core::pause::is_paused;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use proto::proof::{self, NONCE_BYTES};
use proto::refusal::Refusal;
use proto::{limits, v1alpha1 as wire};
use ring::rand::SecureRandom as _;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use tonic::{Request, Response, Status};
use tracing::Instrument as _;
use wire::begin_request::Attestation;

use super::attestation::{open_challenge, verify_tpm};
use super::host::parse_network;
use super::identity::{Call, check_boot_id, tls_session};
use super::refresh::refresh_registered;
use super::{Context, RpcError, host_token, refuse_key, refuse_shut_out};
use crate::ca::{Authority, HostKey, Peer, RequestedKey, Role, Subject, p256_point};
use crate::key::{Key, Namespace, ObjectName};
use crate::store::registration as store;
use crate::tls::{Challenge, Session, SoftwareKey};
use inventories::Reported;

pub(in crate::rpc) use admission::Admissions;
pub use file::registration_router;

pub struct RegistrationService {
    context: Context,
}

fn refuse_call<T>(refusal: Refusal, detail: impl Into<String>) -> Result<T, RpcError> {
    Err(RpcError::from_refusal(refusal, detail))
}

fn is_ready(registration: &MachineRegistration) -> bool {
    registration.status.as_ref().is_some_and(|status| status.registration_url.is_some())
}

/// The claimed class of the host's key. The registration must accept the class of a new host.
fn check_key_class(
    matched: &MatchedRegistration,
    attestation: Option<&Attestation>,
) -> Result<KeyClass, RpcError> {
    let class = match attestation {
        Some(Attestation::SoftwareKey(_)) => KeyClass::Emulated,
        Some(Attestation::TpmKeys(_)) => KeyClass::Unverified,
        None => return refuse_call(Refusal::BadRequest, "the request does not state how the key is held"),
    };
    let registration = matched.registration.as_ref().filter(|_| !matched.is_known);
    match registration.and_then(|found| Some((found, inventory::refuse_key(class, found)?))) {
        Some((found, refusal)) => {
            refuse_call(refusal, format!("{} does not accept a key held in software", found.name_any()))
        }
        None => Ok(class),
    }
}

/// The claimed class of the key, and the challenge for a TPM.
type CheckedKey = (KeyClass, Option<(Opened, wire::TpmChallenge)>);

/// Checks the rules of the registration before the key, so that a refused key costs nothing.
fn check_key(matched: &MatchedRegistration, request: &wire::BeginRequest) -> Result<CheckedKey, RpcError> {
    let class = check_key_class(matched, request.attestation.as_ref())?;
    match &request.attestation {
        Some(Attestation::TpmKeys(keys)) => Ok((class, Some(open_challenge(keys, &request.public_key)?))),
        Some(Attestation::SoftwareKey(_)) | None if p256_point(&request.public_key).is_some() => {
            Ok((class, None))
        }
        Some(Attestation::SoftwareKey(_)) | None => {
            refuse_call(Refusal::BadRequest, "the key is no P-256 key in PKIX DER")
        }
    }
}

/// The key that proves the identity of a host without TPM.
fn read_software_key(authority: &Authority, request: &wire::BeginRequest) -> Option<SoftwareKey> {
    let Some(Attestation::SoftwareKey(wire::SoftwareKey { current_key, certificate_chain })) =
        &request.attestation
    else {
        return None;
    };
    let current = if current_key.is_empty() { &request.public_key } else { current_key };
    let hash = proof::identity(current);
    let evidence = authority.verify_former(certificate_chain).filter(|peer| {
        peer.public_key_hash == hash && peer.key.tpm_hash == proof::identity(&request.public_key)
    });
    Some(SoftwareKey { current: current.clone(), evidence })
}

/// The time that the certificate for the requested key names.
fn choose_key_time(
    inventory: &MachineInventory,
    challenge: &Challenge,
    requested: &RequestedKey,
    now: Timestamp,
) -> Result<KeyTime, RpcError> {
    let Some(record) = HostRecord::parse(inventory) else { return Ok(KeyTime::proven(now)) };
    let hash = requested.hash();
    let admitted = match &challenge.software_key {
        Some(SoftwareKey { current, evidence }) => {
            let is_first = *current == challenge.public_key;
            record.admit_software_key(&hash, is_first, evidence.as_ref().map(Peer::shown_key), now)
        }
        // The TPM has proven the request.
        None => (record.replaced_key.as_ref() != Some(&hash)).then(|| record.proven_time(&hash, now)),
    };
    admitted.ok_or_else(|| refuse_key(&hash))
}

/// The proven identity of a host.
struct Proven<'a> {
    challenge: &'a Challenge,
    /// The TPM, if it holds the identity.
    live_tpm: Option<LiveTpm>,
}

/// The registration that a host opened by its token, or by its key.
struct MatchedRegistration {
    namespace: Namespace,
    /// `None` for a known host whose registration does not exist any more.
    registration: Option<Arc<MachineRegistration>>,
    /// An inventory has the key of the host.
    is_known: bool,
    /// The token is the one that the installed disk of the host keeps.
    is_installed: bool,
}

/// Checks the bounds of the contract, because templates cost time for each fact.
pub(super) fn check_facts(facts: &wire::HostFacts) -> Result<(), RpcError> {
    for (what, count, max) in [
        ("SMBIOS sections", facts.smbios.len(), limits::SMBIOS_SECTIONS),
        ("disks", facts.disks.len(), limits::DISKS),
        ("interfaces", facts.nics.len(), limits::INTERFACES),
        ("processors", facts.processors.len(), limits::CARDS),
        ("graphics cards", facts.graphics_cards.len(), limits::CARDS),
        (
            "addresses of an interface",
            facts.nics.iter().map(|nic| nic.addresses.len()).max().unwrap_or(0),
            limits::ADDRESSES,
        ),
    ] {
        if count > max {
            return refuse_call(Refusal::BadRequest, format!("{count} {what} were sent, {max} are allowed"));
        }
    }
    Ok(())
}

/// Checks the key of the certificate request. With a software key, the key must be the proven one,
/// because a certificate for another key would belong to no proven identity. A TPM has proven the
/// request itself.
fn check_requested_key(requested: &RequestedKey, challenge: &Challenge) -> Result<(), RpcError> {
    let proven = challenge.software_key.as_ref().map(|key| proof::identity(&key.current));
    if proven.is_some_and(|proven| proven != requested.hash()) {
        return refuse_call(
            Refusal::BadRequest,
            "the certificate request is for another key than was proven",
        );
    }
    Ok(())
}

impl RegistrationService {
    pub fn new(context: Context) -> Self {
        Self { context }
    }

    fn ready_registration(&self, key: &ObjectRef<MachineRegistration>) -> Option<Arc<MachineRegistration>> {
        self.context.caches.registrations.get(key).filter(|found| is_ready(found))
    }

    /// The registration with that token.
    fn find_by_token(&self, token: &str) -> Option<Arc<MachineRegistration>> {
        let key = self.context.caches.tokens.find_object(token)?;
        self.ready_registration(&key)
    }

    /// The registration of the token that an installed host keeps.
    fn find_by_host_token(&self, token: &str, tpm_hash: &str) -> Option<Arc<MachineRegistration>> {
        let found = self.ready_registration(&host_token::find_registration(token)?)?;
        host_token::is_genuine(&self.context.authority, &found, tpm_hash, token).then_some(found)
    }

    /// The inventory with that key. An installed host names its namespace, also by a token that was
    /// rotated since, because anyone may create an inventory with its hash in another namespace.
    fn find_known(&self, token: &str, tpm_hash: &str) -> Option<Arc<MachineInventory>> {
        match host_token::find_registration(token).and_then(|found| found.namespace) {
            Some(namespace) => {
                let key = HostKey { tpm_hash: tpm_hash.to_owned(), namespace: namespace.as_str().into() };
                self.context.cached_inventory(&key)
            }
            None => self.context.find_known(tpm_hash),
        }
    }

    /// The registration with that token, or the registration of the inventory that has the key, because
    /// a replaced token must not lock a known host out.
    fn match_registration(&self, token: &str, tpm_hash: String) -> Option<MatchedRegistration> {
        let by_token = self.find_by_token(token);
        let is_installed = by_token.is_none();
        if let Some(found) = by_token.or_else(|| self.find_by_host_token(token, &tpm_hash)) {
            let namespace = Namespace::of(&*found);
            let key = HostKey { tpm_hash, namespace: namespace.clone() };
            let is_known = self.context.cached_inventory(&key).is_some();
            return Some(MatchedRegistration {
                namespace,
                registration: Some(found),
                is_known,
                is_installed,
            });
        }
        let known = self.find_known(token, &tpm_hash)?;
        let namespace = Namespace::of(&*known);
        let name = known.annotations().get(annotation::REGISTRATION);
        let registration =
            name.and_then(|name| self.ready_registration(&ObjectRef::new(name).within(&namespace)));
        Some(MatchedRegistration { namespace, registration, is_known: true, is_installed: false })
    }

    async fn begin_registration(
        &self,
        session: &Session,
        request: wire::BeginRequest,
    ) -> Result<wire::BeginResponse, RpcError> {
        let hash = proof::identity(&request.public_key);
        let Some(matched) = self.match_registration(&request.registration_token, hash) else {
            let detail = format!("no ready registration has the token sent by {}", session.remote());
            return refuse_call(Refusal::UnknownToken, detail);
        };
        // A host of a paused registration waits, unless it is known.
        let paused = matched.registration.as_ref().filter(|found| is_paused(&***found, None));
        if let Some(found) = paused.filter(|_| !matched.is_known) {
            return Err(RpcError::RegistrationPaused(found.name_any()));
        }
        let checked =
            admission::check_token(&self.context, &matched).and_then(|()| check_key(&matched, &request));
        // Shown here, because such a host never comes to the proof. The detail does not name the host,
        // so that a whole rack is a single Event.
        if let Err(RpcError::Refused {
            refusal: Refusal::TpmRequired | Refusal::TpmKeyRejected | Refusal::TokenExpired,
            ..
        }) = &checked
        {
            self.show_refusal(matched.registration.as_deref(), &checked).await;
        }
        let (class, tpm) = checked?;
        let (tpm, tpm_challenge) = tpm.unzip();
        let mut nonce = [0; NONCE_BYTES];
        if ring::rand::SystemRandom::new().fill(&mut nonce).is_err() {
            return Err(RpcError::Randomness);
        }
        let software_key = read_software_key(&self.context.authority, &request);
        session.set_challenge(Challenge {
            nonce,
            software_key,
            public_key: request.public_key,
            class,
            tpm,
            registration: Key::new(
                matched.namespace,
                matched.registration.map_or_else(|| "".into(), |found| ObjectName::of(&*found)),
            ),
            is_installed: matched.is_installed,
        });
        Ok(wire::BeginResponse { nonce: nonce.to_vec(), tpm_challenge })
    }

    async fn complete_registration(
        &self,
        session: &Session,
        request: wire::CompleteRequest,
    ) -> Result<wire::CompleteResponse, RpcError> {
        let Some(mut challenge) = session.take_challenge() else {
            return refuse_call(Refusal::BadProof, "no registration was begun on this connection");
        };
        // Read again, because the registration may have been closed meanwhile.
        let Key { namespace, name } = &challenge.registration;
        let registration = self.ready_registration(&ObjectRef::new(name).within(namespace));
        // The proof of a TPM may wait for the API server; what is too large does not wait with it.
        let bounded = request.facts.as_ref().map_or(Ok(()), check_facts);
        self.show_refusal(registration.as_deref(), &bounded).await;
        bounded?;
        let live_tpm = match &challenge.tpm {
            None => {
                verify_signature(session, &challenge, &request.proof)?;
                None
            }
            Some(opened) => {
                let key = HostKey { tpm_hash: opened.endorsement.hash(), namespace: namespace.clone() };
                let is_known = self.context.cached_inventory(&key).is_some();
                let class = verify_tpm(&self.context, session, &challenge, opened, &request, is_known).await;
                self.show_refusal(registration.as_deref(), &class).await;
                let (class, live_tpm) = class?;
                challenge.class = class;
                Some(live_tpm)
            }
        };
        let proven = Proven { challenge: &challenge, live_tpm };
        let registered = self.register_host(session, registration.as_deref(), proven, request).await;
        self.show_refusal(registration.as_deref(), &registered).await;
        registered
    }

    /// Shows a refusal to the author of the registration.
    async fn show_refusal<T>(
        &self,
        registration: Option<&MachineRegistration>,
        result: &Result<T, RpcError>,
    ) {
        // A pending approval is shown on the inventory instead.
        if let (Some(registration), Err(RpcError::Refused { refusal, detail, next_action })) =
            (registration, result)
            && *refusal != Refusal::ApprovalPending
        {
            let (rejections, now) = (&self.context.rejections, self.context.now());
            let shown = (detail.as_str(), next_action.as_str());
            rejections
                .show_refusal(|| self.context.latest_registration(registration), *refusal, shown, now)
                .await;
        }
    }

    /// Creates or finds the inventory of a proven host, and answers with the next step of the host.
    async fn register_host(
        &self,
        session: &Session,
        registration: Option<&MachineRegistration>,
        Proven { challenge, live_tpm }: Proven<'_>,
        request: wire::CompleteRequest,
    ) -> Result<wire::CompleteResponse, RpcError> {
        let requested = RequestedKey::parse(&request.certificate_request)?;
        check_requested_key(&requested, challenge)?;
        let facts = request.facts.unwrap_or_default();
        check_boot_id(&request.boot_id)?;
        let key = HostKey {
            tpm_hash: proof::identity(&challenge.public_key),
            namespace: challenge.registration.namespace.clone(),
        };
        self.context.take_token(&key, Call::Complete)?;
        if request.boot_id.is_empty() && !challenge.is_installed {
            admission::refuse_unstated_boot(self.context.cached_inventory(&key).as_deref())?;
        }
        let network = request.observed_network.map(|network| parse_network(network, &key.tpm_hash));
        if let Some(Err(error)) = network.as_ref().map(network::check_size) {
            return Err(RpcError::refused_with(Refusal::BadRequest, error.to_string(), error.next_action()));
        }
        let hardware = registration
            .map(|registration| Hardware::reported(registration, &facts, network.as_ref()))
            .unwrap_or_default();
        let reported = Reported { challenge, key: &key, facts: &facts, network, hardware: &hardware };
        let inventory = inventories::ensure_inventory(&self.context, registration, reported).await?;
        let inventory = refuse_shut_out(inventory)?;
        admission::refuse_recorded(&inventory, &request.boot_id)?;
        let now = self.context.now();
        let key_time = choose_key_time(&inventory, challenge, &requested, now)
            .inspect_err(|error| self.context.show_host_refusal(&inventory, error))?;
        let inventory = refresh_registered(&self.context, inventory, &facts, challenge.class).await?;
        let key_hash = requested.hash();
        let registered = Registered {
            key: Some(ShownKey { hash: &key_hash, time: key_time }),
            live_boot_id: &request.boot_id,
            live_tpm: live_tpm.as_ref(),
            system_uuid: hardware.system_uuid.as_deref(),
            hardware: Some(&describe_hardware(&facts)),
        };
        let inventory = store::ensure_plan_secret(&self.context.client, inventory, registered, now).await?;
        admission::refuse_pending(&self.context, &inventory)?;
        let name = inventory.name_any();
        let subject = Subject { key: &key, name: &name, role: Role::Live, key_time };
        let certificate_chain = self.context.authority.sign_host(&requested, &subject, now)?;
        let can_install = !challenge.is_installed && !facts.disks.is_empty();
        let next = install::next_step(&self.context, registration, &inventory, can_install).await?;
        tracing::info!(namespace = key.namespace.as_str(), name, remote = %session.remote(), "host registered");
        let installed_url = registration
            .and_then(|found| host_token::render_url(&self.context.authority, found, &key.tpm_hash));
        Ok(wire::CompleteResponse {
            inventory_namespace: key.namespace.to_string(),
            inventory_name: name,
            certificate_chain,
            next: Some(next),
            installed_url: installed_url.unwrap_or_default(),
        })
    }
}

/// Verifies the proof of a software key.
fn verify_signature(session: &Session, challenge: &Challenge, signature: &[u8]) -> Result<(), RpcError> {
    let binding = proof::binding(&challenge.nonce, session.exporter(), &challenge.public_key);
    let current = challenge.software_key.as_ref().map_or(&challenge.public_key, |key| &key.current);
    let point = p256_point(current).unwrap_or(&[]);
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(&binding, signature).or_else(|_| {
        refuse_call(Refusal::BadProof, format!("the signature of {} does not fit", session.remote()))
    })
}

#[tonic::async_trait]
impl wire::registration_server::Registration for RegistrationService {
    async fn begin(
        &self,
        request: Request<wire::BeginRequest>,
    ) -> Result<Response<wire::BeginResponse>, Status> {
        let session = self.context.to_status(tls_session(&request))?;
        let span = tracing::info_span!("registration", call = "Begin", remote = %session.remote());
        let begun = self.begin_registration(&session, request.into_inner()).instrument(span.clone()).await;
        span.in_scope(|| self.context.to_status(begun)).map(Response::new)
    }

    async fn complete(
        &self,
        request: Request<wire::CompleteRequest>,
    ) -> Result<Response<wire::CompleteResponse>, Status> {
        let session = self.context.to_status(tls_session(&request))?;
        let span = tracing::info_span!("registration", call = "Complete", remote = %session.remote());
        let completed =
            self.complete_registration(&session, request.into_inner()).instrument(span.clone()).await;
        span.in_scope(|| self.context.to_status(completed)).map(Response::new)
    }
}
