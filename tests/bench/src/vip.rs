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

/// Measures the distribution.
///
/// # Errors
/// Without root, keepalived, or `vip-agent` beside this program.
pub(crate) fn run() -> anyhow::Result<Vec<Figure>> {
    let program = std::env::current_exe()?.with_file_name("vip-agent");
    program.is_file().then_some(()).context("there is no vip-agent beside this program: run `make bench`")?;
    let mut site = start_site(&program)?;
    let (mut seconds, mut writes) = (Vec::with_capacity(RUNS), Vec::with_capacity(RUNS));
    for run in 1..=RUNS {
        let holder = settle(&site)?;
        let start = Instant::now();
        let lost = time_failover(&site.network, || site.network.set_cable(holder, false), TIME_LIMIT);
        seconds.push(lost.with_context(|| format!("loss {run}"))?.as_secs_f64());
        // etcd may have lost its leader with the holder.
        site.wait_write(&format!("loss-{run}"))?;
        writes.push(start.elapsed().as_secs_f64());
        site.network.set_cable(holder, true)?;
        if run % 20 == 0 {
            eprintln!("vip: {run} of {RUNS}");
        }
    }
    site.nodes.clear();
    Ok(list_figures(&mut seconds, &mut writes))
}

/// The value that this share of all is not above, the smallest first.
fn at(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// The figures of these losses: until a connection, and until a write.
fn list_figures(seconds: &mut [f64], writes: &mut [f64]) -> Vec<Figure> {
    seconds.sort_by(f64::total_cmp);
    writes.sort_by(f64::total_cmp);
    let (seconds, writes) = (&*seconds, &*writes);
    let at_write = format!("p90 {:.2} s, longest {:.2} s", at(writes, 90), at(writes, 100));
    let at = |percent: usize| at(seconds, percent);
    let note = format!("median {:.2} s, p90 {:.2} s, 100 losses of the host that holds it", at(50), at(90));
    let late = seconds.iter().filter(|lost| **lost > GOAL).count();
    vec![
        Figure::at_most("vip, loss of the holder to a connection, p99", at(98), GOAL, "s")
            .with_distribution(seconds)
            .with_note(note),
        Figure::measured("vip, longest loss of the holder", at(100), "s"),
        Figure::measured(format!("vip, losses of more than {GOAL} s"), as_f64(late), "losses")
            .with_note(format!("of {}", seconds.len())),
        Figure::measured("vip, loss of the holder to a write, median", self::at(writes, 50), "s")
            .with_note(at_write),
    ]
}

fn start_site(program: &Path) -> anyhow::Result<Site> {
    let mut site = Site::create(3, Family::V4, program)?;
    site.give_duties(1, &[0, 1, 2])?;
    site.start_agents()?;
    site.start_kubernetes(&Parts::from_environment()?)?;
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
        let mut seconds: Vec<f64> = (1..=100).rev().map(|number| f64::from(number) / 160.0).collect();
        let mut writes = vec![3.0, 1.0, 2.0];
        let figures = list_figures(&mut seconds, &mut writes);
        let found: Vec<_> = figures.iter().map(|figure| figure.ours.to_bits()).collect();
        // The 96th takes 0.6 s.
        assert_eq!(found, [99.0_f64 / 160.0, 100.0 / 160.0, 4.0, 2.0].map(f64::to_bits));
    }
}
