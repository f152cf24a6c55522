//! The load balancer's duty of this host. It stays in the state directory until another duty
//! replaces it or a clean plan removes it.

use std::net::IpAddr;
use std::path::Path;

use proto::balancer::Duty;
use proto::v1alpha1::{FailureReason, LoadBalancerDuty, LoadBalancerState};

use crate::ground::durable;
use crate::ground::failure::{Context as _, Failure, describe_cause};
use crate::ground::paths::Root;

const DUTY: &str = "duty.json";
const SERVED: &str = "served";
const CARRIED: &str = "carried.json";
const STATE: &str = "state.json";
const NOT_KEPT: &str = "cannot keep the load balancer's duty";

/// The duty in the state directory; `None` if there is none or an empty one.
pub fn read_duty(root: &Root) -> Result<Option<Duty>, Failure> {
    read_message(root)?.map_or(Ok(None), |duty| parse_duty(&duty))
}

/// Reads the duty, and keeps it for [`carried_duty`].
pub fn carry_duty(root: &Root) -> Result<Option<Duty>, Failure> {
    let message = read_message(root)?.unwrap_or_default();
    let duty = parse_duty(&message)?;
    let path = root.load_balancer().join(CARRIED);
    if !matches!(read_json::<LoadBalancerDuty>(&path), Ok(Some(carried)) if carried == message) {
        durable::write_json(&path, &message).context(NOT_KEPT)?;
    }
    Ok(duty)
}

/// The duty that the supervisor read last in this boot. keepalived and its check follow it even if
/// the file in the state directory is damaged.
pub fn carried_duty(root: &Root) -> Option<Duty> {
    let message: LoadBalancerDuty = read_json(&root.load_balancer().join(CARRIED)).ok().flatten()?;
    Duty::parse(&message).ok().flatten()
}

fn parse_duty(message: &LoadBalancerDuty) -> Result<Option<Duty>, Failure> {
    Duty::parse(message).map_err(|error| {
        let message = describe_cause("the load balancer's duty is refused", &error);
        Failure::input_output(message, "bring agent and coordinator to the same version")
    })
}

fn read_message(root: &Root) -> Result<Option<LoadBalancerDuty>, Failure> {
    read_json(&root.state().load_balancer().join(DUTY))
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, Failure> {
    let Some(bytes) = durable::read(path)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        let message = format!("the load balancer's duty in {} cannot be parsed", path.display());
        let next_action = "remove the file: the coordinator sends the duty again";
        Failure::input_output(describe_cause(&message, &error), next_action)
    })
}

/// The generation of the stored duty, even of an empty one; zero if it is unknown.
pub fn kept_generation(root: &Root) -> u64 {
    read_message(root).ok().flatten().map_or(0, |duty| duty.generation)
}

/// The endpoint that this host may hold for its cluster.
pub fn held_address(root: &Root) -> Option<IpAddr> {
    read_duty(root).ok().flatten().map(|duty| duty.address)
}

/// Stores a duty; the same duty again changes nothing.
pub fn keep_duty(root: &Root, duty: &LoadBalancerDuty) -> Result<(), Failure> {
    parse_duty(duty)?;
    // A damaged file is replaced.
    let kept = read_message(root).ok().flatten();
    if let Some(kept) = kept {
        if kept.generation > duty.generation {
            let (offered, kept) = (duty.generation, kept.generation);
            let message =
                format!("the load balancer's duty {offered} is older than {kept}, which this host has");
            return Err(Failure::input_output(message, ""));
        }
        if kept == *duty {
            return Ok(());
        }
    }
    let directory = root.state().load_balancer();
    durable::create_directory(&directory)
        .and_then(|()| durable::write_json(&directory.join(DUTY), duty))
        .context(NOT_KEPT)
}

/// Ends the duty and keeps its generation, because a released host must not hold the endpoint.
pub fn end_duty(root: &Root) -> Result<(), Failure> {
    let directory = root.state().load_balancer();
    if !directory.exists() {
        return Ok(());
    }
    durable::remove(&directory.join(SERVED))?;
    let ended = LoadBalancerDuty { generation: kept_generation(root), ..LoadBalancerDuty::default() };
    durable::write_json(&directory.join(DUTY), &ended)
}

/// True if the API server of this node has answered before.
pub fn has_served(root: &Root) -> bool {
    root.state().load_balancer().join(SERVED).exists()
}

/// From now on the host holds the endpoint only while its API server answers.
pub fn record_served(root: &Root) -> Result<(), Failure> {
    durable::write(&root.state().load_balancer().join(SERVED), b"").context(NOT_KEPT)
}

/// The state that the supervisor wrote in this boot.
pub fn read_state(root: &Root) -> Option<LoadBalancerState> {
    read_json(&root.load_balancer().join(STATE)).ok().flatten()
}

/// Writes the state for the stream to the coordinator.
pub fn write_state(root: &Root, state: &LoadBalancerState) {
    if let Err(error) = durable::write_json(&root.load_balancer().join(STATE), state) {
        tracing::warn!(%error, "cannot report the load balancer's state");
    }
}

/// The answer to a duty that this host refuses.
pub fn refuse_duty(duty: &LoadBalancerDuty, failure: Failure) -> LoadBalancerState {
    LoadBalancerState {
        generation: duty.generation,
        failure: Some(failure.report_as(FailureReason::Refused)),
        ..LoadBalancerState::default()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let refusal = |duty: &LoadBalancerDuty| keep_duty(&root, duty).unwrap_err().message;
        assert!(refusal(&duty(3)).contains("duty 3 is older than 4"), "{}", refusal(&duty(3)));
        let wrong = LoadBalancerDuty { port: 0, ..duty(9) };
        assert!(refusal(&wrong).contains("duty is refused"), "{}", refusal(&wrong));
        assert_eq!(kept_generation(&root), 4);
        record_served(&root).unwrap();
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
        assert!(read_duty(&root).unwrap_err().message.contains("cannot be parsed"));
        keep_duty(&root, &duty(1)).unwrap();
        assert!(read_duty(&root).unwrap().is_some());
    }
}
