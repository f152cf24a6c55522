//! The story, end to end: real API servers, Cluster API's real manager, the
//! real coordinator, and one host, from seed ISO to Node and back.
//!
//! [`stage::Stage`] is everything but the host; [`play::play`] tells the story
//! with a [`metal::Metal`], which is simulated or QEMU. The demo and the tests
//! play the same one.

pub mod manifests;
pub mod metal;
pub mod play;
pub mod progress;
pub mod serve;
pub mod stage;
pub mod watching;
