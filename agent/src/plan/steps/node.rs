//! Stops the processes of a node in this order: the kubelet first, because it would start the
//! workload again; containerd last, because the removal of the workload needs it.

use proto::v1alpha1::{FailureReason, StepDone};

use super::step_done;
use crate::ground::failure::{Failure, FailureClass};
use crate::host::system::System;

/// The services that run the kubelet, by distribution.
const KUBELETS: [&str; 5] =
    ["kubelet.service", "rke2-agent.service", "rke2-server.service", "k3s-agent.service", "k3s.service"];
const CONTAINERD: &str = "containerd.service";

pub(super) async fn stop_kubelet<S: System>(system: &S) -> Result<StepDone, Failure> {
    for unit in KUBELETS {
        stop_unit(system, unit).await?;
    }
    Ok(StepDone::default())
}

pub(super) async fn stop_containerd<S: System>(system: &S) -> Result<StepDone, Failure> {
    stop_unit(system, CONTAINERD).await?;
    // Containers outlive their runtime.
    remove_workload(system).await
}

async fn stop_unit<S: System>(system: &S, unit: &str) -> Result<(), Failure> {
    if !system.unit_runs(unit).await? {
        return Ok(());
    }
    let output = system.stop_unit(unit).await?;
    if system.unit_runs(unit).await? {
        let message = format!("{unit} still runs after it was stopped");
        let error = Failure::new(FailureReason::Command, message, "stop it by hand on the host");
        return Err(error.with_class(FailureClass::Transient).with_output(output.0));
    }
    Ok(())
}

pub(super) async fn remove_workload<S: System>(system: &S) -> Result<StepDone, Failure> {
    if system.workload().await?.is_empty() {
        return Ok(step_done("nothing runs"));
    }
    let output = system.remove_workload().await?;
    let left = system.workload().await?;
    if left.is_empty() {
        return Ok(step_done(output.0));
    }
    let message = format!(
        "{} pods or containers cannot be removed ({})",
        left.len(),
        left.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ")
    );
    let error = Failure::new(FailureReason::Command, message, "remove them by hand on the host");
    Err(error.with_class(FailureClass::Transient).with_output(output.0))
}
