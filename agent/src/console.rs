//! The verbs `status` and `console`: the identity of the host, its system, and the progress of its
//! plan.

pub mod page;
pub mod screen;
pub mod status;
