//! The command `support`: objects and Events without secrets, in an archive for a report.

mod redact;

use std::fmt::Write as _;
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use coordinator_api::explain::Attention;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde::Serialize;

use crate::arguments::SupportArguments;
use crate::cluster::Cluster;
use crate::failure::{Exit, Failure, explain_error, is_forbidden};
use crate::fleet::{Fleet, Kind};
use crate::view::{Columns, describe_host, format_chain, format_table};
use crate::why::follow_causes;
use redact::{redact, redact_lines};

pub(super) async fn write_bundle(cluster: &Cluster, arguments: &SupportArguments) -> Result<Exit, Failure> {
    let kinds: Vec<_> = Kind::all().collect();
    let fleet = cluster.list(&kinds, &[Kind::MachineInventory]).await?;
    let events = list_events(cluster).await?;
    let now = Timestamp::now();
    let path = &arguments.file;
    let failed = || Failure::file(format!("write {}", path.display()));
    let file = create_private(path).map_err(failed())?;
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
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
        let namespace = event.metadata.namespace.as_deref().unwrap_or("");
        let name = format!("events/{namespace}/{}.yaml", event.name_any());
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

/// A file that its owner alone may read: names and addresses of a fleet are of use to an attacker.
fn create_private(path: &Path) -> io::Result<File> {
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // The mode above is that of a new file alone.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

fn to_clean_yaml(object: &impl Serialize) -> Result<String, Failure> {
    let mut value = serde_json::to_value(object).map_err(Failure::format("write an object"))?;
    redact(&mut value);
    serde_norway::to_string(&value).map_err(Failure::format("write an object"))
}

async fn list_events(cluster: &Cluster) -> Result<Vec<Event>, Failure> {
    match cluster.events().list(&ListParams::default()).await {
        Ok(events) => Ok(events.items.into_iter().filter(is_about_known_kind).collect()),
        Err(error) if is_forbidden(&error) => {
            anstream::eprintln!("left out: {}", explain_error(&error));
            Ok(vec![])
        }
        Err(error) => Err(Failure::request("list Events")(error)),
    }
}

/// `false` for an Event of another kind, because it may say more than a report should.
fn is_about_known_kind(event: &Event) -> bool {
    let kind = event.regarding.as_ref().and_then(|object| object.kind.as_deref());
    kind.is_some_and(|kind| Kind::of(kind).is_some())
}

fn format_hosts(fleet: &Fleet, now: Timestamp) -> String {
    let rows = fleet.of(Kind::MachineInventory).filter_map(|host| describe_host(fleet, host, now));
    let columns = Columns { is_wide: true, has_namespace: true };
    let cells = rows.map(|row| columns.cells(&row, now)).collect();
    anstream::adapter::strip_str(&format_table(&columns.header(), cells, None)).to_string() + "\n"
}

/// The chains of the objects that are not as intended.
fn format_causes(fleet: &Fleet, now: Timestamp) -> String {
    let mut text = String::new();
    for object in fleet.all() {
        let chain = follow_causes(fleet, object, now);
        if chain.attention() != Attention::None {
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
        let served = cluster.served(kind).map_or("not served", |served| &served.resource.api_version);
        let _ = writeln!(text, "{} {served}", kind.name());
    }
    Ok(text)
}

/// A compressed tar archive that grows file by file.
struct Bundle<W: Write> {
    archive: tar::Builder<GzEncoder<W>>,
    seconds: u64,
}

impl<W: Write> Bundle<W> {
    /// All files have the time `seconds`.
    fn new(writer: W, seconds: u64) -> Self {
        Self { archive: tar::Builder::new(GzEncoder::new(writer, Compression::default())), seconds }
    }

    fn add(&mut self, path: &str, content: &str) -> std::io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(self.seconds);
        self.archive.append_data(&mut header, format!("baremetal-support/{path}"), content.as_bytes())
    }

    fn finish(self) -> std::io::Result<()> {
        self.archive.into_inner()?.finish()?.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_holds_its_files() {
        use std::io::Read as _;

        let mut bytes = vec![];
        let mut bundle = Bundle::new(&mut bytes, 7);
        bundle.add("a/b.yaml", "x: 1\n").unwrap();
        bundle.finish().unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
        let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        assert_eq!(
            (entry.path().unwrap().to_str(), text.as_str()),
            (Some("baremetal-support/a/b.yaml"), "x: 1\n")
        );
    }
}
