//! A host becomes a `MachineInventory`: first its claimed identity, then the proof.
//! Before the proof nothing is read from the API, nothing is written but an
//! Event at a bounded rate, and nothing that matters is returned.

use std::sync::Arc;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::MachineRegistration;
use coordinator_core::host::HostRecord;
use coordinator_core::inventory::{self, Existing, Identified, Identity, KeyClass};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use proto::proof::{self, NONCE_BYTES};
use proto::refusal::Refusal;
use proto::{limits, v1alpha1 as wire};
use ring::rand::SecureRandom as _;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use sha2::{Digest as _, Sha256};
use tonic::{Request, Response, Status};
use tracing::Instrument as _;
use wire::begin_request::Attestation;
use wire::complete_response::Next;

use super::host::parse_network;
use super::identity::{check_boot_id, tls_session};
use super::{Context, RpcError, describe_inventory, refuse_quarantined};
use crate::ca::{HostKey, RequestedKey, Role, Subject, p256_point};
use crate::store::StoreError;
use crate::store::registration::{self as store, NewHost};
use crate::telemetry::chain;
use crate::tls::{Challenge, Session};

/// The service.
pub struct RegistrationService {
    context: Context,
}

fn refuse_call<T>(refusal: Refusal, detail: impl Into<String>) -> Result<T, RpcError> {
    Err(RpcError::from_refusal(refusal, detail))
}

fn is_ready(registration: &MachineRegistration) -> bool {
    registration.status.as_ref().is_some_and(|status| status.registration_url.is_some())
}

/// Whether the registration accepts hosts whose key is held like that.
fn check_key_class(
    registration: &MachineRegistration,
    attestation: Option<&Attestation>,
) -> Result<KeyClass, RpcError> {
    let class = match attestation {
        Some(Attestation::SoftwareKey(_)) => KeyClass::Software,
        None => return refuse_call(Refusal::BadRequest, "the request does not state how the key is held"),
    };
    match inventory::refuse_key(class, registration) {
        Some(refusal) => refuse_call(
            refusal,
            format!("{} does not accept a key held in software", registration.name_any()),
        ),
        None => Ok(class),
    }
}

/// Templates cost time for each fact: the contract's bounds hold here too.
fn check_facts(facts: &wire::HostFacts) -> Result<(), RpcError> {
    for (what, count, max) in [
        ("SMBIOS sections", facts.smbios.len(), limits::SMBIOS_SECTIONS),
        ("disks", facts.disks.len(), limits::DISKS),
        ("interfaces", facts.nics.len(), limits::INTERFACES),
    ] {
        if count > max {
            return refuse_call(Refusal::BadRequest, format!("{count} {what} were sent, {max} are allowed"));
        }
    }
    Ok(())
}

/// A software key is the host's only key: a certificate for another one would
/// belong to nobody who has proven anything.
fn check_requested_key(requested: &RequestedKey, challenge: &Challenge) -> Result<(), RpcError> {
    match challenge.class {
        KeyClass::Software if requested.hash() != proof::identity(&challenge.public_key) => {
            refuse_call(Refusal::BadRequest, "the certificate request is for another key than was proven")
        }
        KeyClass::Software | KeyClass::Tpm => Ok(()),
    }
}

