//! An agent that the coordinator announces. Every check that needs no content is done before the
//! first byte is read.

use proto::update_keys::UpdateKeys;
use proto::v1alpha1::AgentUpdate;
use proto::{limits, proof};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use semver::Version;

use super::keys;
use super::record::{Program, Record};
use crate::ground::durable;
use crate::ground::failpoint::failpoint;
use crate::ground::failure::Failure;
use crate::ground::paths::Root;

/// An agent that may be read and started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub program: Program,
    pub size: usize,
    /// The keys for updates that the host trusts once this agent has attached; `None`: those that it
    /// has.
    pub keys: Option<UpdateKeys>,
}

/// The signers that a host trusts.
#[derive(Clone, Copy, Debug)]
pub struct Trust<'a> {
    /// PEM of the authorities of the coordinator.
    pub authorities: &'a str,
    /// The keys for updates; `None` if the host was installed without keys.
    pub keys: Option<&'a UpdateKeys>,
}

impl Offer {
    /// Accepts an agent that is signed as the host demands, and that is newer than the running one.
    pub fn check(announced: &AgentUpdate, trust: Trust<'_>, running: &Version) -> Result<Self, Failure> {
        let AgentUpdate { version, architecture, size, checksum, signature, .. } = announced;
        let signed = proof::agent(version, architecture, *size, checksum);
        if !is_signed(&signed, signature, trust.authorities) {
            return Err(Failure::refused(
                "the announced agent is not signed by an authority of the coordinator",
                "wait until CoordinatorKnown of the MachineInventory is true, then remove the annotation baremetal.cluster.io/agent-version and set it again",
            ));
        }
        let keys = check_release(announced, trust.keys)?;
        let version = Version::parse(version).map_err(|_| malformed("version"))?;
        let is_checksum = checksum.len() == 64 && checksum.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_checksum {
            return Err(malformed("checksum"));
        }
        let size = usize::try_from(*size).ok().filter(|size| (1..=limits::AGENT_BYTES).contains(size));
        let size = size.ok_or_else(|| malformed("size"))?;
        if architecture != std::env::consts::ARCH {
            let own = std::env::consts::ARCH;
            return Err(Failure::refused(
                format!("the announced agent is for {architecture}, this host is {own}"),
                "give the coordinator an agent for this architecture (--agent-path)",
            ));
        }
        if version <= *running {
            return Err(Failure::refused(
                format!("the announced agent {version} is not newer than {running}, which runs"),
                // A kept agent that is newer than the image's is started in its place.
                "none; to go back to the agent of the image, remove /var/lib/baremetal-agent/updates/record.json on the host and restart baremetal-agent.service",
            ));
        }
        Ok(Self { program: Program { version, checksum: checksum.clone() }, size, keys })
    }

    /// Stores the agent beside the others, to be tried at the next start. After a failure nothing
    /// has changed, and the former agent starts.
    pub fn keep(&self, root: &Root, file: &[u8]) -> Result<(), Failure> {
        if file.len() != self.size {
            return Err(altered(&format!("{} of {} bytes", file.len(), self.size)));
        }
        if proof::identity(file) != self.program.checksum {
            return Err(altered("it has another checksum"));
        }
        let state = root.state();
        durable::create_directory(&state.updates())?;
        durable::write_with_mode(&self.program.path(&state), file, 0o700)?;
        failpoint("update::program::kept");
        Record::read(&state)?.with_trial(self.program.clone(), self.keys.clone()).write(&state)?;
        failpoint("update::trial::recorded");
        Ok(())
    }
}

/// Checks the signature of a key for updates, and returns the keys that the agent brings. A host
/// without keys checks no such signature, because nothing tells it whose keys they are.
fn check_release(
    announced: &AgentUpdate,
    trusted: Option<&UpdateKeys>,
) -> Result<Option<UpdateKeys>, Failure> {
    let AgentUpdate { version, architecture, size, checksum, release_signature, update_keys, .. } = announced;
    if release_signature.is_empty() {
        return match trusted {
            None => Ok(None),
            Some(_) => Err(Failure::refused(
                "the announced agent has no signature by a key for updates, which this host demands",
                "run a coordinator whose image was built with AGENT_UPDATE_KEY, the key that this host trusts",
            )),
        };
    }
    let keys = UpdateKeys::parse(update_keys).map_err(|_| malformed("list of keys for updates"))?;
    let signed = proof::release(version, architecture, *size, checksum, &keys);
    if trusted.is_some_and(|trusted| !keys::are_of_signer(trusted, &signed, release_signature)) {
        return Err(Failure::refused(
            "the signature of the announced agent is of no key for updates that this host trusts",
            "update this host first to a release that its key signed and that brings the new key, or install the host again",
        ));
    }
    Ok(Some(keys))
}

fn malformed(field: &str) -> Failure {
    Failure::refused(
        format!("the announced agent has no {field} that can be used"),
        "bring agent and coordinator to the same version",
    )
}

