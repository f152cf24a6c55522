//! The host agent: registers, installs, attaches, carries out plans, reports.
//!
//! By verb: [`live`] is the `register` verb of the live system, [`boot`] the
//! early boot, [`installed`] the `run` verb, which hands plans to [`plan`], and
//! [`alive`] the duty of a control-plane host.
//! They see the host through [`host`] and the coordinator through [`client`],
//! as the [`identity`], which is in the [`tpm`] where there is one.

pub mod alive;
pub mod boot;
pub mod client;
pub mod console;
pub mod durable;
pub mod error;
pub mod failpoint;
pub mod host;
pub mod identity;
pub mod installed;
pub mod live;
pub mod overwrite;
pub mod paths;
pub mod plan;
pub mod program;
pub mod status;
pub mod tpm;
pub mod update;
pub mod version;
