//! Stops the processes of a node in this order: the kubelet first, because it would start the
//! workload again; containerd last, because the removal of the workload needs it.

use proto::distribution::{self, DISTRIBUTIONS, UNSUPPORTED};
use proto::v1alpha1::{FailureReason, StepDone};

use super::step_done;
use crate::ground::failure::{Failure, FailureClass};
use crate::ground::paths::Root;
use crate::host::credentials;
use crate::host::system::System;

/// Refuses a node of a distribution without a row in the table, before anything of it is stopped or
/// removed: the clean would leave its processes and credentials to the next machine.
pub(super) async fn refuse_unsupported<S: System>(root: &Root, system: &S) -> Result<(), Failure> {
    let mut found = credentials::find_unsupported(root);
    for row in &UNSUPPORTED {
        for unit in row.kubelets {
            if found.is_none() && system.unit_runs(&format!("{unit}.service")).await? {
                found = Some(row);
            }
        }
    }
    let Some(row) = found else { return Ok(()) };
    Err(Failure::refused(
        format!("this host carries a node of {}, which this provider cannot remove", row.name),
        format!(
            "remove {} by its own command on the host, or wipe the disk and install the host again",
            row.name
        ),
    ))
}

pub(super) async fn stop_kubelet<S: System>(system: &S) -> Result<StepDone, Failure> {
    for unit in distribution::kubelets() {
        stop_unit(system, &format!("{unit}.service")).await?;
    }
    Ok(StepDone::default())
}

pub(super) async fn stop_containerd<S: System>(system: &S) -> Result<StepDone, Failure> {
    for unit in DISTRIBUTIONS.iter().flat_map(|row| row.runtimes) {
        stop_unit(system, &format!("{unit}.service")).await?;
    }
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
