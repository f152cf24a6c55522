//! The attempts of one step within its deadline.

use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use proto::plan::Step;
use proto::v1alpha1::StepDone;

use crate::ground::failure::Failure;
use crate::host::system::System;
use crate::plan::step_spec::StepSpec;
use crate::plan::steps::{self, Context};

/// Progress of a step that runs again.
#[derive(Debug, Default)]
pub(super) struct Retry {
    /// Number of failed attempts of this agent.
    pub(super) failures: u32,
    /// The message of the last failure.
    pub(super) last_failure: String,
}

/// Runs the step until it succeeds, cannot succeed or reaches its deadline. `publish` is called
/// before each attempt but the first.
pub(super) async fn run_attempts<S: System>(
    step: &Step,
    spec: &StepSpec,
    context: Context<'_, S>,
    publish: impl Fn(Retry),
) -> Result<StepDone, Failure> {
    let mut deadline = Instant::now() + spec.deadline;
    let mut backoff = spec.retries.backoff();
    let mut failures = 0;
    let mut last = None;
    loop {
        let Ok(ended) = run_attempt(step, &context, &mut deadline).await else {
            return Err(steps::timed_out(spec, last));
        };
        let error = match ended {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        failures += 1;
        let Some(backoff) = backoff.as_mut().filter(|_| spec.retries.allows_another(error.class, failures))
        else {
            return Err(error);
        };
        tracing::warn!(step = spec.name, failures, %error, "attempt failed, retrying");
        publish(Retry { failures, last_failure: error.message.clone() });
        if timeout_at(deadline, backoff.wait()).await.is_err() {
            return Err(steps::timed_out(spec, Some(error)));
        }
        last = Some(error);
    }
}

/// Waits for the jobs of earlier agents, because a step that checks its effect would judge a system
/// that still changes. This time does not count towards the deadline of the step.
async fn run_attempt<S: System>(
    step: &Step,
    context: &Context<'_, S>,
    deadline: &mut Instant,
) -> Result<Result<StepDone, Failure>, Elapsed> {
    let start = Instant::now();
    if let Err(error) = context.system.earlier_jobs().await {
        return Ok(Err(error));
    }
    *deadline += start.elapsed();
    timeout_at(*deadline, steps::run_step(step, context)).await
}
