//! Benchmarks of the coordinator: each prints its figures against the goals, and a missed goal
//! makes the exit status 1. See docs/CONTRIBUTING.md.

mod dispatch;
mod failover;
mod figure;
mod fleet;
mod forwarder;
mod host;
mod hostile;
mod index;
mod lifecycle;
mod machines;
mod metal3_index;
mod page;
mod plot;
mod protocol;
mod registration;
mod seed_image;
mod site;
mod streams;
mod usage;
mod vip;
mod wait;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use figure::Figure;

/// Measures the coordinator. Progress goes to stderr; the table and one line of JSON for each figure
/// go to stdout. Exits with 1 when a goal was missed or a benchmark failed.
#[derive(Debug, Parser)]
struct Arguments {
    /// What to measure; everything by default.
    benchmarks: Vec<Benchmark>,
    /// The coordinator to measure; by default the one beside this program.
    #[arg(long, value_name = "FILE")]
    coordinator: Option<PathBuf>,
    /// Idle hosts of `streams`.
    #[arg(long, default_value_t = 10_000)]
    streams: usize,
    /// Hosts of `fleet`.
    #[arg(long, default_value_t = 1_000)]
    hosts: usize,
    /// Reads one input of `hostile` in this process, and measures nothing else.
    #[arg(long, hide = true, value_name = "NAME")]
    hostile_case: Option<String>,
    /// Also writes performance.md and its plots there.
    #[arg(long, value_name = "DIRECTORY")]
    page: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Benchmark {
    /// CPU of an event, a choice and a recount at 100, 1,000 and 10,000 inventories.
    Index,
    /// API requests and writes of one host.
    Lifecycle,
    /// Server CPU and API requests of a registration.
    Registration,
    /// Bytes, CPU and first byte of seed ISOs, against xorriso.
    SeedImage,
    /// Memory and CPU of idle streams.
    Streams,
    /// Memory and CPU of the worst inputs of parsers.
    Hostile,
    /// From a machine to the plan on its host.
    Dispatch,
    /// kill -9 of the leading replica.
    Failover,
    /// Many hosts through a whole lifecycle.
    Fleet,
    /// Loss of the host that holds a cluster's endpoint; needs root and keepalived.
    Vip,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.hostile_case {
        Some(name) => hostile::read_case(name).map(|()| true),
        None => run(&arguments),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything was measured and every goal reached.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let files = usage::raise_open_files()?;
    let binary = arguments.coordinator.clone().map_or_else(find_coordinator, Ok)?;
    eprintln!("coordinator: {}, {files} open files allowed", binary.display());
    let runtime = tokio::runtime::Runtime::new()?;
    let all = Benchmark::value_variants();
    let chosen = if arguments.benchmarks.is_empty() { all } else { &arguments.benchmarks };
    let (mut figures, mut failures) = (vec![], vec![]);
    for benchmark in chosen {
        let start = Instant::now();
        let measured = match benchmark {
            Benchmark::Index => index::run(),
            Benchmark::Lifecycle => lifecycle::run(),
            Benchmark::Registration => runtime.block_on(registration::run(&binary)),
            Benchmark::SeedImage => runtime.block_on(seed_image::run()),
            Benchmark::Streams => runtime.block_on(streams::run(&binary, arguments.streams)),
            Benchmark::Hostile => runtime.block_on(hostile::run(&binary)),
            Benchmark::Dispatch => runtime.block_on(dispatch::run(&binary)),
            Benchmark::Failover => runtime.block_on(failover::run(&binary)),
            Benchmark::Fleet => runtime.block_on(fleet::run(&binary, arguments.hosts)),
            Benchmark::Vip => vip::run(),
        };
        match measured {
            Ok(measured) => figures.extend(measured),
            Err(error) => failures.push(format!("{benchmark:?} failed: {error:#}")),
        }
        eprintln!("{benchmark:?}: {:.0} s", start.elapsed().as_secs_f64());
    }
    print(&figures, &failures)?;
    if let Some(directory) = &arguments.page
        && failures.is_empty()
    {
        page::write(directory, &figures)?;
    }
    Ok(failures.is_empty() && !figures.iter().any(Figure::is_missed))
}

#[allow(clippy::print_stdout, reason = "the figures are the output of the program")]
fn print(figures: &[Figure], failures: &[String]) -> anyhow::Result<()> {
    for figure in figures {
        println!("{figure}");
    }
    for figure in figures {
        println!("{}", serde_json::to_string(figure)?);
    }
    for failure in failures {
        eprintln!("{failure}");
    }
    let missed = figures.iter().filter(|figure| figure.is_missed()).count();
    eprintln!("{} figures, {missed} goals missed, {} benchmarks failed", figures.len(), failures.len());
    Ok(())
}

/// The coordinator that was built beside this program.
fn find_coordinator() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("baremetal-coordinator");
    let message =
        "there is no baremetal-coordinator beside this program: run `make bench`, or give --coordinator";
    path.is_file().then_some(path).context(message)
}

/// Counts are far below what `f64` has digits for.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn as_f64(count: usize) -> f64 {
    count as f64
}
