//! One registration of a TPM, as both sides saw it.

use agent::ground::paths::Root;
use agent::identity::tpm::Attestor;
use coordinator::credential::make_credential;
use coordinator_api::inventory::KeyClass;
use coordinator_api::inventory::LiveTpm;
use coordinator_core::attestation::boot::describe_live_tpm;
use coordinator_core::attestation::{AttestationError, AttestationKey, EndorsementKey, Opened};
use coordinator_core::inventory::classify_tpm;
use getrandom::SysRng;
use jiff::Timestamp;
use proto::proof::{Exporter, Nonce, tpm_binding};
use proto::tpm::PCRS;
use proto::v1alpha1::{TpmChallenge, TpmKeys, TpmQuote};
use ring::hmac;

const CREDENTIAL: [u8; 32] = [0x5a; 32];

/// Everything that the coordinator judges.
#[derive(Clone)]
pub(crate) struct Transcript {
    pub(crate) public_key: Vec<u8>,
    pub(crate) keys: TpmKeys,
    pub(crate) nonce: Nonce,
    pub(crate) exporter: Exporter,
    pub(crate) request: Vec<u8>,
    pub(crate) proof: Vec<u8>,
    pub(crate) quote: Option<TpmQuote>,
    /// The Secret `tpm-ca`.
    pub(crate) authorities: Option<String>,
    pub(crate) now: Timestamp,
}

/// The challenge that a coordinator makes for these keys.
pub(crate) fn challenge(keys: &TpmKeys, credential: &[u8; 32]) -> TpmChallenge {
    let endorsement = EndorsementKey::parse(&keys.endorsement_key).unwrap();
    let name = AttestationKey::parse(&keys.attestation_key).unwrap().name;
    let made = make_credential(endorsement.modulus(), &name, credential, &mut SysRng).unwrap();
    TpmChallenge { credential: made.id_object, encrypted_secret: made.encrypted_secret, pcrs: PCRS.to_vec() }
}

impl Transcript {
    /// By the agent, on a host with that root.
    pub(crate) async fn take(root: &Root) -> Self {
        let public_key = agent::identity::tpm::read_identity(root).await.unwrap().unwrap();
        let attestor = Attestor::load(root, &public_key).await.unwrap();
        let mut taken = Self {
            public_key,
            keys: attestor.keys.clone(),
            nonce: [1; 32],
            exporter: [2; 32],
            request: b"a certificate request".to_vec(),
            proof: vec![],
            quote: None,
            authorities: None,
            now: "2026-06-01T00:00:00Z".parse().unwrap(),
        };
        let challenge = challenge(&taken.keys, &CREDENTIAL);
        let (proof, quote) = attestor.answer(challenge, taken.binding()).await.unwrap();
        (taken.proof, taken.quote) = (proof, Some(quote));
        taken
    }

    pub(crate) fn binding(&self) -> [u8; 32] {
        tpm_binding(&self.nonce, &self.exporter, &self.public_key, &self.request)
    }

    /// What the coordinator keeps of it.
    pub(crate) fn live_tpm(&self) -> LiveTpm {
        let opened = Opened::parse(&self.keys, &self.public_key, CREDENTIAL).unwrap();
        let quoted = opened.verify_answer(&self.binding(), &self.proof, self.quote.as_ref()).unwrap();
        describe_live_tpm(&opened.key, quoted, true)
    }

    /// As the coordinator does.
    pub(crate) fn verify(&self) -> Result<KeyClass, AttestationError> {
        let opened = Opened::parse(&self.keys, &self.public_key, CREDENTIAL)?;
        opened.verify_answer(&self.binding(), &self.proof, self.quote.as_ref())?;
        let authorities = self.authorities.as_ref().map(String::as_bytes);
        let chain = authorities.map(|authorities| opened.verify_certificate(authorities, self.now));
        classify_tpm(chain, false)
    }

    /// With a right authenticator, which no attacker has: what is behind it is
    /// judged on its own.
    pub(crate) fn authenticated(mut self) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &CREDENTIAL);
        self.proof = hmac::sign(&key, &self.binding()).as_ref().to_vec();
        self
    }

    pub(crate) fn edited(&self, edit: impl FnOnce(&mut Self)) -> Self {
        let mut copy = self.clone();
        edit(&mut copy);
        copy
    }

    pub(crate) fn quoting(&self, quote: TpmQuote) -> Self {
        self.edited(|copy| copy.quote = Some(quote))
    }

    pub(crate) fn with_attestation_key_of(&self, other: &Self) -> TpmKeys {
        TpmKeys { attestation_key: other.keys.attestation_key.clone(), ..self.keys.clone() }
    }
}
