//! The quote, and its signature.

use agent::identity::tpm::{Tpm, keys};
use coordinator_core::attestation::{AttestationError, QuoteFault};
use proto::tpm::PCRS;
use proto::v1alpha1::TpmQuote;
use swtpm::password;
use tpm2_protocol::basic::TpmHandle;
use tpm2_protocol::data::{
    Tpm2bData, TpmAlgId, TpmRh, TpmlPcrSelection, TpmsPcrSelect, TpmsPcrSelection, TpmtSigScheme,
};
use tpm2_protocol::frame::{TpmGetTimeCommand, TpmGetTimeResponse, TpmQuoteCommand, TpmQuoteResponse};

use super::{Case, Field, case, marshal};

fn bank(hash: TpmAlgId, bits: &[u8]) -> TpmsPcrSelection {
    TpmsPcrSelection { hash, pcr_select: TpmsPcrSelect::try_from(bits).unwrap() }
}

/// A real quote of registers that the agent would not choose.
fn quote_banks(tpm: &mut Tpm, binding: &[u8], banks: &[TpmsPcrSelection]) -> TpmQuote {
    let (key, _) = tpm.create_primary(keys::attestation_template().unwrap()).unwrap();
    let mut pcr_select = TpmlPcrSelection::new();
    pcr_select.try_extend_from_slice(banks).unwrap();
    let command = TpmQuoteCommand {
        handles: [key],
        qualifying_data: Tpm2bData::try_from(binding).unwrap(),
        in_scheme: TpmtSigScheme::default(),
        pcr_select,
    };
    let answer: TpmQuoteResponse = tpm.run("Quote", &command, &[password()]).unwrap();
    TpmQuote { attest: marshal(&answer.quoted.inner), signature: marshal(&answer.signature) }
}

/// What the attestation key signs besides quotes.
fn attest_time(tpm: &mut Tpm, binding: &[u8]) -> TpmQuote {
    let (key, _) = tpm.create_primary(keys::attestation_template().unwrap()).unwrap();
    let command = TpmGetTimeCommand {
        handles: [TpmHandle::new(TpmRh::Endorsement as u32), key],
        qualifying_data: Tpm2bData::try_from(binding).unwrap(),
        in_scheme: TpmtSigScheme::default(),
    };
    let answer: TpmGetTimeResponse = tpm.run("GetTime", &command, &[password(), password()]).unwrap();
    TpmQuote { attest: marshal(&answer.time_info.inner), signature: marshal(&answer.signature) }
}

/// Quotes that the right TPM has signed.
pub(super) fn signed(field: &Field) -> Vec<Case> {
    let Field { tpm, valid, .. } = field;
    let fault = |fault| AttestationError::Quote(fault);
    let quoted = |binding: &[u8], pcrs: &[u32]| {
        let mut open = tpm.open();
        let (key, _) = open.create_primary(keys::attestation_template().unwrap()).unwrap();
        valid.quoting(open.quote(key, binding, pcrs).unwrap())
    };
    let banked =
        |banks: &[TpmsPcrSelection]| valid.quoting(quote_banks(&mut tpm.open(), &valid.binding(), banks));
    let binding = valid.binding();
    let asked = PCRS.iter().fold([0; 3], |mut bits, pcr| {
        bits[usize::try_from(pcr / 8).unwrap()] |= 1_u8 << (pcr % 8);
        bits
    });
    let sha256 = bank(TpmAlgId::Sha256, &asked);
    assert!(banked(&[sha256]).verify().is_ok(), "the helper quotes as the agent does");
    vec![
        case("a quote of another nonce", quoted(&[7; 32], &PCRS), fault(QuoteFault::Nonce)),
        case("a quote without nonce", quoted(&[], &PCRS), fault(QuoteFault::Nonce)),
        case("a quote of half the nonce", quoted(&binding[..16], &PCRS), fault(QuoteFault::Nonce)),
        case("fewer registers", quoted(&binding, &PCRS[1..]), fault(QuoteFault::Registers)),
        case("more registers", quoted(&binding, &[0, 2, 4, 7, 11, 14]), fault(QuoteFault::Registers)),
        case("other registers", quoted(&binding, &[1, 3, 5, 8, 12]), fault(QuoteFault::Registers)),
        case("no registers", quoted(&binding, &[]), fault(QuoteFault::Registers)),
        case("another bank", banked(&[bank(TpmAlgId::Sha384, &asked)]), fault(QuoteFault::Registers)),
        case("two banks", banked(&[sha256, bank(TpmAlgId::Sha384, &asked)]), fault(QuoteFault::Registers)),
        case("no bank", banked(&[]), fault(QuoteFault::Registers)),
        case("the time", valid.quoting(attest_time(&mut tpm.open(), &binding)), fault(QuoteFault::Kind)),
        case(
            "an old quote with a new authenticator",
            valid.edited(|copy| copy.nonce = [9; 32]).authenticated(),
            fault(QuoteFault::Nonce),
        ),
        case(
            "a quote relayed with a new authenticator",
            valid.edited(|copy| copy.exporter = [9; 32]).authenticated(),
            fault(QuoteFault::Nonce),
        ),
        case(
            "a request exchanged with a new authenticator",
            valid.edited(|copy| copy.request.push(0)).authenticated(),
            fault(QuoteFault::Nonce),
        ),
    ]
}

