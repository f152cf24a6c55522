//! The signature of a key for updates beside the agent in the image (decision 83).

use proto::agent_mark::AgentMark;
use proto::proof;
use proto::update_keys::{ReleaseSignature, UpdateKey, UpdateKeys, UpdateKeysError};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};

/// Begin of the DER of each Ed25519 public key (RFC 8410); 32 bytes of the key follow.
const PUBLIC_KEY: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    #[error("the key for updates is no private key in PEM: make one by `openssl genpkey -algorithm ed25519`")]
    NoKey,
    #[error("the key for updates is no Ed25519 key ({0}): make one by `openssl genpkey -algorithm ed25519`")]
    OtherKey(ring::error::KeyRejected),
    #[error("a key to trust is no Ed25519 public key in PEM: make it by `openssl pkey -in KEY -pubout`")]
    NoPublicKey,
    #[error(transparent)]
    Number(#[from] UpdateKeysError),
    #[error("the agent names no version: give the file of `make agent`")]
    NoAgent,
}

/// Signs the agent. From this agent on, hosts trust the public keys in `trusted`, PEM; if that is
/// absent, they trust the signing key.
pub fn sign_agent(
    agent: &[u8],
    key: &[u8],
    trusted: Option<&[u8]>,
) -> Result<ReleaseSignature, SignatureError> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(key).map_err(|_| SignatureError::NoKey)?;
    // OpenSSL writes the private key alone.
    let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_pkcs8_der());
    let key = key.map_err(SignatureError::OtherKey)?;
    let keys = match trusted {
        Some(trusted) => {
            let keys = SubjectPublicKeyInfoDer::pem_slice_iter(trusted).map(parse_public_key);
            UpdateKeys::try_from(keys.collect::<Result<Vec<_>, _>>()?)?
        }
        None => UpdateKeys::parse(&[key.public_key().as_ref().to_vec()])?,
    };
    let AgentMark { version, architecture } = AgentMark::find(agent).ok_or(SignatureError::NoAgent)?;
    let size = u64::try_from(agent.len()).map_err(|_| SignatureError::NoAgent)?;
    let statement = proof::release(&version, &architecture, size, &proof::identity(agent), &keys);
    Ok(ReleaseSignature { signature: key.sign(&statement).as_ref().to_vec(), keys })
}

fn parse_public_key(
    key: Result<SubjectPublicKeyInfoDer<'_>, pem::Error>,
) -> Result<UpdateKey, SignatureError> {
    let key = key.map_err(|_| SignatureError::NoPublicKey)?;
    let bytes = key.as_ref().strip_prefix(PUBLIC_KEY.as_slice()).and_then(|key| key.try_into().ok());
    bytes.map(UpdateKey::of_bytes).ok_or(SignatureError::NoPublicKey)
}

#[cfg(test)]
mod tests {
    use ring::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    const AGENT: &[u8] = b"\0baremetal-agent-version:0.2.0:x86_64;";
    /// The example of RFC 8410, as OpenSSL writes it.
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
    const OTHER: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n-----END PUBLIC KEY-----\n";
    const RSA: &str =
        "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAA==\n-----END PUBLIC KEY-----\n";

    #[test]
    fn key_of_openssl_signs_version_and_file() {
        let signed = sign_agent(AGENT, KEY.as_bytes(), None).unwrap();
        assert_eq!(
            sign_agent(AGENT, KEY.as_bytes(), Some(PUBLIC.as_bytes())).unwrap(),
            signed,
            "its own key"
        );
        let key = &signed.keys.as_slice()[0];
        let statement =
            |checksum: &str| proof::release("0.2.0", "x86_64", AGENT.len() as u64, checksum, &signed.keys);
        let verify = |message: &[u8]| {
            UnparsedPublicKey::new(&ED25519, key.as_bytes()).verify(message, &signed.signature)
        };
        verify(&statement(&proof::identity(AGENT))).unwrap();
        verify(&statement(&proof::identity(b"other"))).unwrap_err();
        let both = sign_agent(AGENT, KEY.as_bytes(), Some(format!("{PUBLIC}{OTHER}").as_bytes())).unwrap();
        assert_eq!(both.keys.as_slice().len(), 2);
        assert_ne!(both.signature, signed.signature, "the keys are signed too");
    }

    #[test]
    fn unusable_keys_name_the_command() {
        let five = PUBLIC.repeat(5);
        for (name, agent, key, trusted, want) in [
            ("public key", AGENT, PUBLIC, None, "openssl genpkey"),
            ("no PEM", AGENT, "key", None, "openssl genpkey"),
            ("trusted private key", AGENT, KEY, Some(KEY), "from 1 to 4 are needed"),
            ("trusted RSA", AGENT, KEY, Some(RSA), "openssl pkey"),
            ("too many", AGENT, KEY, Some(five.as_str()), "5 keys"),
            ("no agent", b"agent".as_slice(), KEY, None, "make agent"),
        ] {
            let error =
                sign_agent(agent, key.as_bytes(), trusted.map(str::as_bytes)).unwrap_err().to_string();
            assert!(error.contains(want), "{name}: {error}");
        }
    }
}
