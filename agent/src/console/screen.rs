//! Draws the page on a terminal whenever its content has changed.

use std::convert::Infallible;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::SystemTime;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::page::render_page;
use crate::ground::failure::{Failure, describe_cause};
use crate::ground::paths::Root;

/// Moves the cursor to the corner and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[J";
/// Milliseconds; the validity of the certificate is shown in minutes.
const REFRESH: u16 = 60_000;
/// Every serial line shows this number of columns.
const COLUMNS: usize = 80;

/// Draws the page on `terminal` at each change and never returns unless it fails.
pub fn draw_page(root: &Root, terminal: &mut impl Write) -> Result<Infallible, Failure> {
    let changes = watch_changes(root).map_err(|error| screen_failure("watch for changes", &error))?;
    let mut drawn = String::new();
    loop {
        let page = render_page(root, SystemTime::now(), COLUMNS);
        if page != drawn {
            let bytes = format!("{CLEAR}{page}");
            let written = terminal.write_all(bytes.as_bytes()).and_then(|()| terminal.flush());
            written.map_err(|error| screen_failure("write to the terminal", &error))?;
            drawn = page;
        }
        await_change(&changes).map_err(|error| screen_failure("wait for a change", &error))?;
    }
}

fn screen_failure(attempt: &str, error: &io::Error) -> Failure {
    Failure::input_output(describe_cause(&format!("cannot {attempt}"), error), "")
}

/// Watches the directories of the last message and of the journal.
fn watch_changes(root: &Root) -> Result<Inotify, io::Error> {
    fs::create_dir_all(root.runtime())?;
    let changes = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let written = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO;
    changes.add_watch(&root.runtime(), written)?;
    // A live system has no state directory before the install.
    match changes.add_watch(root.state().path(), written) {
        Ok(_) | Err(Errno::ENOENT) => Ok(changes),
        Err(error) => Err(error.into()),
    }
}

fn await_change(changes: &Inotify) -> Result<(), io::Error> {
    poll(&mut [PollFd::new(changes.as_fd(), PollFlags::POLLIN)], PollTimeout::from(REFRESH))?;
    match changes.read_events() {
        Ok(_) | Err(Errno::EAGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::message::Console;

    /// A terminal that can be read, and that ends the loop after some pages.
    struct Terminal {
        root: Root,
        pages: Vec<String>,
    }

    impl Write for Terminal {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.pages.push(String::from_utf8_lossy(bytes).into_owned());
            match self.pages.len() {
                // While the page is drawn: the change must not be missed.
                1 => Console::new(&self.root).print_message("registered as fleet/host-1"),
                2 => {
                    fs::create_dir_all(self.root.state().path())?;
                    fs::write(self.root.state().journal(), "torn")?;
                }
                _ => return Err(io::ErrorKind::BrokenPipe.into()),
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_change_is_drawn_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        fs::create_dir_all(root.state().path()).unwrap();
        let mut terminal = Terminal { root: root.clone(), pages: vec![] };
        let Err(error) = draw_page(&root, &mut terminal);
        assert!(error.message.starts_with("cannot write to the terminal"), "{error}");
        let [starting, registered, journal] = &terminal.pages[..] else { panic!("{:?}", terminal.pages) };
        assert!(starting.starts_with(CLEAR) && starting.contains("now         starting"), "{starting}");
        assert!(registered.contains("now         registered as fleet/host-1"), "{registered}");
        assert!(journal.contains("safe mode"), "{journal}");
    }
}
