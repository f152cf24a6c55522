//! Writes the files on the installed disk that its system needs.

use crate::client::config::Config;
use crate::ground::durable;
use crate::ground::failure::{Context as _, Failure};
use crate::ground::paths::StateDir;
use crate::identity::{Certificate, Identity};
use crate::state::install_record::InstallRecord;

const NOT_LEFT: &str = "cannot leave the agent's state on the installed disk";

/// The identity of this host, for the installed system.
#[derive(Clone, Copy, Debug)]
pub struct Handover<'a> {
    pub identity: &'a Identity,
    /// The live system's certificate, which the installed system exchanges.
    pub certificate: &'a Certificate,
    pub config: &'a Config,
}

/// Writes identity and configuration.
pub fn write(state: &StateDir, handover: Handover<'_>) -> Result<(), Failure> {
    durable::create_directory(state.path()).context(NOT_LEFT)?;
    handover.identity.hand_over(&state.identity(), handover.certificate)?;
    durable::write(&state.config(), handover.config.render_yaml()?.as_bytes()).context(NOT_LEFT)?;
    durable::remove(&state.next_config()).context(NOT_LEFT)
}

/// Writes the record. From then on this disk is never installed again by itself.
pub fn write_record(state: &StateDir, record: &InstallRecord) -> Result<(), Failure> {
    durable::write_json(&state.install_record(), record).context(NOT_LEFT)
}
