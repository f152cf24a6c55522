//! A walk through a directory tree that holds a fixed number of descriptors, however deep and wide
//! the tree is. No link is followed, because a name may be replaced by a link at any time.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags, fstat, openat};
use rustix::path::Arg;

/// Names of subdirectories that a walk keeps in memory. Further ones are read again later, which
/// needs a visitor that removes what it has seen.
const KEPT_NAMES: usize = 4096;

/// The treatment of an entry by the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visited {
    /// The entry needs nothing more.
    Done,
    /// The entry is a directory that the walk enters later.
    Enter,
}

/// The work at each entry of a tree. `path` is for messages alone: the entry is `name` in `parent`.
pub trait Visitor {
    /// True if no entry stays for which [`Self::visit`] says `Enter` again, so that a directory may
    /// be read several times.
    const REMOVES: bool;

    fn visit(&mut self, parent: BorrowedFd<'_>, name: &CStr, path: &Path) -> io::Result<Visited>;

    /// Called after all entries of a directory, but not for the top of the tree.
    fn leave(&mut self, parent: BorrowedFd<'_>, name: &CStr, path: &Path) -> io::Result<()>;

    /// A directory cannot be opened or read. `Ok` continues with the next one.
    fn fail(&mut self, path: &Path, error: io::Error) -> io::Result<()>;
}

/// Opens a directory, and no link to one.
pub fn open_directory(parent: impl AsFd, path: impl Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, path, flags, Mode::empty())?)
}

/// Walks below `top`, which is open as `opened`. The error names the path.
pub fn walk_tree(
    opened: OwnedFd,
    top: &Path,
    visitor: &mut impl Visitor,
) -> Result<(), (PathBuf, io::Error)> {
    let mut walk = Walk { opened, levels: Vec::new(), path: top.to_owned(), kept_names: 0, visitor };
    walk.run().map_err(|error| (walk.path, error))
}

/// The device and the inode of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

fn identify(directory: &OwnedFd) -> io::Result<Identity> {
    let found = fstat(directory)?;
    Ok(Identity(found.st_dev, found.st_ino))
}

/// The walk holds the current directory alone. The way up is `..`, which is compared with the
/// directory that the walk came from, because a directory may be moved meanwhile.
struct Walk<'a, V> {
    opened: OwnedFd,
    levels: Vec<Level>,
    /// The current path, for messages.
    path: PathBuf,
    kept_names: usize,
    visitor: &'a mut V,
}

struct Level {
    identity: Identity,
    name: CString,
    /// Subdirectories that the walk has not entered.
    pending: Vec<CString>,
    /// True if the directory has further entries.
    has_more: bool,
}

impl<V: Visitor> Walk<'_, V> {
    fn run(&mut self) -> io::Result<()> {
        self.add_level(CString::default())?;
        while let Some(level) = self.levels.last_mut() {
            if let Some(name) = level.pending.pop() {
                self.kept_names -= 1;
                self.enter(name)?;
            } else if level.has_more {
                self.read_entries()?;
            } else {
                self.leave()?;
            }
        }
        Ok(())
    }

    fn add_level(&mut self, name: CString) -> io::Result<()> {
        let identity = identify(&self.opened)?;
        self.levels.push(Level { identity, name, pending: Vec::new(), has_more: true });
        Ok(())
    }

    fn enter(&mut self, name: CString) -> io::Result<()> {
        self.path.push(OsStr::from_bytes(name.to_bytes()));
        match open_directory(&self.opened, name.as_c_str()) {
            Ok(opened) => {
                self.opened = opened;
                return self.add_level(name);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.visitor.fail(&self.path, error)?,
        }
        self.path.pop();
        Ok(())
    }

    fn read_entries(&mut self) -> io::Result<()> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        level.has_more = false;
        let entries = match Dir::read_from(&self.opened) {
            Ok(entries) => entries,
            Err(error) => return self.visitor.fail(&self.path, error.into()),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.visitor.fail(&self.path, error.into()),
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.path.push(OsStr::from_bytes(name.to_bytes()));
            if self.visitor.visit(self.opened.as_fd(), name, &self.path)? == Visited::Enter {
                level.pending.push(name.to_owned());
                self.kept_names += 1;
            }
            self.path.pop();
            if V::REMOVES && self.kept_names >= KEPT_NAMES && !level.pending.is_empty() {
                level.has_more = true;
                break;
            }
        }
        Ok(())
    }

    fn leave(&mut self) -> io::Result<()> {
        let Some(left) = self.levels.pop() else { return Ok(()) };
        let Some(parent) = self.levels.last() else { return Ok(()) };
        let opened = open_directory(&self.opened, c"..")?;
        if identify(&opened)? != parent.identity {
            return Err(io::Error::other("the directory was moved while it was read"));
        }
        self.opened = opened;
        self.visitor.leave(self.opened.as_fd(), &left.name, &self.path)?;
        self.path.pop();
        Ok(())
    }
}
