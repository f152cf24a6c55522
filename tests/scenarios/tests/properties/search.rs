//! Plays many stories: their numbers, seed and time.
//!
//! `STORIES` is their number, `STORY_SEED` the seed of all. `STORY_MINUTES` ends the search earlier, but not
//! before `STORY_LEAST` stories. `STORY` plays the story of that number alone. `STORY_PROGRESS` names a file
//! with the number of stories that were played, so that a search that was interrupted is resumed.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::events::story;
use super::play_in_virtual_time;

/// Pause between two lines about the progress.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);
/// Attempts to find a shorter story that fails too.
const SHRINKS: u32 = 60;

struct Search {
    seed: u64,
    stories: u64,
    least: u64,
    end: Option<Instant>,
    progress: Option<PathBuf>,
}

/// Stories that were taken and played.
struct Count {
    next: u64,
    played: u64,
    reported: Instant,
}

fn read_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

impl Search {
    /// Without variables, the same few stories are played in each run.
    fn from_environment() -> Self {
        let stories = read_number("STORIES").unwrap_or(32);
        let minutes = read_number("STORY_MINUTES").map(|minutes| Duration::from_secs(minutes * 60));
        Self {
            seed: read_number("STORY_SEED").unwrap_or(1),
            stories,
            least: read_number("STORY_LEAST").unwrap_or(stories).min(stories),
            end: minutes.map(|minutes| Instant::now() + minutes),
            progress: std::env::var_os("STORY_PROGRESS").map(PathBuf::from),
        }
    }

    /// The number of the first story that an earlier search with this seed did not play.
    fn first(&self) -> u64 {
        let kept = self.progress.as_ref().and_then(|path| fs::read_to_string(path).ok());
        let fields = kept.as_deref().and_then(|text| text.trim().split_once(' '));
        let kept = fields.filter(|(seed, _)| *seed == self.seed.to_string());
        kept.and_then(|(_, played)| played.parse().ok()).unwrap_or(0)
    }

    fn is_over(&self, number: u64, played: u64) -> bool {
        let is_late = self.end.is_some_and(|end| Instant::now() >= end);
        number >= self.stories || (is_late && played >= self.least)
    }

    fn play_one(&self, number: u64) -> Result<(), String> {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        let config =
            Config { cases: 1, max_shrink_iters: SHRINKS, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let played = runner.run(&story(), |story| {
            play_in_virtual_time(story);
            Ok(())
        });
        played.map_err(|failure| {
            format!("STORY_SEED={} STORY={number} plays this story again:\n{failure}", self.seed)
        })
    }

    fn report(&self, count: &Count, first: u64, begun: Instant) {
        let rate = f64::from(u32::try_from(count.played).unwrap_or(u32::MAX)) / begun.elapsed().as_secs_f64();
        eprintln!("stories {first} to {} of seed {}: {rate:.2} a second", count.next, self.seed);
        if let Some(path) = &self.progress {
            fs::write(path, format!("{} {}\n", self.seed, count.next)).unwrap();
        }
    }
}

pub(super) fn play_stories() {
    let search = Search::from_environment();
    if let Some(number) = read_number("STORY") {
        return search.play_one(number).unwrap_or_else(|failure| panic!("{failure}"));
    }
    let (first, begun) = (search.first(), Instant::now());
    let count = Mutex::new(Count { next: first, played: 0, reported: begun });
    let has_failed = AtomicBool::new(false);
    let failures = Mutex::new(vec![]);
    let take = || {
        let mut count = count.lock().unwrap();
        if search.is_over(count.next, count.played) || has_failed.load(Ordering::Relaxed) {
            return None;
        }
        count.next += 1;
        Some(count.next - 1)
    };
    let work = || {
        while let Some(number) = take() {
            if let Err(failure) = search.play_one(number) {
                has_failed.store(true, Ordering::Relaxed);
                failures.lock().unwrap().push(failure);
                return;
            }
            let mut count = count.lock().unwrap();
            count.played += 1;
            if count.reported.elapsed() >= REPORT_INTERVAL {
                count.reported = Instant::now();
                search.report(&count, first, begun);
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let count = count.into_inner().unwrap();
    search.report(&count, first, begun);
    if count.next >= search.stories {
        search.progress.iter().for_each(|path| fs::remove_file(path).unwrap());
    }
}
