//! Base ISOs on a volume: of the coordinator, or between the coordinator and `fetch-base-images`.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::BaseImageError;

/// Opens a file below the directory that a `SeedImage` names.
pub(super) fn open_below(directory: Option<&Path>, path: &str) -> Result<File, BaseImageError> {
    let url = format!("file://{path}");
    let Some(directory) = directory else { return Err(BaseImageError::Outside { url }) };
    let Ok(below) = Path::new(path).strip_prefix(directory) else {
        return Err(BaseImageError::Outside { url });
    };
    open_regular(directory, below).map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::XDEV | Errno::LOOP) => BaseImageError::Outside { url },
        Some(Errno::NOENT | Errno::NOTDIR) => BaseImageError::NotFound { url },
        _ => BaseImageError::Unreadable { url, source },
    })
}

/// Opens a regular file. The kernel ensures that no part of the path and no symbolic link leads out of
/// the directory.
pub(super) fn open_regular(directory: &Path, below: &Path) -> io::Result<File> {
    let directory =
        rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let directory = directory.map_err(|error| io::Error::other(io::Error::from(error)))?;
    // `NONBLOCK`, because opening a pipe would wait for its writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(rustix::fs::openat2(directory, below, flags, Mode::empty(), resolve)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_outside_of_the_directory_is_opened() {
        let root = tempfile::tempdir().unwrap();
        let images = root.path().join("images");
        std::fs::create_dir_all(images.join("a")).unwrap();
        std::fs::create_dir(root.path().join("images-2")).unwrap();
        for file in ["images/base.iso", "images/a/base.iso", "images-2/base.iso", "secret"] {
            std::fs::write(root.path().join(file), file).unwrap();
        }
        symlink("a/base.iso", images.join("within")).unwrap();
        symlink("../secret", images.join("relative")).unwrap();
        symlink(root.path().join("secret"), images.join("absolute")).unwrap();
        symlink("..", images.join("up")).unwrap();
        symlink("loop", images.join("loop")).unwrap();
        let open = |path: &str| {
            let path = path.replace('R', root.path().to_str().unwrap());
            match open_below(Some(&images), &path) {
                Ok(file) => io::read_to_string(file).unwrap(),
                Err(BaseImageError::Outside { .. }) => "outside".to_owned(),
                Err(BaseImageError::NotFound { .. }) => "missing".to_owned(),
                Err(error) => error.to_string()[..11].to_owned(),
            }
        };
        for (path, want) in [
            ("R/images/base.iso", "images/base.iso"),
            ("R/images/within", "images/a/base.iso"),
            ("R/images/a/../base.iso", "images/base.iso"),
            ("R/images/../secret", "outside"),
            ("R/images/a/../../secret", "outside"),
            ("R/images/relative", "outside"),
            ("R/images/absolute", "outside"),
            ("R/images/up/secret", "outside"),
            ("R/images/loop", "outside"),
            ("R/images-2/base.iso", "outside"),
            ("R/secret", "outside"),
            ("/etc/passwd", "outside"),
            ("R/images/none.iso", "missing"),
            ("R/images/base.iso/x", "missing"),
            ("R/images/a", "cannot read"),
        ] {
            assert_eq!(open(path), want, "{path}");
        }
        assert!(matches!(open_below(None, "/x"), Err(BaseImageError::Outside { .. })));
    }
}
