//! The plans of the coordinator, run by the upstream system-agent.
//!
//! The upstream system-agent writes the files of a plan, runs its instructions, and does both again
//! at each of its starts. A runner that does the same reaches the end state of a plan that the
//! coordinator streams, each effect once.

mod host;
mod runner;
mod state;

use std::process::Command;

use agent::ground::paths::Root;
use agent::plan::staged::lock_plans;
use coordinator_core::network::HostNetwork;
use coordinator_core::plan::{self, Clean, Names, PlanInputs, Reprovision};
use proto::plan::{Generation, Image, Plan, RegistryAccess, Secret};

use host::{Host, V2};
use runner::{Document, put_agent};
use state::{list_differences, read_state};

const NETWORK: &str = "version: 2\nethernets: {}\n";

fn render(inputs: &PlanInputs) -> (Plan, Secret) {
    plan::render(inputs, Generation(3), "claim").unwrap()
}

fn network(network_config: Option<&str>) -> HostNetwork {
    let keyfile = |_| ("eno1".to_owned(), Secret::new(b"[connection]\ntype=ethernet\n".to_vec()));
    HostNetwork {
        network_config: network_config.map(str::to_owned),
        connections: network_config.map(keyfile).into_iter().collect(),
        network_data: network_config.map(|_| Secret::new(b"{\"links\":[]}".to_vec())),
    }
}

fn reprovision(network_config: Option<&str>) -> (Plan, Secret) {
    reprovision_from(None, network_config)
}

fn reprovision_from(registry: Option<RegistryAccess>, network_config: Option<&str>) -> (Plan, Secret) {
    render(&PlanInputs::Reprovision(Reprovision {
        image: Image::parse(V2).unwrap(),
        registry: registry.map(Box::new),
        user_data: Secret::new(b"#cloud-config\nruncmd: [canary]\n".to_vec()),
        network: network(network_config),
        names: Names {
            hostname: "node-2".into(),
            machine: "machine-2".into(),
            namespace: "fleet".into(),
            uuid: "u-1".into(),
            provider_id: "baremetal:///host-1".into(),
        },
        meta_data: std::collections::BTreeMap::new(),
    }))
}

fn clean(network_config: Option<&str>) -> (Plan, Secret) {
    render(&PlanInputs::Clean(Clean { network: network(network_config) }))
}

/// Every file that an upgrade has.
fn registry() -> RegistryAccess {
    RegistryAccess {
        docker_config: Some(Secret::new(b"{\"auths\":{}}".to_vec())),
        authorities: Some("an authority\n".to_owned()),
        https_proxy: Some(Secret::new(b"http://user:password@proxy.example:3128".to_vec())),
        http_proxy: Some(Secret::new(b"http://proxy.example:3128".to_vec())),
        no_proxy: Some("registry.example".to_owned()),
    }
}