impl RegistrationService {
    /// Serves with that context.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self { context }
    }

    /// The ready registration with that token.
    fn find_registration(&self, token: &str) -> Option<Arc<MachineRegistration>> {
        let caches = &self.context.caches;
        let found = caches.registrations.get(&caches.tokens.find_registration(token)?)?;
        is_ready(&found).then_some(found)
    }

    async fn begin_registration(
        &self,
        session: &Session,
        request: wire::BeginRequest,
    ) -> Result<wire::BeginResponse, RpcError> {
        let Some(registration) = self.find_registration(&request.registration_token) else {
            let detail = format!("no ready registration has the token sent by {}", session.remote());
            return refuse_call(Refusal::UnknownToken, detail);
        };
        if p256_point(&request.public_key).is_none() {
            return refuse_call(Refusal::BadRequest, "the key is no P-256 key in PKIX DER");
        }
        let class = check_key_class(&registration, request.attestation.as_ref());
        // Such a host never comes to the proof. The detail does not name the
        // host: a rack of them is one Event.
        if matches!(&class, Err(RpcError::Refused { refusal: Refusal::TpmRequired, .. })) {
            self.write_event(&registration, &class).await;
        }
        let class = class?;
        let mut nonce = [0; NONCE_BYTES];
        if ring::rand::SystemRandom::new().fill(&mut nonce).is_err() {
            return Err(RpcError::Randomness);
        }
        session.set_challenge(Challenge {
            nonce,
            public_key: request.public_key,
            class,
            registration: (registration.namespace().unwrap_or_default(), registration.name_any()),
        });
        Ok(wire::BeginResponse { nonce: nonce.to_vec() })
    }

    async fn complete_registration(
        &self,
        session: &Session,
        request: wire::CompleteRequest,
    ) -> Result<wire::CompleteResponse, RpcError> {
        let challenge = verify_proof(session, &request.proof)?;
        let registration = self.registration_of(&challenge)?;
        let registered = self.register_host(session, &registration, &challenge, request).await;
        self.write_event(&registration, &registered).await;
        registered
    }

    /// Shows a refusal to the author of the registration.
    async fn write_event<T>(&self, registration: &MachineRegistration, result: &Result<T, RpcError>) {
        if let Err(RpcError::Refused { refusal, detail, next_action }) = result {
            self.context.rejections.write_event(registration, *refusal, detail, next_action).await;
        }
    }

    /// Creates or finds the inventory of a proven host, and answers what the
    /// host does next.
    async fn register_host(
        &self,
        session: &Session,
        registration: &MachineRegistration,
        challenge: &Challenge,
        request: wire::CompleteRequest,
    ) -> Result<wire::CompleteResponse, RpcError> {
        let requested = RequestedKey::parse(&request.certificate_request)?;
        check_requested_key(&requested, challenge)?;
        check_facts(request.facts.as_ref().unwrap_or(&wire::HostFacts::default()))?;
        let boot_id = request.boot_id.clone();
        check_boot_id(&boot_id)?;
        let key = HostKey {
            namespace: registration.namespace().unwrap_or_default(),
            tpm_hash: proof::identity(&challenge.public_key),
        };
        let inventory = self.ensure_inventory(registration, challenge, &key, request).await?;
        let inventory = refuse_quarantined(inventory)?;
        let now = self.context.now();
        let inventory = store::ensure_plan_secret(&self.context.client, inventory, &boot_id, now).await?;
        let name = inventory.name_any();
        let subject = Subject { key: &key, name: &name, role: Role::Live };
        let certificate_chain = self.context.authority.sign_host(&requested, &subject, now)?;
        let next = next_step(registration, &inventory)?;
        tracing::info!(namespace = key.namespace, name, remote = %session.remote(), "host registered");
        Ok(wire::CompleteResponse {
            inventory_namespace: key.namespace.clone(),
            inventory_name: name,
            certificate_chain,
            next: Some(next),
        })
    }

    /// The registration of a challenge, which may have been closed meanwhile.
    fn registration_of(&self, challenge: &Challenge) -> Result<Arc<MachineRegistration>, RpcError> {
        let (namespace, name) = &challenge.registration;
        let found = self.context.caches.registrations.get(&ObjectRef::new(name).within(namespace));
        match found.filter(|registration| is_ready(registration)) {
            Some(registration) => Ok(registration),
            None => refuse_call(Refusal::UnknownToken, format!("{name} was closed meanwhile")),
        }
    }

    /// The inventory of a proven key: the one that has it, or a new one.
    async fn ensure_inventory(
        &self,
        registration: &MachineRegistration,
        challenge: &Challenge,
        key: &HostKey,
        request: wire::CompleteRequest,
    ) -> Result<Arc<MachineInventory>, RpcError> {
        let identity = Identity { hash: &key.tpm_hash, class: challenge.class };
        if let Some(known) = self.context.cached_inventory(key) {
            let existing = Existing { by_key: Some(&known), by_name: None };
            return match inventory::identify_host(existing, identity, registration) {
                Identified::Refused(refusal) => refuse_call(refusal, describe_inventory(&known.name_any())),
                Identified::Known(_) | Identified::Create => Ok(known),
            };
        }
        let facts = request.facts.unwrap_or_default();
        let random = Sha256::digest(&challenge.public_key).into();
        let draft = inventory::draft_inventory(registration, &facts, identity, &random)
            .map_err(|error| RpcError::from_refusal(Refusal::BadTemplate, error.to_string()))?;
        let named = ObjectRef::new(&draft.name).within(&key.namespace);
        let named = self.context.caches.inventories.get(&named);
        let existing = Existing { by_key: None, by_name: named.as_deref() };
        match inventory::identify_host(existing, identity, registration) {
            Identified::Refused(refusal) => return refuse_call(refusal, describe_inventory(&draft.name)),
            Identified::Known(known) => return Ok(Arc::new(known.clone())),
            Identified::Create => {}
        }
        let name = draft.name.clone();
        let observed_network = request.observed_network.map(|network| parse_network(network, &name));
        let new = NewHost { tpm_hash: key.tpm_hash.clone(), observed_network };
        let api = self.context.inventory_api(&key.namespace);
        store::create_inventory(&api, draft, new).await.map_err(|error| explain_creation(error, &name))
    }
}

