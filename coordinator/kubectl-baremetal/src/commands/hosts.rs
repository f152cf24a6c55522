//! The command `hosts`.

use std::collections::BTreeMap;

use coordinator_api::explain::Attention;
use jiff::Timestamp;
use serde::Serialize;

use super::output::{print_document, terminal_width};
use crate::arguments::{Format, HostsArguments};
use crate::cluster::Cluster;
use crate::failure::{Exit, Failure};
use crate::fleet::{Fleet, Id, Kind};
use crate::view::{Columns, GONE, HostRow, describe_host, format_table};

/// Kinds from which the line of a host is made.
pub(super) const KINDS: [Kind; 3] = [Kind::MachineInventory, Kind::BaremetalMachine, Kind::BareMetalHost];

/// Kinds that have to be served and allowed.
const NEEDED: [Kind; 1] = [Kind::MachineInventory];

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

pub(super) async fn show_hosts(cluster: &Cluster, arguments: &HostsArguments) -> Result<Exit, Failure> {
    if arguments.watch {
        return watch_hosts(cluster, arguments).await;
    }
    let fleet = cluster.list(&KINDS, &NEEDED).await?;
    let now = Timestamp::now();
    let rows: Vec<_> = list_rows(&fleet, now).into_values().filter(|row| is_wanted(row, arguments)).collect();
    match arguments.output.output {
        Format::Text | Format::Wide if rows.is_empty() => {
            anstream::eprintln!("no host matches");
        }
        Format::Text | Format::Wide => {
            let columns = columns_of(cluster, arguments);
            print_rows(columns, rows.iter().map(|row| columns.cells(row, now)).collect(), true);
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

fn columns_of(cluster: &Cluster, arguments: &HostsArguments) -> Columns {
    let is_wide = arguments.output.output == Format::Wide;
    Columns { is_wide, has_namespace: cluster.namespace.is_none() }
}

fn print_rows(columns: Columns, cells: Vec<Vec<String>>, has_header: bool) {
    let width = terminal_width().filter(|_| !columns.is_wide);
    let table = format_table(&columns.header(), cells, width);
    let lines: Vec<_> = table.lines().skip(usize::from(!has_header)).collect();
    anstream::println!("{}", lines.join("\n"));
}

/// Prints each host, and again when its line changes. A host that no longer matches, or that was
/// deleted, is printed once more.
async fn watch_hosts(cluster: &Cluster, arguments: &HostsArguments) -> Result<Exit, Failure> {
    let mut live = cluster.watch(&KINDS, &NEEDED)?;
    let columns = columns_of(cluster, arguments);
    let mut shown = Rows::new();
    let mut has_header = true;
    while live.next().await?.is_some() {
        let now = Timestamp::now();
        let rows = list_rows(&live.fleet, now);
        let (changed, gone) = list_changes(&shown, &rows, |row| is_wanted(row, arguments));
        match arguments.output.output {
            Format::Text | Format::Wide if changed.is_empty() && gone.is_empty() => {}
            Format::Text | Format::Wide => {
                let gone = gone.iter().map(|row| columns.gone_cells(row));
                let cells = changed.iter().map(|row| columns.cells(row, now)).chain(gone);
                print_rows(columns, cells.collect(), has_header);
                has_header = false;
            }
            format => {
                changed.iter().try_for_each(|row| print_document(format, row))?;
                gone.iter().try_for_each(|row| print_document(format, &GoneHost::of(row)))?;
            }
        }
        shown = rows.into_iter().filter(|(_, row)| is_wanted(row, arguments)).collect();
    }
    Ok(Exit::Done)
}

/// The new lines of the hosts that changed, and the old lines of the hosts that were deleted.
fn list_changes<'a>(
    shown: &'a Rows,
    rows: &'a Rows,
    is_wanted: impl Fn(&HostRow) -> bool,
) -> (Vec<&'a HostRow>, Vec<&'a HostRow>) {
    let changed = rows.iter().filter(|(id, row)| {
        let before = shown.get(*id);
        before != Some(*row) && (before.is_some() || is_wanted(row))
    });
    let changed = changed.map(|(_, row)| row);
    let gone = shown.iter().filter(|(id, _)| !rows.contains_key(*id)).map(|(_, row)| row);
    (changed.collect(), gone.collect())
}

#[cfg(test)]
mod tests;
