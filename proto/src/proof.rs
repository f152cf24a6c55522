//! The bytes that a host signs to prove that it holds its identity key.
//!
//! The nonce makes the proof fresh. The exporter of the TLS session ties the proof to this
//! connection, so that a proof relayed to another session proves nothing
//! (`/proto/baremetal/v1alpha1/registration.proto`). A TPM also binds the certificate
//! request, because the key of the request is not in the TPM.

use sha2::{Digest, Sha256};

use crate::update_keys::UpdateKeys;

/// RFC 5705 label under which both ends export keying material.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-baremetal-registration";
/// Bytes of keying material that both ends export.
pub const EXPORTER_BYTES: usize = 32;
/// Bytes of the nonce.
pub const NONCE_BYTES: usize = 32;

/// Prefix that no other signed bytes of this contract have.
const AGENT_LABEL: &[u8] = b"baremetal-agent-update\0";
/// Prefix that no other signed bytes of this contract have, with the version of the statement.
const RELEASE_LABEL: &[u8] = b"baremetal-agent-release-v1\0";
/// Prefix that no other signed bytes of this contract have.
const BOOT_BINDING_LABEL: &[u8] = b"baremetal-boot-tpm\0";
/// Prefix that no other signed bytes of this contract have.
const TPM_BINDING_LABEL: &[u8] = b"baremetal-registration-tpm\0";

/// Keying material of one TLS session.
pub type Exporter = [u8; EXPORTER_BYTES];
/// Fresh randomness of the coordinator, valid once.
pub type Nonce = [u8; NONCE_BYTES];

/// Checksum of the settings by which a host reaches its coordinator.
pub fn settings(registration_url: &str, authorities: &str) -> String {
    let mut bytes = registration_url.as_bytes().to_vec();
    bytes.push(0);
    bytes.extend_from_slice(authorities.trim().as_bytes());
    identity(&bytes)
}

/// The bytes that the identity key signs.
pub fn binding(nonce: &Nonce, exporter: &Exporter, public_key: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(EXPORTER_LABEL);
    hash.update(nonce);
    hash.update(exporter);
    hash.update(public_key);
    hash.finalize().into()
}

/// The bytes that a TPM quotes, and that are authenticated with the activated credential.
/// `public_key` belongs to the endorsement key; `request` is the certificate request.
pub fn tpm_binding(nonce: &Nonce, exporter: &Exporter, public_key: &[u8], request: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(TPM_BINDING_LABEL);
    hash.update(nonce);
    hash.update(exporter);
    // Digests have a fixed length, so that no byte of one value can count as a byte of the other.
    hash.update(Sha256::digest(public_key));
    hash.update(Sha256::digest(request));
    hash.finalize().into()
}

/// The bytes that the TPM of an installed host quotes. The exporter makes them fresh, because
/// both ends of the session contribute to it. `identity` is `spec.tpmHash`; `request` is the
/// certificate request.
pub fn boot_binding(exporter: &Exporter, identity: &str, request: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(BOOT_BINDING_LABEL);
    hash.update(exporter);
    hash.update(Sha256::digest(identity));
    hash.update(Sha256::digest(request));
    hash.finalize().into()
}

/// The bytes that the coordinator's authority signs for an agent. No certificate begins with
/// the same bytes.
pub fn agent(version: &str, architecture: &str, size: u64, checksum: &str) -> Vec<u8> {
    state_agent(AGENT_LABEL, [version, architecture, checksum], size)
}

/// The bytes that a key for updates signs for an agent. `keys` are those that a host trusts
/// once it runs the agent.
pub fn release(version: &str, architecture: &str, size: u64, checksum: &str, keys: &UpdateKeys) -> Vec<u8> {
    let mut bytes = state_agent(RELEASE_LABEL, [version, architecture, checksum], size);
    for key in keys.as_slice() {
        bytes.extend_from_slice(key.as_bytes());
    }
    bytes
}

