//! Compares what the agent records as flushed with what it asks the kernel to
//! flush: the power cuts of these tests go by the records.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use nix::libc::{self, c_long};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The child is traced by its parent.
const TRACED: &str = "CRASH_TRACED";

/// In the child: stops until the parent traces it.
pub(crate) fn await_tracer() -> Result<()> {
    if std::env::var_os(TRACED).is_some() {
        ptrace::traceme()?;
        raise(Signal::SIGSTOP)?;
    }
    Ok(())
}

/// Runs a child to its end, whose records go to `log`; the answer is its exit code and what
/// it asked for.
pub(crate) fn compare(child: &mut Command, log: &Path) -> Result<(i32, Vec<String>)> {
    let (code, asked) = trace_flushes(child.env(TRACED, "").env("FLUSH_LOG", log))?;
    let recorded = fs::read_to_string(log).unwrap_or_default();
    ensure!(!recorded.is_empty(), "nothing was recorded as flushed");
    let mut made = asked.iter();
    for flush in recorded.lines() {
        ensure!(made.any(|made| made == flush), "the kernel was not asked for what is recorded: {flush}");
    }
    fs::remove_file(log)?;
    Ok((code, asked))
}

/// System call and path of each flush, in order.
fn trace_flushes(child: &mut Command) -> Result<(i32, Vec<String>)> {
    let process = Pid::from_raw(child.spawn()?.id().try_into()?);
    let stopped = waitpid(process, None)?;
    ensure!(stopped == WaitStatus::Stopped(process, Signal::SIGSTOP), "the child does not wait: {stopped:?}");
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
    ptrace::setoptions(process, options)?;
    ptrace::syscall(process, None)?;
    let mut flushes: Vec<String> = vec![];
    let mut is_entry = std::collections::HashMap::new();
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL))? {
            WaitStatus::PtraceSyscall(thread) => {
                // Each call stops twice.
                let entry = is_entry.entry(thread).or_insert(true);
                if *entry {
                    flushes.extend(read_flush(thread)?);
                }
                *entry = !*entry;
                ptrace::syscall(thread, None)?;
            }
            WaitStatus::Exited(ended, code) if ended == process => return Ok((code, flushes)),
            WaitStatus::Signaled(ended, signal, _) if ended == process => {
                bail!("the agent was ended by {signal}");
            }
            // A thread begins with this signal.
            WaitStatus::PtraceEvent(thread, ..) | WaitStatus::Stopped(thread, Signal::SIGSTOP) => {
                ptrace::syscall(thread, None)?;
            }
            WaitStatus::Stopped(thread, signal) => ptrace::syscall(thread, signal)?,
            _ => {}
        }
    }
}

/// The flush that a thread asks for, where its system call is one.
fn read_flush(thread: Pid) -> Result<Option<String>> {
    let (call, descriptor) = read_call(thread)?;
    let name = match call {
        libc::SYS_fsync | libc::SYS_fdatasync => "fsync",
        libc::SYS_syncfs => "syncfs",
        _ => return Ok(None),
    };
    let link = format!("/proc/{thread}/fd/{descriptor}");
    let path = fs::read_link(&link).context(link)?;
    Ok(Some(format!("{name} {}", path.display())))
}

#[cfg(target_arch = "x86_64")]
fn read_call(thread: Pid) -> Result<(c_long, u64)> {
    let registers = ptrace::getregs(thread)?;
    Ok((registers.orig_rax.cast_signed(), registers.rdi))
}

#[cfg(target_arch = "aarch64")]
fn read_call(thread: Pid) -> Result<(c_long, u64)> {
    let registers = ptrace::getregs(thread)?;
    Ok((registers.regs[8].cast_signed(), registers.regs[0]))
}
