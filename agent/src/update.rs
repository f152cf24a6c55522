//! Another agent than that of the image: received over the stream, tried, kept
//! or given up.
//!
//! The agent of the image starts first, always, and hands over to the one that
//! [`record`] names where that is newer.

pub mod launch;
pub mod offer;
pub mod program;
pub mod record;
