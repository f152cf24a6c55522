//! The QEMU guest agent: commands inside the host, without network, login or SSH.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// Result of a command in the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit code; a signal is 128 and its number.
    pub code: i64,
    pub stdout: String,
    pub stderr: String,
}

/// The way to the guest agent of one boot.
#[derive(Debug)]
pub enum AgentPort {
    /// A socket that takes a connection at a time.
    Socket(PathBuf),
    /// The other end of a serial line. A conversation that was given up may have left answers in it.
    Line(BufReader<UnixStream>),
}

impl AgentPort {
    /// Asks the guest agent for a sign of life. `number` differs from call to call.
    pub(crate) async fn ping(&mut self, number: u64) -> Result<(), String> {
        match self {
            Self::Socket(path) => synchronize(&mut connect(path).await?, number).await,
            Self::Line(line) => synchronize(line, number).await,
        }
    }

    /// Runs a command to its end. The caller sets the deadline.
    pub(crate) async fn exec(&mut self, number: u64, command: &[&str]) -> Result<Output, String> {
        match self {
            Self::Socket(path) => exec(&mut connect(path).await?, number, command).await,
            Self::Line(line) => exec(line, number, command).await,
        }
    }
}

async fn connect(path: &Path) -> Result<BufReader<UnixStream>, String> {
    let stream = UnixStream::connect(path).await.map_err(|error| error.to_string())?;
    Ok(BufReader::new(stream))
}

/// Drops the answers of earlier conversations that are in the pipe, up to the answer to `number`.
async fn synchronize(stream: &mut BufReader<UnixStream>, number: u64) -> Result<(), String> {
    send(stream, &json!({"execute": "guest-sync", "arguments": {"id": number}})).await?;
    loop {
        let line = receive(stream).await?;
        // The first line may be the rest of an answer that nobody read to its end.
        let answer: Option<Value> = serde_json::from_str(&line).ok();
        if answer.and_then(|answer| answer.get("return")?.as_u64()) == Some(number) {
            return Ok(());
        }
    }
}

async fn send(stream: &mut BufReader<UnixStream>, request: &Value) -> Result<(), String> {
    let line = format!("{request}\n");
    stream.get_mut().write_all(line.as_bytes()).await.map_err(|error| error.to_string())
}

async fn receive(stream: &mut BufReader<UnixStream>) -> Result<String, String> {
    let mut line = String::new();
    let count = stream.read_line(&mut line).await.map_err(|error| error.to_string())?;
    if count == 0 { Err("the host went off".to_owned()) } else { Ok(line) }
}

async fn call(stream: &mut BufReader<UnixStream>, request: &Value) -> Result<Value, String> {
    send(stream, request).await?;
    let line = receive(stream).await?;
    let answer: Value =
        serde_json::from_str(&line).map_err(|error| format!("garbled answer {line:?}: {error}"))?;
    match answer.get("return") {
        Some(value) => Ok(value.clone()),
        None => Err(answer.pointer("/error/desc").and_then(Value::as_str).unwrap_or("no answer").to_owned()),
    }
}

async fn exec(stream: &mut BufReader<UnixStream>, number: u64, command: &[&str]) -> Result<Output, String> {
    let (path, arguments) = command.split_first().ok_or("no command")?;
    synchronize(stream, number).await?;
    let start = json!({"path": path, "arg": arguments, "capture-output": true});
    let started = call(stream, &json!({"execute": "guest-exec", "arguments": start})).await?;
    let status = json!({"execute": "guest-exec-status", "arguments": {"pid": started.get("pid")}});
    let mut pause = Duration::from_millis(50);
    loop {
        let answer = call(stream, &status).await?;
        if answer.get("exited") == Some(&Value::Bool(true)) {
            return Ok(output(&answer));
        }
        tokio::time::sleep(pause).await;
        // A short command is answered soon, a long one is not asked about all the time.
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

fn output(answer: &Value) -> Output {
    let text = |key: &str| {
        let bytes = answer.get(key).and_then(Value::as_str).and_then(|data| STANDARD.decode(data).ok());
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    };
    let signal = answer.get("signal").and_then(Value::as_i64).map(|signal| 128 + signal);
    Output {
        code: answer.get("exitcode").and_then(Value::as_i64).or(signal).unwrap_or(-1),
        stdout: text("out-data"),
        stderr: text("err-data"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_becomes_an_output() {
        let cases = [
            ("quiet success", json!({"exited": true, "exitcode": 0}), (0, "", "")),
            (
                "both streams",
                json!({"exited": true, "exitcode": 3, "out-data": "YQ==", "err-data": "Yg=="}),
                (3, "a", "b"),
            ),
            ("a signal", json!({"exited": true, "signal": 9}), (137, "", "")),
        ];
        for (name, given, (code, stdout, stderr)) in cases {
            let want = Output { code, stdout: stdout.into(), stderr: stderr.into() };
            assert_eq!(output(&given), want, "{name}");
        }
    }
}
