//! Kills what writes records of the host, and has it write them again.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use agent::ground::durable::shadow::Shadow;
use agent::ground::paths::Root;
use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use simulated_host::SimulatedSystem;

use crate::{Death, scratch, start_child, state};

/// Records that one life of the agent writes.
pub(crate) struct Records {
    /// The value of `CRASH_PLAN` for that life.
    pub(crate) name: &'static str,
    /// Compares what is left with what was written.
    pub(crate) compare: fn(&Root) -> Result<()>,
}

struct Host {
    root: Root,
    system: SimulatedSystem,
    shadow: Shadow,
}

impl Host {
    /// All that it has is flushed.
    fn installed(directory: &Path) -> Result<Self> {
        let root = Root::at(directory.join("host"));
        let system = SimulatedSystem::installed(root.clone(), "oci:lab/os:v1")?.with_node()?;
        let shadow = Shadow::at(directory.join("shadow"));
        system.flush_to(&shadow)?;
        Ok(Self { root, system, shadow })
    }

    fn cut_power(&self) -> Result<()> {
        self.system.lose_unflushed(&self.shadow)?;
        Ok(self.shadow.lose_unflushed(&self.root.join(state::NOCLOUD_PARENT))?)
    }

    fn die(&self, death: Death) -> Result<()> {
        match death {
            Death::Agent => Ok(self.system.flush_to(&self.shadow)?),
            Death::Host => self.cut_power(),
        }
    }

    /// What is written is whole after a power cut.
    fn write(&self, directory: &Path, records: &Records) -> Result<()> {
        let status = start_child(directory, records.name)?.status()?;
        ensure!(status.success(), "{} is not written: {status}", records.name);
        self.cut_power()?;
        (records.compare)(&self.root)
    }
}

impl Records {
    pub(crate) fn compare_after_power_cut(&self) -> Result<()> {
        let directory = scratch()?;
        Host::installed(directory.path())?.write(directory.path(), self)
    }

    /// How many points there are.
    pub(crate) fn kill_everywhere(&self, death: Death, hit: &mut BTreeSet<String>) -> Result<usize> {
        for point in 1.. {
            let killed = || format!("{}: {death:?} killed at point {point}", self.name);
            if !self.kill_once(point, death, hit).with_context(killed)? {
                ensure!(point > 1, "{} passes no failpoint", self.name);
                return Ok(point - 1);
            }
        }
        Ok(0)
    }

    /// `false` when the point was never reached.
    fn kill_once(&self, point: usize, death: Death, hit: &mut BTreeSet<String>) -> Result<bool> {
        let directory = scratch()?;
        let host = Host::installed(directory.path())?;
        let log = directory.path().join("failpoints");
        let mut child = start_child(directory.path(), self.name)?;
        child.env("FAILPOINT_LOG", &log).env("FAILPOINT_KILL_AT", point.to_string());
        let status = child.status()?;
        let passed = fs::read_to_string(&log)?;
        hit.extend(passed.lines().map(str::to_owned));
        if status.success() {
            return Ok(false);
        }
        let is_killed = status.signal() == Some(Signal::SIGKILL as i32);
        ensure!(is_killed && passed.lines().count() == point, "it ended before that failpoint: {status}");
        host.die(death)?;
        host.write(directory.path(), self)?;
        Ok(true)
    }
}
