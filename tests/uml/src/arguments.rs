//! Command line of a host's kernel: pure.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::config::HostConfig;
use crate::smbios::build_table;

/// Arguments that stand for the hardware, before those of the boot loader.
pub(crate) fn hardware(config: &HostConfig) -> Vec<String> {
    let mut list = vec![format!("mem={}M", config.memory_mib)];
    let system = config.system_disk();
    let writable = |path: &Path| ("", path.display().to_string());
    let read_only = |path: &Path| ("r", path.display().to_string());
    let disks = std::iter::once(writable(&system))
        .chain(config.cd.as_deref().map(read_only))
        .chain(config.images.iter().map(|path| read_only(path)))
        .chain(config.data_disks.iter().map(|path| writable(path)));
    list.extend(disks.enumerate().map(|(index, (flags, path))| format!("ubd{index}{flags}={path}")));
    // The taps hand over segments that are larger than a frame, which a card cuts off unless it expects them (`gro`).
    let cards = config.nics.iter().enumerate();
    list.extend(
        cards
            .map(|(index, nic)| format!("vec{index}:transport=tap,ifname={},mac={},gro=1", nic.tap, nic.mac)),
    );
    // The first serial line and the boot messages are our standard output, the second serial line is our standard input,
    // a socket: the guest agent is there.
    let lines = ["con=null", "con0=null,fd:1", "ssl=null", "ssl0=null,fd:1", "ssl1=fd:0,fd:0"];
    list.extend(lines.map(str::to_owned));
    list.push(format!("lab.smbios={}", STANDARD.encode(build_table(config))));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_follows_the_configuration() {
        let bare = HostConfig::new("one", Path::new("/d"), 7, &[]);
        let mut full = HostConfig::new("one", Path::new("/d"), 7, &["left", "right"]);
        full.memory_mib = 3072;
        full.cd = Some("/live.iso".into());
        full.images = vec!["/os.iso".into()];
        full.data_disks = vec!["/data".into()];
        for (name, config, text, want) in [
            ("memory", &full, "mem=3072M ", true),
            ("the system disk is the first", &full, " ubd0=/d/system.raw ", true),
            ("a CD is read-only", &full, " ubd1r=/live.iso ", true),
            ("images are read-only", &full, " ubd2r=/os.iso ", true),
            ("data disks are not", &full, " ubd3=/data ", true),
            ("no CD, no drive", &bare, "ubd1", false),
            ("cards in order", &full, " vec1:transport=tap,ifname=right,mac=52:54:00:4c:07:02,gro=1 ", true),
            ("no cards", &bare, "vec0", false),
        ] {
            let line = hardware(config).join(" ");
            assert_eq!(line.contains(text), want, "{name}: {line}");
        }
    }
}
