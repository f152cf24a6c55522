//! Where a control plane keeps its data, certificates and logs.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

const PREFIX: &str = "baremetal-kubernetes-";
const LOCK: &str = ".lock";

/// A directory for one control plane, 0700: it holds private keys.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Held while we live: [`sweep`] removes directories whose lock is free.
    lock: Option<File>,
}

impl Directory {
    /// A new directory below the system's temporary one, removed on drop. One that an earlier
    /// process left behind (statics are never dropped, and a killed test drops nothing) is
    /// removed here.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn temporary() -> io::Result<Self> {
        Self::temporary_in(&std::env::temp_dir())
    }

    /// The lock is held before the file gets its name: [`sweep`] of another process or thread
    /// would find it free in between.
    fn temporary_in(parent: &Path) -> io::Result<Self> {
        sweep(parent);
        let path = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?.keep();
        let unnamed = path.join(".lock.new");
        let lock = File::create_new(&unnamed)?;
        lock.lock()?;
        fs::rename(unnamed, path.join(LOCK))?;
        Ok(Self { path, lock: Some(lock) })
    }

    /// `path` itself, made if missing, and kept: to have the logs at the end.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn kept(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Ok(Self { path: path.to_owned(), lock: None })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it, written with mode 0600.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, content: &str) -> io::Result<PathBuf> {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = self.path.join(name);
        File::options()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?
            .write_all(content.as_bytes())?;
        Ok(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.lock.take().is_some() {
            remove(&self.path);
        }
    }
}

fn sweep(temporary: &Path) {
    let entries = fs::read_dir(temporary).into_iter().flatten().flatten();
    for entry in entries {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours && is_abandoned(&entry.path()) {
            remove(&entry.path());
        }
    }
}

/// A directory without a lock file was created by a process that has not locked it yet.
fn is_abandoned(path: &Path) -> bool {
    let Ok(lock) = File::open(path.join(LOCK)) else {
        return false;
    };
    !matches!(lock.try_lock(), Err(TryLockError::WouldBlock | TryLockError::Error(_)))
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_dir_all(path) {
        tracing::debug!(path = %path.display(), %error, "not removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unlocked_directories_are_removed() {
        let temporary = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = temporary.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let abandoned = make("baremetal-kubernetes-a");
        let held = make("baremetal-kubernetes-b");
        let fresh = make("baremetal-kubernetes-c");
        let foreign = make("other");
        for path in [&abandoned, &held, &foreign] {
            File::create(path.join(LOCK)).unwrap();
        }
        let lock = File::open(held.join(LOCK)).unwrap();
        lock.lock().unwrap();

        sweep(temporary.path());

        let kept: Vec<bool> = [abandoned, held, fresh, foreign].iter().map(|path| path.exists()).collect();
        assert_eq!(kept, [false, true, true, true]);
    }

    #[test]
    fn directories_made_at_once_are_kept() {
        let temporary = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let directory = Directory::temporary_in(temporary.path()).unwrap();
                        std::thread::yield_now();
                        assert!(directory.path().exists(), "removed while in use");
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    }
}
