//! Plans that operators write for hosts, in the format of the upstream agent.

use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::{PlanState, PlanType};
use coordinator_api::names::annotation;
use fake_apiserver::{Matching, Refusal};
use scenarios::{Scenario, World, kill_at_every_write};
use serde_json::json;

use crate::holding::set_paused;

/// `{"files":[{"path":"/srv/x","content":"eA=="}],"instructions":[{"name":"NAME","command":"true"}]}`
async fn write_plan(world: &World, name: &str, kind: &str) {
    let plan = json!({
        "files": [{ "path": "/srv/x", "content": "eA==" }],
        "instructions": [{ "name": name, "command": "true", "saveOutput": true }],
    });
    let rest = json!({
        "type": "elemental.cattle.io/plan",
        "metadata": { "annotations": { annotation::PLAN_TYPE: kind } },
        "stringData": { "plan": plan.to_string() },
    });
    world.create("Secret", name, rest).await;
}

async fn ask(world: &World, plan: &str) {
    let asked = json!({ "metadata": { "annotations": { annotation::CUSTOM_PLAN: plan } } });
    world.patch("MachineInventory", "host-1", asked).await;
}

async fn wait_ended(world: &World, generation: i64, state: PlanState) {
    world
        .wait_until("the operator's plan has ended", |world| {
            let inventory = world.inventory("host-1").unwrap();
            let is_asked =
                inventory.metadata.annotations.as_ref().unwrap().contains_key(annotation::CUSTOM_PLAN);
            let plan = inventory.status.unwrap().plan.unwrap();
            plan.kind == Some(PlanType::Custom)
                && (plan.generation, plan.state) == (Some(generation), Some(state))
                && !is_asked
        })
        .await;
}

fn runs(world: &World, name: &str) -> usize {
    let ran = format!("custom {name}");
    world.host("host-1").system().effects().iter().filter(|effect| **effect == ran).count()
}

// Fault: the API server refuses the plan of an operator each time, as one that is too large for a Secret.
// Shown: conditions `Ready` and `CustomPlanAccepted` of the MachineInventory: `ApiRequestFailed`; its network is accepted meanwhile.
#[tokio::test(start_paused = true)]
async fn refused_plan_holds_up_nothing_else() {
    let mut world = World::new().await;
    world.allows_custom_plans = true;
    world.create_prerequisites(&["host-1"]).await;
    world.wait_idle().await;
    let writes = Matching::writes().user("coordinator").resource("secrets").name("host-1");
    let refused = world.fake.faults().fail(writes, 30, Refusal::Forbidden);
    write_plan(&world, "firmware", "custom").await;
    ask(&world, "firmware").await;
    let accept = json!({ "metadata": { "annotations": { annotation::ACCEPT_OBSERVED_NETWORK: "" } } });
    world.patch("MachineInventory", "host-1", accept).await;
    let is_accepted = |world: &World| {
        let annotations = world.inventory("host-1").unwrap().metadata.annotations.unwrap();
        !annotations.contains_key(annotation::ACCEPT_OBSERVED_NETWORK)
    };
    world.wait_until("the network is accepted", is_accepted).await;
    let action = "correct what the message names";
    world.expect_why("machineinventory/host-1", Reason::ApiRequestFailed, "Secret host-1", action).await;
    let told = world.host_condition("host-1", Type::CustomPlanAccepted).unwrap();
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", "ApiRequestFailed"));
    assert!(refused.is_met());
    world.fake.faults().clear();
    wait_ended(&world, 1, PlanState::Applied).await;
    world.expect_nothing("machineinventory/host-1").await;
    world.check_invariants().await;
}

// Fault: an operator asks for a plan of their own on a free host and on a node, and for plans of other kinds.
// Shown: condition `CustomPlanAccepted` of the MachineInventory: `CustomPlanInvalid`; results in its plan Secret.
#[tokio::test(start_paused = true)]
async fn an_operators_plan_runs_once_beside_the_lifecycle() {
    let mut world = World::new().await;
    world.allows_custom_plans = true;
    world.create_prerequisites(&["host-1"]).await;
    write_plan(&world, "firmware", "custom").await;
    ask(&world, "firmware").await;
    wait_ended(&world, 1, PlanState::Applied).await;
    assert_eq!(runs(&world, "firmware"), 1);
    world.wait_until("the host is available", |world| world.is_available("host-1")).await;
    world.wait_idle().await;
    let inventory = world.inventory("host-1").unwrap();
    let is_blocked = inventory.metadata.annotations.unwrap().contains_key(annotation::BLOCK_MOVE);
    assert!(!is_blocked, "clusterctl move waits for no free host");

    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    write_plan(&world, "tuning", "custom").await;
    ask(&world, "tuning").await;
    wait_ended(&world, 3, PlanState::Applied).await;
    assert_eq!((runs(&world, "firmware"), runs(&world, "tuning")), (1, 1));
    let secret = world.get_object("secrets", "host-1").unwrap();
    assert!(secret["data"]["applied-checksum"].as_str().is_some_and(|checksum| !checksum.is_empty()));

    write_plan(&world, "reset", "reset").await;
    for plan in ["reset", "nothing", "host-1"] {
        ask(&world, plan).await;
        world
            .wait_until("it is refused by name", |world| {
                let condition = world.host_condition("host-1", Type::CustomPlanAccepted);
                condition.is_some_and(|condition| {
                    condition.reason == Reason::CustomPlanInvalid.as_str()
                        && condition.message.contains(&format!("Secret {plan},"))
                })
            })
            .await;
    }
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::CustomPlanInvalid,
            "Secret host-1",
            "correct the Secret as the message says",
        )
        .await;
    let withdrawn = json!({ "metadata": { "annotations": { annotation::CUSTOM_PLAN: null } } });
    world.patch("MachineInventory", "host-1", withdrawn).await;
    world
        .wait_until("nothing is asked for", |world| {
            world.host_condition("host-1", Type::CustomPlanAccepted).is_none()
        })
        .await;
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;

    // The same version of the Secret: that a clean followed changes nothing.
    ask(&world, "tuning").await;
    world
        .wait_until("the request is removed", |world| {
            let annotations = world.inventory("host-1").unwrap().metadata.annotations.unwrap();
            !annotations.contains_key(annotation::CUSTOM_PLAN)
        })
        .await;
    world.wait_idle().await;
    assert_eq!(runs(&world, "tuning"), 1);
    world.check_invariants().await;
}

