//! The duty as it is kept: in the state directory, until another one replaces it
//! or a clean plan removes it.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use proto::balancer::{Duty, DutyError};
use proto::v1alpha1::{Failure, FailureReason, LoadBalancerDuty, LoadBalancerState};

use crate::ground::durable::{self, DurableError};
use crate::ground::error::{NextAction, describe_error};
use crate::ground::paths::Root;

const DUTY: &str = "duty.json";
const SERVED: &str = "served";
const CARRIED: &str = "carried.json";
const STATE: &str = "state.json";

/// Why a duty is not taken or not known.
#[derive(Debug, thiserror::Error)]
pub enum DutyFileError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The file is no duty.
    #[error("the load balancer's duty in {path} cannot be parsed")]
    Parse { path: PathBuf, source: serde_json::Error },
    /// The message asks for what cannot be done.
    #[error("the load balancer's duty is refused")]
    Refused(#[from] DutyError),
    /// The host has a newer one.
    #[error("the load balancer's duty {offered} is older than {kept}, which this host has")]
    Stale {
        /// Generation of the message.
        offered: u64,
        /// Generation of the file.
        kept: u64,
    },
    /// It cannot be kept.
    #[error("cannot keep the load balancer's duty")]
    Write(#[from] DurableError),
}

impl NextAction for DutyFileError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Read { source, .. } => Some(durable::next_action(source.kind())),
            Self::Parse { .. } => Some("remove the file: the coordinator sends the duty again"),
            Self::Refused(_) => Some("bring agent and coordinator to the same version"),
            Self::Stale { .. } => None,
            Self::Write(error) => error.next_action(),
        }
    }
}

/// The duty in the state directory; `None` where there is none, or the empty one.
pub fn read_duty(root: &Root) -> Result<Option<Duty>, DutyFileError> {
    read_message(root)?.map_or(Ok(None), |duty| Ok(Duty::parse(&duty)?))
}

/// Reads the duty, and leaves what was read for [`carried_duty`].
pub fn carry_duty(root: &Root) -> Result<Option<Duty>, DutyFileError> {
    let message = read_message(root)?.unwrap_or_default();
    let duty = Duty::parse(&message)?;
    let path = root.load_balancer().join(CARRIED);
    if !matches!(read_json::<LoadBalancerDuty>(&path), Ok(Some(carried)) if carried == message) {
        durable::write(&path, &serde_json::to_vec_pretty(&message).unwrap_or_default())?;
    }
    Ok(duty)
}

/// The duty that the supervisor read last in this boot: that of keepalived and
/// its check, also while the file in the state directory is damaged.
pub fn carried_duty(root: &Root) -> Option<Duty> {
    let message: LoadBalancerDuty = read_json(&root.load_balancer().join(CARRIED)).ok().flatten()?;
    Duty::parse(&message).ok().flatten()
}

fn read_message(root: &Root) -> Result<Option<LoadBalancerDuty>, DutyFileError> {
    read_json(&root.state().load_balancer().join(DUTY))
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, DutyFileError> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|source| DutyFileError::Parse { path: path.to_owned(), source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(DutyFileError::Read { path: path.to_owned(), source }),
    }
}

/// Generation of the duty that is kept, also of an empty one; zero where it
/// cannot be told.
pub fn kept_generation(root: &Root) -> u64 {
    read_message(root).ok().flatten().map_or(0, |duty| duty.generation)
}

/// The address that this host may hold for its cluster.
pub fn held_address(root: &Root) -> Option<IpAddr> {
    read_duty(root).ok().flatten().map(|duty| duty.address)
}

/// Keeps a duty; the same one again changes nothing.
pub fn keep_duty(root: &Root, duty: &LoadBalancerDuty) -> Result<(), DutyFileError> {
    Duty::parse(duty)?;
    // A file that cannot be parsed is replaced.
    let kept = read_message(root).ok().flatten();
    if let Some(kept) = kept {
        if kept.generation > duty.generation {
            return Err(DutyFileError::Stale { offered: duty.generation, kept: kept.generation });
        }
        if kept == *duty {
            return Ok(());
        }
    }
    let directory = root.state().load_balancer();
    durable::create_directory(&directory)?;
    let text = serde_json::to_vec_pretty(duty).unwrap_or_default();
    Ok(durable::write(&directory.join(DUTY), &text)?)
}

