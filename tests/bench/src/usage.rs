//! CPU time, memory and limits, as the kernel counts them.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::{ClockId, clock_gettime};

/// Linux counts the CPU time of processes in hundredths of a second, on every architecture
/// (`USER_HZ`).
const TICKS: f64 = 100.0;

/// What one process used so far.
struct Usage {
    parent: u32,
    name: String,
    cpu: f64,
}

fn read_usage(pid: &str) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    // The fields from the third on: state, parent; the 14th and 15th are user and system time.
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    let parent = fields.get(1)?.parse().ok()?;
    Some(Usage { parent, name: name.to_owned(), cpu: (ticks(11)? + ticks(12)?) / TICKS })
}

/// Seconds of CPU that a process used, user and system.
pub(crate) fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let usage = read_usage(&pid.to_string());
    Ok(usage.with_context(|| format!("read the CPU time of process {pid}"))?.cpu)
}

/// Seconds of CPU of each child of this process, by the name of its program.
pub(crate) fn cpu_of_children() -> anyhow::Result<BTreeMap<String, f64>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let usage = name.to_str().and_then(read_usage);
        if let Some(usage) = usage.filter(|usage| usage.parent == std::process::id()) {
            *found.entry(usage.name).or_default() += usage.cpu;
        }
    }
    Ok(found)
}

/// Resident memory of a process, bytes.
pub(crate) fn resident_bytes(pid: u32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(kilobytes.with_context(|| format!("process {pid} has no VmRSS"))? * 1024.0)
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu() -> anyhow::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// Allows as many open files as the system lets this process have; children inherit it.
pub(crate) fn raise_open_files() -> anyhow::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}