fn every_record() -> [(&'static str, (Plan, Secret)); 5] {
    [
        ("reprovision with network", reprovision(Some(NETWORK))),
        ("reprovision without network", reprovision(None)),
        ("reprovision from a registry", reprovision_from(Some(registry()), Some(NETWORK))),
        ("clean with network", clean(Some(NETWORK))),
        ("clean without network", clean(None)),
    ]
}

fn assert_same(ours: &Host, theirs: &Host, name: &str) {
    assert_eq!(theirs.effects(), ours.effects(), "{name}");
    let states = (read_state(&ours.root), read_state(&theirs.root));
    assert!(states.0.len() > 20, "{name}: {:?}", states.0);
    assert_eq!(list_differences(&states.0, &states.1), [], "{name}");
}

#[tokio::test(start_paused = true)]
async fn plan_run_twice_ends_as_streamed() {
    for (name, (plan, bytes)) in every_record() {
        let (ours, theirs) = (Host::with_node(), Host::with_node());
        ours.execute_streamed(&plan).await;
        let document = Document::parse(&bytes);
        let first = theirs.run_to_end(&document).await;
        let last = plan.steps.last().unwrap().name();
        assert!(first.ends_with(&format!("step {last}: done\n")), "{name}: {first}");
        let effects = theirs.effects();
        assert_eq!(theirs.run_to_end(&document).await, format!("step {last}: done\n"), "{name}");
        assert_eq!(theirs.effects(), effects, "{name}: the second run has no effect");
        assert_same(&ours, &theirs, name);
    }
}

/// The process is killed when it has printed so many steps.
#[tokio::test(start_paused = true)]
async fn plan_interrupted_anywhere_ends_as_streamed() {
    for (name, (plan, bytes)) in
        [("reprovision", reprovision(Some(NETWORK))), ("clean", clean(Some(NETWORK)))]
    {
        let ours = Host::with_node();
        ours.execute_streamed(&plan).await;
        let document = Document::parse(&bytes);
        for steps in 0..plan.steps.len() {
            let theirs = Host::with_node();
            theirs.run_steps(&document, steps).await;
            theirs.reboot_if_asked();
            theirs.run_to_end(&document).await;
            assert_same(&ours, &theirs, &format!("{name}, {steps} steps"));
        }
    }
}

/// The journal of a step that is done is on the disk.
#[tokio::test(start_paused = true)]
async fn power_cut_repeats_no_upgrade() {
    let (plan, bytes) = reprovision(Some(NETWORK));
    let document = Document::parse(&bytes);
    for steps in 0..plan.steps.len() {
        let host = Host::with_node();
        host.run_steps(&document, steps).await;
        host.boot();
        host.run_to_end(&document).await;
        let count = |effect: &str| host.effects().iter().filter(|line| *line == effect).count();
        assert_eq!(count(&format!("upgrade {V2}")), 1, "{steps} steps: {:?}", host.effects());
        assert_eq!(count("node joins on lab/os:v2"), 1, "{steps} steps: {:?}", host.effects());
    }
}

/// Each agent finds in the journal that the other one has run the plan.
#[tokio::test(start_paused = true)]
async fn plan_runs_once_when_the_agents_are_swapped() {
    for (name, (plan, bytes)) in [("reprovision", reprovision(None)), ("clean", clean(None))] {
        let document = Document::parse(&bytes);
        let (ours_first, theirs_first) = (Host::with_node(), Host::with_node());
        ours_first.execute_streamed(&plan).await;
        let effects = ours_first.effects();
        ours_first.run_to_end(&document).await;
        assert_eq!(ours_first.effects(), effects, "{name}");
        theirs_first.run_to_end(&document).await;
        theirs_first.execute_streamed(&plan).await;
        assert_eq!(theirs_first.effects(), effects, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_plan_fails_again_without_effect() {
    let host = Host::with_node();
    host.simulated.fail("cloud-init-clean", 1).unwrap();
    let document = Document::parse(&reprovision(None).1);
    let first = host.run_steps(&document, usize::MAX).await;
    assert_eq!(first.output, "step request-cleanup: done\n");
    let failure = first.result.unwrap_err();
    assert!(failure.message.starts_with("step clean-cloud-init: "), "{failure}");
    assert!(!failure.next_action.is_empty(), "{failure}");
    host.simulated.succeed("cloud-init-clean").unwrap();
    let again = host.run_steps(&document, usize::MAX).await;
    assert_eq!((again.output.as_str(), again.result), ("", Err(failure)));
    assert_eq!(host.effects().iter().filter(|line| line.starts_with("upgrade")).count(), 0);
}

#[test]
fn agent_of_the_seed_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    put_agent(&root, "/var/lib/baremetal-agent/bin/baremetal-agent");
    let (plan, bytes) = clean(None);
    let output = Document::parse(&bytes).run(&root);
    let called = String::from_utf8(output.stdout).unwrap();
    assert!(called.ends_with(&format!(" run-plan {}\n", plan.id)), "{called}");
}

#[test]
fn host_without_agent_fails_the_plan() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    let output = Document::parse(&reprovision(None).1).run(&root);
    assert_eq!(output.status.code(), Some(1));
    let below = directory.path().display().to_string();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().replace(&below, ""),
        "baremetal: this host has no baremetal-agent, which runs its plans; next: use an image with /usr/bin/baremetal-agent, or install the host from a seed ISO\n"
    );
    assert!(!root.join(proto::staged::DIRECTORY).exists(), "no secret stays in a file");
}

#[test]
fn only_one_process_runs_plans() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    let lock = lock_plans(&root).unwrap();
    let run = || {
        let mut agent = Command::new(env!("CARGO_BIN_EXE_baremetal-agent"));
        let output =
            agent.arg("--root").arg(directory.path()).args(["run-plan", "clean-1"]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, refused) = run();
    assert_eq!(code, Some(1));
    assert!(refused.starts_with("baremetal: another process of baremetal-agent runs the plans"), "{refused}");
    drop(lock);
    let (code, missing) = run();
    assert_eq!(code, Some(1));
    assert!(missing.contains("/staging/clean-1/plan.json"), "{missing}");
}
