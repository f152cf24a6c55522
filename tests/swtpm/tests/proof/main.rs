//! The proof of a TPM, taken from real ones, and what is refused of it.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod boots;
mod mutations;
mod transcript;

use std::collections::BTreeSet;

use agent::identity::tpm::keys;
use coordinator_api::inventory::KeyClass;
use coordinator_core::attestation::AttestationError;
use swtpm::{Swtpm, Vendor};
use tpm2_protocol::data::{Tpm2bPublicKeyRsa, TpmuPublicId};
use transcript::{Transcript, challenge};

#[tokio::test]
async fn real_proof_gives_its_class() {
    let (tpm, vendor) = (Swtpm::start(), Vendor::new("vendor"));
    let root = tpm.host_root();
    let bare = Transcript::take(&root).await;
    assert!(bare.keys.endorsement_certificate.is_empty());
    assert_eq!(bare.verify(), Ok(KeyClass::Unverified), "no CA is named");
    let certificate = vendor.certify(&bare.public_key, |_| {});
    tpm.write_certificate(&certificate, &[0xff; 700]);
    let certified = Transcript::take(&root).await;
    assert_eq!(certified.keys.endorsement_certificate, certificate, "without what fills the index up");
    assert_eq!(certified.public_key, bare.public_key, "a TPM has one identity");
    assert_eq!(certified.verify(), Ok(KeyClass::Unverified));
    let named = Transcript { authorities: Some(vendor.authority.clone()), ..certified };
    assert_eq!(named.verify(), Ok(KeyClass::Hardware));
    assert_eq!(agent::identity::tpm::read_identity(&root).await.unwrap(), Some(named.public_key.clone()));
    assert_eq!(key_of(&certificate), named.public_key, "the key is encoded as every library encodes it");
}

// Fault: the certificate in a TPM cannot be read without a password.
// Shown: log of the host; it registers as one whose TPM has no certificate.
#[tokio::test]
async fn unreadable_certificate_counts_as_none() {
    let (tpm, vendor) = (Swtpm::start(), Vendor::new("vendor"));
    let root = tpm.host_root();
    let public_key = agent::identity::tpm::read_identity(&root).await.unwrap().unwrap();
    tpm.hide_certificate(&vendor.certify(&public_key, |_| {}));
    let taken = Transcript::take(&root).await;
    assert!(taken.keys.endorsement_certificate.is_empty());
    assert_eq!(taken.verify(), Ok(KeyClass::Unverified));
    let named = Transcript { authorities: Some(vendor.authority), ..taken };
    assert!(named.verify().unwrap_err().to_string().contains("is missing in the TPM"));
}

#[tokio::test]
async fn persistent_endorsement_key_is_used() {
    let tpm = Swtpm::start();
    let root = tpm.host_root();
    let made = agent::identity::tpm::read_identity(&root).await.unwrap();
    // By this the TPM makes another key: the persistent one is told from one that is made again.
    let mut template = keys::endorsement_template().unwrap();
    template.unique = TpmuPublicId::Rsa(Tpm2bPublicKeyRsa::try_from(&[1; 256][..]).unwrap());
    tpm.persist_key(template);
    let taken = Transcript::take(&root).await;
    assert_ne!(Some(&taken.public_key), made.as_ref());
    assert_eq!(taken.verify(), Ok(KeyClass::Unverified), "it activates a credential");
    let other = Swtpm::start();
    let made = agent::identity::tpm::read_identity(&other.host_root()).await.unwrap();
    other.persist_key(keys::attestation_template().unwrap());
    let read = agent::identity::tpm::read_identity(&other.host_root()).await.unwrap();
    assert_eq!(read, made, "a key of another template");
}

/// The key of a certificate, as its parser finds it.
fn key_of(certificate: &[u8]) -> Vec<u8> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).unwrap();
    parsed.public_key().raw.to_vec()
}

// Fault: a host sends altered, replayed, relayed or foreign keys, quotes or certificates of a TPM.
// Shown: host console: `TpmKeyRejected`, `BadProof`, `TpmUntrusted` or `BadRequest`, by what it is.
#[tokio::test]
async fn every_mutation_is_refused() {
    let cases = mutations::all().await;
    let names: BTreeSet<_> = cases.iter().map(|case| case.name).collect();
    assert!(cases.len() >= 60 && names.len() == cases.len(), "{} cases", cases.len());
    let accepted: Vec<_> = cases
        .iter()
        .map(|case| (case.name, case.transcript.verify(), &case.want))
        .filter(|(_, got, want)| got.as_ref().err() != Some(want))
        .collect();
    assert!(accepted.is_empty(), "{accepted:#?}");
    let told = |error: &AttestationError| error.to_string().len() > 10 && !error.next_action().is_empty();
    assert!(cases.iter().all(|case| told(&case.want)));
}

// Fault: a host sends the attestation key of another TPM, or the endorsement key of another one.
// Shown: host console: the TPM itself refuses `ActivateCredential`.
#[tokio::test]
async fn no_other_tpm_activates_a_credential() {
    let (one, other) = (Swtpm::start(), Swtpm::start());
    let roots = [one.host_root(), other.host_root()];
    let [mine, theirs] = [Transcript::take(&roots[0]).await, Transcript::take(&roots[1]).await];
    for (name, keys) in [
        ("another attestation key", mine.with_attestation_key_of(&theirs)),
        ("another endorsement key", theirs.with_attestation_key_of(&mine)),
    ] {
        let challenge = challenge(&keys, &[9; 32]);
        let attestor = agent::identity::tpm::Attestor::load(&roots[0], &mine.public_key).await.unwrap();
        let refused = attestor.answer(challenge, [0; 32]).await.unwrap_err();
        assert!(refused.message.starts_with("the TPM refused ActivateCredential"), "{name}: {refused}");
    }
    let replaced = agent::identity::tpm::Attestor::load(&roots[1], &mine.public_key).await.unwrap_err();
    assert!(replaced.message.contains("registered with another TPM"), "{replaced}");
}

#[tokio::test]
async fn registrations_leave_nothing_in_the_tpm() {
    let tpm = Swtpm::start();
    let root = tpm.host_root();
    // It has room for three keys at a time.
    for _ in 0..4 {
        let attestor =
            agent::identity::tpm::Attestor::load(&root, &Transcript::take(&root).await.public_key).await;
        drop(attestor.unwrap());
    }
    let mut open = tpm.open();
    for _ in 0..3 {
        open.create_primary(keys::attestation_template().unwrap()).unwrap();
    }
}
