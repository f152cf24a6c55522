//! Another agent over the line: what is taken, and real processes that replace
//! each other.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use agent::ground::paths::Root;
use agent::ground::version::own_version;
use agent::installed::link::{self, ExitReason};
use agent::plan::executor::{Executor, Policy};
use agent::update::keys;
use agent::update::record::Record;
use proto::proof;
use proto::update_keys::UpdateKeys;
use proto::v1alpha1::AgentUpdate;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use simulated_host::SimulatedSystem;
use tokio::process::Command;
use tokio::task::JoinHandle;

use super::coordinator::Coordinator;
use super::link::{Host, installed};

impl Coordinator {
    /// Announces and serves that file as agent of that version.
    fn offer(&self, version: &str, file: Vec<u8>) {
        let (architecture, size) = (std::env::consts::ARCH, file.len() as u64);
        let checksum = proof::identity(&file);
        let signature = self.sign_agent(&proof::agent(version, architecture, size, &checksum));
        let (version, architecture) = (version.to_owned(), architecture.to_owned());
        let mut memory = self.memory();
        let update =
            AgentUpdate { version, architecture, size, checksum, signature, ..AgentUpdate::default() };
        memory.update = Some(update);
        memory.agent = file;
    }
}

/// Signs the announced agent by a key for updates.
fn sign_release(coordinator: &Coordinator, signer: &Ed25519KeyPair) {
    let mut memory = coordinator.memory();
    let update = memory.update.as_mut().unwrap();
    let keys = keys_of(signer);
    let AgentUpdate { version, architecture, size, checksum, .. } = &*update;
    let message = proof::release(version, architecture, *size, checksum, &keys);
    (update.release_signature, update.update_keys) =
        (signer.sign(&message).as_ref().to_vec(), keys.to_field());
}

fn keys_of(signer: &Ed25519KeyPair) -> UpdateKeys {
    UpdateKeys::parse(&[signer.public_key().as_ref().to_vec()]).unwrap()
}

fn record(host: &Host) -> Record {
    Record::read(&host.root.state()).unwrap()
}

// Fault: a host is sent an agent that is not signed by the coordinator's authority, or arrives in part.
// Shown: condition `AgentUpdated` of the MachineInventory: `AgentUpdateFailed` with the cause; nothing of it is kept.
#[tokio::test]
async fn agent_differing_from_signed_one_is_refused() {
    let unsigned = |coordinator: &Coordinator| {
        coordinator.memory().update.as_mut().unwrap().signature[10] ^= 1;
    };
    let truncated = |coordinator: &Coordinator| coordinator.memory().agent.truncate(700);
    let altered = |coordinator: &Coordinator| coordinator.memory().agent[7] ^= 1;
    for (change, why) in [
        (&unsigned as &dyn Fn(&Coordinator), "not signed by an authority"),
        (&truncated, "700 of 1000 bytes"),
        (&altered, "another checksum"),
    ] {
        let coordinator = Coordinator::start().await;
        let host = installed(&coordinator).await;
        coordinator.offer("9.0.0", vec![b'a'; 1000]);
        change(&coordinator);
        let system = SimulatedSystem::new(host.root.clone());
        let executor = Executor::open(host.root.clone(), system.clone(), Policy::default()).unwrap();
        let network = agent::host::network::KernelNetwork::below(&host.root);
        tokio::select! {
            ended = Box::pin(link::run(&host.root, system, executor, &network, own_version())) => panic!("{ended:?}"),
            () = coordinator.until("a refusal", |memory| !memory.updates.is_empty()) => {}
        }
        let update = coordinator.memory().updates[0].clone();
        let message = update.failure.unwrap().message;
        assert!(update.failed_version == "9.0.0" && message.contains(why), "{message}");
        let left = record(&host);
        assert!(left.trial.is_none() && left.kept.is_none(), "{left:?}");
        assert_eq!(left.failed.unwrap().message, message, "it is told again with each Hello");
        assert_eq!(fs::read_dir(host.root.state().updates()).unwrap().count(), 1, "its record alone");
    }
}

// Fault: a host that has a key for updates is sent an agent that the coordinator's authority signed, and that its key did not sign.
// Shown: condition `AgentUpdated` of the MachineInventory: `AgentUpdateFailed` with the signature that is missing or of another key.
#[tokio::test]
async fn host_with_a_key_takes_signed_agents_alone() {
    let [own, other] = [1, 2].map(|seed| Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap());
    for (signer, why) in [(None, "no signature by a key"), (Some(&other), "of no key"), (Some(&own), "")] {
        let coordinator = Coordinator::start().await;
        let host = installed(&coordinator).await;
        keys::write(&host.root.state(), &keys_of(&own)).unwrap();
        coordinator.offer("9.0.0", vec![b'a'; 1000]);
        if let Some(signer) = signer {
            sign_release(&coordinator, signer);
        }
        let system = SimulatedSystem::new(host.root.clone());
        let executor = Executor::open(host.root.clone(), system.clone(), Policy::default()).unwrap();
        let network = agent::host::network::KernelNetwork::below(&host.root);
        tokio::select! {
            ended = Box::pin(link::run(&host.root, system, executor, &network, own_version())) => {
                assert_eq!((ended.unwrap(), why), (ExitReason::Updated, ""));
                assert_eq!(record(&host).trial.unwrap().keys, Some(keys_of(&own)));
            }
            () = coordinator.until("a refusal", |memory| !memory.updates.is_empty()) => {
                let failure = coordinator.memory().updates[0].failure.clone().unwrap();
                assert!(!why.is_empty() && failure.message.contains(why), "{failure:?}");
                assert!(!failure.next_action.is_empty() && record(&host).trial.is_none(), "{failure:?}");
            }
        }
    }
}

