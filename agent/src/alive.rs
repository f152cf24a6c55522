//! The `alive` verb: a control-plane host's part in holding the address of the
//! cluster's internal endpoint.
//!
//! The coordinator's duty is kept in the state directory; from it, at each boot
//! and without the coordinator, a configuration of keepalived is written, and
//! keepalived runs while there is a duty. VRRP among the members decides who
//! holds the address; a member takes part only while its own API server answers
//! `/readyz` ([`check`]), or no other would do better ([`overload`]).

pub mod check;
pub mod config;
mod overload;
pub mod placement;
mod probe;
pub mod spread;
pub mod supervisor;
