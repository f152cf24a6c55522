//! The endpoint of a control plane of three after the loss of the host that holds it: real
//! keepalived, etcd and API servers in network namespaces.

use std::path::Path;
use std::time::{Duration, Instant};

use ::vip::network::Family;
use ::vip::probe::{time_failover, wait_until};
use ::vip::site::{Site, TIME_LIMIT};
use anyhow::Context as _;
use control_plane::parts::Parts;

use crate::as_f64;
use crate::figure::Figure;

/// Losses that are measured.
const RUNS: usize = 100;
/// Without the endpoint, a cluster is not served.
const GOAL: f64 = 0.6;
/// Before each loss one node alone has held the endpoint for this long. A member that returned has
/// heard its holder by then, so that what is measured is a takeover.
const SETTLED: Duration = Duration::from_secs(2);

/// Clients that give a write up try it again.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(1);

pub(crate) fn run() -> anyhow::Result<Vec<Figure>> {
    let program = std::env::current_exe()?.with_file_name("vip-agent");
    program.is_file().then_some(()).context("there is no vip-agent beside this program: run `make bench`")?;
    let parts = Parts::from_environment()?;
    let mut site = start_site(&parts, &program)?;
    let mut losses = Vec::with_capacity(RUNS);
    for run in 1..=RUNS {
        let holder = site.wait_holder(TIME_LIMIT, |_| true)?;
        // In every second run etcd has to choose a leader too.
        site.make_etcd_leader(&parts, (holder + run % 2) % site.nodes.len())?;
        losses.push(lose_holder(&site, &parts, run).with_context(|| format!("loss {run}"))?);
        if run % 20 == 0 {
            eprintln!("vip: {run} of {RUNS}");
        }
    }
    site.nodes.clear();
    Ok(list_figures(&losses))
}

/// What a loss of the holder took, in seconds.
struct Loss {
    led_etcd: bool,
    connection: f64,
    write: f64,
}

fn lose_holder(site: &Site, parts: &Parts, run: usize) -> anyhow::Result<Loss> {
    let holder = settle(site)?;
    let (own, leader) = site.nodes[holder].etcd_ids(parts)?;
    let start = Instant::now();
    let lost = time_failover(&site.network, || site.network.set_cable(holder, false), TIME_LIMIT)?;
    site.wait_write(&format!("loss-{run}"), ATTEMPT_LIMIT)?;
    let write = start.elapsed().as_secs_f64();
    site.network.set_cable(holder, true)?;
    Ok(Loss { led_etcd: own == leader, connection: lost.as_secs_f64(), write })
}

/// The value that this share of all is not above, the smallest first.
fn at(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// The figures of these losses: until a connection, and until a write.
fn list_figures(losses: &[Loss]) -> Vec<Figure> {
    let sorted = |values: &mut dyn Iterator<Item = f64>| {
        let mut values: Vec<_> = values.collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let seconds = sorted(&mut losses.iter().map(|loss| loss.connection));
    let note = format!(
        "median {:.2} s, p90 {:.2} s, {RUNS} losses of the host that holds it",
        at(&seconds, 50),
        at(&seconds, 90)
    );
    let late = seconds.iter().filter(|lost| **lost > GOAL).count();
    let to_write = |name: &str, led_etcd| {
        let writes =
            sorted(&mut losses.iter().filter(|loss| loss.led_etcd == led_etcd).map(|loss| loss.write));
        let note = format!(
            "p90 {:.2} s, longest {:.2} s, {} losses",
            at(&writes, 90),
            at(&writes, 100),
            writes.len()
        );
        Figure::measured(format!("vip, loss of {name} to a write, median"), at(&writes, 50), "s")
            .with_note(note)
    };
    vec![
        Figure::at_most("vip, loss of the holder to a connection, p99", at(&seconds, 98), GOAL, "s")
            .with_distribution(&seconds)
            .with_note(note),
        Figure::measured("vip, longest loss of the holder", at(&seconds, 100), "s"),
        Figure::measured(format!("vip, losses of more than {GOAL} s"), as_f64(late), "losses")
            .with_note(format!("of {}", seconds.len())),
        to_write("the holder", false),
        to_write("the holder that leads etcd", true),
    ]
}

fn start_site(parts: &Parts, program: &Path) -> anyhow::Result<Site> {
    let mut site = Site::create(3, Family::V4, program)?;
    site.give_duties(1, &[0, 1, 2])?;
    site.start_agents()?;
    site.start_kubernetes(parts)?;
    Ok(site)
}

/// One and the same holder for [`SETTLED`], and the other two ready to take over.
fn settle(site: &Site) -> anyhow::Result<usize> {
    let ready = |node: usize| {
        let log = std::fs::read_to_string(site.nodes[node].log("agent")).unwrap_or_default();
        let last = log.lines().rfind(|line| line.contains("Entering ")).unwrap_or_default().to_owned();
        last.ends_with("BACKUP STATE") || last.ends_with("MASTER STATE")
    };
    let mut held: Option<(usize, Instant)> = None;
    wait_until("one holder for two seconds, and two that can take over", TIME_LIMIT, || {
        let holders = site.network.holders()?;
        held = match holders[..] {
            [holder] if (0..3).all(ready) => {
                held.filter(|(before, _)| *before == holder).or_else(|| Some((holder, Instant::now())))
            }
            _ => None,
        };
        Ok(match held {
            Some((holder, since)) if since.elapsed() >= SETTLED => Ok(holder),
            _ => Err(format!("{holders:?}")),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_longest_and_the_late_ones() {
        let losses = (1..=100).rev().map(|number| Loss {
            led_etcd: number % 2 == 0,
            connection: f64::from(number) / 160.0,
            write: f64::from(number),
        });
        let figures = list_figures(&losses.collect::<Vec<_>>());
        let found: Vec<_> = figures.iter().map(|figure| figure.ours.to_bits()).collect();
        // The 96th takes 0.6 s.
        assert_eq!(found, [99.0_f64 / 160.0, 100.0 / 160.0, 4.0, 51.0, 52.0].map(f64::to_bits));
    }
}