fn state_agent(label: &[u8], parts: [&str; 3], size: u64) -> Vec<u8> {
    let mut bytes = label.to_vec();
    for part in parts {
        bytes.extend_from_slice(part.as_bytes());
        bytes.push(0);
    }
    bytes.extend_from_slice(&size.to_be_bytes());
    bytes
}

/// `spec.tpmHash`: lower-case hexadecimal SHA-256 of a public key in PKIX DER.
pub fn identity(public_key: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(public_key).iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_changes_with_each_of_its_parts() {
        let base = binding(&[1; 32], &[2; 32], b"key");
        for (name, other) in [
            ("nonce", binding(&[9; 32], &[2; 32], b"key")),
            ("exporter", binding(&[1; 32], &[9; 32], b"key")),
            ("key", binding(&[1; 32], &[2; 32], b"other")),
        ] {
            assert_ne!(base, other, "{name}");
        }
    }

    #[test]
    fn tpm_binding_changes_with_each_part() {
        let base = tpm_binding(&[1; 32], &[2; 32], b"key", b"request");
        for (name, other) in [
            ("nonce", tpm_binding(&[9; 32], &[2; 32], b"key", b"request")),
            ("exporter", tpm_binding(&[1; 32], &[9; 32], b"key", b"request")),
            ("key", tpm_binding(&[1; 32], &[2; 32], b"other", b"request")),
            ("request", tpm_binding(&[1; 32], &[2; 32], b"key", b"other")),
            ("border", tpm_binding(&[1; 32], &[2; 32], b"keyr", b"equest")),
            ("kind", binding(&[1; 32], &[2; 32], b"key")),
        ] {
            assert_ne!(base, other, "{name}");
        }
    }

    #[test]
    fn boot_binding_changes_with_each_part() {
        let base = boot_binding(&[2; 32], "identity", b"request");
        for (name, other) in [
            ("exporter", boot_binding(&[9; 32], "identity", b"request")),
            ("identity", boot_binding(&[2; 32], "other", b"request")),
            ("request", boot_binding(&[2; 32], "identity", b"other")),
            ("border", boot_binding(&[2; 32], "identityr", b"equest")),
        ] {
            assert_ne!(base, other, "{name}");
        }
    }

    #[test]
    fn agent_signature_input_changes_with_each_part() {
        let base = agent("0.2.0", "x86_64", 6, "ab");
        for (name, other) in [
            ("version", agent("0.2.1", "x86_64", 6, "ab")),
            ("architecture", agent("0.2.0", "aarch64", 6, "ab")),
            ("size", agent("0.2.0", "x86_64", 7, "ab")),
            ("checksum", agent("0.2.0", "x86_64", 6, "cd")),
            ("border", agent("0.2.0x", "86_64", 6, "ab")),
        ] {
            assert_ne!(base, other, "{name}");
        }
    }

    #[test]
    fn release_statement_changes_with_each_part() {
        let keys = |numbers: &[u8]| {
            UpdateKeys::parse(&numbers.iter().map(|number| vec![*number; 32]).collect::<Vec<_>>()).unwrap()
        };
        let base = release("0.2.0", "x86_64", 6, "ab", &keys(&[1]));
        for (name, other) in [
            ("version", release("0.2.1", "x86_64", 6, "ab", &keys(&[1]))),
            ("architecture", release("0.2.0", "aarch64", 6, "ab", &keys(&[1]))),
            ("size", release("0.2.0", "x86_64", 7, "ab", &keys(&[1]))),
            ("checksum", release("0.2.0", "x86_64", 6, "cd", &keys(&[1]))),
            ("key", release("0.2.0", "x86_64", 6, "ab", &keys(&[2]))),
            ("another key", release("0.2.0", "x86_64", 6, "ab", &keys(&[1, 2]))),
            ("kind", agent("0.2.0", "x86_64", 6, "ab")),
        ] {
            assert_ne!(base, other, "{name}");
        }
    }

    #[test]
    fn identity_is_lowercase_hexadecimal_hash_of_key() {
        assert_eq!(identity(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
