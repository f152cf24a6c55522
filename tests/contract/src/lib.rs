//! Rules of the project, checked.

pub mod documents;
pub mod rooms;
pub mod sources;
pub mod spans;
