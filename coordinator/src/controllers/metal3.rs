//! Controllers of the Metal3 kinds.

mod address_claim;
mod addresses;
mod cluster;
mod data;
mod data_addresses;
mod data_claim;
mod data_template;
pub(super) mod host;
mod ip_address;
mod ip_claim;
mod ip_pool;
mod machine;
mod orphans;
mod remediation;
