//! A child process that cannot outlive us.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::sync::oneshot;

/// A running program with its helpers, as one process group. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    group: Pid,
    ended: Arc<AtomicBool>,
}

impl Process {
    /// Starts a program; the receiver gets its exit code when it has ended, and none after a signal. Both outputs go to
    /// `output`.
    ///
    /// `setpriv --pdeathsig` has the kernel kill it when its parent dies, and the parent is a *thread*: an executor's
    /// worker may end at any time, so a thread of its own starts the child and waits for it.
    pub fn start(
        program: &str,
        arguments: &[String],
        input: Stdio,
        output: File,
    ) -> io::Result<(Self, oneshot::Receiver<Option<i32>>)> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", program]).args(arguments);
        command.stdin(input).stdout(output.try_clone()?).stderr(output).process_group(0);
        let (started, starting) = mpsc::channel();
        let (end, ending) = oneshot::channel();
        let ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ended);
        std::thread::Builder::new().name("lab-process".into()).spawn(move || {
            let spawned = command.spawn();
            // It holds the child's end of `input`: the other end sees the child's end only without it.
            drop(command);
            let mut child = match spawned {
                Ok(child) => child,
                Err(error) => {
                    // The caller is waiting on this very channel.
                    let _ = started.send(Err(error));
                    return;
                }
            };
            let _ = started.send(Ok(child.id()));
            let status = child.wait();
            flag.store(true, Ordering::SeqCst);
            let _ = end.send(status.ok().and_then(|status| status.code()));
        })?;
        let id = starting.recv().map_err(io::Error::other)??;
        let group = Pid::from_raw(i32::try_from(id).map_err(io::Error::other)?);
        Ok((Self { group, ended }, ending))
    }

    /// SIGKILL, as sudden as a power cut.
    pub fn kill(&self) {
        // The id of a group that has ended may have been reused.
        if !self.ended.load(Ordering::SeqCst) {
            let _ = killpg(self.group, Signal::SIGKILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
