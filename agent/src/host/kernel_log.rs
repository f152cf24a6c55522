//! Errors that the kernel logs for failed writes. A program that wrote to a loop device does not
//! learn of them: the device accepts the data, and loses them later.

use std::time::Duration;

use crate::ground::paths::{Root, read_or_empty};

/// Texts of failed writes, in lower case.
const WRITE_ERRORS: [&str; 8] = [
    "loop: write error",
    "i/o error",
    "lost async page write",
    "ext4-fs error",
    "btrfs error",
    "btrfs: error",
    "remounting filesystem read-only",
    "critical space allocation error",
];
/// Texts of errors that concern no write to a disk: reads, optical drives and floppies.
const OTHERS: [&str; 4] = ["op 0x0:(read)", "dev sr", "dev fd", "async page read"];

/// The time since the boot, which no correction of the clock changes.
pub fn uptime(root: &Root) -> Duration {
    let text = read_or_empty(root.join("/proc/uptime"));
    let seconds = text.split(' ').next().and_then(|text| text.parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
}

/// The messages about failed writes since this time, in the format `short-monotonic` of journalctl:
/// `[   12.345678] host kernel: message`. A line without a time counts.
pub fn find_write_errors(log: &str, since: Duration) -> Vec<String> {
    let mut found = Vec::new();
    for line in log.lines() {
        let lower = line.to_lowercase();
        let is_error = WRITE_ERRORS.iter().any(|text| lower.contains(text));
        if !is_error || OTHERS.iter().any(|text| lower.contains(text)) {
            continue;
        }
        let time = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (time, message) = time.unwrap_or(("", line));
        let is_earlier = time.trim().parse().is_ok_and(|seconds: f64| seconds < since.as_secs_f64());
        let message = message.split_once(" kernel: ").map_or(message, |(_, message)| message).trim();
        if !is_earlier && !found.iter().any(|known| known == message) {
            found.push(message.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_errors_since_the_step_are_found() {
        let line = |message: &str| format!("[  100.000001] host kernel: {message}");
        for (message, want) in [
            ("loop: Write error at byte offset 1234, length 4096.", true),
            ("I/O error, dev loop0, sector 8 op 0x1:(WRITE) flags 0x800 phys_seg 1", true),
            ("Buffer I/O error on dev sda3, logical block 1, lost async page write", true),
            ("EXT4-fs error (device loop0): ext4_find_entry:1455: inode #2", true),
            ("I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700", false),
            ("I/O error, dev sdb, sector 0 op 0x0:(READ) flags 0x0", false),
            ("EXT4-fs (loop0): mounted filesystem with ordered data mode", false),
        ] {
            let found = find_write_errors(&line(message), Duration::from_secs(100));
            assert_eq!(found, if want { vec![message.to_owned()] } else { vec![] }, "{message}");
            let later = find_write_errors(&line(message), Duration::from_secs(101));
            assert!(later.is_empty(), "before the step: {message}");
        }
        let repeated = format!("{0}\n{0}\n", line("loop: Write error at byte offset 1, length 4096."));
        assert_eq!(find_write_errors(&repeated, Duration::ZERO).len(), 1);
    }

    #[test]
    fn uptime_is_read_from_the_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(uptime(&root), Duration::ZERO);
        std::fs::create_dir_all(root.join("/proc")).unwrap();
        std::fs::write(root.join("/proc/uptime"), "12.50 99.00\n").unwrap();
        assert_eq!(uptime(&root), Duration::from_millis(12_500));
    }
}
