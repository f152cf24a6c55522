//! `TPM2_MakeCredential` without a TPM: makes a secret that only the TPM with both keys can read
//! ("TPM 2.0 Library", part 1, 24).

use aes::Aes128;
use aes::cipher::KeyIvInit as _;
use cfb_mode::Encryptor;
use proto::tpm::{CREDENTIAL_BYTES, RSA_BYTES};
use ring::hmac;
use rsa::rand_core::TryCryptoRng;
use rsa::sha2::Sha256;
use rsa::{BoxedUint, Oaep, PublicKey};

/// Bytes of the seed, equal to those of the hash of the padding.
const SEED_BYTES: usize = 32;
const CIPHER_KEY_BITS: u32 = 128;
const CIPHER_KEY_BYTES: usize = 16;
const HASH_BITS: u32 = 256;
const EXPONENT: u32 = 65_537;

/// The arguments of `TPM2_ActivateCredential`, without the lengths in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Contents of a `TPM2B_ID_OBJECT`.
    pub id_object: Vec<u8>,
    /// Contents of a `TPM2B_ENCRYPTED_SECRET`.
    pub encrypted_secret: Vec<u8>,
}

/// Encrypts `secret` for the endorsement key with that modulus. Its TPM decrypts the secret only if
/// it also holds the key with that name.
///
/// # Errors
/// When the modulus is not valid, or `random` fails.
pub fn make_credential(
    modulus: &[u8; RSA_BYTES],
    name: &[u8],
    secret: &[u8; CREDENTIAL_BYTES],
    random: &mut impl TryCryptoRng,
) -> Result<Credential, rsa::Error> {
    let key = PublicKey::new(BoxedUint::from_be_slice_vartime(modulus), EXPONENT.into())?;
    let mut seed = [0; SEED_BYTES];
    random.try_fill_bytes(&mut seed).map_err(|_| rsa::Error::Rng)?;
    let padding = Oaep::<Sha256>::new_with_label(*b"IDENTITY\0");
    let encrypted_secret = key.encrypt(random, padding, &seed)?;
    let identity = encrypt_identity(&seed, name, secret);
    let integrity = derive_key(&seed, b"INTEGRITY\0", &[], HASH_BITS);
    let integrity = hmac::Key::new(hmac::HMAC_SHA256, integrity.as_ref());
    let tag = hmac::sign(&integrity, &[&identity, name].concat());
    Ok(Credential { id_object: [&with_length(tag.as_ref()), &identity[..]].concat(), encrypted_secret })
}

/// `TPM2B_DIGEST`, AES-128-CFB with a zero vector, because the key is used once.
fn encrypt_identity(seed: &[u8], name: &[u8], secret: &[u8]) -> Vec<u8> {
    let derived = derive_key(seed, b"STORAGE\0", name, CIPHER_KEY_BITS);
    let mut key = [0; CIPHER_KEY_BYTES];
    key.copy_from_slice(&derived.as_ref()[..CIPHER_KEY_BYTES]);
    let mut bytes = with_length(secret);
    Encryptor::<Aes128>::new(&key.into(), &[0; 16].into()).encrypt(&mut bytes);
    bytes
}

/// `KDFa` with SHA-256, one block: at most 256 bits. The label ends with a zero.
fn derive_key(seed: &[u8], label: &[u8], context: &[u8], bits: u32) -> hmac::Tag {
    let mut block = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, seed));
    block.update(&1_u32.to_be_bytes());
    block.update(label);
    block.update(context);
    block.update(&bits.to_be_bytes());
    block.sign()
}

fn with_length(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), bytes].concat()
}
