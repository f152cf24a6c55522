//! The command `tree`.

use std::collections::BTreeMap;

use coordinator_api::names::annotation::OWNER_CLUSTER;
use jiff::Timestamp;

use super::logs::read_plan_of;
use super::output::{is_terminal, print_document};
use crate::arguments::{Format, TreeArguments};
use crate::cluster::Cluster;
use crate::failure::{Exit, Failure};
use crate::fleet::{Fleet, Id, Kind};
use crate::view::{Branch, PlanView, draw_plan, draw_tree, format_tree};

/// Plans by the name of their host.
type Plans = BTreeMap<String, PlanView>;

const KINDS: [Kind; 10] = [
    Kind::Cluster,
    Kind::KubeadmControlPlane,
    Kind::MachineDeployment,
    Kind::Machine,
    Kind::BaremetalCluster,
    Kind::Metal3Cluster,
    Kind::BaremetalMachine,
    Kind::Metal3Machine,
    Kind::BareMetalHost,
    Kind::MachineInventory,
];

/// Kinds that have to be served and allowed.
const NEEDED: [Kind; 2] = [Kind::Cluster, Kind::MachineInventory];

pub(super) async fn show_tree(cluster: &Cluster, arguments: &TreeArguments) -> Result<Exit, Failure> {
    let id = Id::new(Kind::Cluster, cluster.one_namespace()?, &arguments.cluster);
    if !arguments.watch {
        let fleet = cluster.list(&KINDS, &NEEDED).await?;
        let tree = draw(cluster, &fleet, &id, &mut Plans::new()).await?;
        return print_tree(arguments, &tree);
    }
    let mut live = cluster.watch(&KINDS, &NEEDED)?;
    let mut shown = None;
    let mut plans = Plans::new();
    while live.next().await?.is_some() {
        let tree = draw(cluster, &live.fleet, &id, &mut plans).await?;
        if shown.as_ref() != Some(&tree) {
            let is_text = matches!(arguments.output.output, Format::Text | Format::Wide);
            match shown {
                _ if is_text && is_terminal() => drop(console::Term::stdout().clear_screen()),
                Some(_) if is_text => anstream::println!(),
                _ => {}
            }
            print_tree(arguments, &tree)?;
            shown = Some(tree);
        }
    }
    Ok(Exit::Done)
}

fn print_tree(arguments: &TreeArguments, tree: &Branch) -> Result<Exit, Failure> {
    match arguments.output.output {
        Format::Text | Format::Wide => anstream::print!("{}", format_tree(tree, is_terminal())),
        format => print_document(format, tree)?,
    }
    Ok(Exit::Done)
}

/// Draws the cluster, and reads the plans of its hosts. A plan that has ended is not read again.
async fn draw(cluster: &Cluster, fleet: &Fleet, id: &Id, plans: &mut Plans) -> Result<Branch, Failure> {
    let root = fleet.require(id)?;
    let hosts = fleet.of_namespace(Kind::MachineInventory, &id.namespace);
    for host in hosts.filter(|host| host.annotation(OWNER_CLUSTER) == Some(&id.name)) {
        let plan = &host.status()["plan"];
        let known = plans.get(&host.id.name).filter(|known| {
            !known.is_running() && plan["id"] == known.id.as_str() && plan["state"] == known.state.as_str()
        });
        if known.is_none()
            && let Some(read) = read_plan_of(cluster, host).await?
        {
            plans.insert(host.id.name.clone(), read);
        }
    }
    Ok(draw_tree(fleet, root, &|host| plans.get(&host.id.name).map(draw_plan), Timestamp::now()))
}

#[cfg(test)]
mod tests;
