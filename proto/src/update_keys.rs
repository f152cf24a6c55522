//! The keys that sign agents for updates, and the file beside an agent with their signature.
//!
//! The private keys are in no cluster (decision 83).

use serde::{Deserialize, Serialize};

use crate::limits::UPDATE_KEYS;

/// Name of the file with the signature, on a seed ISO and beside `baremetal-agent`.
pub const SIGNATURE_FILE: &str = "baremetal-agent.signature.json";

/// Bytes of a public key.
const KEY_BYTES: usize = 32;

/// An Ed25519 public key, written as lower-case hexadecimal text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UpdateKey(#[serde(with = "hex")] [u8; KEY_BYTES]);

impl UpdateKey {
    /// The key of RFC 8032 in its 32 bytes.
    pub fn of_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A list that no host takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateKeysError {
    /// A list of no keys, or of too many.
    #[error("{0} keys for updates are given, from 1 to {UPDATE_KEYS} are needed")]
    Number(usize),
    /// A key of another length.
    #[error("a key for updates has {0} bytes, {KEY_BYTES} are needed")]
    Length(usize),
}

/// The keys that a host trusts for updates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<UpdateKey>", into = "Vec<UpdateKey>")]
pub struct UpdateKeys(Vec<UpdateKey>);

impl UpdateKeys {
    /// Parses the field of an `AgentUpdate`.
    pub fn parse(keys: &[Vec<u8>]) -> Result<Self, UpdateKeysError> {
        if keys.len() > UPDATE_KEYS {
            return Err(UpdateKeysError::Number(keys.len()));
        }
        let parse = |key: &Vec<u8>| {
            let bytes = key.as_slice().try_into().map_err(|_| UpdateKeysError::Length(key.len()))?;
            Ok(UpdateKey(bytes))
        };
        keys.iter().map(parse).collect::<Result<Vec<_>, _>>()?.try_into()
    }

    /// The keys in their order.
    pub fn as_slice(&self) -> &[UpdateKey] {
        &self.0
    }

    /// The field of an `AgentUpdate`.
    pub fn to_field(&self) -> Vec<Vec<u8>> {
        self.0.iter().map(|key| key.as_bytes().to_vec()).collect()
    }
}

impl TryFrom<Vec<UpdateKey>> for UpdateKeys {
    type Error = UpdateKeysError;

    fn try_from(keys: Vec<UpdateKey>) -> Result<Self, UpdateKeysError> {
        if (1..=UPDATE_KEYS).contains(&keys.len()) {
            Ok(Self(keys))
        } else {
            Err(UpdateKeysError::Number(keys.len()))
        }
    }
}

impl From<UpdateKeys> for Vec<UpdateKey> {
    fn from(keys: UpdateKeys) -> Self {
        keys.0
    }
}

/// The content of [`SIGNATURE_FILE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseSignature {
    /// The keys that a host trusts from this agent on.
    pub keys: UpdateKeys,
    /// Signature over [`crate::proof::release`], by a key that hosts trusted before.
    #[serde(with = "hex")]
    pub signature: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_without_a_usable_key_are_refused() {
        let key = vec![7; KEY_BYTES];
        for (name, given, want) in [
            ("none", vec![], Err(UpdateKeysError::Number(0))),
            ("too many", vec![key.clone(); UPDATE_KEYS + 1], Err(UpdateKeysError::Number(UPDATE_KEYS + 1))),
            ("short", vec![key[1..].to_vec()], Err(UpdateKeysError::Length(KEY_BYTES - 1))),
            ("one", vec![key.clone()], Ok(1)),
            ("all", vec![key.clone(); UPDATE_KEYS], Ok(UPDATE_KEYS)),
        ] {
            let parsed = UpdateKeys::parse(&given);
            assert_eq!(parsed.as_ref().map(|keys| keys.0.len()).map_err(|error| *error), want, "{name}");
            if let Ok(keys) = parsed {
                assert_eq!(keys.to_field(), given, "{name}");
            }
        }
    }
}
