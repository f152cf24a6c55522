//! The TPM 2.0 of the host. Its endorsement key is the identity of the host; a quote and an
//! activated credential prove it (`proto::proof`).
//!
//! Nothing is stored in the TPM: both keys are primary keys of the endorsement hierarchy, which a
//! TPM derives from its seed and which are therefore always the same. Neither key has a password,
//! so no failure counts towards a lockout.

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
use error::TpmError;

use crate::ground::failure::Failure;
use crate::ground::paths::Root;

/// The device of a TPM 2.0; the kernel offers no such file for a TPM 1.2.
pub fn find_device(root: &Root) -> Option<PathBuf> {
    Some(root.join("/dev/tpmrm0")).filter(|path| path.exists())
}

/// The public part of the endorsement key of this host's TPM, PKIX DER; `None` if there is no TPM.
pub async fn read_identity(root: &Root) -> Result<Option<Vec<u8>>, Failure> {
    let Some(path) = find_device(root) else { return Ok(None) };
    run_blocking(move || Ok(Some(load_endorsement(&mut Tpm::open(&path)?)?.public_key))).await
}

/// Runs on a thread of its own, because a command of a TPM may take seconds.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TpmError> + Send + 'static,
) -> Result<T, Failure> {
    Ok(tokio::task::spawn_blocking(work).await.map_err(|_| error::interrupted())??)
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

/// Loads the persistent endorsement key that another system's installer may have left, or derives
/// the key again.
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

fn modulus(public: &TpmtPublic) -> Result<[u8; RSA_BYTES], Failure> {
    let modulus = match &public.unique {
        TpmuPublicId::Rsa(modulus) => <[u8; RSA_BYTES]>::try_from(&**modulus).ok(),
        _ => None,
    };
    modulus.filter(|modulus| modulus[0] >= 0x80).ok_or_else(|| {
        error::broken("the TPM made an endorsement key that is not RSA with 2048 bits".to_owned())
    })
}

/// A TPM with loaded keys, for one registration.
#[derive(Debug)]
pub struct Attestor {
    tpm: Tpm,
    endorsement: TpmHandle,
    attestation: TpmHandle,
    /// The endorsement key, PKIX DER.
    pub public_key: Vec<u8>,
    /// The part of the TPM that the coordinator learns.
    pub keys: TpmKeys,
}

impl Attestor {
    /// Loads the keys of this host's TPM. The public part of its endorsement key must be
    /// `public_key`.
    pub async fn load(root: &Root, public_key: &[u8]) -> Result<Self, Failure> {
        let path = find_device(root).ok_or_else(|| {
            Failure::input_output(
                "this host registered with a TPM 2.0, and there is none now",
                "switch the TPM on in the host's firmware setup; if it was removed for good, install the host as a new one (\"Wipe a disk\" in docs/operations.md)",
            )
        })?;
        let loaded = run_blocking(move || Self::load_keys(Tpm::open(&path)?)).await?;
        if loaded.public_key == public_key {
            return Ok(loaded);
        }
        Err(Failure::input_output(
            "this host registered with another TPM than it has now",
            "put the former TPM back; if it was replaced for good, install the host as a new one (\"Wipe a disk\" in docs/operations.md)",
        ))
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

    /// Answers a challenge by the authenticator of `binding`, and the quote.
    pub async fn answer(
        mut self,
        challenge: TpmChallenge,
        binding: [u8; 32],
    ) -> Result<(Vec<u8>, TpmQuote), Failure> {
        run_blocking(move || {
            let credential = self.tpm.activate_credential(
                self.attestation,
                self.endorsement,
                &challenge.credential,
                &challenge.encrypted_secret,
            )?;
            if credential.len() != CREDENTIAL_BYTES {
                return Err(error::invalid_challenge().into());
            }
            let key = hmac::Key::new(hmac::HMAC_SHA256, &credential);
            let authenticator = hmac::sign(&key, &binding).as_ref().to_vec();
            let quote = self.tpm.quote(self.attestation, &binding, &challenge.pcrs)?;
            Ok((authenticator, quote))
        })
        .await
    }

    /// Proves the number of resets of the TPM.
    pub async fn prove_boot(mut self, binding: [u8; 32]) -> Result<BootProof, Failure> {
        run_blocking(move || {
            let quote = self.tpm.quote(self.attestation, &binding, &PCRS)?;
            Ok(BootProof { attestation_key: self.keys.attestation_key, quote: Some(quote) })
        })
        .await
    }
}

/// Empty if there is no certificate or the TPM refuses to read it, because the coordinator decides
/// whether a host needs one.
fn read_certificate(tpm: &mut Tpm) -> Result<Vec<u8>, TpmError> {
    match tpm.read_index(TpmHandle::new(ENDORSEMENT_CERTIFICATE)) {
        Ok(found) => Ok(found.map_or_else(Vec::new, trim_certificate)),
        Err(error @ TpmError::Refused { .. }) if !error.is_temporary() => {
            let error = Failure::from(error).with_next_action("none, unless the Secret tpm-ca asks for one");
            tracing::warn!(%error, "cannot read the certificate in the TPM, registering without it");
            Ok(vec![])
        }
        Err(error) => Err(error),
    }
}

/// Vendors pad the index behind the certificate.
fn trim_certificate(mut bytes: Vec<u8>) -> Vec<u8> {
    // Every certificate is a SEQUENCE with a length of two bytes.
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
