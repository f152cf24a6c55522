//! File systems on the disks of a host, as a boot loader reads them: without their journals. Other programs do the
//! reading: debugfs, mtools and xorriso.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use guest::LabError;

const SECTOR: u64 = 512;
/// GUID of an EFI system partition.
const EFI_SYSTEM: &str = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ext4,
    Fat,
    Iso,
}

/// A file system in a file of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) label: String,
    pub(crate) is_efi_system: bool,
    kind: Kind,
    file: PathBuf,
    offset: u64,
}

impl Volume {
    /// The file system of an ISO.
    pub(crate) fn of_iso(iso: &Path) -> Result<Self, LabError> {
        let label = probe(iso, 0, "LABEL")?;
        Ok(Self { label, is_efi_system: false, kind: Kind::Iso, file: iso.to_owned(), offset: 0 })
    }

    /// The file systems on the partitions of a disk; none on an empty disk.
    pub(crate) fn of_disk(disk: &Path) -> Result<Vec<Self>, LabError> {
        let columns = ["--raw", "--noheadings", "--output", "START,TYPE"];
        let listed = run(Command::new("partx").args(columns).arg(disk), "partx");
        // An empty disk has no partition table, which partx calls a failure.
        let Ok(listed) = listed else { return Ok(Vec::new()) };
        let mut volumes = Vec::new();
        for (start, is_efi_system) in parse_partitions(&String::from_utf8_lossy(&listed)) {
            let offset = start * SECTOR;
            let kind = match &*probe(disk, offset, "TYPE")? {
                "ext4" => Kind::Ext4,
                "vfat" => Kind::Fat,
                _ => continue,
            };
            let label = probe(disk, offset, "LABEL")?;
            volumes.push(Self { label, is_efi_system, kind, file: disk.to_owned(), offset });
        }
        Ok(volumes)
    }

    /// Content of a file; none where it cannot be read.
    pub(crate) fn read(&self, path: &str) -> Option<Vec<u8>> {
        let file = self.file.display();
        match self.kind {
            Kind::Ext4 => self.ask_debugfs(&format!("cat {path}")),
            Kind::Fat => {
                let image = format!("{file}@@{}", self.offset);
                run(Command::new("mcopy").args(["-n", "-i", &image, &format!("::{path}"), "-"]), "mcopy").ok()
            }
            Kind::Iso => {
                let directory = tempfile::tempdir().ok()?;
                let copy = directory.path().join("file");
                let mut xorriso = Command::new("xorriso");
                xorriso
                    .args(["-osirrox", "on", "-indev"])
                    .arg(&self.file)
                    .args(["-extract", path])
                    .arg(&copy);
                run(&mut xorriso, "xorriso").ok()?;
                std::fs::read(copy).ok()
            }
        }
    }

    /// Overwrites the first bytes of a file in their place, as GRUB does: the file keeps its length and its times.
    pub(crate) fn overwrite(&self, path: &str, content: &[u8]) -> Option<()> {
        if self.kind != Kind::Ext4 {
            return None;
        }
        let block = self.ask_debugfs(&format!("bmap {path} 0"))?;
        let block: u64 = String::from_utf8_lossy(&block).trim().parse().ok().filter(|block| *block > 0)?;
        let place = self.offset + block * self.read_block_size().ok()?;
        File::options().write(true).open(&self.file).ok()?.write_all_at(content, place).ok()
    }

    /// The superblock is at byte 1024, and holds the logarithm of the block size, less 10, at its byte 24.
    fn read_block_size(&self) -> io::Result<u64> {
        let mut logarithm = [0; 4];
        File::open(&self.file)?.read_exact_at(&mut logarithm, self.offset + 1024 + 24)?;
        Ok(1024 << u32::from_le_bytes(logarithm).min(6))
    }

    /// debugfs ends well whatever happens. After its version it writes errors alone to standard error.
    fn ask_debugfs(&self, request: &str) -> Option<Vec<u8>> {
        let device = format!("{}?offset={}", self.file.display(), self.offset);
        let asked =
            Command::new("debugfs").args(["-R", request, &device]).stdin(Stdio::null()).output().ok()?;
        let said = String::from_utf8_lossy(&asked.stderr);
        (asked.status.success() && said.trim().lines().count() == 1).then_some(asked.stdout)
    }
}

/// First sector of each partition, and whether it is an EFI system partition, by the lines of partx.
fn parse_partitions(listed: &str) -> Vec<(u64, bool)> {
    let parse = |line: &str| {
        let (start, kind) = line.split_once(' ')?;
        Some((start.parse().ok()?, kind.trim() == EFI_SYSTEM))
    };
    listed.lines().filter_map(parse).collect()
}

/// Empty where the file system has no such tag, or where there is no file system.
fn probe(file: &Path, offset: u64, tag: &str) -> Result<String, LabError> {
    let mut blkid = Command::new("blkid");
    blkid.args(["--probe", "--offset", &offset.to_string(), "--match-tag", tag, "--output", "value"]);
    let probed = blkid.arg(file).output().map_err(|source| LabError::Start { program: "blkid", source })?;
    Ok(String::from_utf8_lossy(&probed.stdout).trim().to_owned())
}

fn run(command: &mut Command, program: &'static str) -> Result<Vec<u8>, LabError> {
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|source| LabError::Start { program, source })?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    Err(LabError::Program { program, said: String::from_utf8_lossy(&done.stderr).trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk of one partition with an ext4 file system on it that holds `directory`.
    fn make_disk(directory: &Path, disk: &Path) {
        File::create(disk).unwrap().set_len(32 << 20).unwrap();
        let table = ["-n1:2048:4095", "-t1:ef00", "-n2:4096:0", "-c2:oem"];
        run(Command::new("sgdisk").args(table).arg(disk), "sgdisk").unwrap();
        let options = ["-q", "-t", "ext4", "-L", "COS_OEM", "-E", "offset=2097152", "-d"];
        run(Command::new("mke2fs").args(options).arg(directory).arg(disk).arg("16M"), "mke2fs").unwrap();
    }

    #[test]
    fn files_of_a_disk_are_read_and_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        std::fs::create_dir_all(tree.join(".snapshots/2")).unwrap();
        std::fs::write(tree.join(".snapshots/2/vmlinuz"), "kernel").unwrap();
        std::os::unix::fs::symlink("2", tree.join(".snapshots/active")).unwrap();
        std::fs::write(tree.join("grubenv"), [b'#'; 1024]).unwrap();
        let disk = directory.path().join("disk");
        make_disk(&tree, &disk);
        let volumes = Volume::of_disk(&disk).unwrap();
        let [oem] = &*volumes else { panic!("{volumes:?}") };
        assert_eq!(oem.label, "COS_OEM");
        assert_eq!(oem.read("/.snapshots/active/vmlinuz").unwrap(), b"kernel");
        assert_eq!(oem.read("/.snapshots/passive/vmlinuz"), None);
        oem.overwrite("/grubenv", b"written").unwrap();
        let kept = oem.read("/grubenv").unwrap();
        assert!(kept.starts_with(b"written###") && kept.len() == 1024);
    }

    #[test]
    fn an_empty_disk_has_no_volume() {
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(1 << 20).unwrap();
        assert_eq!(Volume::of_disk(disk.path()).unwrap(), []);
    }

    #[test]
    fn efi_system_partitions_are_known_by_their_type() {
        let listed = format!("2048 {EFI_SYSTEM}\n4096 0fc63daf-8483-4772-8e79-3d69d8477de4\n\nx y\n");
        assert_eq!(parse_partitions(&listed), [(2048, true), (4096, false)]);
    }
}
