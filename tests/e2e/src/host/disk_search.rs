//! Secrets on the raw disk of a virtual machine: in files, in what deleted files left,
//! in journals of file systems.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use memchr::memmem::Finder;

const WINDOW: usize = 4 << 20;

/// What must not outlive a node.
#[derive(Clone, Debug)]
pub struct Secret {
    /// For errors: the secret itself is in none.
    pub what: &'static str,
    /// Its text.
    pub text: String,
}

/// Which of the secrets are on the disk, wherever.
///
/// # Errors
/// When the disk cannot be read.
pub fn find_secrets(disk: &Path, secrets: &[Secret]) -> io::Result<Vec<&'static str>> {
    let mut sought: Vec<_> =
        secrets.iter().map(|secret| (secret.what, Finder::new(secret.text.as_bytes()))).collect();
    let overlap = secrets.iter().map(|secret| secret.text.len()).max().unwrap_or_default();
    let mut found = vec![];
    let mut disk = File::open(disk)?;
    let mut window = Vec::with_capacity(WINDOW + overlap);
    while !sought.is_empty() {
        let kept = window.len().min(overlap);
        window.drain(..window.len() - kept);
        if disk.by_ref().take(WINDOW as u64).read_to_end(&mut window)? == 0 {
            break;
        }
        sought.retain(|(what, finder)| {
            let is_here = finder.find(&window).is_some();
            if is_here {
                found.push(*what);
            }
            !is_here
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_across_windows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let mut bytes = vec![0; 2 * WINDOW + 9];
        bytes[WINDOW - 3..WINDOW + 3].copy_from_slice(b"abcdef");
        std::fs::write(&path, bytes).unwrap();
        let secret = |what, text: &str| Secret { what, text: text.to_owned() };
        let secrets = [secret("there", "abcdef"), secret("elsewhere", "abcdeg")];
        assert_eq!(find_secrets(&path, &secrets).unwrap(), ["there"]);
    }
}
