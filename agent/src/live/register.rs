//! The verb `register` of the live system: registers, then installs this host or boots its disk.
//!
//! An unreachable coordinator and a refusal are printed on the console and retried. The verb fails
//! only if the operator must correct something at the host itself.

use std::path::PathBuf;
use std::time::Duration;

use proto::refusal::Refusal;
use proto::v1alpha1::complete_response::Next;

use crate::client::calls::Caller;
use crate::client::config::{self, Config};
use crate::client::registration::{Registered, register_once, request_live_certificate};
use crate::client::transport::Transport;
use crate::ground::backoff::Backoff;
use crate::ground::failure::Failure;
use crate::ground::paths::Root;
use crate::host::facts::disks::{self, Disk};
use crate::host::facts::smbios;
use crate::host::network::NetworkObserver;
use crate::host::observed;
use crate::host::system::System;
use crate::identity::tpm;
use crate::identity::{Certificate, Identity, NextKey, Role};
use crate::live::install::{Live, boot_disk, disk_missing, install_again, install_host};
use crate::live::installed_disk::{self, Access, InstalledDisk, InstalledDisks, Mounts};
use crate::live::{late_disks, used_disk};
use crate::state::install_record::InstallRecord;
use crate::state::message::Console;

/// Registers the live system of `root` and performs its next task. Succeeds after a reboot was
/// requested, or if nothing is left to do here.
pub async fn register<S: System, M: Mounts, N: Transport + NetworkObserver>(
    root: &Root,
    system: &S,
    mounts: &M,
    network: &N,
) -> Result<(), Failure> {
    let mut console = Console::new(root);
    let config = config::read(&root.live_config())?;
    mounts.settle(Duration::ZERO).await;
    late_disks::await_quiet(root, mounts, &mut console).await;
    used_disk::erase_typed(root, mounts, &mut console).await?;
    let uuid = smbios::read_uuid(root);
    let known = disks::look_at_disks(root).await;
    let InstalledDisks { own: found, foreign, silent, .. } =
        installed_disk::find_installed_disks(&known, mounts, uuid.as_deref()).await?;
    for disk in &silent {
        console.print_message(&format!("{disk} does not answer reads: it is left alone; replace it"));
    }
    for InstalledDisk { disk, record, .. } in &foreign {
        let InstallRecord { inventory, smbios_uuid, .. } = record;
        console.print_message(&format!(
            "{disk} carries the installed system of another host, {inventory} with UUID {smbios_uuid}: it is left alone"
        ));
    }
    let mut identity = load_or_create(root, mounts, found.as_ref()).await?;
    let held = if identity.endorsement_key().is_some() { "in the TPM" } else { "a software key" };
    console.print_message(&format!(
        "identity {} ({held}); registering with {}",
        identity.hash(),
        config.address()
    ));
    let mut registered = until_registered(root, (&config, network), &mut identity, &mut console).await;
    console.print_message(&format!("registered as {}", registered.inventory));
    if let Next::Install(request) = &registered.next
        && !request.reinstall.is_empty()
    {
        let replaced = until_key_replaced(root, (&config, network), &mut identity, &mut console);
        if let Some(certificate) = replaced.await? {
            registered.certificate = certificate;
        }
    }
    let installed = choose_installed_config(&config, &registered.installed_url)?;
    let live = Live {
        root,
        system,
        mounts,
        caller: Caller { config: &installed, network, identity: &identity },
        console,
        certificate: registered.certificate,
        inventory: registered.inventory,
    };
    match (found, registered.next) {
        (Some(found), Next::Install(request)) if !request.reinstall.is_empty() => {
            Box::pin(install_again(live, found, &request)).await?;
        }
        (Some(found), next) => boot_disk(live, found, &next).await?,
        (None, Next::Install(request)) => Box::pin(install_host(live, &request)).await?,
        (None, Next::BootDisk(_)) => disk_missing(live).await?,
    }
    Ok(())
}

/// The configuration for the installed disk, which must not admit another host.
fn choose_installed_config(config: &Config, installed_url: &str) -> Result<Config, Failure> {
    match installed_url {
        "" => Ok(config.clone()),
        url => config.moved_to(url, &config.authority),
    }
}

/// The identity of the installed system, if there is one, so that the host keeps it; else the
/// identity in its TPM, else a software key.
async fn load_or_create(
    root: &Root,
    mounts: &impl Mounts,
    found: Option<&InstalledDisk>,
) -> Result<Identity, Failure> {
    let here: PathBuf = root.state().identity();
    let Some(found) = found else {
        return Ok(match tpm::read_identity(root).await? {
            Some(endorsement_key) => Identity::load_or_make_for_tpm(&here, endorsement_key)?,
            None => Identity::load_or_make(&here)?,
        });
    };
    let mounted = mounts
        .mount(&found.partition, Access::Read)
        .map_err(|error| installed_disk::unreadable(&found.partition, &error.to_string()))?;
    if let Some(identity) = Identity::load(&mounted.state().identity())? {
        return identity.copy_to(&here);
    }
    let disks = disks::look_at_disks(root).await;
    let disk = disks.iter().find(|disk| disk.name == found.disk).map(Disk::name_and_path);
    let disk = disk.unwrap_or_else(|| found.disk.clone());
    Err(Failure::input_output(
        format!("{disk} carries an installed system without its identity key, so nothing is touched"),
        "install the host as a new one (\"Wipe a disk\" in docs/operations.md)",
    ))
}

async fn until_registered<N: Transport + NetworkObserver>(
    root: &Root,
    (config, network): (&Config, &N),
    identity: &mut Identity,
    console: &mut Console,
) -> Registered {
    let mut backoff = Backoff::default();
    loop {
        match register_once(root, Caller { config, network, identity }, Role::Live).await {
            Ok(registered) => return registered,
            Err(error) => {
                if error.refusal() == Some(Refusal::KeyReplaced)
                    && let Err(error) = identity.abandon_key()
                {
                    console.print_failure(&error);
                }
                console.print_failure(&error.failure.context("not registered"));
            }
        }
        backoff.wait().await;
    }
}

/// Replaces the key of the former system, which its tenants may have copied, before the host is
/// installed again. Returns the certificate of the key that the new system gets; `None` if the
/// coordinator is of a former release, which signs for the present key only.
async fn until_key_replaced<N: Transport>(
    root: &Root,
    (config, network): (&Config, &N),
    identity: &mut Identity,
    console: &mut Console,
) -> Result<Option<Certificate>, Failure> {
    let boot_id = observed::boot_id(root)?;
    let mut backoff = Backoff::default();
    loop {
        let next = NextKey::generate()?;
        let requested =
            request_live_certificate(Caller { config, network, identity }, &next, boot_id.clone());
        match requested.await {
            Ok(certificate) => {
                identity.replace_key(next, &certificate)?;
                return Ok(Some(certificate));
            }
            Err(error) if error.refusal() == Some(Refusal::BadRequest) => return Ok(None),
            Err(error) => {
                console.print_failure(&error.failure.context("cannot replace the key of this host"));
            }
        }
        backoff.wait().await;
    }
}
