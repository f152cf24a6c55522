//! Places where a test kills the agent. They are compiled only with the feature `failpoints`, and
//! do nothing unless the test's variables are set.

#[cfg(not(feature = "failpoints"))]
#[inline]
pub fn failpoint(_name: &'static str) {}

/// Dies by SIGKILL at the hit that the test chose: `FAILPOINT_KILL_AT` counts the hits of a process
/// from 1, and `FAILPOINT_LOG` names a file that gets the name of every hit, and its place: the call
/// of [`crate::ground::durable`], where the failpoint is within it.
///
/// # Panics
///
/// If the test's log cannot be written.
#[cfg(feature = "failpoints")]
#[allow(clippy::expect_used)]
#[track_caller]
pub fn failpoint(name: &'static str) {
    use std::io::Write;
    use std::sync::atomic::{AtomicU64, Ordering};

    static HITS: AtomicU64 = AtomicU64::new(0);
    let hit = HITS.fetch_add(1, Ordering::SeqCst) + 1;
    if let Some(log) = std::env::var_os("FAILPOINT_LOG") {
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(log).expect("the failpoint log opens");
        let place = std::panic::Location::caller();
        writeln!(file, "{name} {}:{}", place.file(), place.line()).expect("the failpoint log takes a line");
    }
    let kill_at = std::env::var("FAILPOINT_KILL_AT").ok();
    if kill_at.and_then(|text| text.parse().ok()) == Some(hit) {
        let this = nix::unistd::Pid::this();
        let _ = nix::sys::signal::kill(this, nix::sys::signal::Signal::SIGKILL);
    }
}
