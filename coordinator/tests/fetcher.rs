//! `fetch-base-images` as a process of its own, killed in the middle.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use bytes::Bytes;
use coordinator::base_image::BaseImages;
use coordinator::base_image::limits::BaseImageLimits;
use coordinator_core::seed_image::Base;
use futures::StreamExt as _;
use tokio::sync::mpsc;

/// Ends with the test.
struct Fetcher {
    child: Child,
    /// The pipe of its log, which it may not find closed.
    _log: Lines<BufReader<ChildStderr>>,
}

impl Fetcher {
    /// Starts a process, and waits until it serves the socket.
    fn start(socket: &Path) -> Self {
        let mut child = command(socket).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let is_served = lines.any(|line| line.unwrap().contains("fetching base images"));
        assert!(is_served, "it ended");
        Self { child, _log: lines }
    }

    /// Kills the process as the kernel does without memory.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The process has no environment, as without a `ServiceAccount`.
fn command(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_baremetal-coordinator"));
    command.arg("fetch-base-images").arg("--base-image-socket").arg(socket).env_clear();
    command
}

fn answers(socket: &Path) -> bool {
    command(socket).arg("--check").stderr(Stdio::null()).status().unwrap().success()
}

/// The URL of a server, which tells of each request, and sends a byte and then nothing while the switch is set.
async fn start_server(is_slow: Arc<AtomicBool>) -> (String, mpsc::Receiver<()>) {
    let (tell, asked) = mpsc::channel(8);
    let answer = move || {
        let (tell, is_slow) = (tell.clone(), is_slow.load(Ordering::Relaxed));
        async move {
            tell.send(()).await.unwrap();
            let first = futures::stream::once(async { Ok::<_, Infallible>(Bytes::from_static(b"x")) });
            if is_slow {
                Body::from_stream(first.chain(futures::stream::pending()))
            } else {
                Body::from_stream(first)
            }
        }
    };
    let router = axum::Router::new().fallback(answer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_fetcher_is_named_and_restarted_alone() {
    let (cache, between) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let socket = between.path().join("socket");
    let is_slow = Arc::new(AtomicBool::new(false));
    let (server, mut asked) = start_server(is_slow.clone()).await;
    let limits = BaseImageLimits {
        allow_base: vec!["127.0.0.1".parse().unwrap()],
        base_image_socket: Some(socket.clone()),
        ..BaseImageLimits::default()
    };
    let images = Arc::new(BaseImages::new(cache.path().to_owned(), limits).unwrap());
    let (stored, slow) = (format!("{server}/stored"), format!("{server}/slow"));
    let fetch = |url: &str| {
        let (images, url) = (images.clone(), url.to_owned());
        tokio::spawn(async move { images.fetch_image(&url, Base::Kept, None).await })
    };
    let mut fetcher = Fetcher::start(&socket);
    assert!(answers(&socket));
    fetch(&stored).await.unwrap().unwrap();
    asked.recv().await.unwrap();

    is_slow.store(true, Ordering::Relaxed);
    let broken = fetch(&slow);
    asked.recv().await.unwrap();
    fetcher.kill();
    let error = broken.await.unwrap().unwrap_err();
    assert_eq!(error.reason().as_str(), "BaseImageFetcherUnavailable", "{error}");
    assert!(!error.is_terminal(), "it is tried again");
    assert!(!answers(&socket), "the probe restarts it");
    let error = fetch(&slow).await.unwrap().unwrap_err();
    assert_eq!(error.reason().as_str(), "BaseImageFetcherUnavailable", "{error}");
    fetch(&stored).await.unwrap().expect("what is stored needs no fetcher");

    is_slow.store(false, Ordering::Relaxed);
    let _fetcher = Fetcher::start(&socket);
    assert!(answers(&socket));
    fetch(&slow).await.unwrap().unwrap();
}
