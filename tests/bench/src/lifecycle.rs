//! API requests and writes of one host from its registration to its release: the real coordinator
//! and agent, an API server in memory and virtual time, so that the counts are exact.

use anyhow::Context as _;
use scenarios::World;

use crate::as_f64;
use crate::figure::Figure;

/// What a part of a lifecycle asked for, Events included.
struct Part {
    name: &'static str,
    requests: usize,
    writes: usize,
    /// Requests for Events among them.
    events: usize,
    goal: f64,
}

impl Part {
    fn count(name: &'static str, world: &World, mark: usize, goal: f64) -> Self {
        let counts = world.count_requests(mark);
        let on_events = counts.by_resource.iter().filter(|((_, resource), _)| resource == "events");
        let events = on_events.map(|(_, count)| count).sum();
        Self { name, requests: counts.requests, writes: counts.writes, events, goal }
    }
}

async fn play() -> Vec<Part> {
    let mut world = World::new().await;
    world.apply_registration().await;
    world.wait_idle().await;
    let mark = world.fake.journal().mark();
    world.register_hosts(&["host-1"]).await;
    world.wait_idle().await;
    let attached = Part::count("until attached", &world, mark, 5.0);
    world.apply_catalog().await;
    world.apply_cluster("c1").await;
    world.apply_pool("pool", &["host-1"]).await;
    world.wait_idle().await;
    let mark = world.fake.journal().mark();
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.wait_idle().await;
    let running = Part::count("claim to Running", &world, mark, 9.0);
    let mark = world.fake.journal().mark();
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    world.wait_idle().await;
    let released = Part::count("deletion to release", &world, mark, 6.0);
    world.check_invariants().await;
    vec![attached, running, released]
}

/// The world counts on a clock that jumps, which a runtime of one thread has.
fn play_in_virtual_time() -> anyhow::Result<Vec<Part>> {
    let played = std::thread::spawn(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build()?;
        anyhow::Ok(runtime.block_on(play()))
    });
    // The panic was printed where it happened.
    played.join().ok().context("the lifecycle in virtual time failed")?
}

/// Writes of each part and of all.
pub(crate) fn run() -> anyhow::Result<Vec<Figure>> {
    eprintln!("lifecycle: one host in virtual time");
    let parts = play_in_virtual_time()?;
    let sum = |count: fn(&Part) -> usize| as_f64(parts.iter().map(count).sum());
    let mut figures: Vec<Figure> = parts.iter().map(of_part).collect();
    let note = format!("{} requests for Events among them", sum(|part| part.events));
    let (requests, writes) = (sum(|part| part.requests), sum(|part| part.writes));
    figures.push(Figure::at_most("lifecycle: API requests", requests, 28.0, "requests").with_note(&*note));
    figures.push(Figure::at_most("lifecycle: API writes", writes, 20.0, "writes").with_note(note));
    Ok(figures)
}

fn of_part(part: &Part) -> Figure {
    let figure =
        Figure::at_most(format!("lifecycle: {}", part.name), as_f64(part.writes), part.goal, "writes");
    figure.with_note(format!("{} requests, {} for Events", part.requests, part.events))
}
