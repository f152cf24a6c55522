//! Rules of the house, checked.

pub mod documents;
pub mod sources;
pub mod spans;
