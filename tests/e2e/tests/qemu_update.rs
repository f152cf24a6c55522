//! What operators send to a real host: a plan of their own, and another agent, below its real unit, on its real disk.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ::guest::PowerState;
use agent::ground::version::own_version;
use coordinator_api::conditions::Reason;
use coordinator_api::inventory::{MachineInventory, PlanState, PlanType};
use coordinator_api::names::annotation;
use e2e::agents;
use e2e::environment::Environment;
use e2e::guest_site::GuestSite;
use e2e::host::GuestHost;
use e2e::lifecycle::{Lifecycle, NAMESPACE};
use e2e::watching::until;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

const TIME_LIMIT: Duration = Duration::from_mins(12);
const WORKS: &str = "9.0.0";
const FAILS: &str = "9.1.0";

/// Waits until the host's unit runs this program.
async fn await_program(host: &GuestHost, is_meant: impl Fn(&str) -> bool) -> String {
    let script = "readlink /proc/$(systemctl show --value -p MainPID baremetal-agent)/exe";
    let seen = async || {
        let program = host.inside(script).await.map_err(|error| error.to_string())?.trim().to_owned();
        if is_meant(&program) { Ok(program) } else { Err(program) }
    };
    host.running().unwrap().wait_until("the program of the unit", TIME_LIMIT, seen).await.unwrap()
}

async fn power_cycle(host: &mut GuestHost) {
    let machine = host.running_mut().unwrap();
    machine.power_cut().await;
    machine.power_on().await.unwrap();
    let PowerState::On(boot) = machine.state() else { unreachable!() };
    machine.wait_for_boot(boot, TIME_LIMIT).await.unwrap();
}

/// Until the host is powered off.
async fn allow_plans_of_operators(host: &GuestHost) {
    let directory = "/run/systemd/system/baremetal-agent.service.d";
    let option =
        "[Service]\nExecStart=\nExecStart=/usr/bin/baremetal-agent --allow-custom-instructions run\n";
    let script = format!(
        "mkdir -p {directory}; printf '{option}' >{directory}/option.conf; \
         systemctl daemon-reload; systemctl restart baremetal-agent"
    );
    host.inside(&script).await.unwrap();
}

/// An operator's plan runs with the arguments that it has, also where systemd would put a variable for them.
/// It writes to `/srv`, which is read-only to the agent itself.
async fn run_an_operators_plan(environment: &Environment, host: &GuestHost, name: &str) {
    const ARGUMENTS: [&str; 4] = ["${X}", "$X", "$$X", "100%"];
    allow_plans_of_operators(host).await;
    host.inside("mkdir -p /srv/old && echo old >/srv/old/file").await.unwrap();
    let write = ["-c", "printf '%s\n' \"$@\" >/srv/new/arguments", "sh"];
    let arguments: Vec<_> = write.into_iter().chain(ARGUMENTS).collect();
    let instruction =
        json!({ "name": "write", "command": "/bin/sh", "args": arguments, "env": ["X=replaced"] });
    // "content\n"
    let content = "Y29udGVudAo=";
    let files = json!([
        { "path": "/srv/new/file", "content": content, "permissions": "0640", "uid": 7, "gid": 8 },
        { "path": "/srv/old/file", "action": "delete" },
    ]);
    let secret = json!({
        "metadata": { "name": "firmware", "annotations": { annotation::PLAN_TYPE: "custom" } },
        "type": "elemental.cattle.io/plan",
        "stringData": { "plan": json!({ "files": files, "instructions": [instruction] }).to_string() },
    });
    environment.management.apply_secret(NAMESPACE, serde_json::from_value(secret).unwrap()).await.unwrap();
    let inventories: Api<MachineInventory> = Api::namespaced(environment.management.admin.clone(), NAMESPACE);
    let asked = json!({ "metadata": { "annotations": { annotation::CUSTOM_PLAN: "firmware" } } });
    inventories.patch(name, &PatchParams::default(), &Patch::Merge(asked)).await.unwrap();
    let has_run = |inventory: &MachineInventory| {
        inventory
            .plan()
            .is_some_and(|plan| plan.kind == Some(PlanType::Custom) && plan.state == Some(PlanState::Applied))
    };
    until(&inventories, name, TIME_LIMIT, has_run).await.unwrap();
    let written = host.inside("cat /srv/new/arguments").await.unwrap();
    assert_eq!(written.lines().collect::<Vec<_>>(), ARGUMENTS);
    let placed = host.inside("stat -c '%u:%g %a %F' /srv/new/file; cat /srv/new/file").await.unwrap();
    assert_eq!(placed.lines().collect::<Vec<_>>(), ["7:8 640 regular file", "content"]);
    let left = host.inside("ls -A /srv/new /srv/old").await.unwrap();
    assert_eq!(left.split_whitespace().collect::<Vec<_>>(), ["/srv/new:", "arguments", "file", "/srv/old:"]);
}

// Fault: a host is sent an agent that ends at once.
// Shown: condition `AgentUpdated`: `AgentUpdateFailed`, and an Event; the agent of before runs.
#[tokio::test(flavor = "multi_thread")]
async fn real_host_runs_the_agent_that_attaches() {
    let site = GuestSite::start().await.unwrap();
    let GuestSite { inputs, mut environment, mut host, base, progress, watching: _watching, .. } = site;
    let file = std::fs::read(&inputs.agent).unwrap();
    let mut lifecycle = Lifecycle::new(&environment, &mut host, progress.clone());
    let iso = lifecycle.create_seed(&base).await.unwrap();
    let inventory = lifecycle.register(&iso).await.unwrap();
    drop(lifecycle);
    let name = inventory.name_any();
    let stated = inventory.status.and_then(|status| status.host).unwrap().agent_version;
    assert_eq!(stated, own_version().to_string());
    let qemu = &mut host;
    await_program(qemu, |program| program == "/usr/bin/baremetal-agent").await;

    progress.step("an operator's plan");
    run_an_operators_plan(&environment, qemu, &name).await;

    progress.step("another agent comes over the stream");
    let newer = agents::with_version(file, WORKS).unwrap();
    agents::ask(&mut environment, &name, WORKS, &newer).await.unwrap();
    agents::await_shown(&environment, &name, (WORKS, Reason::AgentAsWanted), TIME_LIMIT).await.unwrap();
    let kept = await_program(qemu, |program| program.contains("/updates/")).await;

    progress.step("fault: an agent that ends at once");
    agents::ask(&mut environment, &name, FAILS, &agents::failing_agent(FAILS)).await.unwrap();
    let shown = (WORKS, Reason::AgentUpdateFailed);
    let message = agents::await_shown(&environment, &name, shown, TIME_LIMIT).await.unwrap();
    assert!(message.contains("started 3 times"), "{message}");
    await_program(qemu, |program| program == kept).await;

    progress.step("fault: a power cut");
    power_cycle(qemu).await;
    await_program(qemu, |program| program == kept).await;
    progress.end();
}
