//! Room for another snapshot on the state partition.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::statvfs;

use crate::ground::paths::Root;
use crate::host::system::UpgradeRoom;

/// The mount points of the state partition in both generations of Elemental.
const STATES: [&str; 2] = ["/run/initramfs/elemental-state", "/run/initramfs/cos-state"];
const BLOCK: u64 = 512;

/// `None` if the partition or the image of a system is not found, such as with snapshots in btrfs.
pub(super) fn measure_room(root: &Root, snapshot: Option<u32>) -> Option<UpgradeRoom> {
    let state = STATES.iter().map(|path| root.join(path)).find(|path| path.is_dir())?;
    let image_bytes = measure_running(&state, snapshot)?;
    let found = statvfs(&state).ok()?;
    Some(UpgradeRoom { free_bytes: found.f_bavail.saturating_mul(found.f_frsize), image_bytes })
}

/// The size of the running snapshot on the disk; if its number is unknown, that of the largest image.
fn measure_running(state: &Path, snapshot: Option<u32>) -> Option<u64> {
    let snapshots = state.join(".snapshots");
    let of_number = snapshot.map(|number| snapshots.join(number.to_string()).join("snapshot.img"));
    of_number.and_then(|path| measure_file(&path)).or_else(|| {
        let entries = fs::read_dir(snapshots).into_iter().flatten().flatten();
        let mut images: Vec<_> = entries.map(|entry| entry.path().join("snapshot.img")).collect();
        images.extend(["active.img", "passive.img"].map(|name| state.join("cOS").join(name)));
        images.iter().filter_map(|path| measure_file(path)).max()
    })
}

/// The blocks of the file count, because an image may have holes.
fn measure_file(path: &Path) -> Option<u64> {
    let metadata = fs::metadata(path).ok()?;
    Some(metadata.blocks().saturating_mul(BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_that_of_the_running_snapshot() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(measure_room(&root, Some(1)), None, "no state partition");
        let state = root.join(STATES[0]);
        let put = |path: &str, size: usize| {
            let path = state.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, vec![1; size]).unwrap();
            // A hole takes no room.
            fs::File::options().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
        };
        fs::create_dir_all(&state).unwrap();
        assert_eq!(measure_room(&root, Some(1)), None, "no image");
        put(".snapshots/1/snapshot.img", 1 << 20);
        put(".snapshots/2/snapshot.img", 4 << 20);
        for (snapshot, want) in [(Some(1), 1 << 20), (Some(2), 4 << 20), (None, 4 << 20), (Some(9), 4 << 20)]
        {
            let found = measure_room(&root, snapshot).unwrap();
            assert_eq!(found.image_bytes >> 20, want >> 20, "{snapshot:?}");
            assert!(found.free_bytes > 0);
        }
    }
}
