//! Requests of a scenario, part by part.

use fake_apiserver::{Counts, Verb};

/// Requests of each part of a scenario.
#[derive(Default)]
pub struct Table(Vec<(String, Counts)>);

impl Table {
    pub fn add(&mut self, part: &str, counts: Counts) {
        self.0.push((part.to_owned(), counts));
    }
}

/// Events are counted apart from other requests.
const EVENTS: &str = "events";

fn events(counts: &Counts) -> usize {
    let on_events = counts.by_resource.iter().filter(|((_, resource), _)| resource == EVENTS);
    on_events.map(|(_, count)| count).sum()
}

fn watches(counts: &Counts) -> usize {
    let watches = counts.by_resource.iter().filter(|((verb, _), _)| *verb == Verb::Watch);
    watches.map(|(_, count)| count).sum()
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:42} {:>8} {:>6} {:>6} {:>7}", "", "requests", "reads", "writes", "events")?;
        for (part, counts) in &self.0 {
            let (events, watches) = (events(counts), watches(counts));
            let requests = counts.requests - watches - events;
            let writes = counts.writes - events;
            let reads = requests - writes;
            writeln!(f, "{part:42} {requests:>8} {reads:>6} {writes:>6} {events:>7}")?;
        }
        Ok(())
    }
}
