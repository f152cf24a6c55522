//! The QEMU guest agent: commands inside the host, without network, login or SSH.

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// What a command in the host did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit code; a signal is 128 and its number.
    pub code: i64,
    pub stdout: String,
    pub stderr: String,
}

struct Channel {
    stream: BufReader<UnixStream>,
}

impl Channel {
    /// Connects and drops what earlier conversations left in the pipe, up to the answer to a number of ours.
    async fn open(socket: &Path, number: u64) -> Result<Self, String> {
        let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
        let mut channel = Self { stream: BufReader::new(stream) };
        channel.send(&json!({"execute": "guest-sync", "arguments": {"id": number}})).await?;
        loop {
            if channel.receive().await?.get("return").and_then(Value::as_u64) == Some(number) {
                return Ok(channel);
            }
        }
    }

    async fn send(&mut self, request: &Value) -> Result<(), String> {
        let line = format!("{request}\n");
        self.stream.get_mut().write_all(line.as_bytes()).await.map_err(|error| error.to_string())
    }

    async fn receive(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        let count = self.stream.read_line(&mut line).await.map_err(|error| error.to_string())?;
        if count == 0 {
            return Err("the host went off".to_owned());
        }
        serde_json::from_str(&line).map_err(|error| format!("garbled answer {line:?}: {error}"))
    }

    async fn call(&mut self, request: &Value) -> Result<Value, String> {
        self.send(request).await?;
        let answer = self.receive().await?;
        match answer.get("return") {
            Some(value) => Ok(value.clone()),
            None => {
                Err(answer.pointer("/error/desc").and_then(Value::as_str).unwrap_or("no answer").to_owned())
            }
        }
    }
}

/// Whether the guest agent answers.
pub(crate) async fn ping(socket: &Path, number: u64) -> Result<(), String> {
    Channel::open(socket, number).await.map(|_| ())
}

/// Runs a command to its end. The caller sets the deadline.
pub(crate) async fn exec(socket: &Path, number: u64, command: &[&str]) -> Result<Output, String> {
    let (path, arguments) = command.split_first().ok_or("no command")?;
    let mut channel = Channel::open(socket, number).await?;
    let start = json!({"path": path, "arg": arguments, "capture-output": true});
    let started = channel.call(&json!({"execute": "guest-exec", "arguments": start})).await?;
    let status = json!({"execute": "guest-exec-status", "arguments": {"pid": started.get("pid")}});
    let mut pause = Duration::from_millis(50);
    loop {
        let answer = channel.call(&status).await?;
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
