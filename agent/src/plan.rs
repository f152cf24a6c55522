//! Plans: what comes next ([`engine`]), what was done ([`journal`]), doing it
//! ([`executor`] and its steps).

pub mod engine;
pub mod executor;
pub mod journal;
pub mod step_spec;
mod steps;
