//! Records that an installed host keeps beside its plans, written in one process and read in another after
//! a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use agent::boot;
use agent::ground::durable;
use agent::ground::paths::Root;
use agent::plan::executor::{CustomInstructions, Executor, Policy};
use agent::state::before_node::{KernelItem, mark_node, own_items, record_items};
use agent::state::bootstrap::{BootstrapRecord, is_interrupted};
use agent::state::{duty, node_identity, seed};
use agent::update::{keys, launch, program};
use anyhow::{Result, ensure};
use proto::plan::{Checksum, NodeIdentity, Secret, Seed};
use proto::update_keys::UpdateKeys;
use proto::v1alpha1::{LoadBalancerDuty, LoadBalancerState};
use semver::Version;
use simulated_host::SimulatedSystem;

const PLAN: &str = "reprovision-1";
const CONNECTION: &str = "baremetal-eno1.nmconnection";
const DAMAGED: &[u8] = b"no journal";
const PROGRAM: &[u8] = b"this agent";

/// Writes each record, and ends those that have an end.
pub(crate) fn write(root: &Root) -> Result<()> {
    // The journal comes first, because a damaged one keeps the node from its start.
    forget_journal(root)?;
    write_duty(root)?;
    mark_node(root, "boot-1")?;
    let items = BTreeSet::from([KernelItem::Link("eth0.7".into())]);
    record_items(root, "boot-2", items)?;
    BootstrapRecord { plan_id: PLAN.into(), is_interrupted: true }.write(root)?;
    write_program(root)?;
    boot_with_connections(root)?;
    let identity = NodeIdentity {
        uuid: "u-1".into(),
        provider_id: "baremetal:///host-1".into(),
        owner: "BaremetalMachine/m-1".into(),
    };
    node_identity::remember(root, &identity)?;
    node_identity::apply_identity(root, &identity)?;
    Ok(node_identity::forget_identity(root)?)
}

/// A duty that was served ends with its cluster.
fn write_duty(root: &Root) -> Result<()> {
    let announced = LoadBalancerDuty {
        generation: 1,
        address: "10.0.0.100".into(),
        port: 6443,
        router_id: 51,
        members: vec!["10.0.0.1".into(), "10.0.0.2".into()],
        ..LoadBalancerDuty::default()
    };
    duty::keep_duty(root, &announced)?;
    fs::create_dir_all(root.load_balancer())?;
    duty::carry_duty(root)?;
    duty::record_served(root)?;
    duty::write_state(root, &LoadBalancerState { generation: 1, ..LoadBalancerState::default() });
    Ok(duty::end_duty(root)?)
}

/// A system without keys for updates gets its program, and loses one that nothing needs.
fn write_program(root: &Root) -> Result<()> {
    let state = root.state();
    keys::write(&state, &UpdateKeys::parse(&[vec![1; 32]])?)?;
    keys::hand_over(root, &state)?;
    let file = root.join("/proc/self/exe");
    fs::create_dir_all(root.join("/proc/self"))?;
    fs::write(&file, PROGRAM)?;
    program::keep_program(root, &state)?;
    program::write_cloud_config(root)?;
    fs::create_dir_all(state.updates())?;
    fs::write(state.updates().join("0.9.0"), "an older agent")?;
    launch::remove_unneeded(root, &Version::new(1, 0, 0), &file);
    Ok(())
}

/// A host whose `NetworkManager` gets a connection, loses it, and whose node must not start then, because
/// its identity is damaged.
fn boot_with_connections(root: &Root) -> Result<()> {
    let wants = root.join("/etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants)?;
    fs::write(wants.join("NetworkManager.service"), "")?;
    let connection = BTreeMap::from([("eno1".into(), Secret::new(b"[connection]\n".to_vec()))]);
    for connections in [connection, BTreeMap::new()] {
        let is_wanted = !connections.is_empty();
        let stored = Seed {
            user_data: None,
            meta_data: "instance-id: installed\n".into(),
            network_config: None,
            connections,
            network_data: None,
        };
        durable::remove(&root.state().node_identity())?;
        seed::store(&root.state(), &stored)?;
        let summary = boot::run(root);
        ensure!(summary.problems.is_empty(), "{:?}", summary.problems);
        let path = root.connections().join(CONNECTION);
        ensure!(path.exists() == is_wanted && root.node_gate().exists(), "another boot");
    }
    fs::write(root.state().node_identity(), "damaged")?;
    ensure!(!boot::run(root).problems.is_empty(), "a damaged identity is no problem");
    Ok(())
}

/// An operator orders that a damaged journal is removed.
fn forget_journal(root: &Root) -> Result<()> {
    durable::create_directory(root.state().path())?;
    durable::write(&root.state().journal(), DAMAGED)?;
    durable::write(&root.state().node_hold(), b"")?;
    let host = SimulatedSystem::new(root.clone());
    let mut executor = Executor::open(root.clone(), host, Policy { custom: CustomInstructions::Allow })?;
    Ok(executor.forget_journal(&Checksum::of(DAMAGED).to_string())?)
}

/// Compares what is left with what [`write`] wrote.
pub(crate) fn compare(root: &Root) -> Result<()> {
    let state = root.state();
    ensure!(duty::read_duty(root)?.is_none() && !duty::has_served(root), "the duty goes on");
    ensure!(duty::kept_generation(root) == 1, "a former duty would be taken again");
    let own = own_items(root, "boot-1");
    ensure!(own.is_some_and(|own| own.is_recorded()), "the items of the host are lost");
    ensure!(is_interrupted(root, PLAN), "the interrupted commands are forgotten");
    ensure!(keys::read(&state)?.is_none(), "the former keys are trusted");
    ensure!(fs::read(state.program())? == PROGRAM, "another program");
    ensure!(!state.updates().join("0.9.0").exists(), "the older agent is back");
    ensure!(node_identity::read(root)?.is_none(), "the node is back");
    ensure!(node_identity::is_forgotten(root)?, "the arguments of the kubelet are back");
    ensure!(!root.connections().join(CONNECTION).exists(), "the former connection is back");
    ensure!(!root.node_gate().exists(), "a node with a damaged identity may start");
    ensure!(!state.journal().exists(), "the damaged journal is back");
    ensure!(!state.node_hold().exists(), "the node is held for a journal that is gone");
    Ok(())
}
