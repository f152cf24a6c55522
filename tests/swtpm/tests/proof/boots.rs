//! What an installed system shows of its boot.

use agent::ground::paths::Root;
use agent::identity::tpm::Attestor;
use coordinator_core::attestation::boot::verify_boot;
use coordinator_core::attestation::{AttestationError, BootFault, QuoteFault};
use proto::v1alpha1::{BootProof, TpmQuote};
use swtpm::Swtpm;

use crate::transcript::Transcript;

const BINDING: [u8; 32] = [7; 32];
/// Of the attested structure: magic and kind, both sized fields before the clock, the clock.
const RESETS: usize = 4 + 2 + (2 + 34) + (2 + 32) + 8;

async fn prove(root: &Root, binding: [u8; 32]) -> BootProof {
    let public_key = agent::identity::tpm::read_identity(root).await.unwrap().unwrap();
    Attestor::load(root, &public_key).await.unwrap().prove_boot(binding).await.unwrap()
}

fn fault(fault: BootFault) -> Result<(), AttestationError> {
    Err(AttestationError::Boot(fault))
}

#[tokio::test]
async fn a_boot_is_proven_by_a_reset() {
    let tpm = Swtpm::start();
    let root = tpm.host_root();
    tpm.reset();
    let live = Transcript::take(&root).await.live_tpm();
    let verify = |proof: &BootProof| verify_boot(&live, Some(proof), &BINDING);
    assert_eq!(verify(&prove(&root, BINDING).await), fault(BootFault::NoReset), "the live system");
    tpm.reset();
    assert_eq!(verify(&prove(&root, BINDING).await), Ok(()));
    tpm.reset();
    assert_eq!(verify(&prove(&root, BINDING).await), Ok(()), "a later boot");
}

// Fault: a live system asks for the certificate of the installed one: without a quote, with a quote of another
// TPM, connection or key, with an altered one, or after it cleared the TPM.
// Shown: host console: `BadProof`, with what is wrong.
#[tokio::test]
async fn no_other_proof_of_a_boot_is_taken() {
    let (tpm, other) = (Swtpm::start(), Swtpm::start());
    let (root, elsewhere) = (tpm.host_root(), other.host_root());
    for _ in 0..3 {
        tpm.reset();
    }
    let live = Transcript::take(&root).await.live_tpm();
    let unbooted = prove(&root, BINDING).await;
    other.reset();
    let foreign = prove(&elsewhere, BINDING).await;
    let exchanged = BootProof { attestation_key: unbooted.attestation_key.clone(), ..foreign.clone() };
    let mut raised = unbooted.clone();
    let attest = &mut raised.quote.as_mut().unwrap().attest;
    assert_eq!(attest[RESETS..RESETS + 4], live.reset_count.to_be_bytes(), "the layout");
    attest[RESETS + 3] += 1;
    let keyless = BootProof { attestation_key: vec![], ..unbooted.clone() };
    let empty = BootProof { quote: Some(TpmQuote::default()), ..unbooted.clone() };
    tpm.reset();
    let relayed = prove(&root, [8; 32]).await;
    tpm.clear();
    let cleared = prove(&root, BINDING).await;
    for (name, shown, want) in [
        ("no proof", None, fault(BootFault::Missing)),
        ("no quote", Some(BootProof { quote: None, ..unbooted.clone() }), fault(BootFault::Missing)),
        ("not booted", Some(unbooted), fault(BootFault::NoReset)),
        ("cleared", Some(cleared), fault(BootFault::NoReset)),
        ("another TPM", Some(foreign), fault(BootFault::OtherKey)),
        ("quote of another TPM", Some(exchanged), Err(AttestationError::Quote(QuoteFault::Signature))),
        ("count raised", Some(raised), Err(AttestationError::Quote(QuoteFault::Signature))),
        ("another connection", Some(relayed), Err(AttestationError::Quote(QuoteFault::Nonce))),
        ("an empty quote", Some(empty), Err(AttestationError::Quote(QuoteFault::Magic))),
        ("no key", Some(keyless), Err(AttestationError::Malformed { what: "the attestation key" })),
    ] {
        let got = verify_boot(&live, shown.as_ref(), &BINDING);
        assert_eq!(got, want, "{name}");
        let error = got.unwrap_err();
        assert!(!error.next_action().is_empty() && error.to_string().len() > 10, "{name}");
    }
}
