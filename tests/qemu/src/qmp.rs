//! QEMU's monitor: only its events are of interest, and of them only why the machine stopped.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;

/// Why QEMU shut down, in its own word (`guest-reset`, `guest-shutdown`, `host-signal`, …); none for other lines.
pub(crate) fn parse_shutdown(line: &str) -> Option<String> {
    let value: Value = serde_json::from_str(line).ok()?;
    if value.get("event")?.as_str()? != "SHUTDOWN" {
        return None;
    }
    Some(value.pointer("/data/reason")?.as_str()?.to_owned())
}

/// An open monitor. The write half stays open: QEMU closes a monitor that was half closed.
#[derive(Debug)]
pub(crate) struct Monitor {
    lines: Lines<BufReader<OwnedReadHalf>>,
    _write: tokio::net::unix::OwnedWriteHalf,
}

impl Monitor {
    /// Connects, trying until the socket is there.
    pub(crate) async fn open(socket: &Path, limit: Duration) -> std::io::Result<Self> {
        let stream = tokio::time::timeout(limit, connect(socket)).await?;
        let (read, mut write) = stream.into_split();
        // Before this command the monitor sends no events.
        write.write_all(b"{\"execute\":\"qmp_capabilities\"}\n").await?;
        Ok(Self { lines: BufReader::new(read).lines(), _write: write })
    }

    /// Reads to QEMU's end; the last reason it gave.
    pub(crate) async fn last_shutdown(&mut self) -> Option<String> {
        let mut reason = None;
        while let Ok(Some(line)) = self.lines.next_line().await {
            if let Some(found) = parse_shutdown(&line) {
                reason = Some(found);
            }
        }
        reason
    }
}

async fn connect(socket: &Path) -> UnixStream {
    loop {
        if let Ok(stream) = UnixStream::connect(socket).await {
            return stream;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reset_and_power_off_are_distinguished() {
        let cases = [
            (
                "reset",
                r#"{"event":"SHUTDOWN","data":{"guest":true,"reason":"guest-reset"}}"#,
                Some("guest-reset"),
            ),
            (
                "power off",
                r#"{"event":"SHUTDOWN","data":{"guest":true,"reason":"guest-shutdown"}}"#,
                Some("guest-shutdown"),
            ),
            ("another event", r#"{"event":"STOP"}"#, None),
            ("an answer", r#"{"return":{}}"#, None),
            ("no JSON", "QEMU", None),
        ];
        for (name, given, want) in cases {
            assert_eq!(parse_shutdown(given).as_deref(), want, "{name}");
        }
    }
}
