//! The statement of an object that matters most, and the chain of causes down to the object to act
//! on.

mod chain;
mod find;
mod finding;
mod host;
mod metal3;
mod pool;

pub(crate) use chain::{Chain, Link, follow_causes};
pub(crate) use find::{find, find_stated};
pub(crate) use finding::Finding;
