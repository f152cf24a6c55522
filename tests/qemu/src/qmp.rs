//! QEMU's monitors. Of the events of one only those are of interest that say why the machine stopped; the other
//! takes commands.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
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

/// Gives commands to a monitor, each after the answer to the former. The caller sets the deadline.
pub(crate) async fn execute(socket: &Path, commands: &[Value]) -> Result<(), String> {
    let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    for command in std::iter::once(&json!({ "execute": "qmp_capabilities" })).chain(commands) {
        write.write_all(format!("{command}\n").as_bytes()).await.map_err(|error| error.to_string())?;
        loop {
            let line = lines.next_line().await.map_err(|error| error.to_string())?;
            let line = line.ok_or("the host went off")?;
            match parse_answer(&line) {
                Some(Ok(())) => break,
                Some(Err(said)) => return Err(format!("{command}: {said}")),
                None => {}
            }
        }
    }
    Ok(())
}

/// What a command came to; none for greetings and events.
fn parse_answer(line: &str) -> Option<Result<(), String>> {
    let value: Value = serde_json::from_str(line).ok()?;
    let failed = value.get("error").map(|error| error.get("desc").unwrap_or(error).to_string());
    match failed {
        Some(said) => Some(Err(said)),
        None => value.get("return").map(|_| Ok(())),
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
    fn answers_are_told_from_events() {
        let cases = [
            ("done", r#"{"return":{}}"#, Some(Ok(()))),
            ("refused", r#"{"error":{"class":"GenericError","desc":"no"}}"#, Some(Err("\"no\"".to_owned()))),
            ("greeting", r#"{"QMP":{"version":{}}}"#, None),
            ("event", r#"{"event":"STOP"}"#, None),
        ];
        for (name, given, want) in cases {
            assert_eq!(parse_answer(given), want, "{name}");
        }
    }

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
