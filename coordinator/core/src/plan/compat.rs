//! The format of the upstream system-agent, written so that it can execute our
//! plans; never read back into steps.

mod script;
pub(super) mod system_agent;

pub(super) use script::staging_directory;
