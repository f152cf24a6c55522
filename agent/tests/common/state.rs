//! What registration and install leave in the state directory, written in one
//! process and read in another after a power cut.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use agent::client::config::{self, Config};
use agent::ground::paths::Root;
use agent::identity::{Certificate, Identity, Role};
use agent::live::handover::{self, Handover};
use agent::state::install_record::InstallRecord;
use agent::state::{live_boot, node_identity, seed};
use anyhow::{Context as _, Result, ensure};
use proto::plan::{NodeIdentity, Secret, Seed};

/// Above the seed that cloud-init reads.
pub(crate) const NOCLOUD_PARENT: &str = "/var/lib/cloud/seed";
const CONFIG: &str = "elemental:\n  registration:\n    url: https://c.example/elemental/registration/t\n    ca-cert: '-----BEGIN CERTIFICATE-----'\n";

fn parse_config() -> Result<Config> {
    Ok(config::parse(CONFIG, Path::new("config.yaml"))?)
}

fn seed() -> Seed {
    Seed {
        user_data: Some(Secret::new(b"#cloud-config\n".to_vec())),
        meta_data: "instance-id: first\n".into(),
        network_config: Some("version: 2\n".into()),
        connections: BTreeMap::from([("eno1".into(), Secret::new(b"[connection]\n".to_vec()))]),
        network_data: Some(Secret::new(b"{}".to_vec())),
    }
}

fn node() -> NodeIdentity {
    NodeIdentity {
        uuid: "u-1".into(),
        provider_id: "baremetal:///host-1".into(),
        owner: "BaremetalMachine/m-1".into(),
    }
}

fn record() -> InstallRecord {
    InstallRecord {
        device: "/dev/vda".into(),
        image: "os:v1".into(),
        inventory: "fleet/host-1".into(),
        smbios_uuid: "00112233-4455-6677-8899-aabbccddeeff".into(),
        wwn: "0x5000".into(),
        serial: "S1".into(),
    }
}

/// Writes it once over an earlier version, as an install after another does.
pub(crate) fn write(root: &Root) -> Result<()> {
    let state = root.state();
    let identity = Identity::load_or_make(&root.join("/run/live-identity"))?;
    let certificate = Certificate {
        role: Role::Live,
        chain: "chain".into(),
        inventory: None,
        not_before: UNIX_EPOCH,
        not_after: UNIX_EPOCH,
    };
    let config = parse_config()?;
    handover::write(&state, Handover { identity: &identity, certificate: &certificate, config: &config })?;
    let former = Seed {
        user_data: None,
        meta_data: "instance-id: former\n".into(),
        network_config: None,
        connections: BTreeMap::new(),
        network_data: None,
    };
    seed::store(&state, &former)?;
    seed::store(&state, &seed())?;
    node_identity::remember(root, &node())?;
    handover::write_record(&state, &record())?;
    seed::place(root, &former)?;
    seed::place(root, &seed())?;
    ensure!(live_boot::may_boot_disk(&state, "boot-1")?);
    // The last: no later flush covers for the one of the removal.
    Ok(live_boot::forget_live_boot(&state)?)
}

/// Compares what is left with what [`write`] wrote.
pub(crate) fn compare(root: &Root) -> Result<()> {
    let state = root.state();
    let live = Identity::load(&root.join("/run/live-identity"))?.context("no live key")?;
    let installed = Identity::load(&state.identity())?.context("the key is lost")?;
    ensure!(installed.hash() == live.hash(), "another key");
    ensure!(fs::read_to_string(state.identity().join("live.pem"))? == "chain", "the certificate is lost");
    ensure!(config::read(&state.config())? == parse_config()?, "another configuration");
    ensure!(seed::load(&state)? == Some(seed()), "another seed");
    ensure!(node_identity::read(root)? == Some(node()), "another node identity");
    ensure!(InstallRecord::read(&state)? == Some(record()), "another install record");
    let for_cloud_init = Seed { connections: BTreeMap::new(), ..seed() };
    ensure!(seed::load_nocloud(root)? == Some(for_cloud_init), "another seed for cloud-init");
    let names = list_names(state.path())?;
    let want = ["config.yaml", "identity", "install.json", "node-identity.json", "seed"];
    ensure!(names == want, "what was removed is back: {names:?}");
    let names = list_names(&root.join(NOCLOUD_PARENT))?;
    ensure!(names == ["nocloud"], "what was removed is back: {names:?}");
    Ok(())
}

/// What a replaced seed held is overwritten on the disk before it is removed. `asked`: what the
/// kernel was asked to flush.
pub(crate) fn check_overwriting(asked: &[String]) -> Result<()> {
    // This run writes no such file: the host had it before.
    let is_former = |flush: &String| flush.ends_with("/.seed.new/bond0.nmconnection");
    ensure!(asked.iter().any(is_former), "the former seed is not overwritten on the disk: {asked:?}");
    Ok(())
}

fn list_names(directory: &Path) -> Result<Vec<OsString>> {
    let mut names: Vec<_> =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    names.sort();
    Ok(names)
}