#[tokio::test]
async fn the_agent_ends_for_another_one() {
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    coordinator.offer("9.0.0", vec![b'a'; 1000]);
    let system = SimulatedSystem::new(host.root.clone());
    let executor = Executor::open(host.root.clone(), system.clone(), Policy::default()).unwrap();
    let network = agent::host::network::KernelNetwork::below(&host.root);
    let ended = Box::pin(link::run(&host.root, system, executor, &network, own_version())).await.unwrap();
    assert_eq!(ended, ExitReason::Updated);
    let trial = record(&host).trial.unwrap();
    assert_eq!(fs::read(trial.program.path(&host.root.state())).unwrap(), vec![b'a'; 1000]);
}

/// The agent that this package builds, without its symbols.
fn built_agent(directory: &std::path::Path) -> PathBuf {
    let path = directory.join("baremetal-agent");
    let stripped = std::process::Command::new("strip")
        .arg("-o")
        .arg(&path)
        .arg(env!("CARGO_BIN_EXE_baremetal-agent"))
        .status()
        .unwrap();
    assert!(stripped.success());
    path
}

/// The same agent with another version.
fn with_version(mut file: Vec<u8>, version: &str) -> Vec<u8> {
    let mark = format!("baremetal-agent-version:{}:", own_version());
    let other = format!("baremetal-agent-version:{version}:");
    assert_eq!(mark.len(), other.len(), "the file keeps its layout");
    let at = file.windows(mark.len()).position(|window| window == mark.as_bytes()).unwrap();
    file[at..at + mark.len()].copy_from_slice(other.as_bytes());
    file
}

/// Starts the agent of the image whenever it ends, as its unit does.
fn supervise(program: PathBuf, root: Root) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let mut agent = Command::new(&program);
            agent.arg("--root").arg(root.join("/")).arg("run").kill_on_drop(true).stdout(Stdio::null());
            agent.spawn().unwrap().wait().await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
}

#[tokio::test]
async fn real_processes_replace_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let program = built_agent(directory.path());
    let coordinator = Coordinator::start().await;
    let host = installed(&coordinator).await;
    let agent = supervise(program.clone(), host.root.clone());
    let own = own_version().to_string();
    coordinator.until("the agent of the image", |memory| !memory.hellos.is_empty()).await;
    assert_eq!(coordinator.memory().hellos[0].agent_version, own);

    coordinator.offer("9.0.0", with_version(fs::read(&program).unwrap(), "9.0.0"));
    coordinator.cut();
    let attached = |version: &'static str| {
        move |memory: &super::coordinator::Memory| {
            memory.hellos.last().is_some_and(|hello| hello.agent_version == version)
        }
    };
    coordinator.until("the new agent", attached("9.0.0")).await;
    let update = coordinator.memory().hellos.last().unwrap().agent_update.clone().unwrap();
    assert!(update.on_trial && update.failed_version.is_empty(), "{update:?}");
    coordinator.cut();
    coordinator
        .until("it is kept", |memory| {
            let update = memory.hellos.last().unwrap().agent_update.clone().unwrap();
            attached("9.0.0")(memory) && !update.on_trial
        })
        .await;

    // One that ends, and one that cannot even be started.
    for (version, text) in [("9.1.0", "#!/bin/sh\nexit 1\n"), ("9.2.0", "neither program nor script\n")] {
        coordinator.offer(version, text.into());
        coordinator.cut();
        coordinator
            .until("the failure", |memory| {
                let update = memory.hellos.last().unwrap().agent_update.clone().unwrap();
                attached("9.0.0")(memory) && update.failed_version == version
            })
            .await;
    }
    // An image with a newer agent.
    let newer = directory.path().join("newer");
    fs::write(&newer, with_version(fs::read(&program).unwrap(), "9.9.0")).unwrap();
    fs::set_permissions(&newer, fs::metadata(&program).unwrap().permissions()).unwrap();
    coordinator.memory().update = None;
    agent.abort();
    let _ = agent.await;
    let agent = supervise(newer, host.root.clone());
    coordinator.until("the agent of the new image", attached("9.9.0")).await;
    agent.abort();
}
