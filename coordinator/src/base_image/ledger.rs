//! The files of the cache directory and their sizes. The least recently used file is removed if
//! another one needs its room; a file in use is never removed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use super::BaseImageError;

/// End of the names of pointers, which begin with the checksum of a file.
pub(super) const POINTER: &str = ".url";
/// Start of the names of files that are incomplete.
pub(super) const TEMPORARY: &str = ".fetch-";

/// Keeps a file in the cache while it is read or sent.
#[derive(Clone, Debug)]
pub struct Lease(#[allow(dead_code, reason = "counted by its Arc")] Arc<()>);

#[derive(Debug)]
struct Entry {
    size: u64,
    /// Order of the last use.
    used: u64,
    lease: Arc<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flying {
    files: usize,
    bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<String, Entry>,
    /// Incomplete files and their bytes, by namespace.
    in_flight: HashMap<String, Flying>,
    uses: u64,
}

#[derive(Debug)]
pub(super) struct Ledger {
    directory: PathBuf,
    limit: u64,
    state: Mutex<State>,
}

impl Ledger {
    /// Reads the directory, and removes incomplete files, because their process has ended.
    pub(super) fn open(directory: &Path, limit: u64) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let mut state = State::default();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(TEMPORARY) {
                let _ = fs::remove_file(entry.path());
            } else if let Some(sha256) = name.strip_suffix(".iso") {
                let entry = Entry { size: entry.metadata()?.len(), used: 0, lease: Arc::default() };
                state.files.insert(sha256.to_owned(), entry);
            }
        }
        let ledger = Self { directory: directory.to_owned(), limit, state: Mutex::new(state) };
        ledger.lock_state().evict_files(&ledger, 0);
        ledger.remove_pointers();
        Ok(ledger)
    }

    /// Removes pointers to missing files. The directory itself is read, because another replica may
    /// share it.
    pub(super) fn remove_pointers(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let is_pointer = path.to_string_lossy().ends_with(POINTER);
            let Some(text) = is_pointer.then(|| fs::read_to_string(&path).ok()).flatten() else { continue };
            let leads_somewhere =
                text.split(' ').next().is_some_and(|sha256| self.file_path(sha256).exists());
            if !leads_somewhere && let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "cannot remove a pointer to a base image");
            }
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The failure to read or write the directory.
    pub(super) fn store_error(&self, source: io::Error) -> BaseImageError {
        BaseImageError::Cache { path: self.directory.clone(), source }
    }

    pub(super) fn file_path(&self, sha256: &str) -> PathBuf {
        self.directory.join(format!("{sha256}.iso"))
    }

    /// Leases a file and records its use.
    pub(super) fn lease_file(&self, sha256: &str) -> Option<Lease> {
        let mut state = self.lock_state();
        state.uses += 1;
        let used = state.uses;
        let entry = state.files.get_mut(sha256)?;
        entry.used = used;
        Some(Lease(entry.lease.clone()))
    }

    /// Checksums of at most `limit` files, the last used first.
    pub(super) fn list_files(&self, limit: usize) -> Vec<String> {
        let state = self.lock_state();
        let mut files: Vec<_> = state.files.iter().map(|(sha256, entry)| (entry.used, sha256)).collect();
        files.sort_unstable_by(|one, other| other.cmp(one));
        files.into_iter().take(limit).map(|(_, sha256)| sha256.clone()).collect()
    }

    /// Counts a file that is being written for a namespace.
    fn start_file(self: &Arc<Self>, namespace: &str) -> InFlight {
        self.lock_state().in_flight.entry(namespace.to_owned()).or_default().files += 1;
        InFlight { ledger: self.clone(), namespace: namespace.to_owned(), size: 0 }
    }
}

/// Where a file of a namespace is written.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) ledger: Arc<Ledger>,
    pub(super) namespace: String,
    /// Most bytes of the file.
    pub(super) limit: u64,
}

impl Room {
    /// Counts a file that is being written.
    pub(super) fn start_file(&self) -> InFlight {
        self.ledger.start_file(&self.namespace)
    }
}

impl State {
    /// The incomplete files of one namespace leave half of the room to others; a single one may be larger.
    fn exceeds_share(&self, namespace: &str, more: u64, limit: u64) -> bool {
        let flying = self.in_flight.get(namespace).copied().unwrap_or_default();
        flying.files > 1 && flying.bytes.saturating_add(more) > limit / 2
    }

    /// Removes files until `more` bytes fit; `false` if the files in use leave no room.
    fn evict_files(&mut self, ledger: &Ledger, more: u64) -> bool {
        loop {
            let stored: u64 = self.files.values().map(|entry| entry.size).sum();
            let in_flight: u64 = self.in_flight.values().map(|flying| flying.bytes).sum();
            if stored.saturating_add(in_flight).saturating_add(more) <= ledger.limit {
                return true;
            }
            let unused = self.files.iter().filter(|(_, entry)| Arc::strong_count(&entry.lease) == 1);
            let Some(oldest) = unused.min_by_key(|(_, entry)| entry.used).map(|(sha256, _)| sha256.clone())
            else {
                return false;
            };
            if let Err(error) = fs::remove_file(ledger.file_path(&oldest)) {
                tracing::warn!(sha256 = oldest, %error, "cannot remove a base image");
            }
            tracing::info!(sha256 = oldest, "least recently used base image removed");
            self.files.remove(&oldest);
            ledger.remove_pointers();
        }
    }
}

