//! The host agent: registers, installs, attaches, carries out plans, reports.
//!
//! From the ground up: [`ground`] writes files and describes failures; [`state`] is kept on
//! the disk, [`host`] observes and changes the machine, [`identity`] proves the host, [`client`] calls
//! the coordinator, [`update`] chooses the agent that starts.
//!
//! On top are the verbs, which do not know each other: [`live`] is the `register` verb of the live
//! system, [`boot`] the early boot, [`alive`] the duty of a control-plane host, [`console`] shows
//! the state, and [`installed`] is the `run` verb, which hands plans to [`plan`].

pub mod alive;
pub mod boot;
pub mod client;
pub mod console;
pub mod ground;
pub mod host;
pub mod identity;
pub mod installed;
pub mod live;
pub mod plan;
pub mod state;
pub mod update;
