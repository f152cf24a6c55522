//! Child processes that cannot hang, flood or outlive their deadline.

use std::fmt::Write as _;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use proto::limits::OUTPUT_BYTES;
use proto::v1alpha1::FailureReason;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::system::Output;
use crate::ground::failure::{Failure, FailureClass, describe_error};

/// Longest standard output that is parsed, in bytes.
const PARSED_BYTES: usize = 1024 * 1024;
/// Time to read on after the child has ended: a grandchild that keeps the pipes open must not block
/// the agent.
const PIPE_GRACE: Duration = Duration::from_secs(1);

/// The place where the operator looks for the cause of a failure on a host.
pub const SYSTEM_LOG: &str = "look at the host's system log (`journalctl -b`)";

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command could not be started or waited for.
    #[error("cannot run {program}")]
    Run {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("{program} failed with {status}")]
    Failed { program: String, status: Status, output: Output },
    /// The command was killed at its deadline.
    #[error("{program} did not end within {} s and was stopped", .deadline.as_secs())]
    TimedOut { program: String, deadline: Duration, output: Output },
    /// A job of an earlier agent does not end.
    #[error("{unit}, which an earlier agent began, still runs after {} s", .limit.as_secs())]
    Busy { unit: String, limit: Duration },
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Code(i32),
    Signal(i32),
}

impl std::fmt::Display for Status {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit code {code}"),
            Self::Signal(signal) => write!(formatter, "signal {signal}"),
        }
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        use FailureClass::{Terminal, Transient, Unknown};
        use FailureReason::{Command, Timeout};
        let (reason, class, next_action) = match &error {
            CommandError::Run { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                (Command, Terminal, "use an image that holds this program")
            }
            CommandError::Run { .. } => (Command, Transient, SYSTEM_LOG),
            CommandError::Failed { .. } => (Command, Unknown, SYSTEM_LOG),
            CommandError::TimedOut { .. } => (Timeout, Transient, SYSTEM_LOG),
            // Each job has a deadline, so a job that still runs after its deadline never ends.
            CommandError::Busy { .. } => (Timeout, Terminal, "stop it on the host (`systemctl stop`)"),
        };
        let failure = Self::new(reason, describe_error(&error), next_action).with_class(class);
        match error {
            CommandError::Failed { output, .. } | CommandError::TimedOut { output, .. } => {
                failure.with_output(output.0)
            }
            CommandError::Run { .. } | CommandError::Busy { .. } => failure,
        }
    }
}

/// A command line with its deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The program is found along PATH unless the path is absolute.
    pub program: String,
    /// The arguments never pass through a shell.
    pub args: Vec<String>,
    /// Additions to the agent's own environment.
    pub env: Vec<(String, String)>,
    /// The process group is killed at this deadline.
    pub deadline: Duration,
}

/// The output of a command that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Standard output, for parsing; cut at 1 MiB.
    pub stdout: String,
    /// Standard output and standard error, interleaved for logs.
    pub shown: Output,
}

impl Invocation {
    /// A command line with a deadline and the agent's own environment.
    pub fn new(program: &str, args: &[&str], deadline: Duration) -> Self {
        Self {
            program: program.to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            env: Vec::new(),
            deadline,
        }
    }

    pub async fn run(&self) -> Result<Captured, CommandError> {
        let mut child = self.spawn_child().map_err(|source| self.not_run(source))?;
        let group = Group::of(&child);
        let stdout = Mutex::new(Vec::new());
        let shown = Mutex::new(HeadTail::default());
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let reading = async {
            tokio::join!(drain_stream(out, Some(&stdout), &shown), drain_stream(err, None, &shown));
        };
        tokio::pin!(reading);
        let mut open = true;
        let ended = timeout(self.deadline, async {
            loop {
                tokio::select! {
                    status = child.wait() => break status,
                    () = &mut reading, if open => open = false,
                }
            }
        })
        .await;
        if ended.is_err() {
            group.kill_group();
        } else {
            group.leave_group();
        }
        if open {
            let _ = timeout(PIPE_GRACE, &mut reading).await;
        }
        let shown = Output(lock_output(&shown).text());
        match ended {
            Err(_) => Err(CommandError::TimedOut {
                program: self.program.clone(),
                deadline: self.deadline,
                output: shown,
            }),
            Ok(status) => self.check_exit(status, &lock_output(&stdout), shown),
        }
    }

    fn check_exit(
        &self,
        status: io::Result<ExitStatus>,
        stdout: &[u8],
        shown: Output,
    ) -> Result<Captured, CommandError> {
        let status = status.map_err(|source| self.not_run(source))?;
        if status.success() {
            return Ok(Captured { stdout: String::from_utf8_lossy(stdout).into_owned(), shown });
        }
        Err(CommandError::Failed {
            program: self.program.clone(),
            status: status.code().map_or_else(|| Status::Signal(status.signal().unwrap_or(0)), Status::Code),
            output: shown,
        })
    }

