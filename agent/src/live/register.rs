//! The live system: register, then install this host or boot its disk.
//!
//! It goes on until the host is on its way: a coordinator that is away and a
//! refusal are printed on the console and retried. What the operator must correct
//! at the host itself ends it with an error.

use std::path::PathBuf;
use std::time::Duration;

use proto::proof::{self, Exporter};
use proto::v1alpha1::begin_request::Attestation;
use proto::v1alpha1::complete_response::Next;
use proto::v1alpha1::{
    BeginRequest, BeginResponse, CompleteRequest, CompleteResponse, SoftwareKey, TpmQuote,
};

use crate::client::backoff::Backoff;
use crate::client::calls::{self, CallError, Caller, unary_request};
use crate::client::config::{self, ConfigError};
use crate::client::tls::{self, Session};
use crate::client::transport::Transport;
use crate::console::Console;
use crate::error::{NextAction, describe_error, explain};
use crate::host::facts;
use crate::host::facts::disks::{self, Disk};
use crate::host::network::NetworkObserver;
use crate::host::observed;
use crate::host::system::{System, SystemError};
use crate::identity::{Certificate, Identity, IdentityError, Role};
use crate::live::install::{InstallError, Live, boot_disk, disk_missing, install_again, install_host};
use crate::live::installed_disk::{
    self, Access, FindError, InstallRecord, InstalledDisk, InstalledDisks, Mounts,
};
use crate::paths::Root;
use crate::tpm::{self, Attestor, TpmError};

/// Why the live system stopped. A restart starts over.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The seed ISO's configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The disks do not show unambiguously whether this host is installed.
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// There is a TPM, but it does not say who this host is.
    #[error(transparent)]
    Tpm(#[from] TpmError),
    /// A record without the key that made it.
    #[error("{disk} carries an installed system without its identity key, so nothing is touched")]
    KeyLost {
        /// Kernel name and stable path.
        disk: String,
    },
    #[error(transparent)]
    Install(#[from] InstallError),
}

/// One attempt that may be repeated.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// No answer, or a refusal.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Our key failed us.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The TPM that holds the identity of this host failed.
    #[error(transparent)]
    Tpm(#[from] TpmError),
    /// The kernel does not name its boot.
    #[error(transparent)]
    Boot(#[from] SystemError),
    /// The response violates the contract.
    #[error("the coordinator's answer is invalid ({what}): agent and coordinator are of different versions")]
    Answer { what: &'static str },
}

impl NextAction for RegisterError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Config(error) => error.next_action(),
            Self::Find(error) => error.next_action(),
            Self::Identity(error) => error.next_action(),
            Self::Tpm(error) => error.next_action(),
            Self::KeyLost { .. } => {
                Some("install the host as a new one (\"Wipe a disk\" in docs/operations.md)")
            }
            Self::Install(error) => error.next_action(),
        }
    }
}

impl NextAction for AttemptError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Call(error) => error.next_action(),
            Self::Identity(error) => error.next_action(),
            Self::Tpm(error) => error.next_action(),
            Self::Boot(error) => error.next_action(),
            Self::Answer { .. } => Some("download a fresh seed ISO and boot it"),
        }
    }
}

/// A registration that succeeded.
#[derive(Debug)]
pub struct Registered {
    /// `namespace/name`.
    pub inventory: String,
    /// For the calls that follow; kept already.
    pub certificate: Certificate,
    /// What the live system does next.
    pub next: Next,
}

/// Registers the live system of `root` and carries out what comes next. Ends
/// well when a reboot was asked for or nothing more is to be done here.
pub async fn register<S: System, M: Mounts, N: Transport + NetworkObserver>(
    root: &Root,
    system: &S,
    mounts: &M,
    network: &N,
) -> Result<(), RegisterError> {
    let mut console = Console::new(root);
    let config = config::read(&root.live_config())?;
    mounts.settle(Duration::ZERO).await;
    let uuid = installed_disk::host_uuid(root);
    let InstalledDisks { own: found, foreign, .. } =
        installed_disk::find_installed_disks(&disks::read_disks(root), mounts, uuid.as_deref())?;
    for InstalledDisk { disk, record, .. } in &foreign {
        let InstallRecord { inventory, smbios_uuid, .. } = record;
        console.print_message(&format!(
            "{disk} carries the installed system of another host, {inventory} with UUID {smbios_uuid}: it is left alone"
        ));
    }
    let identity = load_or_create(root, mounts, found.as_ref()).await?;
    let caller = Caller { config: &config, network, identity: &identity };
    let held = if identity.endorsement_key().is_some() { "in the TPM" } else { "a software key" };
    console.print_message(&format!(
        "identity {} ({held}); registering with {}",
        identity.hash(),
        config.address()
    ));
    let registered = until_registered(root, caller, &mut console).await;
    console.print_message(&format!("registered as {}", registered.inventory));
    let live = Live {
        root,
        system,
        mounts,
        caller,
        console,
        certificate: registered.certificate,
        inventory: registered.inventory,
    };
    match (found, registered.next) {
        (Some(found), Next::Install(request)) if !request.reinstall.is_empty() => {
            Box::pin(install_again(live, found, &request)).await?;
        }
        (Some(found), next) => boot_disk(live, found, &next).await?,
        (None, Next::Install(request)) => Box::pin(install_host(live, &request)).await?,
        (None, Next::BootDisk(_)) => disk_missing(live).await?,
    }
    Ok(())
}

