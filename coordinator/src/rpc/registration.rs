//! A host becomes a `MachineInventory`: who it says it is, then the proof.
//! Before the proof nothing is read from the API, nothing is written but one
//! Event in a while, and nothing that matters is told.

use std::sync::Arc;

use coordinator_api::conditions::{self, Type};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::MachineRegistration;
use coordinator_core::inventory::{self, Existing, Identified, Identity, KeyClass};
use coordinator_core::{host, network};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use proto::proof::{self, NONCE_BYTES};
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use ring::rand::SecureRandom as _;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use sha2::{Digest as _, Sha256};
use tonic::{Request, Response, Status};
use wire::begin_request::Attestation;
use wire::complete_response::Next;

use super::identity;
use super::{Context, RpcError, inventory_of, not_quarantined};
use crate::ca::{RequestedKey, Role, Subject, p256_point};
use crate::store::registration::{self as store, Newcomer};
use crate::tls::{Challenge, Session};

/// The service.
pub struct RegistrationService {
    context: Context,
}

fn refused<T>(refusal: Refusal, detail: impl Into<String>) -> Result<T, RpcError> {
    Err(RpcError::refused(refusal, detail))
}

/// Compares secrets in a time that tells nothing of where they differ.
fn same(one: &str, other: &str) -> bool {
    !one.is_empty() && Sha256::digest(one) == Sha256::digest(other)
}

fn is_ready(registration: &MachineRegistration) -> bool {
    let status = registration.status.as_ref();
    status.is_some_and(|status| conditions::is_true(&status.conditions, Type::Ready))
}

/// Whether the registration takes hosts whose key is held like that.
fn accept(
    registration: &MachineRegistration,
    attestation: Option<&Attestation>,
) -> Result<KeyClass, RpcError> {
    let class = match attestation {
        Some(Attestation::SoftwareKey(_)) => KeyClass::Software,
        None => return refused(Refusal::BadRequest, "the request does not say how the key is held"),
    };
    match inventory::refuse_key(class, registration) {
        Some(refusal) => {
            refused(refusal, format!("{} does not take a key held in software", registration.name_any()))
        }
        None => Ok(class),
    }
}

