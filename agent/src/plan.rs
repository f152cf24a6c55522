//! Plans: [`engine`] decides which step comes next, [`executor`] runs it and journals it,
//! [`staged`] runs a plan that an upstream agent brings.

pub mod engine;
pub mod executor;
pub mod staged;
mod steps;
