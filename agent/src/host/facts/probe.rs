//! Reads the first bytes of block devices within a deadline. A dying disk answers after minutes, and a
//! multipath device without paths never.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;

const DEADLINE: Duration = Duration::from_secs(10);

/// The devices on which a read has not returned. They are not read again until then, so that at most
/// one thread waits for each.
static PENDING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The outcome of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Bytes(Vec<u8>),
    /// The device did not answer in time, or with an error of the medium.
    Silent,
    /// The device cannot be opened.
    Unreadable,
}

/// Runs `work` on a thread of its own; `None` at the deadline. The thread is then left behind, and
/// does not keep the agent from ending, because nothing ends a call that the kernel waits for.
pub async fn run_within<T: Send + 'static>(
    deadline: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    thread::spawn(move || drop(sender.send(work())));
    tokio::time::timeout(deadline, receiver).await.ok()?.ok()
}

/// Reads up to `length` bytes.
pub fn read_start(path: &Path, length: usize) -> Answer {
    read_within(path, DEADLINE, move |path| {
        let mut bytes = Vec::with_capacity(length);
        File::open(path)?.take(length as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    })
}

fn read_within(
    path: &Path,
    deadline: Duration,
    read: impl FnOnce(&Path) -> io::Result<Vec<u8>> + Send + 'static,
) -> Answer {
    if !lock_pending().insert(path.to_owned()) {
        return Answer::Silent;
    }
    let (sender, receiver) = mpsc::channel();
    let device = path.to_owned();
    // Left behind at the deadline, like that of `run_within`.
    thread::spawn(move || {
        let answer = read(&device);
        lock_pending().remove(&device);
        drop(sender.send(answer));
    });
    match receiver.recv_timeout(deadline) {
        Ok(Ok(bytes)) => Answer::Bytes(bytes),
        Ok(Err(error)) if error.raw_os_error() == Some(Errno::EIO as i32) => Answer::Silent,
        Ok(Err(_)) => Answer::Unreadable,
        Err(_) => Answer::Silent,
    }
}

fn lock_pending() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_answer_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sda");
        let short = Duration::from_millis(20);
        let (release, wait) = mpsc::channel::<()>();
        let hangs = move |_: &Path| {
            let _ = wait.recv();
            Ok(vec![1])
        };
        assert_eq!(read_within(&path, short, hangs), Answer::Silent);
        let never = |_: &Path| -> io::Result<Vec<u8>> { panic!("the device is read twice") };
        assert_eq!(read_within(&path, short, never), Answer::Silent, "a read is still pending");
        drop(release);
        while lock_pending().contains(&path) {
            thread::yield_now();
        }
        assert_eq!(read_within(&path, DEADLINE, |_| Ok(vec![2])), Answer::Bytes(vec![2]));
    }

    #[tokio::test]
    async fn work_that_hangs_is_left_behind() {
        let (release, wait) = mpsc::channel::<()>();
        let hangs = move || {
            let _ = wait.recv();
        };
        assert_eq!(run_within(Duration::from_millis(20), hangs).await, None);
        drop(release);
        assert_eq!(run_within(DEADLINE, || 1).await, Some(1));
    }

    #[test]
    fn errors_of_the_medium_count_as_silence() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sda");
        let fails = |error: Errno| read_within(&path, DEADLINE, move |_| Err(error.into()));
        assert_eq!(fails(Errno::EIO), Answer::Silent);
        assert_eq!(fails(Errno::ENOMEDIUM), Answer::Unreadable);
        assert_eq!(read_start(&path, 4), Answer::Unreadable, "there is none");
        std::fs::write(&path, "12345678").unwrap();
        assert_eq!(read_start(&path, 4), Answer::Bytes(b"1234".to_vec()));
    }
}
