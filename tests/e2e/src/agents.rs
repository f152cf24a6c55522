//! Agents that hosts are asked to run, made of one that there is, and what an operator sees of it.

use std::fs;
use std::time::Duration;

use agent::ground::version::own_version;
use anyhow::{Context as _, Result, ensure};
use coordinator_api::conditions::{Reason, Type, find_condition};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::environment::Environment;
use crate::lifecycle::NAMESPACE;
use crate::replicas::find_binary;
use crate::requests::retry;
use crate::watching::until;

/// The same agent with another version of the same length.
///
/// # Errors
/// When the version has another length, or the file is no agent.
pub fn with_version(mut file: Vec<u8>, version: &str) -> Result<Vec<u8>> {
    let mark = format!("baremetal-agent-version:{}:", own_version());
    let other = format!("baremetal-agent-version:{version}:");
    ensure!(mark.len() == other.len(), "{version} has another length");
    let at = file.windows(mark.len()).position(|window| window == mark.as_bytes()).context("no mark")?;
    file[at..at + mark.len()].copy_from_slice(other.as_bytes());
    Ok(file)
}

/// A program that ends at once, with the mark of an agent.
pub fn failing_agent(version: &str) -> Vec<u8> {
    let architecture = std::env::consts::ARCH;
    format!("#!/bin/sh\n# baremetal-agent-version:{version}:{architecture};\nexit 1\n").into_bytes()
}

/// The coordinator is upgraded to one with this agent, and the host is asked to run it.
///
/// # Errors
/// When the coordinator does not start, or the request is refused.
pub async fn ask(environment: &mut Environment, host: &str, version: &str, file: &[u8]) -> Result<()> {
    let path = environment.directory.path().join(format!("agent-{version}"));
    fs::write(&path, file)?;
    let coordinator = find_binary("coordinator", "baremetal-coordinator")?;
    for replica in &mut environment.management.replicas {
        replica.replace(&coordinator, Some(&path))?;
        replica.ready().await?;
    }
    let asked = json!({ "metadata": { "annotations": { annotation::AGENT_VERSION: version } } });
    let inventories = inventories(environment);
    let params = PatchParams::default();
    retry("ask for an agent", async || inventories.patch(host, &params, &Patch::Merge(&asked)).await).await?;
    Ok(())
}

/// Waits until the host runs the agent of that version, with that reason of `AgentUpdated`; the
/// answer is its message.
///
/// # Errors
/// When it is not so in time.
pub async fn await_shown(
    environment: &Environment,
    host: &str,
    (version, reason): (&str, Reason),
    limit: Duration,
) -> Result<String> {
    let is_shown = |inventory: &MachineInventory| {
        let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
        let shown = find_condition(inventory.conditions(), Type::AgentUpdated);
        host.is_some_and(|host| host.agent_version == version)
            && shown.is_some_and(|shown| shown.reason == reason.as_str())
    };
    let found = until(&inventories(environment), host, limit, is_shown).await?;
    let shown = find_condition(found.conditions(), Type::AgentUpdated);
    Ok(shown.map(|shown| shown.message.clone()).unwrap_or_default())
}

fn inventories(environment: &Environment) -> Api<MachineInventory> {
    Api::namespaced(environment.management.admin.clone(), NAMESPACE)
}
