//! The keys that sign updates of this host's agent (decision 83). The seed ISO brings them at the
//! install, and an update that one of them signed replaces them.

use proto::update_keys::{ReleaseSignature, UpdateKeys};
use ring::signature::{ED25519, UnparsedPublicKey};

use crate::ground::durable;
use crate::ground::failure::{Failure, describe_cause};
use crate::ground::paths::{Root, StateDir};

/// The keys of this host; `None` if it was installed without keys.
pub fn read(state: &StateDir) -> Result<Option<UpdateKeys>, Failure> {
    let path = state.update_keys();
    let Some(text) = durable::read(&path)? else { return Ok(None) };
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        let message = describe_cause(&format!("{} has no keys for updates", path.display()), &error);
        Failure::input_output(
            message,
            "copy the file from a host with the same keys, or install the host again",
        )
    })
}

pub fn write(state: &StateDir, keys: &UpdateKeys) -> Result<(), Failure> {
    durable::write_json(&state.update_keys(), keys)
}

/// Gives the installed system in `state` the keys of the seed ISO that the host runs from, and none
/// if the ISO has none.
pub fn hand_over(root: &Root, state: &StateDir) -> Result<(), Failure> {
    let path = root.live_signature();
    let Some(text) = durable::read(&path)? else { return durable::remove(&state.update_keys()) };
    let signature: ReleaseSignature = serde_json::from_slice(&text).map_err(|error| {
        let message = describe_cause(&format!("{} has no keys for updates", path.display()), &error);
        Failure::input_output(message, "download a fresh seed ISO and boot it")
    })?;
    write(state, &signature.keys)
}

/// True if one of the keys made the signature over `message`.
pub(super) fn are_of_signer(keys: &UpdateKeys, message: &[u8], signature: &[u8]) -> bool {
    keys.as_slice()
        .iter()
        .any(|key| UnparsedPublicKey::new(&ED25519, key.as_bytes()).verify(message, signature).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_system_has_the_keys_of_its_seed() {
        let directory = tempfile::tempdir().unwrap();
        let (live, disk) = (Root::at(directory.path().join("live")), Root::at(directory.path().join("disk")));
        let state = disk.state();
        durable::create_directory(state.path()).unwrap();
        let keys = UpdateKeys::parse(&[vec![1; 32], vec![2; 32]]).unwrap();
        let seed = "/run/initramfs/live/baremetal-agent.signature.json";
        let signature = ReleaseSignature { keys: keys.clone(), signature: vec![3; 64] };
        live.put(seed, serde_json::to_vec(&signature).unwrap());
        hand_over(&live, &state).unwrap();
        assert_eq!(read(&state).unwrap(), Some(keys));
        for text in [r#"{"keys":[],"signature":""}"#, r#"{"keys":["0102"],"signature":""}"#, "torn"] {
            live.put(seed, text);
            let error = hand_over(&live, &state).unwrap_err();
            assert!(error.next_action.contains("seed ISO"), "{text}: {error}");
        }
        std::fs::remove_file(live.live_signature()).unwrap();
        hand_over(&live, &state).unwrap();
        assert_eq!(read(&state).unwrap(), None, "this seed has no keys");
    }

    #[test]
    fn damaged_keys_are_not_no_keys() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        root.put("/var/lib/baremetal-agent/update-keys.json", "[]");
        let error = read(&root.state()).unwrap_err();
        assert!(error.message.contains("update-keys.json") && !error.next_action.is_empty(), "{error}");
    }
}
