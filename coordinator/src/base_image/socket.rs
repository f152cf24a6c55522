//! The protocol between the coordinator and `fetch-base-images`: messages of one line of JSON over a Unix
//! socket. A connection has one order, and its end cancels the order. A file that arrived is beside the
//! socket until the coordinator has copied it and closes the connection.
//!
//! The coordinator does not trust the other process: lines are bounded, a file is opened only if it is a
//! regular one beside the socket, and size and checksum of its content are those of the copy.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::Stream;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::UnixStream;

use super::directory::open_regular;
use super::execute::{Order, Step};
use super::keep::{Arrived, KeepError, Writer, run_blocking};
use super::ledger::{Ledger, Room};
use super::{BaseImageError, shown_url};

/// Largest request in bytes: an order has the content of two Secrets, which have at most 1 MiB each.
pub(super) const REQUEST: u64 = 8 << 20;
/// Largest answer in bytes.
const ANSWER: u64 = 64 << 10;
/// Largest error in bytes, which has the names of several files or platforms.
const TEXT: usize = 16 << 10;

#[derive(Deserialize, Serialize)]
pub(super) enum Request {
    /// Asks for [`Answer::Alive`].
    Check,
    Fetch(Box<Order>),
}

#[derive(Deserialize, Serialize)]
pub(super) enum Answer {
    Alive,
    /// Digest of the manifest.
    Resolved(String),
    /// Name of a file beside the socket. It is the last answer.
    Arrived(String),
    /// It is the last answer.
    Failed(BaseImageError),
}

impl Answer {
    /// A failure, whose text is cut if it is long: only what a server sent makes it long.
    pub(super) fn failed(error: BaseImageError) -> Self {
        let is_short = serde_json::to_vec(&error).is_ok_and(|line| line.len() < TEXT);
        if is_short {
            return Self::Failed(error);
        }
        let reason = error.to_string().chars().take(TEXT / 16).collect();
        Self::Failed(BaseImageError::Malformed { image: "spec.baseImage".to_owned(), reason })
    }
}

pub(super) async fn send(stream: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

/// The next message of at most `most` bytes.
pub(super) async fn receive<T: DeserializeOwned>(
    stream: &mut (impl AsyncBufRead + Unpin),
    most: u64,
) -> io::Result<T> {
    let mut line = vec![];
    stream.take(most).read_until(b'\n', &mut line).await?;
    if !line.ends_with(b"\n") {
        let kind =
            if line.len() as u64 == most { io::ErrorKind::InvalidData } else { io::ErrorKind::UnexpectedEof };
        return Err(kind.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

/// Asks the process at the socket if it answers.
pub(super) async fn check(socket: &Path) -> io::Result<()> {
    let mut connection = BufReader::new(UnixStream::connect(socket).await?);
    send(&mut connection, &Request::Check).await?;
    match receive(&mut connection, ANSWER).await? {
        Answer::Alive => Ok(()),
        _ => Err(unexpected()),
    }
}

/// Has the process at the socket execute the order. The file is copied into the directory of `ledger`.
pub(super) fn send_order(
    socket: &Path,
    ledger: &Arc<Ledger>,
    order: Order,
) -> impl Stream<Item = Result<Step, BaseImageError>> + Send {
    let (socket, room) = (socket.to_owned(), order.room(ledger));
    async_stream::try_stream! {
        let url = shown_url(&order.text);
        let mut is_resolved = false;
        let mut connection = BufReader::new(UnixStream::connect(&socket).await.map_err(BaseImageError::Away)?);
        let request = Request::Fetch(Box::new(order));
        send(&mut connection, &request).await.map_err(BaseImageError::Away)?;
        loop {
            match receive(&mut connection, ANSWER).await.map_err(BaseImageError::Away)? {
                Answer::Resolved(digest) if !is_resolved && is_digest(&digest) => {
                    is_resolved = true;
                    yield Step::Resolved(digest);
                }
                Answer::Arrived(name) => {
                    let directory = socket.parent().unwrap_or(Path::new("")).to_owned();
                    let copied = copy_file(directory, name, room.clone()).await;
                    yield Step::Arrived(copied.map_err(|error| match error {
                        KeepError::Read(source) => BaseImageError::Away(source),
                        error => error.describe(&url, &room.ledger),
                    })?);
                    break;
                }
                Answer::Failed(error) => Err(error)?,
                Answer::Resolved(_) | Answer::Alive => Err(BaseImageError::Away(unexpected()))?,
            }
        }
    }
}

async fn copy_file(directory: PathBuf, name: String, room: Room) -> Result<Arrived, KeepError> {
    run_blocking(move || {
        let mut file = open_regular(&directory, Path::new(&name)).map_err(KeepError::Read)?;
        Writer::create(&room)?.copy_from(&mut file)
    })
    .await
}

/// A digest becomes a part of files and of the status.
fn is_digest(text: &str) -> bool {
    let hex = text.strip_prefix("sha256:").unwrap_or_default();
    hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn unexpected() -> io::Error {
    io::Error::other("its answer is no answer to the request")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_error_is_cut_and_stays_final() {
        let found = "linux/s390x, ".repeat(10_000);
        let hosts = coordinator_core::seed_image::platform::Platform::Amd64;
        let error = BaseImageError::Platform { image: "r.example/os:v1".to_owned(), found, hosts };
        let Answer::Failed(cut) = Answer::failed(error) else { panic!("no failure") };
        let text = cut.to_string();
        assert!(cut.is_terminal() && text.contains("linux/s390x") && text.len() < 2 * TEXT / 16, "{text}");
        let short = BaseImageError::NotFound { url: "https://h.example/a".to_owned() };
        assert!(matches!(Answer::failed(short), Answer::Failed(BaseImageError::NotFound { .. })));
    }

    #[test]
    fn digests_are_sha256_alone() {
        let hex = "0a".repeat(32);
        for (text, want) in [
            (format!("sha256:{hex}"), true),
            (hex.clone(), false),
            (format!("sha256:{hex}\n"), false),
            (format!("sha256:{}", hex.to_uppercase()), false),
            (format!("sha256:{}/", &hex[1..]), false),
        ] {
            assert_eq!(is_digest(&text), want, "{text:?}");
        }
    }
}
