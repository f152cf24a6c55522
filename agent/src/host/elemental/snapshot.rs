//! The check of a snapshot before it boots: its file system, and the digests of its files.
//!
//! `elemental` ends with 0 although writes to the image were lost, such as on a full state partition.
//! An image may bring a list of digests (docs/images.md); truncated, empty and changed files are
//! found by it. Without a list only the file system is checked.

use proto::v1alpha1::FailureReason;

use crate::ground::failure::{Failure, FailureClass};
use crate::ground::paths::Root;
use crate::host::command::{CommandError, Invocation, Status};
use crate::host::system::deadlines;

/// The list in the image, in the format of `sha256sum`, with paths relative to the root.
const LIST: &str = "usr/lib/baremetal-agent/SHA256SUMS";
/// The exit code of a snapshot that differs from its image.
const DIFFERS: i32 = 65;

/// Lines that a check prints at most.
const SHOWN: usize = 5;

/// Arguments: root of the host, number of the snapshot, path of the list. The cache is dropped
/// before the image is read, because the check is about the disk.
const CHECK: &str = r#"
differs() { echo "$1"; exit 65; }
image= tree=
for state in "$1/run/initramfs/elemental-state" "$1/run/initramfs/cos-state"; do
  for file in "$state/.snapshots/$2/snapshot.img" "$state/cOS/active.img"; do
    [ -n "$image" ] || [ ! -f "$file" ] || image=$file
  done
  [ ! -d "$state/.snapshots/$2/snapshot" ] || tree=$state/.snapshots/$2/snapshot
done
[ -n "$image$tree" ] || { echo "snapshot $2 is not found, so it was not checked"; exit 0; }
if [ -n "$image" ]; then
  dd if="$image" iflag=nocache count=0 2>/dev/null
  case $(blkid -p -o value -s TYPE "$image" 2>/dev/null) in ext*)
    errors=$(e2fsck -f -n "$image" 2>&1)
    [ $? -lt 4 ] || differs "file system: $(echo "$errors" | tail -n 5)";;
  esac
  tree=$(mktemp -d /run/baremetal-snapshot.XXXXXX) || exit 1
  trap 'umount "$tree" 2>/dev/null; rmdir "$tree"' EXIT
  errors=$(mount -o ro,loop "$image" "$tree" 2>&1) || differs "file system: $errors"
fi
cd "$tree" || exit 1
[ -e "$3" ] || { echo "the image brings no $3, so its files were not compared"; exit 0; }
errors=$(sha256sum --check --quiet --strict "$3" 2>&1) || { cd /; differs "$(echo "$errors" | head -n 5)"; }
cd /
echo "each file is that of the image""#;

pub(super) fn check_command(root: &Root, number: u32) -> Invocation {
    let root = root.join("/").display().to_string();
    let args = ["-c", CHECK, "check-snapshot", root.trim_end_matches('/'), &number.to_string(), LIST];
    Invocation::new("/bin/sh", &args, deadlines::CHECK_SNAPSHOT)
}

pub(super) fn diagnose(error: CommandError) -> Failure {
    let differs = matches!(&error, CommandError::Failed { status: Status::Code(DIFFERS), .. });
    let failure = super::failure::diagnose(error);
    if !differs {
        return failure.with_class(FailureClass::Unknown);
    }
    // The journal has the output of earlier checks in this boot first.
    let mut lines: Vec<_> = failure.output.lines().rev().take(SHOWN).collect();
    lines.reverse();
    let found = lines.join("; ");
    let message = format!("the snapshot on the disk differs from its image, so it is not booted: {found}");
    let action = "check the host's disk and its kernel log, and the room on its state partition, then delete the Machine";
    Failure::new(FailureReason::Command, message, action).with_output(failure.output)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    const STATE: &str = "/run/initramfs/elemental-state/.snapshots/3";

    async fn check(root: &Root) -> Result<String, Failure> {
        let ended = check_command(root, 3).run().await;
        ended.map(|captured| captured.shown.0).map_err(diagnose)
    }

    fn put(path: &Path, content: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn write_list(tree: &Path) {
        let list = "cd \"$0\" && mkdir -p usr/lib/baremetal-agent && sha256sum usr/bin/* >usr/lib/baremetal-agent/SHA256SUMS";
        assert!(Command::new("sh").args(["-c", list]).arg(tree).status().unwrap().success());
    }

    // Fault: a file of the new snapshot is truncated, full of zeros or differs by one bit.
    // Shown: the plan fails before the reboot, with the name of the file.
    #[tokio::test]
    async fn damaged_files_are_found_by_their_digests() {
        let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut flipped = content.clone();
        flipped[70_000] ^= 1;
        let cases: [(&str, Option<Vec<u8>>); 5] = [
            ("truncated", Some(content[..4096].to_vec())),
            ("zeros", Some(vec![0; content.len()])),
            ("one bit", Some(flipped)),
            ("missing", None),
            ("whole", Some(content.clone())),
        ];
        for (name, damaged) in cases {
            let directory = tempfile::tempdir().unwrap();
            let root = Root::at(directory.path());
            let tree = root.join(STATE).join("snapshot");
            put(&tree.join("usr/bin/kubelet"), &content);
            write_list(&tree);
            match damaged {
                Some(damaged) => put(&tree.join("usr/bin/kubelet"), &damaged),
                None => fs::remove_file(tree.join("usr/bin/kubelet")).unwrap(),
            }
            match check(&root).await {
                Ok(output) => assert!(name == "whole" && output.contains("each file"), "{name}: {output}"),
                Err(failure) => {
                    assert!(
                        name != "whole" && failure.message.contains("usr/bin/kubelet"),
                        "{name}: {failure}"
                    );
                    assert_eq!(failure.class, FailureClass::Terminal, "{name}");
                }
            }
        }
    }

    // Fault: the file of the new snapshot is shorter than its file system.
    // Shown: the plan fails before the reboot.
    #[tokio::test]
    async fn truncated_image_is_found_by_its_size() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert!(check(&root).await.unwrap().contains("not found"));
        let image = root.join(STATE).join("snapshot.img");
        put(&image, &vec![0; 8 << 20]);
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).status();
        if !made.is_ok_and(|status| status.success()) {
            assert!(std::env::var_os("NO_SKIPS").is_none(), "mkfs.ext4 is needed");
            return;
        }
        fs::File::options().write(true).open(&image).unwrap().set_len(4 << 20).unwrap();
        let failure = check(&root).await.unwrap_err();
        assert!(failure.message.contains("differs from its image"), "{failure}");
    }
}
