//! Erases labels that `wipefs` leaves: it knows one label of formats that keep several.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

/// Partition tables, LVM, md, DDF, ZFS and others keep their labels in the first and last bytes.
const END: u64 = 1 << 20;
/// `BlueStore` repeats its label at these places.
const LABELS: [u64; 4] = [1 << 30, 10 << 30, 100 << 30, 1000 << 30];
const LABEL: &[u8] = b"bluestore block device\n";
const LABEL_BYTES: usize = 4096;

/// Overwrites the labels of a disk or partition with this size. The kernel refuses to open a device
/// that something else uses.
pub(super) fn overwrite(device: &Path, size: u64) -> io::Result<()> {
    let mut file =
        OpenOptions::new().read(true).write(true).custom_flags(OFlag::O_EXCL.bits()).open(device)?;
    let length = END.min(size);
    write_zeros(&mut file, 0, length)?;
    write_zeros(&mut file, size - length, length)?;
    for place in LABELS.into_iter().filter(|place| place.saturating_add(LABEL_BYTES as u64) <= size) {
        file.seek(SeekFrom::Start(place))?;
        let mut found = vec![0; LABEL.len()];
        file.read_exact(&mut found)?;
        if found == LABEL {
            write_zeros(&mut file, place, LABEL_BYTES as u64)?;
        }
    }
    file.sync_all()
}

fn write_zeros(file: &mut File, place: u64, length: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(place))?;
    let zeros = vec![0; usize::try_from(length).unwrap_or(0)];
    file.write_all(&zeros)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    /// A sparse file with these bytes set to one.
    fn device(directory: &Path, size: u64, marks: &[(u64, &[u8])]) -> std::path::PathBuf {
        let path = directory.join("device");
        let file = File::create(&path).unwrap();
        file.set_len(size).unwrap();
        for (place, bytes) in marks {
            file.write_all_at(bytes, *place).unwrap();
        }
        path
    }

    fn read(path: &Path, place: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        File::open(path).unwrap().read_exact_at(&mut bytes, place).unwrap();
        bytes
    }

    #[test]
    fn labels_at_both_ends_are_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let size = 8 << 20;
        let path = device(directory.path(), size, &[(512, b"x"), (END, b"kept"), (size - 512, b"x")]);
        overwrite(&path, size).unwrap();
        assert_eq!(read(&path, 512, 1), [0]);
        assert_eq!(read(&path, size - 512, 1), [0]);
        assert_eq!(read(&path, END, 4), b"kept");
        let path = device(directory.path(), 2048, &[(0, b"x"), (2047, b"x")]);
        overwrite(&path, 2048).unwrap();
        assert_eq!(read(&path, 0, 2048), vec![0; 2048], "smaller than both ends");
    }

    #[test]
    fn repeated_labels_of_bluestore_are_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let size = 11 << 30;
        let path = device(directory.path(), size, &[(LABELS[0], LABEL), (LABELS[1], b"another content")]);
        overwrite(&path, size).unwrap();
        assert_eq!(read(&path, LABELS[0], LABEL.len()), vec![0; LABEL.len()]);
        assert_eq!(read(&path, LABELS[1], 7), b"another");
    }
}