impl RegistrationService {
    /// Serves with that context.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self { context }
    }

    async fn begin(
        &self,
        session: &Session,
        request: wire::BeginRequest,
    ) -> Result<wire::BeginResponse, RpcError> {
        let found = self.context.registrations.find(|registration| {
            let status = registration.status.as_ref();
            let token = status.and_then(|status| status.registration_token.as_deref());
            token.is_some_and(|token| same(token, &request.registration_token))
        });
        let Some(registration) = found.filter(|registration| is_ready(registration)) else {
            return refused(
                Refusal::UnknownToken,
                format!("no ready registration has the token of {}", session.remote()),
            );
        };
        if p256_point(&request.public_key).is_none() {
            return refused(Refusal::BadRequest, "the key is no P-256 key in PKIX DER");
        }
        let accepted = accept(&registration, request.attestation.as_ref());
        // Told before the proof, unlike the rest: such a host never comes to
        // it. The detail does not name the host: a rack of them is one Event.
        if let Err(RpcError::Refused { refusal: refusal @ Refusal::TpmRequired, detail }) = &accepted {
            self.context.complaints.tell(&registration, *refusal, detail).await;
        }
        let class = accepted?;
        let mut nonce = [0; NONCE_BYTES];
        if ring::rand::SystemRandom::new().fill(&mut nonce).is_err() {
            return Err(RpcError::Randomness);
        }
        session.challenge(Challenge {
            nonce,
            public_key: request.public_key,
            class,
            registration: (registration.namespace().unwrap_or_default(), registration.name_any()),
        });
        Ok(wire::BeginResponse { nonce: nonce.to_vec() })
    }

    async fn complete(
        &self,
        session: &Session,
        request: wire::CompleteRequest,
    ) -> Result<wire::CompleteResponse, RpcError> {
        let challenge = prove(session, &request.proof)?;
        let registration = self.registration(&challenge)?;
        let admitted = self.admit(session, &registration, &challenge, request).await;
        if let Err(RpcError::Refused { refusal, detail }) = &admitted {
            self.context.complaints.tell(&registration, *refusal, detail).await;
        }
        admitted
    }

    /// Makes a proven host known, and tells it what to do.
    async fn admit(
        &self,
        session: &Session,
        registration: &MachineRegistration,
        challenge: &Challenge,
        request: wire::CompleteRequest,
    ) -> Result<wire::CompleteResponse, RpcError> {
        let key = RequestedKey::parse(&request.certificate_request)?;
        let inventory = self.inventory(registration, challenge, request).await?;
        let inventory = not_quarantined(inventory)?;
        let now = Timestamp::now();
        let inventory = store::equip(&self.context.client, inventory, now).await?;
        let subject = Subject {
            namespace: &inventory.namespace().unwrap_or_default(),
            name: &inventory.name_any(),
            uid: &inventory.uid().unwrap_or_default(),
            role: Role::Live,
        };
        let certificate_chain = self.context.authority.host(&key, &subject, now)?;
        let next = next(registration, &inventory)?;
        tracing::info!(inventory = subject.name, remote = %session.remote(), "a host registered");
        Ok(wire::CompleteResponse {
            inventory_namespace: subject.namespace.to_owned(),
            inventory_name: subject.name.to_owned(),
            inventory_uid: subject.uid.to_owned(),
            certificate_chain,
            next: Some(next),
        })
    }

    /// The registration of a challenge, which may have been closed meanwhile.
    fn registration(&self, challenge: &Challenge) -> Result<Arc<MachineRegistration>, RpcError> {
        let (namespace, name) = &challenge.registration;
        let found = self.context.registrations.get(&ObjectRef::new(name).within(namespace));
        match found.filter(|registration| is_ready(registration)) {
            Some(registration) => Ok(registration),
            None => refused(Refusal::UnknownToken, format!("{name} was closed meanwhile")),
        }
    }

    /// The inventory of a proven key: the one that has it, or a new one.
    async fn inventory(
        &self,
        registration: &MachineRegistration,
        challenge: &Challenge,
        request: wire::CompleteRequest,
    ) -> Result<Arc<MachineInventory>, RpcError> {
        let namespace = registration.namespace().unwrap_or_default();
        let hash = proof::identity(&challenge.public_key);
        let identity = Identity { hash: &hash, class: challenge.class };
        let known = match self.context.announcements.find(&namespace, &hash) {
            Some((namespace, name)) => self.known(&namespace, &name).await?,
            None => None,
        };
        if let Some(known) = known {
            let existing = Existing { by_key: Some(&known), by_name: None };
            return match inventory::identify(existing, identity, registration) {
                Identified::Refused(refusal) => refused(refusal, inventory_of(&known.name_any())),
                Identified::Known(_) | Identified::Create => Ok(known),
            };
        }
        let facts = request.facts.unwrap_or_default();
        let random = Sha256::digest(&challenge.public_key).into();
        let draft = inventory::draft(registration, &facts, identity, &random)
            .map_err(|error| RpcError::refused(Refusal::BadTemplate, error.to_string()))?;
        let named = self.context.inventories.get(&ObjectRef::new(&draft.name).within(&namespace));
        let existing = Existing { by_key: None, by_name: named.as_deref() };
        match inventory::identify(existing, identity, registration) {
            Identified::Refused(refusal) => return refused(refusal, inventory_of(&draft.name)),
            Identified::Known(known) => return Ok(Arc::new(known.clone())),
            Identified::Create => {}
        }
        let observed_network = request
            .observed_network
            .map(network::observed)
            .transpose()
            .map_err(|error| RpcError::refused(Refusal::BadRequest, error.to_string()))?;
        let newcomer = Newcomer { tpm_hash: hash.clone(), observed_network };
        Ok(store::create(&self.context.inventory_api(&namespace), draft, newcomer).await?)
    }

    /// The index may know what was deleted a moment ago.
    async fn known(&self, namespace: &str, name: &str) -> Result<Option<Arc<MachineInventory>>, RpcError> {
        match self.context.named(namespace, name).await {
            Ok(known) => Ok(Some(known)),
            Err(RpcError::Refused { refusal: Refusal::InventoryGone, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Takes the challenge of this connection and checks the proof against it.
/// Whatever comes out, the challenge is used up.
fn prove(session: &Session, signature: &[u8]) -> Result<Challenge, RpcError> {
    let Some(challenge) = session.take_challenge() else {
        return refused(Refusal::BadProof, "no registration was begun on this connection");
    };
    let binding = proof::binding(&challenge.nonce, session.exporter(), &challenge.public_key);
    let point = p256_point(&challenge.public_key).unwrap_or_default();
    match UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(&binding, signature) {
        Ok(()) => Ok(challenge),
        Err(_) => refused(Refusal::BadProof, format!("the signature of {} does not fit", session.remote())),
    }
}

fn next(registration: &MachineRegistration, inventory: &MachineInventory) -> Result<Next, RpcError> {
    if host::has_attached(inventory) {
        return Ok(Next::BootDisk(wire::BootDisk {}));
    }
    let install = inventory::install(registration, inventory)
        .map_err(|error| RpcError::refused(Refusal::BadTemplate, error.to_string()))?;
    Ok(Next::Install(install))
}

#[tonic::async_trait]
impl wire::registration_server::Registration for RegistrationService {
    async fn begin(
        &self,
        request: Request<wire::BeginRequest>,
    ) -> Result<Response<wire::BeginResponse>, Status> {
        let begun = match identity::session(&request) {
            Ok(session) => self.begin(&session, request.into_inner()).await,
            Err(error) => Err(error),
        };
        self.context.answer(begun).map(Response::new)
    }

    async fn complete(
        &self,
        request: Request<wire::CompleteRequest>,
    ) -> Result<Response<wire::CompleteResponse>, Status> {
        let completed = match identity::session(&request) {
            Ok(session) => self.complete(&session, request.into_inner()).await,
            Err(error) => Err(error),
        };
        self.context.answer(completed).map(Response::new)
    }
}
