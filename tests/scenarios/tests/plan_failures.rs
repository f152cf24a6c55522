//! Plans that fail on their host: the cause is on the machine, and nothing is tried again by itself.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::machine::Phase;
use scenarios::World;
use serde_json::json;

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