/// A released host holds no address: the duty ends, but for its generation.
///
/// # Errors
/// [`DutyFileError`] when it stays.
pub fn end_duty(root: &Root) -> Result<(), DutyFileError> {
    let directory = root.state().load_balancer();
    if !directory.exists() {
        return Ok(());
    }
    durable::remove(&directory.join(SERVED))?;
    let generation = kept_generation(root);
    let text = serde_json::to_vec_pretty(&LoadBalancerDuty { generation, ..LoadBalancerDuty::default() });
    Ok(durable::write(&directory.join(DUTY), &text.unwrap_or_default())?)
}

/// Whether the API server of this node answered before.
pub fn has_served(root: &Root) -> bool {
    root.state().load_balancer().join(SERVED).exists()
}

/// From now on the host holds the address only while its API server answers.
///
/// # Errors
/// [`DutyFileError`] when it cannot be kept.
pub fn note_served(root: &Root) -> Result<(), DutyFileError> {
    Ok(durable::write(&root.state().load_balancer().join(SERVED), b"")?)
}

/// How far the host is, as the supervisor left it in this boot.
pub fn read_state(root: &Root) -> Option<LoadBalancerState> {
    read_json(&root.load_balancer().join(STATE)).ok().flatten()
}

/// Leaves how far the host is for the line to the coordinator.
pub fn write_state(root: &Root, state: &LoadBalancerState) {
    let text = serde_json::to_vec_pretty(state).unwrap_or_default();
    if let Err(error) = durable::write(&root.load_balancer().join(STATE), &text) {
        tracing::warn!(error = describe_error(&error), "the load balancer's state is not reported");
    }
}

/// The answer to a duty that is not taken.
pub fn refuse_duty(duty: &LoadBalancerDuty, error: &DutyFileError) -> LoadBalancerState {
    LoadBalancerState {
        generation: duty.generation,
        failure: Some(Failure {
            reason: FailureReason::Refused.into(),
            message: describe_error(error),
            next_action: error.next_action().unwrap_or_default().to_owned(),
        }),
        ..LoadBalancerState::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duty(generation: u64) -> LoadBalancerDuty {
        LoadBalancerDuty {
            generation,
            address: "10.0.0.100".into(),
            port: 6443,
            router_id: 51,
            members: vec!["10.0.0.1".into(), "10.0.0.2".into()],
            ..LoadBalancerDuty::default()
        }
    }

    #[test]
    fn duty_lasts_until_newer_duty_or_clean() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        fs::create_dir_all(root.state().path()).unwrap();
        assert!(read_duty(&root).unwrap().is_none() && kept_generation(&root) == 0);
        end_duty(&root).unwrap();
        assert!(!root.state().load_balancer().exists());
        keep_duty(&root, &duty(4)).unwrap();
        assert_eq!(read_duty(&root).unwrap().unwrap().generation, 4);
        assert!(matches!(keep_duty(&root, &duty(3)), Err(DutyFileError::Stale { offered: 3, kept: 4 })));
        let wrong = LoadBalancerDuty { port: 0, ..duty(9) };
        assert!(matches!(keep_duty(&root, &wrong), Err(DutyFileError::Refused(_))));
        assert_eq!(kept_generation(&root), 4);
        note_served(&root).unwrap();
        end_duty(&root).unwrap();
        assert!(read_duty(&root).unwrap().is_none() && !has_served(&root));
        assert_eq!(kept_generation(&root), 4, "a later duty has a higher generation");
        keep_duty(&root, &LoadBalancerDuty { generation: 5, ..LoadBalancerDuty::default() }).unwrap();
        assert!(read_duty(&root).unwrap().is_none());
    }

    #[test]
    fn damaged_duty_file_is_error_until_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        fs::create_dir_all(root.state().load_balancer()).unwrap();
        fs::write(root.state().load_balancer().join(DUTY), "{").unwrap();
        assert!(matches!(read_duty(&root), Err(DutyFileError::Parse { .. })));
        keep_duty(&root, &duty(1)).unwrap();
        assert!(read_duty(&root).unwrap().is_some());
    }
}
