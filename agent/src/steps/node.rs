//! Taking the node's processes down, in this order: the kubelet would start
//! again what is removed, and containerd must answer while it is.

use proto::v1alpha1::FailureReason;

use super::{Done, Failure};
use crate::system::System;

/// Whatever runs the kubelet, by distribution.
const KUBELETS: [&str; 5] =
    ["kubelet.service", "rke2-agent.service", "rke2-server.service", "k3s-agent.service", "k3s.service"];
const CONTAINERD: &str = "containerd.service";

pub(super) async fn stop_kubelet<S: System>(system: &S) -> Result<Done, Failure> {
    for unit in KUBELETS {
        stop(system, unit).await?;
    }
    Ok(Done::default())
}

pub(super) async fn stop_containerd<S: System>(system: &S) -> Result<Done, Failure> {
    stop(system, CONTAINERD).await?;
    Ok(Done::default())
}

async fn stop<S: System>(system: &S, unit: &str) -> Result<(), Failure> {
    if !system.unit_runs(unit).await? {
        return Ok(());
    }
    let output = system.stop_unit(unit).await?;
    if system.unit_runs(unit).await? {
        let message = format!("{unit} runs on after it was stopped; next: stop it by hand on the host");
        return Err(Failure { output: output.0, ..Failure::new(FailureReason::Command, message) });
    }
    Ok(())
}

pub(super) async fn remove_workload<S: System>(system: &S) -> Result<Done, Failure> {
    if system.workload().await?.is_empty() {
        return Ok(Done::said("nothing runs"));
    }
    let output = system.remove_workload().await?;
    let left = system.workload().await?;
    if left.is_empty() {
        return Ok(Done::said(output.0));
    }
    let message = format!(
        "{} pods or containers cannot be removed ({}); next: remove them by hand on the host",
        left.len(),
        left.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ")
    );
    Err(Failure { output: output.0, ..Failure::new(FailureReason::Command, message) })
}
