//! Long work as transient units of systemd. Such a job outlives the agent that started it, sees the
//! host's own file systems (most of which the agent sees read-only), and is found again by its
//! name.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::command::{CommandError, HeadTail, Invocation};
use super::system::{JOB_PREFIX, Job, Output, deadlines};
use crate::ground::paths::Root;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The time is longer than the deadline of any job, including its stop.
const DEADLINE: Duration = Duration::from_mins(65);

fn has_systemd(root: &Root) -> bool {
    root.join("/run/systemd/system").is_dir()
}

/// Runs `work` under the job's name, after all earlier jobs have ended. An agent that was killed
/// may have left a job, and two upgrades at once destroy both systems.
pub(super) async fn run_unit(root: &Root, job: &Job, work: &Invocation) -> Result<Output, CommandError> {
    if !has_systemd(root) {
        return work.run().await.map(|captured| captured.shown);
    }
    wait_for_earlier(root).await?;
    let environment = write_environment(root, job, work)?;
    let started = Instant::now();
    let ended = transient_command(job, work, environment.as_deref()).run().await;
    if let Some(path) = environment {
        let _ = fs::remove_file(path);
    }
    let output = read_journal(job).await;
    match ended {
        Ok(_) => Ok(output),
        Err(CommandError::TimedOut { .. }) => {
            stop_unit(job).await;
            Err(timed_out(work, output))
        }
        Err(CommandError::Failed { .. }) if started.elapsed() >= work.deadline => {
            Err(timed_out(work, output))
        }
        Err(CommandError::Failed { status, output: said, .. }) => Err(CommandError::Failed {
            program: work.program.clone(),
            status,
            output: if output.0.is_empty() { said } else { output },
        }),
        Err(error) => Err(error),
    }
}

fn timed_out(work: &Invocation, output: Output) -> CommandError {
    CommandError::TimedOut { program: work.program.clone(), deadline: work.deadline, output }
}

/// The values may be secret, so they are not passed on the command line, which everybody can read.
fn write_environment(root: &Root, job: &Job, work: &Invocation) -> Result<Option<PathBuf>, CommandError> {
    if work.env.is_empty() {
        return Ok(None);
    }
    let directory = root.runtime();
    let path = directory.join(format!("{}.env", job.name()));
    let mut text = String::new();
    for (name, value) in &work.env {
        let _ = writeln!(text, "{name}={}", quote(value));
    }
    let failed = |source| CommandError::Run { program: work.program.clone(), source };
    fs::create_dir_all(&directory).map_err(failed)?;
    let mut file = OpenOptions::new();
    file.write(true).create(true).truncate(true).mode(0o600);
    file.open(&path).and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
    Ok(Some(path))
}

