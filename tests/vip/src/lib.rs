//! Control planes in network namespaces of one machine: real keepalived, run by the agent's own
//! code, and real etcd and API servers, or a stand-in for the latter.

pub mod network;
pub mod node;
pub mod probe;
pub mod site;
pub mod spread;
