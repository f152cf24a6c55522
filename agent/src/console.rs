//! The verbs `status` and `console`: who this host is, what it runs, and how far its plan is.

pub mod page;
pub mod screen;
pub mod status;
