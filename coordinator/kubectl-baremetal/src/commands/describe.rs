//! The command `describe`.

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};

use super::hosts::KINDS;
use super::logs::read_plan_of;
use super::output::print_document;
use crate::arguments::{DescribeArguments, Format};
use crate::cluster::Cluster;
use crate::failure::{Exit, Failure, is_forbidden};
use crate::fleet::{Id, Kind, Object};
use crate::view::{Description, EventView, describe_host, format_description};
use crate::why::follow_causes;

pub(super) async fn show_description(
    cluster: &Cluster,
    arguments: &DescribeArguments,
) -> Result<Exit, Failure> {
    let id = Id::new(Kind::MachineInventory, cluster.one_namespace()?, &arguments.host);
    let fleet = cluster.list(&KINDS, &[Kind::MachineInventory]).await?;
    let object = fleet.require(&id)?;
    let now = Timestamp::now();
    let row = describe_host(&fleet, object, now);
    let row = row.ok_or_else(|| Failure::Refused(format!("{} cannot be read", id.short())))?;
    let description = Description {
        why: follow_causes(&fleet, object, now),
        newest_plan: read_plan_of(cluster, object).await?,
        conditions: object.conditions(),
        events: list_events(cluster, object).await?,
        row,
    };
    match arguments.output.output {
        Format::Text | Format::Wide => {
            anstream::print!("{}", format_description(&description, object, now));
        }
        format => print_document(format, &description)?,
    }
    Ok(Exit::Done)
}

/// Events about an object, the newest last; none if they must not be listed.
async fn list_events(cluster: &Cluster, object: &Object) -> Result<Vec<EventView>, Failure> {
    let api: Api<Event> = Api::namespaced(cluster.client.clone(), &object.id.namespace);
    let fields = format!("regarding.kind={},regarding.name={}", object.id.kind.name(), object.id.name);
    let events = match api.list(&ListParams::default().fields(&fields)).await {
        Ok(events) => events,
        Err(error) if is_forbidden(&error) => return Ok(vec![]),
        Err(error) => return Err(Failure::request("list Events")(error)),
    };
    let mut views: Vec<_> = events.items.iter().map(EventView::read).collect();
    views.sort_by_key(|event| event.last);
    Ok(views)
}
