//! A real host is sent another agent: below its real unit, on its real disk.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ::qemu::HostState;
use agent::version::own_version;
use coordinator_api::conditions::Reason;
use e2e::agents;
use e2e::host::{Host, Qemu};
use e2e::lifecycle::Lifecycle;
use e2e::qemu_site::QemuSite;
use kube::ResourceExt as _;

const PATIENCE: Duration = Duration::from_mins(12);
const WORKS: &str = "9.0.0";
const FAILS: &str = "9.1.0";

/// Waits until the host's unit runs this program.
async fn await_program(host: &Qemu, is_meant: impl Fn(&str) -> bool) -> String {
    let script = "readlink /proc/$(systemctl show --value -p MainPID baremetal-agent)/exe";
    let seen = async || {
        let program = host.inside(script).await.map_err(|error| error.to_string())?.trim().to_owned();
        if is_meant(&program) { Ok(program) } else { Err(program) }
    };
    host.host().unwrap().wait_until("the program of the unit", PATIENCE, seen).await.unwrap()
}

async fn power_cycle(host: &mut Qemu) {
    let machine = host.host_mut().unwrap();
    machine.power_cut().await;
    machine.power_on().await.unwrap();
    let HostState::On(boot) = machine.state() else { unreachable!() };
    machine.wait_for_boot(boot, PATIENCE).await.unwrap();
}

// Fault: a host is sent an agent that ends at once.
// Shown: condition `AgentUpdated`: `AgentUpdateFailed`, and an Event; the agent of before runs.
#[tokio::test(flavor = "multi_thread")]
async fn real_host_runs_the_agent_that_attaches() {
    let site = QemuSite::start().await.unwrap();
    let QemuSite { inputs, mut environment, mut host, base, progress, watching: _watching } = site;
    let file = std::fs::read(&inputs.agent).unwrap();
    let mut lifecycle = Lifecycle::new(&environment, &mut host, progress.clone());
    let iso = lifecycle.create_seed(&base).await.unwrap();
    let inventory = lifecycle.register(&iso).await.unwrap();
    drop(lifecycle);
    let name = inventory.name_any();
    let stated = inventory.status.and_then(|status| status.host).unwrap().agent_version;
    assert_eq!(stated, own_version().to_string());
    let Host::Qemu(qemu) = &mut host else { unreachable!() };
    await_program(qemu, |program| program == "/usr/bin/baremetal-agent").await;

    progress.step("another agent comes over the stream");
    let newer = agents::with_version(file, WORKS).unwrap();
    agents::ask(&mut environment, &name, WORKS, &newer).await.unwrap();
    agents::await_shown(&environment, &name, (WORKS, Reason::AgentAsWanted), PATIENCE).await.unwrap();
    let kept = await_program(qemu, |program| program.contains("/updates/")).await;

    progress.step("fault: an agent that ends at once");
    agents::ask(&mut environment, &name, FAILS, &agents::failing_agent(FAILS)).await.unwrap();
    let shown = (WORKS, Reason::AgentUpdateFailed);
    let message = agents::await_shown(&environment, &name, shown, PATIENCE).await.unwrap();
    assert!(message.contains("started 3 times"), "{message}");
    await_program(qemu, |program| program == kept).await;

    progress.step("fault: a power cut");
    power_cycle(qemu).await;
    await_program(qemu, |program| program == kept).await;
    progress.end();
}