const QUOTE: &str = "the quote";
const SIGNATURE: &str = "the signature of the quote";

/// Quotes that no TPM has signed so.
pub(super) fn altered(field: &Field) -> Vec<Case> {
    let Field { valid, other, .. } = field;
    let fault = |fault| AttestationError::Quote(fault);
    let whole = |what| AttestationError::Malformed { what };
    let attest = |edit: fn(&mut Vec<u8>)| {
        valid.edited(|copy| copy.quote.as_mut().map(|quote| edit(&mut quote.attest)).unwrap())
    };
    let signature = |edit: fn(&mut Vec<u8>)| {
        valid.edited(|copy| copy.quote.as_mut().map(|quote| edit(&mut quote.signature)).unwrap())
    };
    let theirs = other.quote.clone().unwrap().signature;
    let signed_by_other =
        valid.edited(|copy| copy.quote.as_mut().map(|quote| quote.signature = theirs).unwrap());
    vec![
        case("no quote", valid.edited(|copy| copy.quote = None), whole(QUOTE)),
        case("an empty quote", attest(Vec::clear), fault(QuoteFault::Magic)),
        case("another magic", attest(|bytes| bytes[0] ^= 1), fault(QuoteFault::Magic)),
        case("another kind", attest(|bytes| bytes[5] = 0x1a), whole(QUOTE)),
        case("an unknown kind", attest(|bytes| bytes[4] = 0), whole(QUOTE)),
        case("a truncated quote", attest(|bytes| bytes.truncate(bytes.len() - 1)), whole(QUOTE)),
        case("bytes behind the quote", attest(|bytes| bytes.push(0)), whole(QUOTE)),
        case(
            "altered registers",
            attest(|bytes| *bytes.last_mut().unwrap() ^= 1),
            fault(QuoteFault::Signature),
        ),
        case("an altered signer", attest(|bytes| bytes[20] ^= 1), fault(QuoteFault::Signature)),
        case("signed by another TPM", signed_by_other, fault(QuoteFault::Signature)),
        case("an altered signature", signature(|bytes| bytes[100] ^= 1), fault(QuoteFault::Signature)),
        case("another signature scheme", signature(|bytes| bytes[1] = 0x16), fault(QuoteFault::Algorithm)),
        case("another signature hash", signature(|bytes| bytes[3] = 0x0c), fault(QuoteFault::Algorithm)),
        case("no signature", signature(Vec::clear), whole(SIGNATURE)),
        case("a truncated signature", signature(|bytes| bytes.truncate(100)), whole(SIGNATURE)),
        case("bytes behind the signature", signature(|bytes| bytes.push(0)), whole(SIGNATURE)),
    ]
}
