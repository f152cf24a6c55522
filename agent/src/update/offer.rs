//! An agent that the coordinator announces. Every check that needs no content is done before the
//! first byte is read.

use proto::v1alpha1::AgentUpdate;
use proto::{limits, proof};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use semver::Version;

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
}

impl Offer {
    /// Accepts an agent that one of the `authorities` signed and that is newer than the running
    /// one.
    pub fn check(announced: &AgentUpdate, authorities: &str, running: &Version) -> Result<Self, Failure> {
        let AgentUpdate { version, architecture, size, checksum, signature } = announced;
        let signed = proof::agent(version, architecture, *size, checksum);
        if !is_signed(&signed, signature, authorities) {
            return Err(Failure::refused(
                "the announced agent is not signed by an authority of the coordinator",
                "wait until CoordinatorKnown of the MachineInventory is true, then remove the annotation baremetal.cluster.io/agent-version and set it again",
            ));
        }
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
        Ok(Self { program: Program { version, checksum: checksum.clone() }, size })
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
        Record::read(&state)?.with_trial(self.program.clone()).write(&state)?;
        failpoint("update::trial::recorded");
        Ok(())
    }
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

    use super::*;

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
            signature: vec![],
        };
        sign(key, &mut update);
        update
    }

    fn sign(key: &KeyPair, update: &mut AgentUpdate) {
        let message = proof::agent(&update.version, &update.architecture, update.size, &update.checksum);
        update.signature = key.sign(&message).unwrap();
    }

    #[test]
    fn only_newer_signed_agent_is_accepted() {
        let ((key, pem), (former, former_pem)) = (authority(), authority());
        let both = format!("{pem}{former_pem}");
        let running = Version::new(1, 0, 0);
        let good = announce(&key, "1.1.0", b"agent");
        let want = Program { version: Version::new(1, 1, 0), checksum: proof::identity(b"agent") };
        let offer = Offer::check(&good, &pem, &running).unwrap();
        assert_eq!((offer.program, offer.size), (want, 5));
        assert!(Offer::check(&announce(&former, "1.1.0", b"agent"), &both, &running).is_ok(), "any of them");
        let changed = |change: fn(&mut AgentUpdate), resign: bool| {
            let mut update = good.clone();
            change(&mut update);
            if resign {
                sign(&key, &mut update);
            }
            Offer::check(&update, &pem, &running).unwrap_err().message
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
        let refused = Offer::check(&good, &former_pem, &running).unwrap_err();
        assert!(refused.message.contains("not signed"), "{refused}");
    }

    #[test]
    fn older_agent_comes_back_without_record() {
        let (key, pem) = authority();
        let running = Version::new(1, 0, 0);
        let error = Offer::check(&announce(&key, "0.9.0", b"agent"), &pem, &running).unwrap_err();
        let record = Root::host().state().update_record().display().to_string();
        assert!(error.next_action.contains(&record), "{error}");
    }

    #[test]
    fn incomplete_or_altered_agent_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let (key, pem) = authority();
        let offer = Offer::check(&announce(&key, "1.1.0", b"agent"), &pem, &Version::new(1, 0, 0)).unwrap();
        for file in [&b"agen"[..], b"agent!", b"agenT"] {
            let refused = offer.keep(&root, file).unwrap_err();
            assert!(refused.message.contains("not the one that was announced"), "{refused}");
            assert_eq!(Record::read(&root.state()).unwrap(), Record::default());
        }
        offer.keep(&root, b"agent").unwrap();
        let record = Record::read(&root.state()).unwrap();
        assert_eq!(record, Record::default().with_trial(offer.program.clone()));
        assert_eq!(std::fs::read(offer.program.path(&root.state())).unwrap(), b"agent");
    }
}
