//! Plans: [`engine`] decides which step comes next, [`executor`] runs it and journals it.

pub mod engine;
pub mod executor;
pub mod step_spec;
mod steps;