/// A file that is being written.
pub(super) struct InFlight {
    ledger: Arc<Ledger>,
    namespace: String,
    size: u64,
}

impl InFlight {
    pub(super) fn grow_file(&mut self, bytes: u64) -> Result<(), BaseImageError> {
        let mut state = self.ledger.lock_state();
        let exceeds = state.exceeds_share(&self.namespace, bytes, self.ledger.limit);
        if exceeds || !state.evict_files(&self.ledger, bytes) {
            return Err(BaseImageError::Full);
        }
        if let Some(flying) = state.in_flight.get_mut(&self.namespace) {
            flying.bytes += bytes;
        }
        self.size += bytes;
        Ok(())
    }

    /// The file is complete, under its own checksum.
    pub(super) fn finish_file(self, sha256: &str) -> Lease {
        let mut state = self.ledger.lock_state();
        state.uses += 1;
        let used = state.uses;
        let new = Entry { size: self.size, used, lease: Arc::default() };
        let entry = state.files.entry(sha256.to_owned()).or_insert(new);
        entry.used = used;
        Lease(entry.lease.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.ledger.lock_state();
        let Some(flying) = state.in_flight.get_mut(&self.namespace) else { return };
        flying.files -= 1;
        flying.bytes -= self.size;
        if flying.files == 0 {
            state.in_flight.remove(&self.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(ledger: &Arc<Ledger>, sha256: &str, size: u64) -> Result<Lease, BaseImageError> {
        let mut file = ledger.start_file("fleet");
        file.grow_file(size)?;
        fs::write(ledger.file_path(sha256), "").unwrap();
        Ok(file.finish_file(sha256))
    }

    fn names(ledger: &Ledger) -> Vec<String> {
        let state = ledger.lock_state();
        let mut names: Vec<_> = state.files.keys().cloned().collect();
        names.sort_unstable();
        assert!(names.iter().all(|name| ledger.file_path(name).exists()));
        names
    }

    #[test]
    fn least_recently_used_file_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Arc::new(Ledger::open(directory.path(), 10).unwrap());
        for name in ["a", "b"] {
            drop(add(&ledger, name, 4).unwrap());
        }
        drop(ledger.lease_file("a"));
        let lease = add(&ledger, "c", 4).unwrap();
        assert_eq!(names(&ledger), ["a", "c"]);
        let sent = ledger.lease_file("a");
        assert_eq!(
            (ledger.list_files(1), ledger.list_files(9)),
            (vec!["a".into()], vec!["a".into(), "c".into()])
        );
        assert!(matches!(add(&ledger, "d", 4), Err(BaseImageError::Full)), "both are in use");
        assert_eq!(names(&ledger), ["a", "c"]);
        drop((lease, sent));
        let pointer = |name: &str| directory.path().join(format!("of-{name}.url"));
        for name in ["a", "c"] {
            fs::write(pointer(name), format!("{name} 4\n")).unwrap();
        }
        add(&ledger, "e", 10).unwrap();
        assert_eq!(names(&ledger), ["e"]);
        assert!(!pointer("a").exists() && !pointer("c").exists(), "they go with their files");
        assert!(ledger.lock_state().in_flight.is_empty());
    }

    #[test]
    fn incomplete_files_of_a_namespace_leave_half() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Arc::new(Ledger::open(directory.path(), 100).unwrap());
        let mut single = ledger.start_file("a");
        single.grow_file(60).unwrap();
        let mut second = ledger.start_file("a");
        assert!(matches!(second.grow_file(1), Err(BaseImageError::Full)));
        let mut other = ledger.start_file("b");
        other.grow_file(40).unwrap();
        assert!(matches!(other.grow_file(1), Err(BaseImageError::Full)), "the room of all");
        drop(single);
        second.grow_file(50).unwrap();
        drop((second, other));
        assert!(ledger.lock_state().in_flight.is_empty());
    }

    #[test]
    fn incomplete_files_of_former_processes_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        for (name, size) in [(".fetch-1", 3), ("a.iso", 3), ("b.iso", 3), ("a.url", 1)] {
            fs::write(directory.path().join(name), vec![0; size]).unwrap();
        }
        let ledger = Ledger::open(directory.path(), 4).unwrap();
        assert_eq!(names(&ledger).len(), 1);
        assert!(!directory.path().join("a.url").exists(), "it leads nowhere");
        assert!(!directory.path().join(".fetch-1").exists());
    }
}
