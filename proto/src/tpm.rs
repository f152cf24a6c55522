//! Constants of a TPM 2.0 for host and coordinator, from the specifications of the TCG.

/// Size of the modulus of an RSA key in bytes.
pub const RSA_BYTES: usize = 256;
/// Size of the modulus of an RSA key in bits.
pub const RSA_BITS: u16 = 2048;
/// `TPMA_OBJECT` of the endorsement key: `fixedTPM`, `fixedParent`,
/// `sensitiveDataOrigin`, `adminWithPolicy`, `restricted`, `decrypt` ("TCG EK
/// Credential Profile", template L-1).
pub const ENDORSEMENT_ATTRIBUTES: u32 = 0x0003_00b2;
/// Policy of the endorsement key: `PolicySecret(TPM_RH_ENDORSEMENT)`, SHA-256.
pub const ENDORSEMENT_POLICY: [u8; 32] = [
    0x83, 0x71, 0x97, 0x67, 0x44, 0x84, 0xb3, 0xf8, 0x1a, 0x90, 0xcc, 0x8d, 0x46, 0xa5, 0xd7, 0x24, 0xfd,
    0x52, 0xd7, 0x6e, 0x06, 0x52, 0x0b, 0x64, 0xf2, 0xa1, 0xda, 0x1b, 0x33, 0x14, 0x69, 0xaa,
];
/// NV index of the certificate of the endorsement key.
pub const ENDORSEMENT_CERTIFICATE: u32 = 0x01c0_0002;
/// Handle of the endorsement key, if the key is persistent.
pub const ENDORSEMENT_HANDLE: u32 = 0x8101_0001;
/// Registers of each quote: firmware, boot loader, Secure Boot.
pub const PCRS: [u32; 5] = [0, 2, 4, 7, 11];
/// Size of the credential that a TPM activates, in bytes.
pub const CREDENTIAL_BYTES: usize = 32;

/// `SEQUENCE { SEQUENCE { rsaEncryption, NULL }, BIT STRING { SEQUENCE { INTEGER …`
/// of a key with 2048 bits, for which DER has exactly one encoding.
const PKIX_PREFIX: [u8; 33] = [
    0x30, 0x82, 0x01, 0x22, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01,
    0x05, 0x00, 0x03, 0x82, 0x01, 0x0f, 0x00, 0x30, 0x82, 0x01, 0x0a, 0x02, 0x82, 0x01, 0x01, 0x00,
];
/// `… INTEGER 65537 } }`
const PKIX_SUFFIX: [u8; 5] = [0x02, 0x03, 0x01, 0x00, 0x01];
/// Offset of the `RSAPublicKey`.
const PKCS1_START: usize = 24;

/// PKIX DER of an RSA key with 2048 bits and the exponent 65537. The first byte of the modulus is
/// at least 0x80.
pub fn pkix_rsa(modulus: &[u8; RSA_BYTES]) -> Vec<u8> {
    [&PKIX_PREFIX[..], modulus, &PKIX_SUFFIX].concat()
}

/// The `RSAPublicKey` inside [`pkix_rsa`], which does not depend on the name of the algorithm in a
/// certificate.
pub fn pkcs1_rsa(modulus: &[u8; RSA_BYTES]) -> Vec<u8> {
    pkix_rsa(modulus).split_off(PKCS1_START)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_lengths_match_their_parts() {
        let (pkix, pkcs1) = (pkix_rsa(&[0xff; RSA_BYTES]), pkcs1_rsa(&[0xff; RSA_BYTES]));
        let length = |bytes: &[u8], at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        assert_eq!(length(&pkix, 2), pkix.len() - 4);
        assert_eq!(length(&pkix, 21), pkcs1.len() + 1, "and no unused bit");
        assert_eq!(length(&pkcs1, 2), pkcs1.len() - 4);
        assert_eq!(length(&pkcs1, 6), RSA_BYTES + 1, "and a zero before the first bit");
    }

    #[test]
    fn registers_are_ascending() {
        assert!(PCRS.is_sorted() && PCRS.iter().all(|register| *register < 24));
    }
}
