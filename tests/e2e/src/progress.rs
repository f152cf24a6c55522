//! What is printed while the steps run.

use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Steps with their times, and lines between them: live on a terminal, plain
/// lines elsewhere.
pub struct Progress {
    start: Instant,
    bar: Option<ProgressBar>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    number: usize,
    current: Option<(String, Instant)>,
    done: Vec<(String, Duration)>,
}

impl Default for Progress {
    fn default() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(120));
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
                bar.set_style(style);
            }
            bar
        });
        Self { start: Instant::now(), bar, state: Mutex::default() }
    }
}

impl Progress {
    /// The next step begins, and with it the last one ends.
    pub fn step(&self, name: &str) {
        self.end();
        let mut state = self.state();
        state.number += 1;
        state.current = Some((name.to_owned(), Instant::now()));
        let text = format!("[{}] {name}", state.number);
        drop(state);
        if let Some(bar) = &self.bar {
            bar.reset_elapsed();
            bar.set_message(text.clone());
        }
        self.line(&text);
    }

    /// The last step has ended well.
    pub fn end(&self) {
        let mut state = self.state();
        if let Some((name, since)) = state.current.take() {
            state.done.push((name, since.elapsed()));
        }
    }

    pub fn line(&self, text: &str) {
        let seconds = self.start.elapsed().as_secs();
        let line = format!("{:>2}:{:02}  {text}", seconds / 60, seconds % 60);
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    /// A line below a step.
    pub fn detail(&self, text: &str) {
        self.line(&format!("      {text}"));
    }

    /// The step that runs now; after a failure, the one that failed.
    pub fn current(&self) -> String {
        self.state().current.as_ref().map_or_else(String::new, |(name, _)| name.clone())
    }

    /// The steps that are done, with their times.
    pub fn done(&self) -> Vec<(String, Duration)> {
        self.state().done.clone()
    }

    /// Takes the live line away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_step_stays_the_current_one() {
        let progress = Progress::default();
        progress.step("one");
        progress.step("two");
        progress.finish();
        assert_eq!(progress.current(), "two");
        let done: Vec<_> = progress.done().into_iter().map(|(name, _)| name).collect();
        assert_eq!(done, ["one"]);
        progress.end();
        assert_eq!((progress.current().as_str(), progress.done().len()), ("", 2));
    }
}
