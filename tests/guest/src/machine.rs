//! The machine below a guest.

use std::path::Path;

use async_trait::async_trait;
use futures::future::BoxFuture;

use crate::agent_port::AgentPort;
use crate::error::LabError;
use crate::process::Process;

/// Hardware and firmware of one host, which keep their state while it is off.
#[async_trait]
pub trait Machine: std::fmt::Debug + Send + Sync {
    /// Name of the host in logs and errors.
    fn name(&self) -> &str;

    /// Private directory of the host. `console.log` in it has the output of all boots.
    fn directory(&self) -> &Path;

    /// Makes the files that the host needs, before it is powered on for the first time.
    async fn prepare(&self) -> Result<(), LabError>;

    /// Powers the host on: from there to its end is one boot.
    async fn boot(&self) -> Result<Boot, LabError>;
}

/// A boot of a host, which has begun.
pub struct Boot {
    /// Killing it cuts the power.
    pub process: Process,
    /// The way to the guest agent inside.
    pub agent: AgentPort,
    /// Resolves when the process has ended and its files are free.
    pub end: BoxFuture<'static, End>,
}

/// How a boot ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The host powered itself off.
    PowerOff,
    /// The host reset itself.
    Reset,
    /// The process ended otherwise; the text is its output.
    Crash(String),
}
