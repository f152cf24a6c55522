//! The agent's real process at the real coordinator: another one comes over its stream.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agent::ground::paths::Root;
use anyhow::{Result, ensure};
use coordinator_api::conditions::Reason;
use e2e::agents;
use e2e::host::{Host as _, Simulated};
use e2e::lifecycle::Lifecycle;
use e2e::replicas::find_binary;
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

async fn run(setup: &mut Setup) -> Result<()> {
    let mut host = Simulated::new(setup.environment.workload.clone(), 1)?;
    let mut lifecycle = Lifecycle::new(&setup.environment, &mut host, setup.progress.clone());
    let iso = lifecycle.create_seed(&setup.base).await?;
    lifecycle.register(&iso).await?;
    let name = host.inventory();
    host.power_off();
    let program = find_agent(setup.environment.directory.path())?;
    let file = fs::read(&program)?;
    let agent = supervise(program, host.disk().root());
    let environment = &mut setup.environment;
    agents::ask(environment, &name, "9.0.0", &agents::with_version(file, "9.0.0")?).await?;
    agents::await_shown(environment, &name, ("9.0.0", Reason::AgentAsWanted), DEADLINE).await?;
    agents::ask(environment, &name, "9.1.0", &agents::failing_agent("9.1.0")).await?;
    let message =
        agents::await_shown(environment, &name, ("9.0.0", Reason::AgentUpdateFailed), DEADLINE).await?;
    ensure!(message.contains("started 3 times"), "{message}");
    await_event(&environment.management.admin, &name, Reason::AgentUpdateFailed.as_str()).await?;
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
