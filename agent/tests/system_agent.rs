//! The plans of the coordinator, executed as the upstream system-agent does it.
//!
//! The upstream system-agent writes the files of a plan, runs every
//! instruction, and does all of it again at each of its starts. A runner that
//! does the same reaches the end state of our own agent, each effect once. It
//! runs on a real root tree (`tree`), with the host's own shell and coreutils;
//! stand-ins for other commands act on the files of the simulated host.

mod host;
mod runner;
mod state;
mod tree;

use coordinator_core::network::HostNetwork;
use coordinator_core::plan::{self, Clean, Names, PlanInputs, PlanRecord, Reprovision};
use proto::plan::{Generation, Image, RegistryAccess, Secret};

use host::{Host, V2};
use runner::Document;
use state::{list_differences, read_state};

const NETWORK: &str = "version: 2\nethernets: {}\n";

fn render(inputs: &PlanInputs) -> PlanRecord {
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

fn reprovision(network_config: Option<&str>) -> PlanRecord {
    reprovision_from(None, network_config)
}

fn reprovision_from(registry: Option<RegistryAccess>, network_config: Option<&str>) -> PlanRecord {
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

fn clean(network_config: Option<&str>) -> PlanRecord {
    render(&PlanInputs::Clean(Clean { network: network(network_config) }))
}

/// Every file that the instruction of the upgrade looks for.
fn registry() -> RegistryAccess {
    RegistryAccess {
        docker_config: Some(Secret::new(b"{\"auths\":{}}".to_vec())),
        authorities: Some("an authority\n".to_owned()),
        https_proxy: Some(Secret::new(b"http://user:password@proxy.example:3128".to_vec())),
        http_proxy: Some(Secret::new(b"http://proxy.example:3128".to_vec())),
        no_proxy: Some("registry.example".to_owned()),
    }
}

fn every_record() -> [(&'static str, PlanRecord); 5] {
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
async fn plan_executed_twice_ends_as_ours() {
    tree::require_root();
    for (name, record) in every_record() {
        let (ours, theirs) = (Host::with_node(), Host::with_node());
        ours.execute_typed(&record.plan).await;
        let document = Document::parse(&record);
        theirs.run_upstream(&document, document.len());
        theirs.reboot_if_asked();
        let effects = theirs.effects();
        theirs.run_upstream(&document, document.len());
        assert_eq!(theirs.effects(), effects, "{name}: the second run has no effect");
        assert!(!theirs.reboot_if_asked(), "{name}");
        assert_same(&ours, &theirs, name);
    }
}

/// The agent was killed after so many instructions.
#[tokio::test(start_paused = true)]
async fn plan_interrupted_anywhere_ends_as_ours() {
    tree::require_root();
    for (name, record) in [("reprovision", reprovision(Some(NETWORK))), ("clean", clean(Some(NETWORK)))] {
        let ours = Host::with_node();
        ours.execute_typed(&record.plan).await;
        let document = Document::parse(&record);
        for run in 0..document.len() {
            let theirs = Host::with_node();
            theirs.run_upstream(&document, run);
            theirs.run_upstream(&document, document.len());
            theirs.reboot_if_asked();
            theirs.run_upstream(&document, document.len());
            assert_same(&ours, &theirs, &format!("{name}, {run} instructions"));
        }
    }
}

/// What an instruction marks as done is on the disk.
#[tokio::test(start_paused = true)]
async fn power_cut_repeats_no_upgrade() {
    tree::require_root();
    let record = reprovision(Some(NETWORK));
    let document = Document::parse(&record);
    for run in 0..document.len() {
        let host = Host::with_node();
        host.run_upstream(&document, run);
        host.boot();
        host.run_upstream(&document, document.len());
        host.reboot_if_asked();
        host.run_upstream(&document, document.len());
        let count = |effect: &str| host.effects().iter().filter(|line| *line == effect).count();
        assert_eq!(count(&format!("upgrade {V2}")), 1, "{run} instructions: {:?}", host.effects());
        assert_eq!(count("node joins on lab/os:v2"), 1, "{run} instructions: {:?}", host.effects());
    }
}
