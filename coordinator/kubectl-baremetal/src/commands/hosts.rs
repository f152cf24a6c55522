//! `hosts`.

use std::collections::BTreeMap;

use coordinator_api::explain::Attention;
use jiff::Timestamp;

use crate::arguments::{Format, HostsArguments};
use crate::cluster::Cluster;
use crate::failure::{Exit, Failure};
use crate::fleet::{Fleet, Id};
use crate::host_row::{HostRow, describe_host};
use crate::kind::Kind;
use crate::text::{format_table, host_cells, host_header};

use super::{print_document, terminal_width};

/// What a line about a host is made of.
pub(super) const KINDS: [Kind; 3] = [Kind::MachineInventory, Kind::BaremetalMachine, Kind::BareMetalHost];

/// Without these there is nothing to show.
const NEEDED: [Kind; 1] = [Kind::MachineInventory];

/// Lists the hosts, once or with their changes.
pub(super) async fn show_hosts(cluster: &Cluster, arguments: &HostsArguments) -> Result<Exit, Failure> {
    if arguments.watch {
        return watch_hosts(cluster, arguments).await;
    }
    let fleet = cluster.list(&KINDS, &NEEDED).await?;
    let now = Timestamp::now();
    let rows: Vec<_> = list_rows(&fleet, arguments, now).into_values().collect();
    match arguments.output.output {
        Format::Text | Format::Wide if rows.is_empty() => {
            anstream::eprintln!("no host is as asked for");
        }
        Format::Text | Format::Wide => print_table(cluster, arguments, &rows, (true, now)),
        format => print_document(format, &rows)?,
    }
    Ok(Exit::Done)
}

/// The hosts that are asked for, by namespace and name.
fn list_rows(fleet: &Fleet, arguments: &HostsArguments, now: Timestamp) -> BTreeMap<Id, HostRow> {
    let hosts = fleet.of(Kind::MachineInventory);
    let rows = hosts.filter_map(|host| Some((host.id.clone(), describe_host(fleet, host, now)?)));
    let is_wanted = |row: &HostRow| {
        (arguments.state.is_empty() || arguments.state.contains(&row.state))
            && arguments.pool.as_ref().is_none_or(|pool| *pool == row.pool)
            && (!arguments.attention || row.attention == Attention::Act)
    };
    rows.filter(|(_, row)| is_wanted(row)).collect()
}

fn print_table(
    cluster: &Cluster,
    arguments: &HostsArguments,
    rows: &[HostRow],
    (has_header, now): (bool, Timestamp),
) {
    let is_wide = arguments.output.output == Format::Wide;
    let has_namespace = cluster.namespace.is_none();
    let header = host_header(is_wide, has_namespace);
    let cells = rows.iter().map(|row| host_cells(row, is_wide, has_namespace, now)).collect();
    let table = format_table(&header, cells, terminal_width().filter(|_| !is_wide));
    let lines: Vec<_> = table.lines().skip(usize::from(!has_header)).collect();
    anstream::println!("{}", lines.join("\n"));
}

/// Prints each host, and again when its line changes.
async fn watch_hosts(cluster: &Cluster, arguments: &HostsArguments) -> Result<Exit, Failure> {
    let mut live = cluster.watch(&KINDS, &NEEDED)?;
    let mut shown = BTreeMap::<Id, HostRow>::new();
    let mut has_header = true;
    while live.next().await?.is_some() {
        let now = Timestamp::now();
        let rows = list_rows(&live.fleet, arguments, now);
        let changed: Vec<_> =
            rows.iter().filter(|(id, row)| shown.get(id) != Some(row)).map(|(_, row)| row.clone()).collect();
        match arguments.output.output {
            Format::Text | Format::Wide if !changed.is_empty() => {
                print_table(cluster, arguments, &changed, (has_header, now));
                has_header = false;
            }
            Format::Text | Format::Wide => {}
            format => changed.iter().try_for_each(|row| print_document(format, row))?,
        }
        shown = rows;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests;
