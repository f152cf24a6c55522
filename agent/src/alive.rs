//! The verb `alive`: a control-plane host's part in holding the internal endpoint of its cluster.
//!
//! The coordinator's duty is kept in the state directory. At each boot, and without the
//! coordinator, the agent writes a configuration of keepalived from it and runs keepalived while
//! there is a duty. The members elect the holder of the endpoint by VRRP. A member takes part only
//! while its own API server answers `/readyz` ([`check`]), or while no other member would do better
//! ([`overload`]).

pub mod check;
pub mod config;
mod overload;
pub mod placement;
mod probe;
pub mod spread;
pub mod supervisor;