fn altered(how: &str) -> Failure {
    Failure::refused(
        format!("the agent that arrived is not the one that was announced: {how}"),
        "check the network between host and coordinator, then remove the annotation baremetal.cluster.io/agent-version and set it again",
    )
}

fn is_signed(message: &[u8], signature: &[u8], authorities: &str) -> bool {
    CertificateDer::pem_slice_iter(authorities.as_bytes()).flatten().any(|authority| {
        let parsed = x509_parser::parse_x509_certificate(&authority);
        parsed.is_ok_and(|(_, parsed)| {
            let key = &parsed.public_key().subject_public_key.data;
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key).verify(message, signature).is_ok()
        })
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SigningKey as _};
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;
    use crate::update::launch;

    fn authority() -> (KeyPair, String) {
        let key = KeyPair::generate().unwrap();
        let pem = CertificateParams::default().self_signed(&key).unwrap().pem();
        (key, pem)
    }

    fn announce(key: &KeyPair, version: &str, file: &[u8]) -> AgentUpdate {
        let mut update = AgentUpdate {
            version: version.into(),
            architecture: std::env::consts::ARCH.into(),
            size: file.len() as u64,
            checksum: proof::identity(file),
            ..AgentUpdate::default()
        };
        sign(key, &mut update);
        update
    }

    fn sign(key: &KeyPair, update: &mut AgentUpdate) {
        let message = proof::agent(&update.version, &update.architecture, update.size, &update.checksum);
        update.signature = key.sign(&message).unwrap();
    }

    fn trust(authorities: &str) -> Trust<'_> {
        Trust { authorities, keys: None }
    }

    /// A key for updates.
    fn release_key(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
    }

    fn keys_of(signers: &[&Ed25519KeyPair]) -> UpdateKeys {
        let keys: Vec<_> = signers.iter().map(|signer| signer.public_key().as_ref().to_vec()).collect();
        UpdateKeys::parse(&keys).unwrap()
    }

    fn sign_release(signer: &Ed25519KeyPair, next: &UpdateKeys, update: &mut AgentUpdate) {
        let AgentUpdate { version, architecture, size, checksum, .. } = &*update;
        let message = proof::release(version, architecture, *size, checksum, next);
        (update.release_signature, update.update_keys) =
            (signer.sign(&message).as_ref().to_vec(), next.to_field());
    }

    #[test]
    fn host_with_a_key_demands_its_signature() {
        const OTHER: &str = "of no key for updates that this host trusts";
        let (authority, pem) = authority();
        let own = keys_of(&[&release_key(1)]);
        let trusted = Trust { authorities: &pem, keys: Some(&own) };
        let running = Version::new(1, 0, 0);
        let mut good = announce(&authority, "1.1.0", b"agent");
        sign_release(&release_key(1), &own, &mut good);
        assert_eq!(Offer::check(&good, trusted, &running).unwrap().keys, Some(own.clone()));
        let both = keys_of(&[&release_key(2), &release_key(1)]);
        assert!(Offer::check(&good, Trust { keys: Some(&both), ..trusted }, &running).is_ok(), "any of them");
        for (name, change, want) in [
            (
                "unsigned",
                (|update| update.release_signature.clear()) as fn(&mut AgentUpdate),
                "no signature by a key for updates",
            ),
            (
                "other key",
                |update| sign_release(&release_key(2), &keys_of(&[&release_key(1)]), update),
                OTHER,
            ),
            ("authority", |update| update.release_signature = update.signature.clone(), OTHER),
            ("other version", |update| update.version = "1.2.0".into(), OTHER),
            ("other file", |update| update.checksum = proof::identity(b"other"), OTHER),
            ("truncated", |update| update.release_signature.truncate(63), OTHER),
            ("next key", |update| update.update_keys = keys_of(&[&release_key(2)]).to_field(), OTHER),
            ("one key more", |update| update.update_keys.push(vec![0; 32]), OTHER),
            ("no keys", |update| update.update_keys.clear(), "list of keys"),
            ("too many keys", |update| update.update_keys = vec![vec![0; 32]; 5], "list of keys"),
            ("half a key", |update| update.update_keys[0].truncate(16), "list of keys"),
        ] {
            let mut update = good.clone();
            change(&mut update);
            sign(&authority, &mut update);
            let error = Offer::check(&update, trusted, &running).unwrap_err();
            assert!(error.message.contains(want) && !error.next_action.is_empty(), "{name}: {error}");
        }
        let mut older = announce(&authority, "0.9.0", b"agent");
        sign_release(&release_key(1), &own, &mut older);
        assert!(Offer::check(&older, trusted, &running).unwrap_err().message.contains("not newer"));
    }

    #[test]
    fn keys_follow_what_the_former_key_signed() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let state = root.state();
        let (authority, pem) = authority();
        let (former, next) = (release_key(1), release_key(2));
        // A host without keys takes those of its first signed update.
        for (version, trusted, signer, brought) in [
            ("1.1.0", None, &former, keys_of(&[&former])),
            ("1.2.0", Some(keys_of(&[&former])), &former, keys_of(&[&former, &next])),
            ("1.3.0", Some(keys_of(&[&former, &next])), &next, keys_of(&[&next])),
        ] {
            let mut update = announce(&authority, version, b"agent");
            sign_release(signer, &brought, &mut update);
            assert_eq!(keys::read(&state).unwrap(), trusted, "{version}");
            let trust = Trust { authorities: &pem, keys: trusted.as_ref() };
            let offer = Offer::check(&update, trust, &Version::new(1, 0, 0)).unwrap();
            offer.keep(&root, b"agent").unwrap();
            assert_eq!(keys::read(&state).unwrap(), trusted, "{version} has not attached");
            launch::keep_proven(&root, &offer.program.version).unwrap();
            assert_eq!(keys::read(&state).unwrap(), Some(brought), "{version}");
        }
        let mut update = announce(&authority, "1.4.0", b"agent");
        sign_release(&former, &keys_of(&[&former]), &mut update);
        let own = keys::read(&state).unwrap();
        let trust = Trust { authorities: &pem, keys: own.as_ref() };
        let error = Offer::check(&update, trust, &Version::new(1, 0, 0)).unwrap_err();
        assert!(error.message.contains("no key for updates that this host trusts"), "{error}");
        let unsigned = announce(&authority, "1.4.0", b"agent");
        assert!(Offer::check(&unsigned, trust, &Version::new(1, 0, 0)).is_err(), "keys are not given up");
    }

    #[test]
    fn only_newer_signed_agent_is_accepted() {
        let ((key, pem), (former, former_pem)) = (authority(), authority());
        let both = format!("{pem}{former_pem}");
        let running = Version::new(1, 0, 0);
        let good = announce(&key, "1.1.0", b"agent");
        let want = Program { version: Version::new(1, 1, 0), checksum: proof::identity(b"agent") };
        let offer = Offer::check(&good, trust(&pem), &running).unwrap();
        assert_eq!((offer.program, offer.size), (want, 5));
        assert!(
            Offer::check(&announce(&former, "1.1.0", b"agent"), trust(&both), &running).is_ok(),
            "any of them"
        );
        let changed = |change: fn(&mut AgentUpdate), resign: bool| {
            let mut update = good.clone();
            change(&mut update);
            if resign {
                sign(&key, &mut update);
            }
            Offer::check(&update, trust(&pem), &running).unwrap_err().message
        };
        for (name, change, resign, want) in [
            (
                "checksum",
                (|update| update.checksum = "a".repeat(64)) as fn(&mut AgentUpdate),
                false,
                "signed",
            ),
            ("version", |update| update.version = "1.2.0".into(), false, "signed"),
            ("size", |update| update.size = 6, false, "signed"),
            ("signature", |update| update.signature.clear(), false, "signed"),
            ("no version", |update| update.version = "new".into(), true, "version"),
            ("no checksum", |update| update.checksum = "../x".into(), true, "checksum"),
            ("too large", |update| update.size = 1 << 40, true, "size"),
            ("empty", |update| update.size = 0, true, "size"),
            ("other architecture", |update| update.architecture = "riscv64".into(), true, "riscv64"),
            ("older", |update| update.version = "0.9.0".into(), true, "not newer"),
            ("the same", |update| update.version = "1.0.0".into(), true, "not newer"),
        ] {
            let error = changed(change, resign);
            assert!(error.contains(want), "{name}: {error}");
        }
        let refused = Offer::check(&good, trust(&former_pem), &running).unwrap_err();
        assert!(refused.message.contains("not signed"), "{refused}");
    }

    #[test]
    fn older_agent_comes_back_without_record() {
        let (key, pem) = authority();
        let running = Version::new(1, 0, 0);
        let error = Offer::check(&announce(&key, "0.9.0", b"agent"), trust(&pem), &running).unwrap_err();
        let record = Root::host().state().update_record().display().to_string();
        assert!(error.next_action.contains(&record), "{error}");
    }

    #[test]
    fn incomplete_or_altered_agent_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let (key, pem) = authority();
        let offer =
            Offer::check(&announce(&key, "1.1.0", b"agent"), trust(&pem), &Version::new(1, 0, 0)).unwrap();
        for file in [&b"agen"[..], b"agent!", b"agenT"] {
            let refused = offer.keep(&root, file).unwrap_err();
            assert!(refused.message.contains("not the one that was announced"), "{refused}");
            assert_eq!(Record::read(&root.state()).unwrap(), Record::default());
        }
        offer.keep(&root, b"agent").unwrap();
        let record = Record::read(&root.state()).unwrap();
        assert_eq!(record, Record::default().with_trial(offer.program.clone(), None));
        assert_eq!(std::fs::read(offer.program.path(&root.state())).unwrap(), b"agent");
    }
}