/// The identity of the installed system when there is one: the host stays who it
/// is. Else that of its TPM, else a software key.
async fn load_or_create(
    root: &Root,
    mounts: &impl Mounts,
    found: Option<&InstalledDisk>,
) -> Result<Identity, RegisterError> {
    let here: PathBuf = root.state().identity();
    let Some(found) = found else {
        return Ok(match tpm::read_identity(root).await? {
            Some(endorsement_key) => Identity::load_or_make_for_tpm(&here, endorsement_key)?,
            None => Identity::load_or_make(&here)?,
        });
    };
    let mounted = mounts
        .mount(&found.partition, Access::Read)
        .map_err(|source| FindError::Mount { partition: found.partition.clone(), source })?;
    if let Some(identity) = Identity::load(&mounted.state().identity())? {
        return Ok(identity.copy_to(&here)?);
    }
    let disks = disks::read_disks(root);
    let disk = disks.iter().find(|disk| disk.name == found.disk).map(Disk::name_and_path);
    Err(RegisterError::KeyLost { disk: disk.unwrap_or_else(|| found.disk.clone()) })
}

async fn until_registered<N: Transport + NetworkObserver>(
    root: &Root,
    caller: Caller<'_, N>,
    console: &mut Console,
) -> Registered {
    let mut backoff = Backoff::default();
    loop {
        match attempt(root, caller, Role::Live).await {
            Ok(registered) => return registered,
            Err(error) => console.print_message(&format!("not registered: {}", explain(&error))),
        }
        backoff.wait().await;
    }
}

/// One registration on one connection, by the system of that role; keeps the
/// certificate.
pub async fn attempt<N: Transport + NetworkObserver>(
    root: &Root,
    caller: Caller<'_, N>,
    system: Role,
) -> Result<Registered, AttemptError> {
    // The keys of a TPM take seconds to make: not while the coordinator waits.
    let attestor = match caller.identity.endorsement_key() {
        Some(endorsement_key) => Some(Attestor::load(root, endorsement_key).await?),
        None => None,
    };
    // Without a client certificate: the token opens, the key proves.
    let session = tls::connect_tls(caller.config, caller.network, None).await.map_err(CallError::from)?;
    let response = prove_identity(root, caller, system, session, attestor).await?;
    let certificate = Certificate::parse(&response.certificate_chain, &caller.identity.public_key())?;
    caller.identity.keep_certificate(&certificate)?;
    Ok(Registered {
        inventory: format!("{}/{}", response.inventory_namespace, response.inventory_name),
        certificate,
        next: response.next.ok_or(AttemptError::Answer { what: "no next action" })?,
    })
}

async fn prove_identity<N: NetworkObserver>(
    root: &Root,
    caller: Caller<'_, N>,
    system: Role,
    session: Session,
    attestor: Option<Attestor>,
) -> Result<CompleteResponse, AttemptError> {
    let Caller { config, network, identity } = caller;
    let mut client = calls::registration_client(session.channel);
    let (public_key, attestation) = match &attestor {
        Some(attestor) => (attestor.public_key.clone(), Attestation::TpmKeys(attestor.keys.clone())),
        None => (identity.public_key(), Attestation::SoftwareKey(SoftwareKey {})),
    };
    let begin = BeginRequest {
        registration_token: config.token.clone(),
        public_key: public_key.clone(),
        attestation: Some(attestation),
    };
    let opened = client.begin(unary_request(begin)).await.map_err(CallError::from)?.into_inner();
    let certificate_request = identity.create_request()?;
    let claim = Claim { exporter: &session.exporter, public_key: &public_key, request: &certificate_request };
    let Answer { proof, tpm_quote } = answer_challenge(identity, attestor, opened, claim).await?;
    let observed = network
        .observe()
        .inspect_err(|error| {
            tracing::warn!(error = describe_error(error), "registering without the network");
        })
        .ok();
    let complete = CompleteRequest {
        proof,
        certificate_request,
        tpm_quote,
        facts: Some(facts::collect_facts(root, observed.as_ref())),
        observed_network: observed,
        boot_id: match system {
            Role::Live => observed::boot_id(root)?,
            Role::Installed => String::new(),
        },
    };
    let response = client.complete(unary_request(complete)).await.map_err(CallError::from)?;
    Ok(response.into_inner())
}

/// What a proof is bound to, beside the nonce.
struct Claim<'a> {
    exporter: &'a Exporter,
    public_key: &'a [u8],
    request: &'a [u8],
}

struct Answer {
    proof: Vec<u8>,
    tpm_quote: Option<TpmQuote>,
}

/// By the TPM that holds the identity, else by the software key.
async fn answer_challenge(
    identity: &Identity,
    attestor: Option<Attestor>,
    opened: BeginResponse,
    claim: Claim<'_>,
) -> Result<Answer, AttemptError> {
    let nonce = opened.nonce.try_into().map_err(|_| AttemptError::Answer { what: "the nonce" })?;
    let Some(attestor) = attestor else {
        let binding = proof::binding(&nonce, claim.exporter, claim.public_key);
        return Ok(Answer { proof: identity.prove_possession(&binding)?, tpm_quote: None });
    };
    let challenge = opened.tpm_challenge.ok_or(AttemptError::Answer { what: "no challenge for the TPM" })?;
    let binding = proof::tpm_binding(&nonce, claim.exporter, claim.public_key, claim.request);
    let (proof, quote) = attestor.answer(challenge, binding).await?;
    Ok(Answer { proof, tpm_quote: Some(quote) })
}
