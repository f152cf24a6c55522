//! A host made of files, for tests that run a real agent on it: an operating
//! system ([`SimulatedSystem`]), the firmware's tables ([`firmware`]), and the
//! boots of medium and disk ([`SimulatedHost`]).

pub mod firmware;
mod host;
mod system;

pub use host::{Boot, Medium, SimulatedHost};
pub use system::SimulatedSystem;