// Fault: a host does not run plans of operators.
// Shown: the plan fails with `PlanRefused` and the option of the agent.
#[tokio::test(start_paused = true)]
async fn host_without_option_refuses_operator_plan() {
    let world = World::with_hosts(&["host-1"]).await;
    write_plan(&world, "firmware", "custom").await;
    ask(&world, "firmware").await;
    wait_ended(&world, 1, PlanState::Failed).await;
    let plan = world.inventory("host-1").unwrap().status.unwrap().plan.unwrap();
    assert_eq!(plan.reason.as_deref(), Some(Reason::PlanRefused.as_str()));
    assert!(plan.next_action.unwrap().contains("--allow-custom-instructions"));
    world
        .expect_why(
            "machineinventory/host-1",
            Reason::PlanRefused,
            "instructions",
            "--allow-custom-instructions",
        )
        .await;
    assert_eq!(runs(&world, "firmware"), 0);
    world.check_invariants().await;
}

/// A plan of an operator on a free host.
pub(super) struct OperatorsPlan;

impl Scenario for OperatorsPlan {
    async fn begin() -> World {
        let mut world = World::new().await;
        world.allows_custom_plans = true;
        world.create_prerequisites(&["host-1"]).await;
        write_plan(&world, "firmware", "custom").await;
        world.wait_idle().await;
        world
    }

    async fn play(world: &mut World) {
        ask(world, "firmware").await;
        wait_ended(world, 1, PlanState::Applied).await;
        assert_eq!(runs(world, "firmware"), 1);
        world.expect_nothing("machineinventory/host-1").await;
    }
}

// Fault: the coordinator is killed between the writes that announce an operator's plan.
// Shown: nothing: the plan runs once.
#[tokio::test(start_paused = true)]
async fn a_killed_coordinator_runs_an_operators_plan_once() {
    kill_at_every_write::<OperatorsPlan>().await;
}

// Fault: an operator asks for a plan, a reboot and the acceptance of the network of a paused host.
// Shown: nothing: the host does all of it after the pause.
#[tokio::test(start_paused = true)]
async fn paused_host_keeps_requests_for_later() {
    let mut world = World::new().await;
    world.allows_custom_plans = true;
    world.create_prerequisites(&["host-1"]).await;
    world.wait_idle().await;
    let session = |world: &World| world.inventory("host-1").unwrap().status.unwrap().host.unwrap().session;
    let requests = [annotation::CUSTOM_PLAN, annotation::REBOOT, annotation::ACCEPT_OBSERVED_NETWORK];
    let open = |world: &World| {
        let annotations = world.inventory("host-1").unwrap().metadata.annotations.unwrap();
        requests.into_iter().filter(|key| annotations.contains_key(*key)).count()
    };
    let first = session(&world).unwrap().boot_id;
    set_paused(&world, "MachineInventory", "host-1", true).await;
    write_plan(&world, "firmware", "custom").await;
    ask(&world, "firmware").await;
    for key in [annotation::REBOOT, annotation::ACCEPT_OBSERVED_NETWORK] {
        let asked = json!({ "metadata": { "annotations": { key: "" } } });
        world.patch("MachineInventory", "host-1", asked).await;
    }
    world.advance_time(Duration::from_mins(10)).await;
    assert_eq!((runs(&world, "firmware"), open(&world)), (0, 3), "nothing is done in the pause");
    assert_eq!(session(&world).unwrap().boot_id, first);
    set_paused(&world, "MachineInventory", "host-1", false).await;
    wait_ended(&world, 1, PlanState::Applied).await;
    world.wait_until("every request is met", |world| open(world) == 0).await;
    world
        .wait_until("the host is back", |world| {
            session(world).is_some_and(|session| session.ended.is_none() && session.boot_id != first)
        })
        .await;
    assert_eq!(runs(&world, "firmware"), 1);
    world.wait_idle().await;
    world.expect_nothing("machineinventory/host-1").await;
    world.check_invariants().await;
}
