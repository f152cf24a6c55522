//! The commands of a registration, one function each.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use proto::v1alpha1::TpmQuote;
use tpm2_protocol::basic::{TpmHandle, TpmInt32};
use tpm2_protocol::constant::TPM_MAX_COMMAND_SIZE;
use tpm2_protocol::data::{
    Tpm2bAuth, Tpm2bData, Tpm2bDigest, Tpm2bEncryptedSecret, Tpm2bIdObject, Tpm2bNonce, Tpm2bPublic,
    Tpm2bSensitiveCreate, TpmAlgId, TpmRc, TpmRcBase, TpmRh, TpmSe, TpmSt, TpmaNv, TpmaSession,
    TpmlPcrSelection, TpmsAuthCommand, TpmtPublic, TpmtSigScheme,
};
use tpm2_protocol::frame::{
    TpmActivateCredentialCommand, TpmActivateCredentialResponse, TpmCreatePrimaryCommand,
    TpmCreatePrimaryResponse, TpmFlushContextCommand, TpmFlushContextResponse, TpmFrame, TpmNvReadCommand,
    TpmNvReadPublicCommand, TpmNvReadPublicResponse, TpmNvReadResponse, TpmPolicySecretCommand,
    TpmPolicySecretResponse, TpmQuoteCommand, TpmQuoteResponse, TpmReadPublicCommand, TpmReadPublicResponse,
    TpmResponse, TpmStartAuthSessionCommand, TpmStartAuthSessionResponse, TpmUnmarshalBody,
    tpm_marshal_command,
};
use tpm2_protocol::{TpmMarshal, TpmWriter};

use super::channel::Channel;
use super::error::{CREATE_PRIMARY, TpmError, broken, interrupted, invalid_challenge, is_busy, misfit};
use super::keys::{no_cipher, select_registers};
use crate::ground::failure::{Failure, describe_cause};

/// Number of attempts while the TPM is busy, with a pause after each.
const BUSY_ATTEMPTS: usize = 40;
const BUSY_PAUSE: Duration = Duration::from_millis(250);
/// Every TPM can read this many bytes of an index at once.
const INDEX_CHUNK: u16 = 512;
/// The nonce that starts a session has the smallest size that is allowed.
const SESSION_NONCE: [u8; 16] = [0; 16];

/// An open TPM. Its loaded keys and sessions are unloaded on drop.
#[derive(Debug)]
pub struct Tpm {
    channel: Channel,
    loaded: Vec<TpmHandle>,
}

const fn handle_of(hierarchy: TpmRh) -> TpmHandle {
    TpmHandle::new(hierarchy as u32)
}

/// Authorization with the empty password, which these keys and hierarchies have.
fn empty_password() -> TpmsAuthCommand {
    authorize_by(handle_of(TpmRh::Pw))
}

/// The session ends with the command, because [`TpmaSession::CONTINUE_SESSION`] is not set.
fn authorize_by(session: TpmHandle) -> TpmsAuthCommand {
    TpmsAuthCommand {
        session_handle: session,
        nonce: Tpm2bNonce::default(),
        session_attributes: TpmaSession::empty(),
        hmac: Tpm2bAuth::default(),
    }
}

/// The bytes of `value` in the form of a TPM.
pub(super) fn marshal(value: &impl TpmMarshal) -> Result<Vec<u8>, Failure> {
    let mut buffer = [0; TPM_MAX_COMMAND_SIZE];
    let mut writer = TpmWriter::new(&mut buffer);
    value.marshal(&mut writer).map_err(misfit("marshalling"))?;
    Ok(writer.as_bytes().to_vec())
}

impl Tpm {
    pub fn open(path: &Path) -> Result<Self, Failure> {
        match Channel::open(path) {
            Ok(channel) => Ok(Self { channel, loaded: vec![] }),
            Err(error) => {
                let message = format!("cannot open the TPM {}", path.display());
                Err(broken(describe_cause(&message, &error)))
            }
        }
    }

    /// Runs a command, and repeats it while the TPM is busy.
    pub fn run<C: TpmFrame, R: TpmUnmarshalBody>(
        &mut self,
        name: &'static str,
        command: &C,
        sessions: &[TpmsAuthCommand],
    ) -> Result<R, TpmError> {
        let tag = if sessions.is_empty() { TpmSt::NoSessions } else { TpmSt::Sessions };
        let mut buffer = [0; TPM_MAX_COMMAND_SIZE];
        let mut writer = TpmWriter::new(&mut buffer);
        tpm_marshal_command(command, tag, sessions, &mut writer).map_err(misfit(name))?;
        for attempt in 1.. {
            let answer = self.channel.exchange(writer.as_bytes()).map_err(|error| {
                broken(describe_cause(&format!("the TPM does not answer {name}"), &error))
            })?;
            let response = TpmResponse::cast(&answer).map_err(misfit(name))?;
            match response.rc().map_err(misfit(name))? {
                TpmRc::Fmt0(TpmRcBase::Success) => return Ok(response.unmarshal().map_err(misfit(name))?),
                code if is_busy(code.base()) && attempt < BUSY_ATTEMPTS => sleep(BUSY_PAUSE),
                code => return Err(TpmError::Refused { command: name, code }),
            }
        }
        Err(interrupted().into())
    }

    /// The public area of the key with this handle; `None` if there is no such key.
    pub(super) fn read_public(&mut self, handle: TpmHandle) -> Result<Option<TpmtPublic>, TpmError> {
        let command = TpmReadPublicCommand { handles: [handle] };
        let answer = self.run::<_, TpmReadPublicResponse>("ReadPublic", &command, &[]);
        Ok(unless_missing(answer)?.map(|answer| answer.out_public.inner))
    }

