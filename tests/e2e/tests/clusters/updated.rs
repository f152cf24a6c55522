//! The agent's real process at the real coordinator: another one comes over its stream.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agent::paths::Root;
use agent::version::own_version;
use anyhow::{Context as _, Result, ensure};
use coordinator_api::conditions::{Reason, Type, find_condition};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use e2e::host::{Host, Simulated};
use e2e::lifecycle::{Lifecycle, NAMESPACE};
use e2e::replicas::find_binary;
use e2e::requests::retry;
use e2e::watching::until;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::process::Command;
use tokio::task::JoinHandle;

use crate::common::{Setup, await_event};

const DEADLINE: Duration = Duration::from_mins(3);

/// The agent as it is released, else as it was built for the tests, without symbols.
fn find_agent(directory: &Path) -> Result<PathBuf> {
    if let Some(agent) = std::env::var_os("AGENT").filter(|path| !path.is_empty()) {
        return Ok(agent.into());
    }
    let path = directory.join("baremetal-agent");
    let built = find_binary("agent", "baremetal-agent")?;
    let stripped = std::process::Command::new("strip").arg("-o").arg(&path).arg(built).status()?;
    ensure!(stripped.success(), "strip: {stripped}");
    Ok(path)
}

/// The same agent with another version of the same length.
fn with_version(mut file: Vec<u8>, version: &str) -> Result<Vec<u8>> {
    let mark = format!("baremetal-agent-version:{}:", own_version());
    let other = format!("baremetal-agent-version:{version}:");
    ensure!(mark.len() == other.len(), "{version} has another length");
    let at = file.windows(mark.len()).position(|window| window == mark.as_bytes()).context("no mark")?;
    file[at..at + mark.len()].copy_from_slice(other.as_bytes());
    Ok(file)
}

/// Starts the agent of the image whenever it ends, as its unit does.
fn supervise(program: PathBuf, root: Root) -> JoinHandle<Result<()>> {
    tokio::spawn(async move {
        loop {
            let mut agent = Command::new(&program);
            agent.arg("--root").arg(root.join("/")).arg("run").kill_on_drop(true);
            agent.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?.wait().await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
}

/// What the operator sees of one host.
struct Shown<'a> {
    setup: &'a mut Setup,
    inventories: Api<MachineInventory>,
    name: String,
}

impl Shown<'_> {
    /// The coordinator is upgraded to one with this agent, and the host is asked to run it.
    async fn ask(&mut self, version: &str, file: &[u8]) -> Result<()> {
        let path = self.setup.environment.directory.path().join(format!("agent-{version}"));
        fs::write(&path, file)?;
        let coordinator = find_binary("coordinator", "baremetal-coordinator")?;
        for replica in &mut self.setup.environment.management.replicas {
            replica.replace(&coordinator, Some(&path))?;
            replica.ready().await?;
        }
        let asked = json!({ "metadata": { "annotations": { annotation::AGENT_VERSION: version } } });
        let (name, params) = (&self.name, PatchParams::default());
        retry("ask for an agent", async || {
            self.inventories.patch(name, &params, &Patch::Merge(&asked)).await
        })
        .await?;
        Ok(())
    }

    async fn await_shown(&self, version: &str, reason: Reason) -> Result<String> {
        let is_shown = |inventory: &MachineInventory| {
            let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
            let shown = find_condition(inventory.conditions(), Type::AgentUpdated);
            host.is_some_and(|host| host.agent_version == version)
                && shown.is_some_and(|shown| shown.reason == reason.as_str())
        };
        let found = until(&self.inventories, &self.name, DEADLINE, is_shown).await?;
        let shown = find_condition(found.conditions(), Type::AgentUpdated);
        Ok(shown.map(|shown| shown.message.clone()).unwrap_or_default())
    }
}

async fn run(setup: &mut Setup) -> Result<()> {
    let mut host = Host::Simulated(Simulated::new(setup.environment.workload.clone(), 1)?);
    let mut lifecycle = Lifecycle::new(&setup.environment, &mut host, setup.progress.clone());
    let iso = lifecycle.create_seed(&setup.base).await?;
    lifecycle.register(&iso).await?;
    let name = host.inventory();
    let simulated = host.simulated()?;
    simulated.power_off();
    let program = find_agent(setup.environment.directory.path())?;
    let file = fs::read(&program)?;
    let agent = supervise(program, simulated.disk().root());
    let client = setup.environment.management.admin.clone();
    let inventories = Api::namespaced(client.clone(), NAMESPACE);
    let mut shown = Shown { setup, inventories, name };

    shown.ask("9.0.0", &with_version(file, "9.0.0")?).await?;
    shown.await_shown("9.0.0", Reason::AgentAsWanted).await?;
    let script = format!("#!/bin/sh\n# baremetal-agent-version:9.1.0:{};\nexit 1\n", std::env::consts::ARCH);
    shown.ask("9.1.0", script.as_bytes()).await?;
    let message = shown.await_shown("9.0.0", Reason::AgentUpdateFailed).await?;
    ensure!(message.contains("started 3 times"), "{message}");
    await_event(&client, &shown.name, Reason::AgentUpdateFailed.as_str()).await?;
    ensure!(!agent.is_finished(), "the agent cannot be started");
    agent.abort();
    Ok(())
}

// Fault: a host is sent an agent that ends at once.
// Shown: condition `AgentUpdated`: `AgentUpdateFailed`, and an Event; the agent of before runs.
#[tokio::test(flavor = "multi_thread")]
async fn real_agents_replace_each_other() {
    let mut setup = Setup::start().await;
    let result = run(&mut setup).await;
    setup.check(result);
}
