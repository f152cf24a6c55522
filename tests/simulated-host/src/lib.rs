//! A host made of files, for tests that run a real agent on it: an operating
//! system ([`SimulatedSystem`]), the firmware's tables ([`firmware`]), and the
//! boots of medium and disk ([`SimulatedHost`]); agents that it is sent ([`Program`]).

pub mod firmware;
mod host;
mod program;
mod system;

pub use host::{Boot, Medium, SimulatedHost};
pub use program::{Behaviour, Program};
pub use system::{SimulatedSystem, list_files};
