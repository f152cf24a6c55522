//! Plans on the stream, and reports of their steps.

use coordinator_core::network::HostNetwork;
use coordinator_core::plan::{Clean, PlanInputs, render};
use proto::plan::{Generation, Plan, Secret};
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use serde_json::json;
use wire::host_message::Message;
use wire::step_report::Outcome;

use super::world::{self, Link, World, refusal, short};
use super::{Stream, attach_to, attached, condition, pair, requests};
use crate::rpc::SessionTiming;

fn clean(generation: u64) -> (Plan, Secret) {
    let inputs = PlanInputs::Clean(Clean { network: HostNetwork::default() });
    render(&inputs, Generation(generation), "owner").unwrap()
}

fn done(plan: &wire::Plan, step: usize) -> wire::StepReport {
    let done = wire::StepDone { output: format!("output {step}"), system: None };
    wire::StepReport {
        plan_id: plan.id.clone(),
        generation: plan.generation,
        step: u32::try_from(step).unwrap(),
        outcome: Some(Outcome::Done(done)),
    }
}

fn failure(reason: wire::FailureReason) -> wire::Failure {
    wire::Failure {
        reason: reason.into(),
        message: "containerd does not answer".into(),
        next_action: "restart it".into(),
    }
}

/// Reports the steps of a plan as done, but the last one, whose index is the answer.
async fn report_but_last(link: &mut Link, plan: &wire::Plan) -> usize {
    let last = plan.steps.len() - 1;
    for step in 0..last {
        link.report_step(done(plan, step)).await.unwrap();
    }
    last
}

async fn next_plan(stream: &mut Stream) -> wire::Plan {
    let message = stream.message().await.unwrap().unwrap();
    let Some(wire::coordinator_message::Message::Plan(plan)) = message.message else {
        panic!("not a plan: {message:?}");
    };
    plan
}

/// A thief with the key of the tenancy ends the clean in place of the host, to get the next plan.
// Fault: a former key of a host with a TPM reports the end of a clean.
// Shown: Event of the MachineInventory: `KeyReplaced`; the plan goes on.
#[tokio::test]
async fn former_key_ends_no_clean() {
    let world = World::start().await;
    let (_host, _chain, mut link, mut stream) = attached(&world).await;
    world.announce("m-a", &clean(1));
    let plan = next_plan(&mut stream).await;
    world.fake.edit((world::INVENTORIES, "fleet", "m-a"), |inventory| {
        inventory["status"]["plan"]["announced"] = json!("2026-01-01T00:00:00Z");
        let live = json!({ "attestationKey": "00", "resetCount": 1, "provesRenewals": true });
        inventory["status"]["host"]["liveTPM"] = live;
    });
    world.settled("m-a").await;
    let last = report_but_last(&mut link, &plan).await;
    let refused = link.report_step(done(&plan, last)).await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::KeyReplaced));
    assert!(world.inventory("m-a").unwrap()["status"]["plan"]["state"].is_null());
    world.expect_event("MachineInventory", "m-a", "KeyReplaced", "kubectl baremetal replace-key").await;
}

#[tokio::test]
async fn plan_end_costs_two_writes() {
    let world = World::start().await;
    let (_host, _chain, mut link, mut stream) = attached(&world).await;
    let record = clean(1);
    world.announce("m-a", &record);
    let plan = next_plan(&mut stream).await;
    assert_eq!((plan.id.as_str(), plan.generation), (record.0.id.as_str(), 1));
    assert_eq!(plan.checksum, record.0.checksum.as_str());
    world.settled("m-a").await;
    world.spent().await;
    let last = report_but_last(&mut link, &plan).await;
    assert_eq!(requests(&world.spent().await), (0, 0), "progress is not written");
    link.report_step(done(&plan, last)).await.unwrap();
    let counts = world.spent().await;
    assert_eq!(requests(&counts), (2, 2), "{counts}");
    let inventory = world.inventory("m-a").unwrap();
    assert_eq!(inventory["status"]["plan"]["state"], "Applied");
    assert_eq!(inventory["status"]["plan"]["checksum"], record.0.checksum.as_str());
    assert_eq!(condition(&inventory, "Ready"), pair("True", "PlanSuccessfullyApplied"));
    let secret = world.secret("m-a").unwrap();
    let text = |key: &str| world::decode(&secret["data"][key]);
    assert_eq!(text("applied-checksum"), record.0.checksum.as_str().as_bytes());
    assert_eq!((text("failure-count"), text("success-count")), (b"0".to_vec(), b"1".to_vec()));
    world.settled("m-a").await;
    link.report_step(done(&plan, last)).await.unwrap();
    assert_eq!(requests(&world.spent().await), (0, 0), "reported twice");
}

