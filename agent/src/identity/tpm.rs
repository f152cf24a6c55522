//! The TPM 2.0 of the host: its endorsement key is who the host is, a quote and
//! an activated credential prove it (`proto::proof`).
//!
//! Nothing is left in the TPM: both keys are primary keys of the endorsement
//! hierarchy, which a TPM makes again from its seed, always the same ones. None of
//! them has a password, so no failure counts towards a lockout.

mod channel;
mod commands;
mod error;
pub mod keys;

use std::path::PathBuf;

use proto::tpm::{CREDENTIAL_BYTES, ENDORSEMENT_CERTIFICATE, ENDORSEMENT_HANDLE, PCRS, RSA_BYTES, pkix_rsa};
use proto::v1alpha1::{BootProof, TpmChallenge, TpmKeys, TpmQuote};
use ring::hmac;
use tpm2_protocol::basic::TpmHandle;
use tpm2_protocol::data::{TpmtPublic, TpmuPublicId};

pub use commands::Tpm;
pub use error::TpmError;

use crate::ground::error::describe_error;
use crate::ground::paths::Root;

/// Where the kernel offers its TPM 2.0; a TPM 1.2 has no such file.
pub fn find_device(root: &Root) -> Option<PathBuf> {
    Some(root.join("/dev/tpmrm0")).filter(|path| path.exists())
}

/// The public part of the endorsement key of this host's TPM, PKIX DER; nothing
/// where there is no TPM.
///
/// # Errors
/// [`TpmError`] when there is a TPM that cannot be used.
pub async fn read_identity(root: &Root) -> Result<Option<Vec<u8>>, TpmError> {
    let Some(path) = find_device(root) else { return Ok(None) };
    run_blocking(move || Ok(Some(load_endorsement(&mut Tpm::open(path)?)?.public_key))).await
}

/// A TPM command takes up to seconds: the thread of the agent goes on.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TpmError> + Send + 'static,
) -> Result<T, TpmError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| TpmError::Interrupted)?
}

struct LoadedKey {
    handle: TpmHandle,
    public: Vec<u8>,
}

struct Endorsement {
    key: LoadedKey,
    /// PKIX DER.
    public_key: Vec<u8>,
}

/// Persistent, where the installer of another system left it, else made again.
fn load_endorsement(tpm: &mut Tpm) -> Result<Endorsement, TpmError> {
    let persistent = TpmHandle::new(ENDORSEMENT_HANDLE);
    let template = keys::endorsement_template()?;
    let kept = tpm.read_public(persistent)?.filter(|public| keys::is_of_template(public, &template));
    let (handle, public) = match kept {
        Some(public) => (persistent, public),
        None => tpm.create_primary(template)?,
    };
    let public_key = pkix_rsa(&modulus(&public)?);
    Ok(Endorsement { key: LoadedKey { handle, public: commands::marshal(&public)? }, public_key })
}

fn modulus(public: &TpmtPublic) -> Result<[u8; RSA_BYTES], TpmError> {
    let modulus = match &public.unique {
        TpmuPublicId::Rsa(modulus) => <[u8; RSA_BYTES]>::try_from(&**modulus).ok(),
        _ => None,
    };
    modulus.filter(|modulus| modulus[0] >= 0x80).ok_or(TpmError::OddKey)
}

/// A TPM whose keys are loaded, for one registration.
#[derive(Debug)]
pub struct Attestor {
    tpm: Tpm,
    endorsement: TpmHandle,
    attestation: TpmHandle,
    /// The endorsement key, PKIX DER.
    pub public_key: Vec<u8>,
    /// What the coordinator learns of the TPM.
    pub keys: TpmKeys,
}

impl Attestor {
    /// Loads the keys of the TPM of this host, which must be the one whose
    /// endorsement key is `public_key`.
    pub async fn load(root: &Root, public_key: &[u8]) -> Result<Self, TpmError> {
        let path = find_device(root).ok_or(TpmError::Gone)?;
        let loaded = run_blocking(move || Self::load_keys(Tpm::open(path)?)).await?;
        if loaded.public_key == public_key { Ok(loaded) } else { Err(TpmError::Replaced) }
    }

