//! The commands that change objects: decide, ask, write.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use crate::arguments::{
    ApproveArguments, Change, CleanArguments, DrainArguments, InstallOnArguments, ReinstallArguments,
    ReleaseArguments, Removal as Options, ReplaceKeyArguments,
};
use crate::change::{
    Decision, Removal, Request, approve, clean, install_on, reinstall, release, replace_key,
};
use crate::cluster::Cluster;
use crate::failure::{Exit, Failure};
use crate::fleet::{Fleet, Id, Kind, Object};
use crate::view::{HostState, find_state};

/// A host, and the kinds that may hold it.
const HOLDERS: [Kind; 6] = [
    Kind::MachineInventory,
    Kind::BaremetalMachine,
    Kind::BareMetalHost,
    Kind::Metal3Machine,
    Kind::Machine,
    Kind::MachineDeployment,
];

pub(super) async fn approve_hosts(cluster: &Cluster, arguments: &ApproveArguments) -> Result<Exit, Failure> {
    let namespace = cluster.one_namespace()?;
    let fleet = cluster.list(&[Kind::MachineInventory], &[Kind::MachineInventory]).await?;
    let ids: Vec<_> = match &arguments.registration {
        Some(registration) => list_pending(&fleet, registration),
        None => arguments.hosts.iter().map(|host| Id::new(Kind::MachineInventory, namespace, host)).collect(),
    };
    if ids.is_empty() {
        anstream::println!("no host waits for approval");
        return Ok(Exit::Done);
    }
    let mut decisions = vec![];
    for id in ids {
        let object = fleet.require(&id)?;
        let inventory = object.inventory();
        let inventory =
            inventory.ok_or_else(|| Failure::Refused(format!("{} cannot be read", id.short())))?;
        decisions.push(approve(inventory, arguments.identity.as_deref()).map_err(Failure::Refused)?);
    }
    // An identity names the host, so that nothing is left to confirm.
    let is_named = arguments.identity.is_some() || arguments.change.yes || arguments.change.dry_run;
    if !is_named {
        ask(&decisions)?;
    }
    for decision in &decisions {
        carry_out(cluster, &fleet, decision, arguments.change.dry_run).await?;
    }
    Ok(Exit::Done)
}

fn list_pending(fleet: &Fleet, registration: &str) -> Vec<Id> {
    let hosts = fleet.of(Kind::MachineInventory);
    let pending = hosts.filter(|host| {
        host.registration() == Some(registration)
            && host.host().is_some_and(|record| find_state(&record, Timestamp::now()) == HostState::Pending)
    });
    pending.map(|host| host.id.clone()).collect()
}

/// Deletes the Machine of a host without a drain, or ends a clean.
pub(super) async fn release_host(cluster: &Cluster, arguments: &ReleaseArguments) -> Result<Exit, Failure> {
    let removal = match arguments {
        ReleaseArguments { retry_clean: true, .. } => Removal::RetryClean,
        ReleaseArguments { without_clean: true, .. } => Removal::WithoutClean,
        ReleaseArguments { removal, .. } => Removal::Undrained { scale_down: removal.scale_down },
    };
    remove(cluster, &arguments.host, removal, arguments.removal).await
}

pub(super) async fn drain_host(cluster: &Cluster, arguments: &DrainArguments) -> Result<Exit, Failure> {
    let removal = Removal::Drained { scale_down: arguments.removal.scale_down };
    remove(cluster, &arguments.host, removal, arguments.removal).await
}

async fn remove(cluster: &Cluster, host: &str, removal: Removal, options: Options) -> Result<Exit, Failure> {
    let id = Id::new(Kind::MachineInventory, cluster.one_namespace()?, host);
    let fleet = cluster.list(&HOLDERS, &[Kind::MachineInventory]).await?;
    let decision = release(&fleet, fleet.require(&id)?, removal).map_err(Failure::Refused)?;
    change_object(cluster, &fleet, &decision, options.change).await?;
    if options.wait && !options.change.dry_run {
        await_available(cluster, &id).await?;
        anstream::println!("{} is available", id.short());
    }
    Ok(Exit::Done)
}

/// Has a host cleaned whose machine is lost.
pub(super) async fn clean_host(cluster: &Cluster, arguments: &CleanArguments) -> Result<Exit, Failure> {
    let id = Id::new(Kind::MachineInventory, cluster.one_namespace()?, &arguments.host);
    let fleet = cluster.list(&HOLDERS, &[Kind::MachineInventory]).await?;
    let decision = clean(&fleet, fleet.require(&id)?, &arguments.owner, Timestamp::now());
    let decision = decision.map_err(Failure::Refused)?;
    change_object(cluster, &fleet, &decision, arguments.change).await?;
    Ok(Exit::Done)
}

pub(super) async fn reinstall_host(
    cluster: &Cluster,
    arguments: &ReinstallArguments,
) -> Result<Exit, Failure> {
    let decide = |host: &Object| reinstall(host, arguments.device.as_deref());
    change_host(cluster, &arguments.host, arguments.change, decide).await
}

/// Names the disk of a host that waits for one.
pub(super) async fn install_host_on(
    cluster: &Cluster,
    arguments: &InstallOnArguments,
) -> Result<Exit, Failure> {
    let decide = |host: &Object| install_on(host, &arguments.device, &arguments.erase);
    change_host(cluster, &arguments.host, arguments.change, decide).await
}