// Fault: the status of an inventory is lost while its host is attached.
// Shown: nothing: the host states again what it carries.
#[tokio::test]
async fn restored_inventory_asks_for_a_new_statement() {
    let world = World::start().await;
    let (host, chain, mut link, mut stream) = attached(&world).await;
    world.announce("m-a", &clean(1));
    let plan = next_plan(&mut stream).await;
    for step in 0..plan.steps.len() {
        link.report_step(done(&plan, step)).await.unwrap();
    }
    assert_eq!(world.inventory("m-a").unwrap()["status"]["plan"]["state"], "Applied");
    world.settled("m-a").await;
    world.recreate("m-a").await;
    let ended = stream.message().await.unwrap_err();
    assert_eq!(ended.code(), tonic::Code::Aborted, "{ended:?}");
    let carried = &world.inventory("m-a").unwrap()["status"]["host"]["carried"];
    assert!(carried.is_null(), "what the host stated before the plan was recorded: {carried}");
    let (_link, _stream) = attach_to(&world, 0, (&host, &chain), "boot-1").await;
    world.expect_nothing("machineinventory/m-a").await;
}

// Fault: a host reports a step of an older plan.
// Shown: log of the host: `StalePlan`; the inventory is unchanged.
#[tokio::test]
async fn stale_reports_change_nothing() {
    let world = World::start().await;
    let (_host, _chain, mut link, mut stream) = attached(&world).await;
    world.announce("m-a", &clean(1));
    let old = next_plan(&mut stream).await;
    world.announce("m-a", &clean(2));
    let new = next_plan(&mut stream).await;
    assert_eq!((old.generation, new.generation), (1, 2));
    world.spent().await;
    let foreign = wire::StepReport { plan_id: "clean-0000000000000000".into(), ..done(&new, 0) };
    for (name, report) in [("older", done(&old, old.steps.len() - 1)), ("foreign", foreign)] {
        let refused = link.report_step(report).await.unwrap_err();
        assert_eq!(refusal(&refused), Some(Refusal::StalePlan), "{name}");
    }
    assert_eq!(world.spent().await.writes, 0);
}

// Fault: a step fails on the host.
// Shown: conditions of MachineInventory and machine with the cause and the step.
#[tokio::test]
async fn failed_step_ends_the_plan() {
    let world = World::start().await;
    let (_host, _chain, mut link, mut stream) = attached(&world).await;
    let record = clean(1);
    world.announce("m-a", &record);
    let plan = next_plan(&mut stream).await;
    let cause = Some(failure(wire::FailureReason::Command));
    let failed = wire::StepFailed { failure: cause, output: "crictl: timed out\n".into() };
    let report = wire::StepReport { outcome: Some(Outcome::Failed(failed)), ..done(&plan, 1) };
    link.report_step(report).await.unwrap();
    let inventory = world.inventory("m-a").unwrap();
    let status = &inventory["status"]["plan"];
    assert_eq!((&status["state"], &status["reason"]), (&"Failed".into(), &"CommandFailed".into()));
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("containerd does not answer"), "{message}");
    assert_eq!(status["nextAction"], "restart it");
    assert_eq!(condition(&inventory, "Ready"), pair("False", "PlanFailure"));
    let cause = "step remove-workload: containerd does not answer";
    world.expect_why("machineinventory/m-a", "CommandFailed", cause, "restart it, then").await;
    let secret = world.secret("m-a").unwrap();
    assert_eq!(world::decode(&secret["data"]["failed-checksum"]), record.0.checksum.as_str().as_bytes());
    assert_eq!(world::decode(&secret["data"]["failure-count"]), b"1");
    let output = read_output(&world::decode(&secret["data"]["failed-output"]), "01-remove-workload");
    assert_eq!(output, "containerd does not answer\ncrictl: timed out\n", "kubectl baremetal logs shows it");
}

/// The output of a step, from a gzip of a JSON map to base64.
fn read_output(packed: &[u8], step: &str) -> String {
    let outputs: serde_json::Value = serde_json::from_reader(flate2::read::GzDecoder::new(packed)).unwrap();
    String::from_utf8(world::decode(&outputs[step])).unwrap()
}

#[tokio::test]
async fn refused_plan_ends_as_plan_refused() {
    let world = World::start().await;
    let (_host, _chain, link, mut stream) = attached(&world).await;
    world.announce("m-a", &clean(1));
    let plan = next_plan(&mut stream).await;
    for (generation, failed) in [
        (plan.generation, None),
        (plan.generation + 1, Some(failure(wire::FailureReason::NoSpace))),
        (plan.generation, Some(failure(wire::FailureReason::NoSpace))),
    ] {
        link.send(Message::Acknowledgement(wire::PlanAcknowledgement {
            plan_id: plan.id.clone(),
            generation,
            failure: failed,
        }))
        .await;
    }
    let status = || world.inventory("m-a").unwrap()["status"]["plan"].clone();
    world.until(|| status()["state"] == "Failed").await;
    assert_eq!(status()["reason"], "PlanRefused");
}

