//! The endpoint of a control plane of three after the loss of the host that holds it: real
//! keepalived in network namespaces, a stand-in for the API servers.

use std::path::Path;
use std::time::{Duration, Instant};

use ::vip::network::Family;
use ::vip::probe::{time_failover, wait_until};
use ::vip::site::Site;
use anyhow::Context as _;

use crate::as_f64;
use crate::figure::Figure;

/// Losses that are measured.
const RUNS: usize = 100;
/// Without the endpoint, a cluster is not served.
const GOAL: f64 = 0.6;
const PATIENCE: Duration = Duration::from_mins(1);
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
    let mut seconds = Vec::with_capacity(RUNS);
    for run in 1..=RUNS {
        let holder = settle(&site)?;
        let lost = time_failover(&site.network, || site.network.set_cable(holder, false), PATIENCE);
        seconds.push(lost.with_context(|| format!("loss {run}"))?.as_secs_f64());
        site.network.set_cable(holder, true)?;
        if run % 20 == 0 {
            eprintln!("vip: {run} of {RUNS}");
        }
    }
    site.nodes.clear();
    seconds.sort_by(f64::total_cmp);
    Ok(list_figures(&seconds))
}

/// The figures of these losses, the shortest first.
fn list_figures(seconds: &[f64]) -> Vec<Figure> {
    let at = |share: usize| seconds[(seconds.len() * share / 100).min(seconds.len() - 1)];
    let note = format!("median {:.2} s, p90 {:.2} s, 100 losses of the host that holds it", at(50), at(90));
    let late = seconds.iter().filter(|lost| **lost > GOAL).count();
    vec![
        Figure::at_most("vip, loss of the holder to a connection, p99", at(98), GOAL, "s")
            .with_distribution(seconds)
            .with_note(note),
        Figure::measured("vip, longest loss of the holder", at(100), "s"),
        Figure::measured(format!("vip, losses of more than {GOAL} s"), as_f64(late), "losses")
            .with_note(format!("of {}", seconds.len())),
    ]
}

fn start_site(program: &Path) -> anyhow::Result<Site> {
    let mut site = Site::create(3, Family::V4, program)?;
    site.give_duties(1, &[0, 1, 2])?;
    site.start_agents()?;
    for node in 0..3 {
        site.start_stand_in(node)?;
    }
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
    wait_until("one holder for two seconds, and two that can take over", PATIENCE, || {
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
        let seconds: Vec<f64> = (1..=100).map(|number| f64::from(number) / 160.0).collect();
        let figures = list_figures(&seconds);
        let found: Vec<_> = figures.iter().map(|figure| figure.ours.to_bits()).collect();
        // The 96th takes 0.6 s.
        assert_eq!(found, [99.0_f64 / 160.0, 100.0 / 160.0, 4.0].map(f64::to_bits));
    }
}
