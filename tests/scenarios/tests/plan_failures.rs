//! Plans that fail on their host: the cause is on the machine, and nothing is tried again by itself. And plans that
//! were rendered by another version: they are carried out as they are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::{PlanState, PlanStatus, PlanType};
use coordinator_api::machine::Phase;
use coordinator_api::names::annotation;
use kube::ResourceExt as _;
use proto::plan::Checksum;
use scenarios::{NAMESPACE, World};
use serde_json::{Value, json};

// Fault: a step of a plan fails: the upgrade, cloud-init, the boot of the new image.
// Shown: condition `PlanApplied` of the machine: `CommandFailed`, `CloudInitFailed`,
// `BootFallback`, `StepTimedOut`, with the output's end.
#[tokio::test(start_paused = true)]
async fn failed_plan_names_its_cause() {
    type Spoil = fn(&simulated_host::SimulatedSystem) -> std::io::Result<()>;
    let cases: [(&str, Spoil, Reason, &str); 4] = [
        ("the upgrade fails", |host| host.fail("upgrade", 1), Reason::CommandFailed, "step upgrade-system"),
        (
            "the new image does not boot",
            |host| host.spoil_image("registry.example/os:v1"),
            Reason::BootFallback,
            "fell back",
        ),
        (
            "cloud-init fails",
            |host| host.spoil_cloud_init("kubeadm: no route to host"),
            Reason::CloudInitFailed,
            "no route to host",
        ),
        ("it never reboots", |host| host.fail("reboot", 1), Reason::StepTimedOut, "reboot it by hand"),
    ];
    for (name, spoil, reason, says) in cases {
        let world = World::with_hosts(&["host-1"]).await;
        spoil(&world.host("host-1").system()).unwrap();
        world.apply_machine("m-1").await;
        let why = world.wait_for_reason("m-1", Type::PlanApplied, reason, "delete the Machine").await;
        assert!(why.contains(says), "{name}: {why}");
        world.expect_event("BaremetalMachine", "m-1", reason.as_str(), &why);
        world.expect_why("machine/m-1", reason, says, "then delete machine/m-1").await;
        assert_eq!(world.phase("m-1"), Some(Phase::Failed), "{name}");
        assert!(world.machine("m-1").unwrap().spec.provider_id.is_none(), "{name}");
        assert_eq!(world.plans().len(), 1, "{name}: not tried again by itself");
        for left in ["fail/upgrade", "fail/reboot", "spoilt", "complaint"] {
            let _ = std::fs::remove_file(world.host("host-1").disk().join("/simulation").join(left));
        }
        world.delete_machine("m-1").await;
        world.wait_released("m-1", "host-1").await;
        world.apply_machine_of("m-2", "pool", "v2").await;
        world.wait_running("m-2").await;
        world.check_invariants().await;
    }
}

// Fault: a bit of the journal of a host flips.
// Shown: condition `JournalReadable` of the MachineInventory: `JournalLost`, with the command that has the host remove
// it; until then every plan is refused.
#[tokio::test(start_paused = true)]
async fn a_lost_journal_is_removed_by_request() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    let journal = world.host("host-1").disk().state().journal();
    let mut bytes = std::fs::read(&journal).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&journal, &bytes).unwrap();
    world.host("host-1").kill_agent();
    let is_lost = |world: &World| world.host_condition("host-1", Type::JournalReadable).is_some();
    world.wait_until("the host states it", is_lost).await;
    let checksum = Checksum::of(&bytes).to_string();
    let command =
        format!("kubectl annotate machineinventory host-1 {}={checksum}", annotation::FORGET_JOURNAL);
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::JournalLost,
            &command,
            "then run the command of the message, which removes the journal",
        )
        .await;
    world.delete_machine("m-1").await;
    world.wait_for_reason("m-1", Type::PlanApplied, Reason::PlanRefused, "JournalReadable").await;
    let request =
        |value: &str| json!({ "metadata": { "annotations": { annotation::FORGET_JOURNAL: value } } });
    world.patch("MachineInventory", "host-1", request("0")).await;
    world.wait_idle().await;
    assert_eq!(std::fs::read(&journal).unwrap(), bytes, "another one was named");
    world.patch("MachineInventory", "host-1", request(&checksum)).await;
    world.wait_until("the host states none", |world| !is_lost(world)).await;
    world.wait_idle().await;
    let inventory = world.inventory("host-1").unwrap();
    assert!(!inventory.annotations().contains_key(annotation::FORGET_JOURNAL), "the request is done");
    assert!(!world.is_available("host-1"), "it carries the node that its files name");
    let retry = json!({ "metadata": { "annotations": { annotation::RETRY_PLAN: "" } } });
    world.patch("BaremetalMachine", "m-1", retry).await;
    world.wait_released("m-1", "host-1").await;
    world.check_invariants().await;
}