// Fault: the plan Secret is damaged while the host carries the plan.
// Shown: condition of the MachineInventory; the host waits.
#[tokio::test]
async fn unusable_secret_is_shown_until_restored() {
    let (plan, bytes) = clean(1);
    let altered = String::from_utf8(bytes.expose().to_vec()).unwrap() + "\n";
    for (want, unusable) in [
        ("PlanSecretInvalid", b"{ not json".to_vec()),
        ("PlanSecretAltered", altered.into_bytes()),
        ("PlanSecretAltered", b"{}".to_vec()),
    ] {
        let world = World::start().await;
        let (_host, _chain, mut link, mut stream) = attached(&world).await;
        world.write_secret("m-a", &unusable);
        world.announce_status("m-a", &plan);
        let ready = || condition(&world.inventory("m-a").unwrap(), "Ready").1;
        world.until(|| ready() == want).await;
        world.expect_why("machineinventory/m-a", want, "Secret", "restore").await;
        let report = done(&wire::Plan::from(&plan), 0);
        let unjudged = link.report_step(report).await.unwrap_err();
        assert_eq!(unjudged.code(), tonic::Code::Unavailable, "{want}");
        world.write_secret("m-a", bytes.expose());
        assert_eq!(next_plan(&mut stream).await.generation, 1, "{want}: the Secret is read again");
        world.until(|| ready() == "WaitingForPlan").await;
    }
}

// Fault: the plan Secret of a running plan is deleted.
// Shown: condition of the MachineInventory; the host waits.
#[tokio::test]
async fn missing_secret_is_shown() {
    let world = World::start().await;
    let (_host, _chain, _link, mut stream) = attached(&world).await;
    let secret = world.secret("m-a").unwrap();
    world.fake.take_out("secrets", "fleet", "m-a");
    world.announce_status("m-a", &clean(1).0);
    let ready = || condition(&world.inventory("m-a").unwrap(), "Ready").1;
    world.until(|| ready() == "PlanSecretMissing").await;
    world.expect_why("machineinventory/m-a", "PlanSecretMissing", "Secret", "restore").await;
    let mut secret: k8s_openapi::api::core::v1::Secret = serde_json::from_value(secret).unwrap();
    (secret.metadata.resource_version, secret.metadata.uid) = (None, None);
    let secrets = kube::Api::namespaced(world.fake.client("operator"), "fleet");
    secrets.create(&kube::api::PostParams::default(), &secret).await.unwrap();
    world.write_secret("m-a", clean(1).1.expose());
    assert_eq!(next_plan(&mut stream).await.generation, 1);
}

#[tokio::test]
async fn long_step_is_recorded_once() {
    let world = World::with_replicas(1, short()).await;
    let (_host, _chain, link, mut stream) = attached(&world).await;
    world.announce("m-a", &clean(1));
    let plan = next_plan(&mut stream).await;
    world.settled("m-a").await;
    world.spent().await;
    for (generation, attempt) in [(9, 7), (plan.generation, 2)] {
        let plan_id = plan.id.clone();
        link.send(Message::Progress(wire::StepProgress {
            plan_id,
            generation,
            step: 1,
            attempt,
            ..Default::default()
        }))
        .await;
    }
    let step = || world.inventory("m-a").unwrap()["status"]["plan"]["step"].clone();
    world.until(|| !step().is_null()).await;
    assert_eq!(step(), serde_json::json!({ "name": plan_step_name(1), "attempt": 2 }));
    assert_eq!(world.spent().await.writes, 1);
}

fn plan_step_name(step: usize) -> &'static str {
    clean(1).0.steps[step].name()
}

#[tokio::test]
async fn short_step_is_not_recorded() {
    let world = World::with_replicas(1, SessionTiming { step_delay: short().step_delay, ..short() }).await;
    let (_host, _chain, mut link, mut stream) = attached(&world).await;
    world.announce("m-a", &clean(1));
    let plan = next_plan(&mut stream).await;
    world.settled("m-a").await;
    world.spent().await;
    link.report_step(done(&plan, 0)).await.unwrap();
    for step in [0, 1] {
        let (plan_id, generation) = (plan.id.clone(), plan.generation);
        link.send(Message::Progress(wire::StepProgress {
            plan_id,
            generation,
            step,
            attempt: 1,
            ..Default::default()
        }))
        .await;
        if step == 0 {
            // Due for the reported step, then for the one that runs.
            link.report_step(done(&plan, 0)).await.unwrap();
        }
    }
    let name = || world.inventory("m-a").unwrap()["status"]["plan"]["step"]["name"].clone();
    world.until(|| !name().is_null()).await;
    assert_eq!(name(), plan_step_name(1), "the first one was reported");
}
