//! One function for each command: read, decide, print or write.

mod apply;
mod bundle;
mod hosts;
mod logs;
mod tree;
mod ui;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::CommandFactory as _;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use serde::Serialize;

use crate::arguments::{Arguments, Command, DescribeArguments, Format, WhyArguments};
use crate::cluster::{Cluster, is_forbidden};
use crate::complete::{complete, read_connection};
use crate::describe::{Description, EventView, format_description};
use crate::failure::{Exit, Failure, explain_error};
use crate::fleet::{Fleet, Id, Object};
use crate::host_row::describe_host;
use crate::kind::Kind;
use crate::steps::{PlanView, read_plan};
use crate::text::format_chain;
use crate::why::follow_causes;

/// A shell does not wait longer for names.
const COMPLETION_DEADLINE: Duration = Duration::from_secs(3);

/// Runs a command.
pub(crate) async fn run(arguments: Arguments) -> Result<Exit, Failure> {
    if let Command::Completion { shell } = arguments.command {
        let mut command = Arguments::command();
        clap_complete::generate(shell, &mut command, "kubectl-baremetal", &mut std::io::stdout());
        return Ok(Exit::Done);
    }
    let cluster = Cluster::connect(&arguments.connection).await?;
    match &arguments.command {
        Command::Hosts(arguments) => hosts::show_hosts(&cluster, arguments).await,
        Command::Why(arguments) => explain_object(&cluster, arguments).await,
        Command::Tree(arguments) => tree::show_tree(&cluster, arguments).await,
        Command::Logs(arguments) => logs::show_logs(&cluster, arguments).await,
        Command::Describe(arguments) => show_description(&cluster, arguments).await,
        Command::Approve(arguments) => apply::approve_hosts(&cluster, arguments).await,
        Command::Release(arguments) => apply::release_host(&cluster, arguments).await,
        Command::DrainAndRelease(arguments) => apply::drain_host(&cluster, arguments).await,
        Command::Reinstall(arguments) => apply::reinstall_host(&cluster, arguments).await,
        Command::Ui(arguments) => ui::show_page(&cluster, arguments).await,
        Command::Support(arguments) => bundle::write_bundle(&cluster, arguments).await,
        Command::Completion { .. } => Ok(Exit::Done),
    }
}

/// What the last word of a command line may become, for kubectl.
pub(crate) async fn complete_words(words: &[String]) -> String {
    let offered = complete(words);
    let last = words.last().map_or("", String::as_str);
    let Some((kind, _)) = &offered.names else { return offered.answer(&[], last) };
    let reading = async {
        let cluster = Cluster::connect(&read_connection(words)).await?;
        cluster.list(&[*kind], &[*kind]).await
    };
    // A completion that fails has no names.
    let fleet = tokio::time::timeout(COMPLETION_DEADLINE, reading).await;
    let fleet = fleet.ok().and_then(Result::ok).unwrap_or_default();
    let names: Vec<_> = fleet.all().map(|object| object.id.name.clone()).collect();
    offered.answer(&names, last)
}

/// Prints a value as JSON or YAML, one document.
pub(crate) fn print_document(format: Format, value: &impl Serialize) -> Result<(), Failure> {
    if format == Format::Yaml {
        let text = serde_norway::to_string(value).map_err(Failure::format("write the output"))?;
        anstream::print!("---\n{text}");
    } else {
        let text = serde_json::to_string(value).map_err(Failure::format("write the output"))?;
        anstream::println!("{text}");
    }
    Ok(())
}

/// Whether the output is read as it comes.
pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Columns of the terminal; `None` where the output goes elsewhere.
pub(crate) fn terminal_width() -> Option<u16> {
    is_terminal().then(|| console::Term::stdout().size_checked().map(|(_, columns)| columns))?
}

/// `KIND/NAME`, or `KIND NAME`.
pub(crate) fn parse_object(words: &[String]) -> Result<(Kind, String), Failure> {
    let pair = match words {
        [word] => word.split_once('/').map(|(kind, name)| (kind.to_owned(), name.to_owned())),
        [kind, name] => Some((kind.clone(), name.clone())),
        _ => None,
    };
    let (kind, name) =
        pair.ok_or_else(|| Failure::Usage("name the object as KIND/NAME or KIND NAME".to_owned()))?;
    let known = Kind::parse(&kind).ok_or_else(|| {
        let kinds: Vec<_> = Kind::all().map(Kind::name).collect();
        Failure::NotFound(format!("{kind} is no kind that is looked at: one of {}", kinds.join(", ")))
    })?;
    Ok((known, name))
}

/// The object, of those that were listed.
pub(crate) fn find_object<'a>(fleet: &'a Fleet, id: &Id) -> Result<&'a Object, Failure> {
    fleet.get(id).ok_or_else(|| {
        let Id { kind, namespace, name } = id;
        Failure::NotFound(format!(
            "{} {name} does not exist in namespace {namespace}: name another by --namespace",
            kind.name()
        ))
    })
}

async fn explain_object(cluster: &Cluster, arguments: &WhyArguments) -> Result<Exit, Failure> {
    let (kind, name) = parse_object(&arguments.object)?;
    let id = Id::new(kind, cluster.one_namespace()?, &name);
    let kinds: Vec<_> = Kind::all().collect();
    let fleet = cluster.list(&kinds, &[kind]).await?;
    let now = Timestamp::now();
    let chain = follow_causes(&fleet, find_object(&fleet, &id)?, now);
    match arguments.output.output {
        Format::Text | Format::Wide => anstream::print!("{}", format_chain(&chain, now)),
        format => print_document(format, &chain)?,
    }
    Ok(chain.attention().into())
}

/// The newest plan of a host, with its steps where its Secret may be read.
pub(crate) async fn read_plan_of(cluster: &Cluster, host: &Object) -> Result<Option<PlanView>, Failure> {
    let named = host.status()["plan"]["secretRef"]["name"].as_str();
    let name = named.unwrap_or(&host.id.name);
    match cluster.plan_secret(&host.id.namespace, name).await {
        Ok(secret) => Ok(read_plan(host, Ok(secret.as_ref()))),
        Err(error) if is_forbidden(&error) => Ok(read_plan(host, Err(explain_error(&error)))),
        Err(error) => Err(Failure::request(format!("read the plan Secret {name}"))(error)),
    }
}

/// Events about an object, the newest last; none where they must not be listed.
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

async fn show_description(cluster: &Cluster, arguments: &DescribeArguments) -> Result<Exit, Failure> {
    let id = Id::new(Kind::MachineInventory, cluster.one_namespace()?, &arguments.host);
    let fleet = cluster.list(&hosts::KINDS, &[Kind::MachineInventory]).await?;
    let object = find_object(&fleet, &id)?;
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
