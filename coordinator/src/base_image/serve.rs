//! `fetch-base-images`: a process that executes orders for base images, and has neither a client of
//! Kubernetes, the certificate authority nor the cache. What servers send is read here, so that a fault of
//! a parser is a fault of this process alone.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWrite, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::BaseImageError;
use super::execute::{Executor, Step};
use super::ledger::Ledger;
use super::socket::{self, Answer, REQUEST, Request, receive, send};
use crate::shutdown::{Shutdown, wait_ended};

/// Connections at a time: twice as many as fetches of the coordinator.
const CONNECTIONS: usize = 256;
/// Time in which a request has to arrive, and an answer to a check.
const PROMPT: Duration = Duration::from_secs(5);
/// The pause after a failed `accept`, as without file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves the socket until `shutdown`. Files arrive beside the socket, at most `arriving` bytes at a time.
pub async fn serve_orders(socket: &Path, arriving: u64, shutdown: Shutdown) -> Result<(), BaseImageError> {
    let directory = socket.parent().unwrap_or(Path::new(""));
    let failed = |source| BaseImageError::Cache { path: directory.to_owned(), source };
    let ledger = Ledger::open(directory, arriving).map_err(failed)?;
    let listener = bind(socket).map_err(failed)?;
    let executor = Arc::new(Executor::new(Arc::new(ledger)));
    tracing::info!(socket = %socket.display(), "fetching base images for the coordinator");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((connection, _)) => {
                    connections.spawn(answer_request(executor.clone(), connection));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection, retrying");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = wait_ended(shutdown.clone()) => return Ok(()),
        }
    }
}

/// Asks the process at the socket if it answers.
pub async fn check_server(socket: &Path) -> io::Result<()> {
    tokio::time::timeout(PROMPT, socket::check(socket)).await?
}

/// Removes the socket of a former process: nothing did when that process was killed.
fn bind(socket: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    UnixListener::bind(socket)
}

async fn answer_request(executor: Arc<Executor>, connection: UnixStream) {
    let (reader, mut writer) = connection.into_split();
    let mut reader = BufReader::new(reader);
    let answered = match tokio::time::timeout(PROMPT, receive(&mut reader, REQUEST)).await {
        Ok(Ok(Request::Check)) => send(&mut writer, &Answer::Alive).await,
        Ok(Ok(Request::Fetch(order))) => {
            // The coordinator sends nothing more: its next byte is the end of the connection.
            tokio::select! {
                _ = reader.read_u8() => Ok(()),
                sent = send_steps(executor.execute(*order), &mut writer) => sent,
            }
        }
        Ok(Err(error)) => Err(error),
        Err(late) => Err(late.into()),
    };
    if let Err(error) = answered {
        tracing::warn!(%error, "cannot answer the coordinator");
    }
}

async fn send_steps(
    steps: impl Stream<Item = Result<Step, BaseImageError>>,
    writer: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut steps = std::pin::pin!(steps);
    while let Some(step) = steps.next().await {
        match step {
            Ok(Step::Resolved(digest)) => send(writer, &Answer::Resolved(digest)).await?,
            Ok(Step::Arrived(arrived)) => {
                let name = arrived.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                send(writer, &Answer::Arrived(name)).await?;
                // The file is kept until the coordinator has copied it and closes the connection.
                std::future::pending::<()>().await;
            }
            Err(error) => return send(writer, &Answer::failed(error)).await,
        }
    }
    Ok(())
}
