//! Scenarios of the whole system: one program, because each program of tests costs a link.

#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy exempts only functions marked as tests")]

mod abandoned_hosts;
mod agent_updates;
mod bad_input;
mod cluster_api;
mod crashes;
mod deletions;
mod endpoint;
mod front_doors;
mod full_partitions;
mod holding;
mod metal3_addresses;
mod metal3_clusters;
mod metal3_data;
mod metal3_foreign_pools;
mod metal3_holding;
mod metal3_hosts;
mod metal3_lifecycle;
mod metal3_machines;
mod metal3_nodes;
mod metal3_orphans;
mod metal3_refusals;
mod metal3_remediation;
mod networks;
mod node_links;
mod operators_plans;
mod plan_failures;
mod properties;
mod races;
mod reboots;
mod refusals;
mod registration;
mod registries;
mod replicas;
mod restores;
mod settings;
mod stolen_keys;
mod story;
mod waiting;
mod world;
