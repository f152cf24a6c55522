//! Each rule of Cluster API's contracts for infrastructure providers, as a test with the name of
//! the rule; at v1beta1 those that differ from v1beta2.

mod contract;
mod definitions;
mod hosted_control_plane;
mod infra_cluster;
mod v1beta1;
