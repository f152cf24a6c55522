//! The agent that hosts receive: one file, signed by the coordinator's authority, which hosts trust
//! already.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use coordinator_core::seed_image::platform::Platform;
use proto::agent_mark::AgentMark;
use proto::update_keys::{ReleaseSignature, SIGNATURE_FILE};
use proto::v1alpha1::AgentUpdate;
use proto::{limits, proof};
use semver::Version;

use crate::ca::{Authority, CaError};

/// The cause for which no agent is served to hosts. Seed ISOs may still bring the agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentFileError {
    #[error("cannot read the agent of --agent-path {path}", path = path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{path} is no agent with a version, or has more than {} bytes: give the file of `make agent`",
        limits::AGENT_BYTES,
        path = path.display()
    )]
    Unusable { path: PathBuf },
    #[error("cannot read the signature beside the agent of --agent-path: build the image again")]
    Signature(#[source] io::Error),
    #[error("cannot sign the agent")]
    Sign(#[from] CaError),
}

pub struct AgentFile {
    announcement: AgentUpdate,
    bytes: Vec<u8>,
}

impl AgentFile {
    /// Reads the file and signs it.
    pub fn read(path: &Path, authority: &Authority) -> Result<Self, AgentFileError> {
        let bytes =
            fs::read(path).map_err(|source| AgentFileError::Read { path: path.to_owned(), source })?;
        let released = read_signature(path).map_err(AgentFileError::Signature)?;
        let mut agent = Self::sign(bytes, path, authority)?;
        if let Some(ReleaseSignature { keys, signature }) = released {
            agent.announcement.release_signature = signature;
            agent.announcement.update_keys = keys.to_field();
        }
        Ok(agent)
    }

    pub fn sign(bytes: Vec<u8>, path: &Path, authority: &Authority) -> Result<Self, AgentFileError> {
        let unusable = || AgentFileError::Unusable { path: path.to_owned() };
        let mark = AgentMark::find(&bytes).filter(|mark| Version::parse(&mark.version).is_ok());
        let AgentMark { version, architecture } =
            mark.filter(|_| bytes.len() <= limits::AGENT_BYTES).ok_or_else(unusable)?;
        let size = u64::try_from(bytes.len()).map_err(|_| unusable())?;
        let checksum = proof::identity(&bytes);
        let signature = authority.sign_agent(&proof::agent(&version, &architecture, size, &checksum))?;
        let announcement =
            AgentUpdate { version, architecture, size, checksum, signature, ..AgentUpdate::default() };
        Ok(Self { announcement, bytes })
    }

    /// The announcement to hosts.
    pub fn announcement(&self) -> &AgentUpdate {
        &self.announcement
    }

    /// A part of the file; empty at its end.
    pub fn read_part(&self, offset: u64) -> &[u8] {
        let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let rest = &self.bytes[begin..];
        &rest[..rest.len().min(limits::AGENT_PART_BYTES)]
    }
}

/// The signature that `make image` writes beside the agent if it is given a key for updates; `None` if
/// there is none.
pub fn read_signature(agent: &Path) -> io::Result<Option<ReleaseSignature>> {
    let path = agent.with_file_name(SIGNATURE_FILE);
    let read = match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::from),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    read.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// The platform of the agent in a file; `None` if the file names none.
pub fn read_platform(path: &Path) -> Option<Platform> {
    let mark = AgentMark::find(&fs::read(path).ok()?)?;
    Platform::of_architecture(&mark.architecture)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proto::update_keys::UpdateKeys;
    use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

    use super::*;

    #[test]
    fn platform_of_hosts_is_that_of_the_agent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        assert_eq!(read_platform(&path), None);
        for (architecture, want) in
            [("x86_64", Some(Platform::Amd64)), ("aarch64", Some(Platform::Arm64)), ("riscv64", None)]
        {
            fs::write(&path, format!("\0baremetal-agent-version:0.2.0:{architecture};")).unwrap();
            assert_eq!(read_platform(&path), want, "{architecture}");
        }
    }

    #[test]
    fn signature_of_the_release_is_announced_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("baremetal-agent");
        let authority = Authority::generate(Timestamp::now()).unwrap();
        fs::write(&path, "baremetal-agent-version:0.2.0:x86_64;").unwrap();
        let unsigned = AgentFile::read(&path, &authority).unwrap();
        assert!(unsigned.announcement().release_signature.is_empty());
        let keys = UpdateKeys::parse(&[vec![1; 32], vec![2; 32]]).unwrap();
        let released = ReleaseSignature { keys: keys.clone(), signature: vec![3; 64] };
        let beside = directory.path().join("baremetal-agent.signature.json");
        fs::write(&beside, serde_json::to_vec(&released).unwrap()).unwrap();
        let signed = AgentFile::read(&path, &authority).unwrap();
        assert_eq!(signed.announcement().release_signature, released.signature);
        assert_eq!(signed.announcement().update_keys, keys.to_field());
        for text in ["torn", r#"{"keys":[],"signature":""}"#] {
            fs::write(&beside, text).unwrap();
            let refused = AgentFile::read(&path, &authority);
            assert!(matches!(refused, Err(AgentFileError::Signature(_))), "{text}");
        }
    }

    #[test]
    fn an_agent_is_signed_and_read_in_parts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        let authority = Authority::generate(Timestamp::now()).unwrap();
        assert!(matches!(AgentFile::read(&path, &authority), Err(AgentFileError::Read { .. })));
        for text in ["no agent", "baremetal-agent-version:new:x86_64;"] {
            fs::write(&path, text).unwrap();
            assert!(matches!(AgentFile::read(&path, &authority), Err(AgentFileError::Unusable { .. })));
        }
        let mut file = b"baremetal-agent-version:0.2.0:x86_64;".to_vec();
        file.resize(limits::AGENT_PART_BYTES + 10, 7);
        fs::write(&path, &file).unwrap();
        let agent = AgentFile::read(&path, &authority).unwrap();
        let AgentUpdate { version, architecture, size, checksum, signature, .. } = agent.announcement();
        assert_eq!((version.as_str(), architecture.as_str()), ("0.2.0", "x86_64"));
        let root = authority.roots().next().unwrap();
        let (_, root) = x509_parser::parse_x509_certificate(root).unwrap();
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &root.public_key().subject_public_key.data);
        key.verify(&proof::agent(version, architecture, *size, checksum), signature).unwrap();
        let (first, rest) = (agent.read_part(0), agent.read_part(limits::AGENT_PART_BYTES as u64));
        assert_eq!([first, rest].concat(), file);
        for offset in [*size, *size + 1, u64::MAX] {
            assert_eq!(agent.read_part(offset), b"");
        }
    }
}
