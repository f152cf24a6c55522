//! Updates of the agent: received over the stream, tried, kept or given up.
//!
//! The agent of the image always starts first, and hands over to the one in [`record`] if that is
//! newer (decision 40).

pub mod keys;
pub mod launch;
pub mod offer;
pub mod program;
pub mod record;
