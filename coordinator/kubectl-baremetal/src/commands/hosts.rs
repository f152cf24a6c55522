//! `hosts`.

use std::collections::BTreeMap;

use coordinator_api::explain::Attention;
use jiff::Timestamp;
use serde::Serialize;

use crate::arguments::{Format, HostsArguments};
use crate::cluster::Cluster;
use crate::failure::{Exit, Failure};
use crate::fleet::{Fleet, Id};
use crate::host_row::{HostRow, describe_host};
use crate::kind::Kind;
use crate::text::{GONE, format_table, gone_cells, host_cells, host_header};

use super::{print_document, terminal_width};

/// What a line about a host is made of.
pub(super) const KINDS: [Kind; 3] = [Kind::MachineInventory, Kind::BaremetalMachine, Kind::BareMetalHost];

/// Without these there is nothing to show.
const NEEDED: [Kind; 1] = [Kind::MachineInventory];

/// Hosts by namespace and name.
type Rows = BTreeMap<Id, HostRow>;

/// A host that does not exist any more.
#[derive(Serialize)]
struct GoneHost<'a> {
    namespace: &'a str,
    name: &'a str,
    state: &'static str,
}

impl<'a> GoneHost<'a> {
    fn of(row: &'a HostRow) -> Self {
        Self { namespace: &row.namespace, name: &row.name, state: GONE }
    }
}

/// Lists the hosts, once or with their changes.
pub(super) async fn show_hosts(cluster: &Cluster, arguments: &HostsArguments) -> Result<Exit, Failure> {
    if arguments.watch {
        return watch_hosts(cluster, arguments).await;
    }
    let fleet = cluster.list(&KINDS, &NEEDED).await?;
    let now = Timestamp::now();
    let rows: Vec<_> = list_rows(&fleet, now).into_values().filter(|row| is_wanted(row, arguments)).collect();
    match arguments.output.output {
        Format::Text | Format::Wide if rows.is_empty() => {
            anstream::eprintln!("no host is as asked for");
        }
        Format::Text | Format::Wide => {
            let layout = Layout::of(cluster, arguments);
            layout.print(rows.iter().map(|row| layout.cells(row, now)).collect(), true);
        }
        format => print_document(format, &rows)?,
    }
    Ok(Exit::Done)
}

fn list_rows(fleet: &Fleet, now: Timestamp) -> Rows {
    let hosts = fleet.of(Kind::MachineInventory);
    hosts.filter_map(|host| Some((host.id.clone(), describe_host(fleet, host, now)?))).collect()
}

fn is_wanted(row: &HostRow, arguments: &HostsArguments) -> bool {
    (arguments.state.is_empty() || arguments.state.contains(&row.state))
        && arguments.pool.as_ref().is_none_or(|pool| *pool == row.pool)
        && (!arguments.attention || row.attention == Attention::Act)
}

/// The columns of the table.
#[derive(Clone, Copy)]
struct Layout {
    is_wide: bool,
    has_namespace: bool,
}

impl Layout {
    fn of(cluster: &Cluster, arguments: &HostsArguments) -> Self {
        let is_wide = arguments.output.output == Format::Wide;
        Self { is_wide, has_namespace: cluster.namespace.is_none() }
    }

    fn cells(self, row: &HostRow, now: Timestamp) -> Vec<String> {
        host_cells(row, self.is_wide, self.has_namespace, now)
    }

    fn print(self, cells: Vec<Vec<String>>, has_header: bool) {
        let header = host_header(self.is_wide, self.has_namespace);
        let table = format_table(&header, cells, terminal_width().filter(|_| !self.is_wide));
        let lines: Vec<_> = table.lines().skip(usize::from(!has_header)).collect();
        anstream::println!("{}", lines.join("\n"));
    }
}

/// Prints each host, and again when its line changes; also a host that is no longer as
/// asked for, or does not exist any more.
async fn watch_hosts(cluster: &Cluster, arguments: &HostsArguments) -> Result<Exit, Failure> {
    let mut live = cluster.watch(&KINDS, &NEEDED)?;
    let layout = Layout::of(cluster, arguments);
    let mut shown = Rows::new();
    let mut has_header = true;
    while live.next().await?.is_some() {
        let now = Timestamp::now();
        let rows = list_rows(&live.fleet, now);
        let is_wanted = |row: &HostRow| is_wanted(row, arguments);
        let (changed, gone) = list_changes(&shown, &rows, is_wanted);
        match arguments.output.output {
            Format::Text | Format::Wide if changed.is_empty() && gone.is_empty() => {}
            Format::Text | Format::Wide => {
                let gone = gone.iter().map(|row| gone_cells(row, layout.is_wide, layout.has_namespace));
                let cells = changed.iter().map(|row| layout.cells(row, now)).chain(gone);
                layout.print(cells.collect(), has_header);
                has_header = false;
            }
            format => {
                changed.iter().try_for_each(|row| print_document(format, row))?;
                gone.iter().try_for_each(|row| print_document(format, &GoneHost::of(row)))?;
            }
        }
        shown = rows.into_iter().filter(|(_, row)| is_wanted(row)).collect();
    }
    Ok(Exit::Done)
}

/// The hosts whose lines differ from those that were shown, as they are now; and those that
/// were shown and do not exist any more.
fn list_changes<'a>(
    shown: &'a Rows,
    rows: &'a Rows,
    is_wanted: impl Fn(&HostRow) -> bool,
) -> (Vec<&'a HostRow>, Vec<&'a HostRow>) {
    let is_told = |id: &Id, row: &HostRow| {
        let before = shown.get(id);
        before != Some(row) && (before.is_some() || is_wanted(row))
    };
    let changed = rows.iter().filter(|(id, row)| is_told(id, row)).map(|(_, row)| row);
    let gone = shown.iter().filter(|(id, _)| !rows.contains_key(*id)).map(|(_, row)| row);
    (changed.collect(), gone.collect())
}

#[cfg(test)]
mod tests;