// Fault: a clean fails.
// Shown: condition of the machine with cause and next action; the host is not free before it has
// succeeded.
#[tokio::test(start_paused = true)]
async fn failed_clean_holds_the_host_until_retried() {
    let world = World::with_hosts(&["host-1"]).await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.host("host-1").system().fail("remove-workload", 1).unwrap();
    world.delete_machine("m-1").await;
    let action = "the annotation baremetal.cluster.io/retry-plan";
    world.wait_for_reason("m-1", Type::PlanApplied, Reason::CommandFailed, action).await;
    world
        .expect_why(
            "machine/m-1",
            Reason::CommandFailed,
            "remove-workload",
            "kubectl baremetal release host-1 --retry-clean",
        )
        .await;
    assert!(world.inventory("host-1").unwrap().claim().is_some(), "a host that is not clean is not claimed");
    std::fs::remove_file(world.host("host-1").disk().join("/simulation/fail/remove-workload")).unwrap();
    let retry = json!({ "metadata": { "annotations": { "baremetal.cluster.io/retry-plan": "" } } });
    world.patch("BaremetalMachine", "m-1", retry).await;
    world.wait_released("m-1", "host-1").await;
    assert_eq!(world.plans().len(), 3);
    world.check_invariants().await;
}

// Fault: the host cannot write what a plan tells it to keep.
// Shown: condition `PlanApplied` of the machine: `InputOutputFailed` with the path.
#[tokio::test(start_paused = true)]
async fn disk_that_takes_no_file_is_named() {
    let world = World::with_hosts(&["host-1"]).await;
    // Where the directory of the new seed is written first.
    let in_the_way = world.host("host-1").disk().state().path().join(".seed.new");
    std::fs::write(&in_the_way, "").unwrap();
    world.apply_machine("m-1").await;
    let action = "check the host's disk and its kernel log";
    let why = world.wait_for_reason("m-1", Type::PlanApplied, Reason::InputOutputFailed, action).await;
    assert!(why.contains("cannot remove") && why.contains(".seed.new"), "{why}");
    let action = "check the host's disk and its kernel log, then delete machine/m-1";
    world.expect_why("machine/m-1", Reason::InputOutputFailed, ".seed.new", action).await;
    assert_eq!(world.phase("m-1"), Some(Phase::Failed));
    std::fs::remove_file(&in_the_way).unwrap();
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    world.apply_machine("m-2").await;
    world.wait_running("m-2").await;
    world.check_invariants().await;
}

/// The record of another version: the same typed plan, with other files and instructions for the upstream agent, and
/// laid out otherwise.
fn render_otherwise(record: &[u8]) -> Vec<u8> {
    let mut document: Value = serde_json::from_slice(record).unwrap();
    for (number, file) in document["files"].as_array_mut().unwrap().iter_mut().enumerate() {
        file["path"] = json!(format!("/var/lib/other/{number}"));
    }
    document["instructions"] = json!([{ "name": "other", "command": "/bin/true", "args": ["other"] }]);
    serde_json::to_vec_pretty(&document).unwrap()
}

fn plan_of_host(world: &World) -> PlanStatus {
    world.inventory("host-1").unwrap().plan().cloned().unwrap_or_default()
}

/// As a coordinator of another version leaves it: record and announcement, and then it is replaced by this one, which
/// would render the plan otherwise.
#[tokio::test(start_paused = true)]
async fn plan_rendered_by_another_version_is_carried_out() {
    let mut world = World::with_hosts(&["host-1"]).await;
    // It gets nothing of the plan as it is rendered here.
    world.host_mut("host-1").power_off();
    world.apply_machine("m-1").await;
    let is_announced = |world: &World| plan_of_host(world).kind == Some(PlanType::Reprovision);
    world.wait_until("the plan is announced", is_announced).await;
    world.kill_coordinator("coordinator");
    let secret = world.get_object("secrets", "host-1").unwrap();
    let record = STANDARD.decode(secret["data"]["plan"].as_str().unwrap()).unwrap();
    let other = render_otherwise(&record);
    let checksum = Checksum::of(&other).to_string();
    assert_ne!(plan_of_host(&world).checksum.as_deref(), Some(checksum.as_str()));
    world.fake.edit(("secrets", NAMESPACE, "host-1"), |secret| {
        secret["data"]["plan"] = json!(STANDARD.encode(&other));
    });
    world.fake.edit(("machineinventories.elemental.cattle.io", NAMESPACE, "host-1"), |inventory| {
        inventory["status"]["plan"]["checksum"] = json!(checksum);
    });
    world.start_coordinator("coordinator");
    world.host_mut("host-1").power_on();
    let is_begun = |world: &World| {
        let effects = world.host("host-1").system().effects();
        effects.iter().any(|effect| effect.starts_with("upgrade"))
    };
    world.wait_until("the host executes it", is_begun).await;
    assert_eq!(plan_of_host(&world).state, None, "it is not over");
    world.restart_coordinator();
    world.wait_running("m-1").await;
    let plan = plan_of_host(&world);
    assert_eq!((plan.checksum, plan.state), (Some(checksum), Some(PlanState::Applied)));
    assert_eq!(world.plans().len(), 1, "nothing was rendered again");
    world.check_invariants().await;
}
