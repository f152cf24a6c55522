//! The command `why`.

use jiff::Timestamp;

use super::output::print_document;
use crate::arguments::{Format, WhyArguments};
use crate::cluster::Cluster;
use crate::failure::{Exit, Failure};
use crate::fleet::{Id, Kind, parse_object};
use crate::view::format_chain;
use crate::why::follow_causes;

pub(super) async fn explain_object(cluster: &Cluster, arguments: &WhyArguments) -> Result<Exit, Failure> {
    let (kind, name) = parse_object(&arguments.object)?;
    let id = Id::new(kind, cluster.one_namespace()?, &name);
    let kinds: Vec<_> = Kind::all().collect();
    let fleet = cluster.list(&kinds, &[kind]).await?;
    let now = Timestamp::now();
    let chain = follow_causes(&fleet, fleet.require(&id)?, now);
    match arguments.output.output {
        Format::Text | Format::Wide => anstream::print!("{}", format_chain(&chain, now)),
        format => print_document(format, &chain)?,
    }
    Ok(chain.attention().into())
}
