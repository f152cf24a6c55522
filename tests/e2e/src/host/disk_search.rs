//! Secrets on the raw disk of a virtual machine: in files, in what deleted files left,
//! in journals of file systems.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use memchr::memmem::Finder;
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

const WINDOW: usize = 4 << 20;

/// What must not outlive a node.
#[derive(Clone, Debug)]
pub struct Secret {
    /// For errors: the secret itself is in none.
    pub what: &'static str,
    pub text: String,
}

/// Which of the secrets are on the disk, wherever. Holes of the file were never written, or
/// discarded: they are not read.
///
/// # Errors
/// When the disk cannot be read.
pub fn find_secrets(disk: &Path, secrets: &[Secret]) -> io::Result<Vec<&'static str>> {
    let mut search = Search {
        sought: secrets.iter().map(|secret| (secret.what, Finder::new(secret.text.as_bytes()))).collect(),
        overlap: secrets.iter().map(|secret| secret.text.len()).max().unwrap_or_default(),
        found: vec![],
    };
    let mut disk = File::open(disk)?;
    let mut end = 0;
    while let Some(start) = find_data(&disk, end)? {
        end = lseek(&disk, start, Whence::SeekHole)?;
        lseek(&disk, start, Whence::SeekSet)?;
        search.read(&mut disk.by_ref().take((end - start).unsigned_abs()))?;
    }
    Ok(search.found)
}

/// Where the next data is, from `offset` on.
fn find_data(disk: &File, offset: i64) -> io::Result<Option<i64>> {
    match lseek(disk, offset, Whence::SeekData) {
        Ok(start) => Ok(Some(start)),
        Err(Errno::ENXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

struct Search<'a> {
    sought: Vec<(&'static str, Finder<'a>)>,
    overlap: usize,
    found: Vec<&'static str>,
}

impl Search<'_> {
    /// Reads what has no hole.
    fn read(&mut self, data: &mut impl io::Read) -> io::Result<()> {
        let mut window = Vec::with_capacity(WINDOW + self.overlap);
        while !self.sought.is_empty() {
            let kept = window.len().min(self.overlap);
            window.drain(..window.len() - kept);
            if data.take(WINDOW as u64).read_to_end(&mut window)? == 0 {
                break;
            }
            self.sought.retain(|(what, finder)| {
                let is_here = finder.find(&window).is_some();
                if is_here {
                    self.found.push(*what);
                }
                !is_here
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    /// One of two secrets is on the disk.
    fn check_found(disk: &Path) {
        let secret = |what, text: &str| Secret { what, text: text.to_owned() };
        let secrets = [secret("there", "abcdef"), secret("elsewhere", "abcdeg")];
        assert_eq!(find_secrets(disk, &secrets).unwrap(), ["there"]);
    }

    #[test]
    fn secrets_are_found_across_windows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let mut bytes = vec![0; 2 * WINDOW + 9];
        bytes[WINDOW - 3..WINDOW + 3].copy_from_slice(b"abcdef");
        std::fs::write(&path, bytes).unwrap();
        check_found(&path);
    }

    #[test]
    fn secrets_are_found_between_holes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let disk = File::create(&path).unwrap();
        disk.set_len(1 << 40).unwrap();
        disk.write_all_at(b"abcdef", 1 << 39).unwrap();
        check_found(&path);
    }
}
