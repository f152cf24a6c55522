//! Rules of the house, checked.

pub mod documents;
pub mod spans;
