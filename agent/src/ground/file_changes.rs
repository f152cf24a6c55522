//! Waits for changes of the files in a directory.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::net::unix::pipe;

/// Signals that some file of a directory was replaced. A thread waits for the kernel and writes
/// into a pipe; the thread ends when the receiver is dropped.
pub struct FileChanges(pipe::Receiver);

impl FileChanges {
    /// Watches a directory, and creates it if it is missing.
    pub fn watch_directory(directory: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let changes = Inotify::init(InitFlags::IN_CLOEXEC)?;
        changes.add_watch(directory, AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE)?;
        let (receiver, sender) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        std::thread::Builder::new()
            .name("file-changes".to_owned())
            .spawn(move || forward_changes(&changes, &sender))?;
        pipe::Receiver::from_owned_fd(receiver).map(Self)
    }

    /// Waits for the next change; several changes count as one.
    pub async fn next(&self) -> io::Result<()> {
        let mut seen = [0; 64];
        loop {
            self.0.readable().await?;
            match self.0.try_read(&mut seen) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn forward_changes(changes: &Inotify, sender: &OwnedFd) {
    loop {
        let waiting = PollFd::new(changes.as_fd(), PollFlags::POLLIN);
        let mut both = [waiting, PollFd::new(sender.as_fd(), PollFlags::empty())];
        if !matches!(poll(&mut both, PollTimeout::NONE), Ok(_) | Err(nix::Error::EINTR)) {
            return;
        }
        // The receiver was dropped.
        if both[1].revents().is_some_and(|events| events.contains(PollFlags::POLLERR)) {
            return;
        }
        let is_changed = both[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN));
        if is_changed && changes.read_events().is_err() {
            return;
        }
        // If the pipe is full, the receiver has a signal already.
        if is_changed {
            let _ = nix::unistd::write(sender, &[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_replaced_file_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let watched = directory.path().join("below");
        let changes = FileChanges::watch_directory(&watched).unwrap();
        crate::ground::durable::write(&watched.join("x"), b"1").unwrap();
        tokio::time::timeout(Duration::from_secs(10), changes.next()).await.expect("not told").unwrap();
    }
}
