//! Memory and CPU of a coordinator whose hosts are attached and idle.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::as_f64;
use crate::figure::Figure;
use crate::fleet::start_hosts;
use crate::host::EventKind;
use crate::site::Site;

/// No more hosts are started after this time.
const BUDGET: Duration = Duration::from_mins(4);
/// Hosts that are started together.
const BATCH: usize = 500;
/// How long nothing happens before idle hosts are measured, and for how long they are.
const SETTLE: Duration = Duration::from_secs(15);
const IDLE: Duration = Duration::from_secs(40);

/// The figures of `wanted` streams, or of those that could be opened in time.
pub(crate) async fn run(binary: &Path, wanted: usize) -> anyhow::Result<Vec<Figure>> {
    eprintln!("streams: up to {wanted} hosts attached and idle");
    let site = Site::start(binary).await?;
    let coordinator = site.start_coordinator("bench-0", None).await?;
    let endpoint = site.open_registration(coordinator.address).await?;
    let (events, mut received) = tokio::sync::mpsc::unbounded_channel();
    // What the process allocates once is not of a stream.
    let mut hosts = start_hosts(&endpoint, 0..BATCH.min(wanted), &events).await?;
    sleep(Duration::from_secs(2)).await;
    let (first, base) = (hosts.len(), coordinator.resident_bytes()?);
    let start = Instant::now();
    while hosts.len() < wanted && start.elapsed() < BUDGET {
        let end = (hosts.len() + BATCH).min(wanted);
        hosts.extend(start_hosts(&endpoint, hosts.len()..end, &events).await?);
        eprintln!("  {end} hosts after {:.0} s", start.elapsed().as_secs_f64());
    }
    sleep(SETTLE).await;
    let (mark, cpu, idle) = (site.mark()?, coordinator.cpu()?, Instant::now());
    sleep(IDLE).await;
    let cpu = (coordinator.cpu()? - cpu) / idle.elapsed().as_secs_f64();
    let resident = coordinator.resident_bytes()?;
    let requests = site.requests_since(mark).await?;
    let mut lost = 0;
    while let Ok(event) = received.try_recv() {
        lost += usize::from(event.kind == EventKind::Disconnected);
    }
    let count = hosts.len();
    let each = (resident - base) / 1e3 / as_f64(count.saturating_sub(first).max(1));
    let requested = as_f64(usize::try_from(requests.requests).unwrap_or(usize::MAX));
    let scale = as_f64(10_000) / as_f64(count.max(1));
    let note = format!("{count} streams, Secret, inventory and caches of each host included");
    Ok(vec![
        Figure::measured("streams: opened", as_f64(count), "streams")
            .with_note(format!("of {wanted}; no more are started after {} s", BUDGET.as_secs())),
        Figure::at_most("streams: memory of one", each, 45.0, "KB").with_note(&*note),
        Figure::at_most("streams: coordinator resident, 10000 hosts", resident * scale / 1e6, 600.0, "MB")
            .with_note(if count == 10_000 { note } else { format!("scaled from {count} streams") }),
        Figure::at_most("streams: CPU while idle, 10000 hosts", cpu * scale, 0.05, "cores")
            .with_note(if count == 10_000 { String::new() } else { format!("scaled from {count} streams") }),
        Figure::at_most("streams: API requests while idle", requested, 0.0, "requests")
            .with_note(format!("in {} s {}", IDLE.as_secs(), requests.details).trim_end().to_owned()),
        Figure::at_most("streams: lost", as_f64(lost), 0.0, "streams"),
    ])
}