/// The API server refuses the object itself: the templates of the registration
/// rendered something that it does not accept.
fn explain_creation(error: StoreError, name: &str) -> RpcError {
    let is_invalid = matches!(
        &error,
        StoreError::Request { source, .. }
            if matches!(&**source, kube::Error::Api(status) if matches!(status.code, 400 | 422))
    );
    if !is_invalid {
        return error.into();
    }
    tracing::warn!(error = chain(&error), "the API server did not accept the inventory of a host");
    RpcError::refused_with(
        Refusal::BadTemplate,
        format!("the API server did not accept the inventory {name}"),
        "correct spec.machineName, machineInventoryLabels and machineInventoryAnnotations of the MachineRegistration; the coordinator's log has the cause",
    )
}

/// Takes the challenge of this connection and verifies the proof against it.
/// The challenge is used up either way.
fn verify_proof(session: &Session, signature: &[u8]) -> Result<Challenge, RpcError> {
    let Some(challenge) = session.take_challenge() else {
        return refuse_call(Refusal::BadProof, "no registration was begun on this connection");
    };
    let binding = proof::binding(&challenge.nonce, session.exporter(), &challenge.public_key);
    let point = p256_point(&challenge.public_key).unwrap_or_default();
    match UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(&binding, signature) {
        Ok(()) => Ok(challenge),
        Err(_) => {
            refuse_call(Refusal::BadProof, format!("the signature of {} does not fit", session.remote()))
        }
    }
}

fn next_step(registration: &MachineRegistration, inventory: &MachineInventory) -> Result<Next, RpcError> {
    if HostRecord::parse(inventory).is_some_and(|record| record.carried.is_some()) {
        return Ok(Next::BootDisk(wire::BootDisk {}));
    }
    let install = inventory::install_message(registration, inventory).map_err(|error| {
        let next = format!(
            "correct spec.config of the MachineRegistration {}, or spec.network of the MachineInventory, and boot the seed ISO again",
            registration.name_any()
        );
        RpcError::refused_with(Refusal::BadTemplate, error.to_string(), next)
    })?;
    Ok(Next::Install(install))
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
