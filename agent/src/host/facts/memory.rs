//! Memory: its physical size, and the sizes of pages.

use std::fs;

use crate::ground::paths::Root;
use crate::host::sysfs::read_line;

const BLOCKS: &str = "/sys/devices/system/memory";
const PAGES: &str = "/sys/kernel/mm/hugepages";

/// Bytes of the memory blocks that are online; 0 if the kernel shows none.
pub fn read_physical(root: &Root) -> u64 {
    let directory = root.join(BLOCKS);
    let size = read_line(&directory.join("block_size_bytes"));
    let Ok(size) = u64::from_str_radix(&size, 16) else { return 0 };
    let names = fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let online = names.filter(|name| {
        let name = name.to_string_lossy();
        let is_block = name.strip_prefix("memory").is_some_and(|number| number.parse::<u32>().is_ok());
        is_block && read_line(&directory.join(format!("{name}/state"))) == "online"
    });
    (online.count() as u64).saturating_mul(size)
}

/// Bytes of each size of huge pages, ascending.
pub fn read_page_sizes(root: &Root) -> Vec<u64> {
    let names = fs::read_dir(root.join(PAGES)).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut sizes: Vec<_> = names
        .filter_map(|name| {
            let name = name.to_str()?.to_owned();
            let kilobytes = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?;
            Some(kilobytes * 1024)
        })
        .collect();
    sizes.sort_unstable();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_blocks_and_pages() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!((read_physical(&root), read_page_sizes(&root)), (0, vec![]));
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(&format!("{BLOCKS}/block_size_bytes"), "8000000\n");
        for (block, state) in [("memory0", "online"), ("memory1", "offline"), ("memory32", "online")] {
            put(&format!("{BLOCKS}/{block}/state"), &format!("{state}\n"));
        }
        put(&format!("{BLOCKS}/power/state"), "online");
        for size in ["1048576kB", "2048kB"] {
            put(&format!("{PAGES}/hugepages-{size}/nr_hugepages"), "0");
        }
        assert_eq!(read_physical(&root), 2 * 0x800_0000);
        assert_eq!(read_page_sizes(&root), [2 << 20, 1 << 30]);
    }
}