    fn not_run(&self, source: io::Error) -> CommandError {
        CommandError::Run { program: self.program.clone(), source }
    }

    fn spawn_child(&self) -> io::Result<Child> {
        Command::new(&self.program)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            // The output is parsed, so it must not be translated.
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
    }
}

fn lock_output<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn drain_stream<R: AsyncRead + Unpin>(
    stream: Option<R>,
    parsed: Option<&Mutex<Vec<u8>>>,
    shown: &Mutex<HeadTail>,
) {
    let Some(mut stream) = stream else { return };
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        let bytes = &buffer[..length];
        lock_output(shown).push_bytes(bytes);
        if let Some(parsed) = parsed {
            let mut parsed = lock_output(parsed);
            let room = PARSED_BYTES.saturating_sub(parsed.len());
            parsed.extend_from_slice(&bytes[..length.min(room)]);
        }
    }
}

/// The child's process group. The group is killed when the future is dropped, so that no half of a
/// pipeline continues unobserved.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        Self(pid.map(Pid::from_raw))
    }

    fn kill_group(self) {
        drop(self);
    }

    fn leave_group(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // The group may have ended by itself.
            let _ = killpg(pid, Signal::SIGKILL);
        }
    }
}

/// The head and the tail of a stream of any length.
#[derive(Default)]
pub struct HeadTail {
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    left_out: usize,
}

impl HeadTail {
    const HALF: usize = OUTPUT_BYTES / 2;

    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let room = Self::HALF.saturating_sub(self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(Self::HALF);
        self.tail.drain(..excess);
        self.left_out += excess;
    }

    /// The kept bytes, with a mark at the gap.
    pub fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        if self.left_out > 0 {
            let _ = write!(text, "\n[{} bytes left out]\n", self.left_out);
        }
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        text.push_str(&String::from_utf8_lossy(&tail));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, deadline: Duration) -> Invocation {
        Invocation::new("/bin/sh", &["-c", script], deadline)
    }

    const LONG: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn both_streams_shown_and_only_stdout_parsed() {
        let captured = shell("echo out; echo err >&2", LONG).run().await.unwrap();
        assert_eq!(captured.stdout, "out\n");
        assert!(captured.shown.0.contains("out") && captured.shown.0.contains("err"));
    }

    #[tokio::test]
    async fn a_failure_names_program_code_and_output() {
        let error = shell("echo why >&2; exit 33", LONG).run().await.unwrap_err();
        assert_eq!(error.to_string(), "/bin/sh failed with exit code 33");
        let CommandError::Failed { status, output, .. } = error else { panic!("{error}") };
        assert_eq!((status, output.0.as_str()), (Status::Code(33), "why\n"));
    }

    #[tokio::test]
    async fn missing_program_is_named_in_error() {
        let error = Invocation::new("/nonexistent/elemental", &[], LONG).run().await;
        assert_eq!(error.unwrap_err().to_string(), "cannot run /nonexistent/elemental");
    }

    /// One that has ended and is not reaped yet does not run.
    fn is_running(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|state| !['X', 'Z'].contains(&state))
    }

    #[tokio::test]
    async fn who_hangs_is_killed_with_all_children() {
        let error = shell("sleep 600 & echo $!; wait", Duration::from_secs(1)).run().await.unwrap_err();
        let CommandError::TimedOut { output, .. } = error else { panic!("{error}") };
        let pid = output.0.trim().parse().unwrap();
        let end = tokio::time::Instant::now() + Duration::from_secs(10);
        while is_running(pid) {
            assert!(tokio::time::Instant::now() < end, "the grandchild {pid} goes on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn open_pipes_of_grandchildren_do_not_block() {
        let captured = shell("sleep 600 & echo $!", LONG).run().await.unwrap();
        let pid: i32 = captured.stdout.trim().parse().unwrap();
        nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }

    #[tokio::test]
    async fn long_output_is_cut_to_head_and_tail() {
        let script = "head -c 3000000 /dev/zero | tr '\\0' a; printf end >&2";
        let captured = shell(script, LONG).run().await.unwrap();
        assert_eq!(captured.stdout.len(), PARSED_BYTES);
        assert!(captured.shown.0.len() < OUTPUT_BYTES + 64);
        assert!(captured.shown.0.contains("bytes left out"));
    }

    #[test]
    fn short_output_is_whole() {
        let mut output = HeadTail::default();
        output.push_bytes(b"one ");
        output.push_bytes(b"two");
        assert_eq!(output.text(), "one two");
    }
}