    /// Makes a primary key of the endorsement hierarchy.
    pub fn create_primary(&mut self, template: TpmtPublic) -> Result<(TpmHandle, TpmtPublic), TpmError> {
        let command = TpmCreatePrimaryCommand {
            handles: [handle_of(TpmRh::Endorsement)],
            in_sensitive: Tpm2bSensitiveCreate::default(),
            in_public: Tpm2bPublic { inner: template },
            outside_info: Tpm2bData::default(),
            creation_pcr: TpmlPcrSelection::default(),
        };
        let answer: TpmCreatePrimaryResponse = self.run(CREATE_PRIMARY, &command, &[empty_password()])?;
        let [handle] = answer.handles;
        self.loaded.push(handle);
        Ok((handle, answer.out_public.inner))
    }

    /// The content of an index; `None` if there is no such index.
    pub(super) fn read_index(&mut self, index: TpmHandle) -> Result<Option<Vec<u8>>, TpmError> {
        let command = TpmNvReadPublicCommand { handles: [index] };
        let answer = self.run::<_, TpmNvReadPublicResponse>("NV_ReadPublic", &command, &[]);
        let Some(public) = unless_missing(answer)?.map(|answer| answer.nv_public.inner) else {
            return Ok(None);
        };
        if !public.attributes.contains(TpmaNv::WRITTEN) {
            return Ok(None);
        }
        let reads_itself = public.attributes.contains(TpmaNv::AUTHREAD);
        let reader = if reads_itself { index } else { handle_of(TpmRh::Owner) };
        let (size, mut contents) = (public.data_size.value(), vec![]);
        for offset in (0..size).step_by(usize::from(INDEX_CHUNK)) {
            let chunk = INDEX_CHUNK.min(size - offset);
            let command =
                TpmNvReadCommand { handles: [reader, index], size: chunk.into(), offset: offset.into() };
            let answer: TpmNvReadResponse = self.run("NV_Read", &command, &[empty_password()])?;
            contents.extend_from_slice(&answer.data);
        }
        Ok(Some(contents))
    }

    /// Decrypts `credential`, which works only if it was made for both keys and both are in this
    /// TPM.
    pub(super) fn activate_credential(
        &mut self,
        attestation: TpmHandle,
        endorsement: TpmHandle,
        credential: &[u8],
        encrypted_secret: &[u8],
    ) -> Result<Vec<u8>, TpmError> {
        let command = TpmActivateCredentialCommand {
            handles: [attestation, endorsement],
            credential_blob: Tpm2bIdObject::try_from(credential).map_err(|_| invalid_challenge())?,
            secret: Tpm2bEncryptedSecret::try_from(encrypted_secret).map_err(|_| invalid_challenge())?,
        };
        let session = self.start_endorsement_session()?;
        let sessions = [empty_password(), authorize_by(session)];
        let answer: TpmActivateCredentialResponse = self.run("ActivateCredential", &command, &sessions)?;
        self.loaded.retain(|loaded| *loaded != session);
        Ok(answer.cert_info.to_vec())
    }

    /// Starts a session with the policy of the endorsement key.
    fn start_endorsement_session(&mut self) -> Result<TpmHandle, TpmError> {
        let none = handle_of(TpmRh::Null);
        let command = TpmStartAuthSessionCommand {
            handles: [none, none],
            // This session authenticates and encrypts nothing.
            nonce_caller: Tpm2bNonce::try_from(&SESSION_NONCE[..]).map_err(misfit("StartAuthSession"))?,
            encrypted_salt: Tpm2bEncryptedSecret::default(),
            session_type: TpmSe::Policy,
            symmetric: no_cipher(),
            auth_hash: TpmAlgId::Sha256,
        };
        let answer: TpmStartAuthSessionResponse = self.run("StartAuthSession", &command, &[])?;
        let [session] = answer.handles;
        self.loaded.push(session);
        let command = TpmPolicySecretCommand {
            handles: [handle_of(TpmRh::Endorsement), session],
            nonce_tpm: Tpm2bNonce::default(),
            cp_hash_a: Tpm2bDigest::default(),
            policy_ref: Tpm2bNonce::default(),
            expiration: TpmInt32::new(0),
        };
        self.run::<_, TpmPolicySecretResponse>("PolicySecret", &command, &[empty_password()])?;
        Ok(session)
    }

    /// Quotes registers of the SHA-256 bank.
    pub fn quote(&mut self, key: TpmHandle, binding: &[u8], pcrs: &[u32]) -> Result<TpmQuote, TpmError> {
        let command = TpmQuoteCommand {
            handles: [key],
            qualifying_data: Tpm2bData::try_from(binding).map_err(|_| invalid_challenge())?,
            in_scheme: TpmtSigScheme::default(),
            pcr_select: select_registers(pcrs)?,
        };
        let answer: TpmQuoteResponse = self.run("Quote", &command, &[empty_password()])?;
        Ok(TpmQuote { attest: marshal(&answer.quoted.inner)?, signature: marshal(&answer.signature)? })
    }
}

/// `None` if the TPM has no object with the handle.
fn unless_missing<T>(answer: Result<T, TpmError>) -> Result<Option<T>, TpmError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(TpmError::Refused { code, .. }) if code.base() == TpmRcBase::Handle => Ok(None),
        Err(error) => Err(error),
    }
}

impl Drop for Tpm {
    /// The kernel unloads the objects of a process that ended, but an emulator does not.
    fn drop(&mut self) {
        for handle in std::mem::take(&mut self.loaded) {
            let command = TpmFlushContextCommand { handles: [], flush_handle: handle };
            if let Err(error) = self.run::<_, TpmFlushContextResponse>("FlushContext", &command, &[]) {
                tracing::debug!(error = %Failure::from(error), "cannot unload a key of the TPM");
            }
        }
    }
}
