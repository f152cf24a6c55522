//! `support`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufWriter;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde::Serialize;

use crate::arguments::SupportArguments;
use crate::cluster::{Cluster, is_forbidden};
use crate::failure::{Exit, Failure, explain_error};
use crate::fleet::Fleet;
use crate::host_row::describe_host;
use crate::kind::Kind;
use crate::support::{Bundle, redact, redact_lines};
use crate::text::{format_chain, format_table, host_cells, host_header};
use crate::why::follow_causes;

pub(super) async fn write_bundle(cluster: &Cluster, arguments: &SupportArguments) -> Result<Exit, Failure> {
    let kinds: Vec<_> = Kind::all().collect();
    let fleet = cluster.list(&kinds, &[Kind::MachineInventory]).await?;
    let events = list_events(cluster).await?;
    let now = Timestamp::now();
    let path = &arguments.file;
    let failed = || Failure::file(format!("write {}", path.display()));
    let file = File::create(path).map_err(failed())?;
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let mut bundle = Bundle::new(BufWriter::new(file), seconds);
    let mut count = 0;
    for object in fleet.all() {
        let id = &object.id;
        let content = to_clean_yaml(&object.data)?;
        let name = format!("objects/{}/{}/{}.yaml", id.namespace, id.kind.name(), id.name);
        bundle.add(&name, &content).map_err(failed())?;
        count += 1;
    }
    for event in &events {
        let name = format!("events/{}/{}.yaml", event.namespace().unwrap_or_default(), event.name_any());
        bundle.add(&name, &to_clean_yaml(event)?).map_err(failed())?;
    }
    bundle.add("hosts.txt", &redact_lines(&format_hosts(&fleet, now))).map_err(failed())?;
    bundle.add("why.txt", &redact_lines(&format_causes(&fleet, now))).map_err(failed())?;
    bundle.add("versions.txt", &read_versions(cluster).await?).map_err(failed())?;
    bundle.finish().map_err(failed())?;
    anstream::println!("{} objects and {} Events are in {}", count, events.len(), path.display());
    anstream::println!(
        "Secrets are not read, and fields that may hold one are redacted: look before you send it"
    );
    Ok(Exit::Done)
}

fn to_clean_yaml(object: &impl Serialize) -> Result<String, Failure> {
    let mut value = serde_json::to_value(object).map_err(Failure::format("write an object"))?;
    redact(&mut value);
    serde_norway::to_string(&value).map_err(Failure::format("write an object"))
}

async fn list_events(cluster: &Cluster) -> Result<Vec<Event>, Failure> {
    let api: Api<Event> = match &cluster.namespace {
        Some(namespace) => Api::namespaced(cluster.client.clone(), namespace),
        None => Api::all(cluster.client.clone()),
    };
    match api.list(&ListParams::default()).await {
        Ok(events) => Ok(events.items.into_iter().filter(is_about_ours).collect()),
        Err(error) if is_forbidden(&error) => {
            anstream::eprintln!("left out: {}", explain_error(&error));
            Ok(vec![])
        }
        Err(error) => Err(Failure::request("list Events")(error)),
    }
}

/// Events of other kinds may tell what is none of a report's.
fn is_about_ours(event: &Event) -> bool {
    let kind = event.regarding.as_ref().and_then(|object| object.kind.as_deref());
    kind.is_some_and(|kind| Kind::of(kind).is_some())
}

fn format_hosts(fleet: &Fleet, now: Timestamp) -> String {
    let rows = fleet.of(Kind::MachineInventory).filter_map(|host| describe_host(fleet, host, now));
    let cells = rows.map(|row| host_cells(&row, true, true, now)).collect();
    anstream::adapter::strip_str(&format_table(&host_header(true, true), cells, None)).to_string() + "\n"
}

/// The causes of what is not as intended.
fn format_causes(fleet: &Fleet, now: Timestamp) -> String {
    let mut text = String::new();
    for object in fleet.all() {
        let chain = follow_causes(fleet, object, now);
        if chain.attention() != coordinator_api::explain::Attention::None {
            let _ = writeln!(text, "{}", anstream::adapter::strip_str(&format_chain(&chain, now)));
        }
    }
    text
}

async fn read_versions(cluster: &Cluster) -> Result<String, Failure> {
    let version =
        cluster.client.apiserver_version().await.map_err(Failure::request("ask for the version"))?;
    let mut text = format!("kubectl-baremetal {}\n", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "API server {}", version.git_version);
    for kind in Kind::all() {
        let served = cluster.served(kind);
        let served = served.map_or("not served".to_owned(), |served| served.resource.api_version.clone());
        let _ = writeln!(text, "{} {served}", kind.name());
    }
    Ok(text)
}