/// Takes a key away from a host, or gives it another one.
pub(super) async fn replace_host_key(
    cluster: &Cluster,
    arguments: &ReplaceKeyArguments,
) -> Result<Exit, Failure> {
    let decide = |host: &Object| replace_key(host, arguments.key.as_deref());
    change_host(cluster, &arguments.host, arguments.change, decide).await
}

/// Changes a host by a decision that needs no other object.
async fn change_host(
    cluster: &Cluster,
    host: &str,
    change: Change,
    decide: impl FnOnce(&Object) -> Result<Decision, String>,
) -> Result<Exit, Failure> {
    let id = Id::new(Kind::MachineInventory, cluster.one_namespace()?, host);
    let fleet = cluster.get(&id).await?;
    let decision = decide(fleet.require(&id)?).map_err(Failure::Refused)?;
    change_object(cluster, &fleet, &decision, change).await?;
    Ok(Exit::Done)
}

async fn await_available(cluster: &Cluster, id: &Id) -> Result<(), Failure> {
    let mut live = cluster.watch_one(id)?;
    while live.next().await?.is_some() {
        let record = live.fleet.require(id)?.host();
        if record.is_some_and(|record| find_state(&record, Timestamp::now()) == HostState::Available) {
            return Ok(());
        }
    }
    Ok(())
}

async fn change_object(
    cluster: &Cluster,
    fleet: &Fleet,
    decision: &Decision,
    change: Change,
) -> Result<(), Failure> {
    if !change.yes && !change.dry_run {
        ask(std::slice::from_ref(decision))?;
    }
    carry_out(cluster, fleet, decision, change.dry_run).await
}

/// Asks on the terminal. Without a terminal the change is refused, because nobody can confirm.
fn ask(decisions: &[Decision]) -> Result<(), Failure> {
    for decision in decisions {
        anstream::eprintln!("{}", decision.consequence);
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Refused("nothing was changed: confirm by --yes".to_owned()));
    }
    anstream::eprint!("continue? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(Failure::file("read the answer"))?;
    if answer.trim().eq_ignore_ascii_case("y") || answer.trim().eq_ignore_ascii_case("yes") {
        return Ok(());
    }
    Err(Failure::Refused("nothing was changed".to_owned()))
}

/// Sends the requests, each with the UID of the object that the decision was made for.
async fn carry_out(
    cluster: &Cluster,
    fleet: &Fleet,
    decision: &Decision,
    is_dry_run: bool,
) -> Result<(), Failure> {
    for request in &decision.requests {
        send_request(cluster, fleet, request, is_dry_run).await?;
        let dry = if is_dry_run { " (dry run)" } else { "" };
        anstream::println!("{}{dry}", request.describe());
    }
    if !is_dry_run {
        anstream::println!("next: {}", decision.next);
    }
    Ok(())
}

async fn send_request(
    cluster: &Cluster,
    fleet: &Fleet,
    request: &Request,
    is_dry_run: bool,
) -> Result<(), Failure> {
    let (Request::Annotate { object, .. } | Request::Scale { object, .. } | Request::Delete { object }) =
        request;
    let uid = fleet.get(object).and_then(|object| object.data.metadata.uid.clone());
    let api = cluster.api_in(object.kind, &object.namespace)?;
    let params = PatchParams { dry_run: is_dry_run, ..PatchParams::default() };
    let patch = match request {
        Request::Annotate { key, value, .. } => {
            Patch::Merge(json!({ "metadata": { "uid": uid, "annotations": { *key: value } } }))
        }
        Request::Scale { from, to, .. } => scale_patch(uid.as_deref(), *from, *to)?,
        Request::Delete { object } => {
            let preconditions = Preconditions { uid, resource_version: None };
            let params = DeleteParams {
                dry_run: is_dry_run,
                preconditions: Some(preconditions),
                ..DeleteParams::default()
            };
            let deleted = api.delete(&object.name, &params).await;
            return deleted.map(drop).map_err(|error| explain_failure(request, error));
        }
    };
    let patched = api.patch(&object.name, &params, &patch).await;
    patched.map(drop).map_err(|error| explain_failure(request, error))
}

/// A patch that tests the replicas, because others may scale while the operator is asked.
fn scale_patch(uid: Option<&str>, from: i64, to: i64) -> Result<Patch<Value>, Failure> {
    let operations = json!([
        { "op": "test", "path": "/metadata/uid", "value": uid },
        { "op": "test", "path": "/spec/replicas", "value": from },
        { "op": "replace", "path": "/spec/replicas", "value": to },
    ]);
    serde_json::from_value(operations).map(Patch::Json).map_err(Failure::format("write the patch"))
}

fn explain_failure(request: &Request, error: kube::Error) -> Failure {
    match (request, &error) {
        // The API server answers 422 if a test of the patch fails.
        (Request::Scale { from, .. }, kube::Error::Api(status)) if status.code == 422 => Failure::Request {
            what: request.describe(),
            cause: format!(
                "{}; its replicas may not be {from} any more: run the command again",
                status.message
            ),
        },
        _ => Failure::request(request.describe())(error),
    }
}

#[cfg(test)]
mod tests;
