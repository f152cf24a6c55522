//! The agent's calls against a coordinator of the test's own: real TLS on the
//! loopback, the generated server, no Kubernetes.

mod coordinator;
mod disks;
mod link;
mod proxy;
mod register;
mod updates;
mod verifier;