/// Quotes a value for an `EnvironmentFile` of systemd.
fn quote(value: &str) -> String {
    let mut quoted = String::from("\"");
    for character in value.chars() {
        if "\"\\`$".contains(character) {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted.push('"');
    quoted
}

/// The type is `exec` and not `oneshot`. For a oneshot unit `systemd-run` waits for the start job,
/// which lasts as long as the work, and reports a failure as 1 instead of the exit code of the
/// work. In arguments `$` is doubled, because systemd replaces `$NAME` by its own variables.
fn transient_command(job: &Job, work: &Invocation, environment: Option<&Path>) -> Invocation {
    let mut args: Vec<String> =
        ["--quiet", "--wait", "--collect", "--service-type=exec"].map(str::to_owned).to_vec();
    args.push(format!("--unit={}", job.name()));
    args.push(format!("--property=RuntimeMaxSec={}", work.deadline.as_secs()));
    args.push("--property=KillMode=control-group".to_owned());
    args.extend(environment.map(|path| format!("--property=EnvironmentFile={}", path.display())));
    args.push("--".to_owned());
    args.push(work.program.clone());
    args.extend(work.args.iter().map(|arg| arg.replace('$', "$$")));
    Invocation {
        program: "systemd-run".to_owned(),
        args,
        env: Vec::new(),
        deadline: work.deadline + deadlines::JOB_END,
    }
}

/// Waits until no job runs. The wait ends, because each job has a `RuntimeMaxSec`.
pub(super) async fn wait_for_earlier(root: &Root) -> Result<(), CommandError> {
    if !has_systemd(root) {
        return Ok(());
    }
    let pattern = format!("{JOB_PREFIX}*");
    let args = ["list-units", "--plain", "--no-legend", "--state=active,activating,deactivating", &pattern];
    until_none(&Invocation::new("systemctl", &args, deadlines::QUERY), DEADLINE).await
}

async fn until_none(list: &Invocation, limit: Duration) -> Result<(), CommandError> {
    let started = Instant::now();
    loop {
        let listed = list.run().await?.stdout;
        let Some(running) = listed.split_whitespace().next() else {
            return Ok(());
        };
        if started.elapsed() >= limit {
            return Err(CommandError::Busy { unit: running.to_owned(), limit });
        }
        tracing::info!(unit = running, "waiting for a job of an earlier agent");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn stop_unit(job: &Job) {
    let unit = format!("{}.service", job.name());
    if let Err(error) = Invocation::new("systemctl", &["stop", &unit], deadlines::QUERY).run().await {
        tracing::warn!(unit, %error, "cannot stop a job after its deadline");
    }
}

/// The output of the job, read from the journal, which bounds it and is complete even if the agent
/// was killed in between.
async fn read_journal(job: &Job) -> Output {
    let unit = format!("--unit={}.service", job.name());
    let args = ["--quiet", "--no-pager", "--boot", "--output=cat", "--lines=200", &unit];
    match Invocation::new("journalctl", &args, deadlines::QUERY).run().await {
        Ok(captured) => {
            let mut output = HeadTail::default();
            output.push_bytes(captured.stdout.as_bytes());
            Output(output.text())
        }
        Err(error) => Output(format!("[no output: {error}]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_a_transient_unit_with_deadline() {
        let plan = proto::plan::PlanId::parse("reprovision-01").unwrap();
        let work = Invocation::new("elemental", &["upgrade"], Duration::from_secs(90));
        let unit = transient_command(&Job::step(&plan, 4), &work, Some("/run/x.env".as_ref()));
        assert_eq!(unit.program, "systemd-run");
        assert_eq!(
            unit.args,
            [
                "--quiet",
                "--wait",
                "--collect",
                "--service-type=exec",
                "--unit=baremetal-step-reprovision-01-4",
                "--property=RuntimeMaxSec=90",
                "--property=KillMode=control-group",
                "--property=EnvironmentFile=/run/x.env",
                "--",
                "elemental",
                "upgrade",
            ]
        );
        assert!(unit.deadline > work.deadline);
    }

    #[test]
    fn systemd_replaces_nothing_in_arguments() {
        let work = Invocation::new("sh", &["-c", "rm -rf \"${DIR}/x\" $$"], Duration::from_secs(1));
        let unit = transient_command(&Job::named("x"), &work, None);
        assert_eq!(unit.args[unit.args.len() - 3..], ["sh", "-c", "rm -rf \"$${DIR}/x\" $$$$"]);
    }

    #[test]
    fn the_environment_is_in_a_file_of_root() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let mut work = Invocation::new("sh", &[], Duration::from_secs(1));
        let job = Job::named("x");
        assert_eq!(write_environment(&root, &job, &work).unwrap(), None);
        work.env = vec![("A".into(), "b c".into()), ("B".into(), "\"$x\" \\ `y`\nz".into())];
        let path = write_environment(&root, &job, &work).unwrap().unwrap();
        assert!(path.starts_with(root.join("/run/baremetal-agent")));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let want = "A=\"b c\"\nB=\"\\\"\\$x\\\" \\\\ \\`y\\`\nz\"\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), want);
    }

    #[tokio::test]
    async fn jobs_of_earlier_agents_are_awaited() {
        let directory = tempfile::tempdir().unwrap();
        let listed = directory.path().join("listed");
        std::fs::write(&listed, "").unwrap();
        let script = format!("if rm {} 2>/dev/null; then echo unit; fi", listed.display());
        let once = Invocation::new("/bin/sh", &["-c", &script], deadlines::QUERY);
        until_none(&once, deadlines::QUERY).await.unwrap();
        assert!(!listed.exists(), "it was asked for");
        let always =
            Invocation::new("echo", &["baremetal-step-p-4.service loaded active running"], deadlines::QUERY);
        let error = until_none(&always, Duration::ZERO).await.unwrap_err();
        assert!(
            matches!(&error, CommandError::Busy { unit, .. } if unit == "baremetal-step-p-4.service"),
            "{error}"
        );
    }
}