    fn load_keys(mut tpm: Tpm) -> Result<Self, TpmError> {
        let Endorsement { key, public_key } = load_endorsement(&mut tpm)?;
        let certificate = read_certificate(&mut tpm)?;
        let (attestation, public) = tpm.create_primary(keys::attestation_template()?)?;
        let keys = TpmKeys {
            endorsement_key: key.public,
            endorsement_certificate: certificate,
            attestation_key: commands::marshal(&public)?,
        };
        Ok(Self { tpm, endorsement: key.handle, attestation, public_key, keys })
    }

    /// Answers a challenge: the authenticator of `binding`, and the quote.
    pub async fn answer(
        mut self,
        challenge: TpmChallenge,
        binding: [u8; 32],
    ) -> Result<(Vec<u8>, TpmQuote), TpmError> {
        run_blocking(move || {
            let credential = self.tpm.activate_credential(
                self.attestation,
                self.endorsement,
                &challenge.credential,
                &challenge.encrypted_secret,
            )?;
            if credential.len() != CREDENTIAL_BYTES {
                return Err(TpmError::Challenge);
            }
            let key = hmac::Key::new(hmac::HMAC_SHA256, &credential);
            let authenticator = hmac::sign(&key, &binding).as_ref().to_vec();
            let quote = self.tpm.quote(self.attestation, &binding, &challenge.pcrs)?;
            Ok((authenticator, quote))
        })
        .await
    }

    /// Shows how often the TPM was reset.
    pub async fn prove_boot(mut self, binding: [u8; 32]) -> Result<BootProof, TpmError> {
        run_blocking(move || {
            let quote = self.tpm.quote(self.attestation, &binding, &PCRS)?;
            Ok(BootProof { attestation_key: self.keys.attestation_key, quote: Some(quote) })
        })
        .await
    }
}

/// Empty where there is none, and where the TPM does not let it be read: whether
/// a host needs one is for the coordinator to say.
fn read_certificate(tpm: &mut Tpm) -> Result<Vec<u8>, TpmError> {
    match tpm.read_index(TpmHandle::new(ENDORSEMENT_CERTIFICATE)) {
        Ok(found) => Ok(found.map(trim_certificate).unwrap_or_default()),
        Err(error @ TpmError::Refused { .. }) if !error.is_temporary() => {
            tracing::warn!(
                error = describe_error(&error),
                "the certificate in the TPM counts as missing; next: none, unless the Secret tpm-ca asks for one"
            );
            Ok(vec![])
        }
        Err(error) => Err(error),
    }
}

/// Vendors fill the index up behind the certificate.
fn trim_certificate(mut bytes: Vec<u8>) -> Vec<u8> {
    // SEQUENCE with a length of two bytes, which every certificate has.
    if let [0x30, 0x82, high, low, ..] = bytes[..] {
        bytes.truncate(4 + usize::from(u16::from_be_bytes([high, low])));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_a_certificate_is_left_out() {
        for (name, bytes, want) in [
            ("whole", vec![0x30, 0x82, 0, 1, 7], vec![0x30, 0x82, 0, 1, 7]),
            ("filled up", vec![0x30, 0x82, 0, 1, 7, 0xff, 0xff], vec![0x30, 0x82, 0, 1, 7]),
            ("truncated", vec![0x30, 0x82, 9, 9, 7], vec![0x30, 0x82, 9, 9, 7]),
            ("no certificate", vec![1, 2], vec![1, 2]),
        ] {
            assert_eq!(trim_certificate(bytes), want, "{name}");
        }
    }

    #[test]
    fn only_the_resource_manager_is_a_tpm() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(find_device(&root), None);
        std::fs::create_dir_all(root.join("/dev")).unwrap();
        std::fs::write(root.join("/dev/tpm0"), "").unwrap();
        assert_eq!(find_device(&root), None, "TPM 1.2");
        std::fs::write(root.join("/dev/tpmrm0"), "").unwrap();
        assert_eq!(find_device(&root), Some(root.join("/dev/tpmrm0")));
    }
}
