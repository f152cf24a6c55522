//! Base images that another process fetches: they arrive as those that the coordinator fetches itself, and
//! such a process brings nothing else in.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use coordinator_api::conditions::Reason;
use coordinator_core::seed_image::Base;
use futures::FutureExt as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixListener;
use tokio::sync::watch;

use super::{by_hand, limits, odd_server};
use crate::base_image::limits::BaseImageLimits;
use crate::base_image::serve::{check_server, serve_orders};
use crate::base_image::{BaseImage, BaseImageError, BaseImages};

const SIZE: u64 = 100_000;

/// Fetches through `socket`, or by itself.
fn open_images(cache: &Path, socket: Option<PathBuf>) -> BaseImages {
    let limits = BaseImageLimits { base_image_size: SIZE, base_image_socket: socket, ..limits() };
    BaseImages::new(cache.to_owned(), limits).unwrap()
}

/// Serves orders until the sender is dropped.
pub(crate) fn start_fetcher(socket: &Path) -> watch::Sender<bool> {
    let (end, shutdown) = watch::channel(false);
    let socket = socket.to_owned();
    let mut serving = Box::pin(async move { serve_orders(&socket, 2 * SIZE, shutdown).await });
    // The first poll binds the socket.
    assert!((&mut serving).now_or_never().is_none());
    tokio::spawn(serving);
    end
}

fn names(directory: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(directory).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Meaning of an outcome: checksum and size, or reason and text.
fn meaning(fetched: Result<BaseImage, BaseImageError>) -> Result<(String, u64), (Reason, String)> {
    match fetched {
        Ok(image) => Ok((image.sha256, image.size)),
        Err(error) => Err((error.reason(), error.to_string())),
    }
}

#[tokio::test]
async fn outcomes_are_those_of_one_process() {
    let (one, two, between) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let socket = between.path().join("socket");
    std::fs::write(between.path().join(".fetch-former"), "left by a process that was killed").unwrap();
    let _end = start_fetcher(&socket);
    check_server(&socket).await.unwrap();
    let (alone, split) = (open_images(one.path(), None), open_images(two.path(), Some(socket)));
    let server = odd_server(by_hand()).await;
    let inside = server.replace("127.0.0.1", "127.0.0.2");
    for url in ["base.iso", "moved.iso", "endless.iso", "loop.iso", "none.iso"]
        .map(|path| format!("{server}/{path}"))
        .into_iter()
        .chain([format!("{inside}/base.iso"), "http://u:p@127.0.0.1:1/x".to_owned()])
    {
        let want = meaning(alone.fetch_image(&url, Base::Kept, None).await);
        assert_eq!(meaning(split.fetch_image(&url, Base::Kept, None).await), want, "{url}");
    }
    let contents = |directory: &Path| -> BTreeSet<String> {
        names(directory)
            .into_iter()
            .filter(|name| Path::new(name).extension().is_some_and(|end| end == "iso"))
            .collect()
    };
    assert_eq!(contents(two.path()), contents(one.path()));
    let removed = async {
        while names(between.path()).len() > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(1), removed).await.expect("only the socket stays");
}

#[tokio::test]
async fn absent_fetcher_leaves_stored_images_alone() {
    let (cache, between) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let socket = between.path().join("socket");
    let images = open_images(cache.path(), Some(socket.clone()));
    let server = odd_server(by_hand()).await;
    let url = format!("{server}/base.iso");
    let error = images.fetch_image(&url, Base::Kept, None).await.unwrap_err();
    assert_eq!(error.reason(), Reason::BaseImageFetcherUnavailable);
    assert!(!error.is_terminal() && error.neutral_text().unwrap().contains("base-images"), "{error}");
    assert!(check_server(&socket).await.is_err());
    let end = start_fetcher(&socket);
    let stored = images.fetch_image(&url, Base::Kept, None).await.unwrap();
    end.send_replace(true);
    end.closed().await;
    assert_eq!(images.fetch_image(&url, Base::Kept, None).await.unwrap().sha256, stored.sha256);
    let other = images.fetch_image(&format!("{server}/moved.iso"), Base::Kept, None).await.unwrap_err();
    assert_eq!(other.reason(), Reason::BaseImageFetcherUnavailable);
}

/// A process that answers each order with the same bytes.
fn start_hostile(socket: &Path, answer: Vec<u8>) -> tokio::task::JoinHandle<()> {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            let mut connection = BufReader::new(connection);
            connection.read_until(b'\n', &mut vec![]).await.unwrap();
            // The coordinator may have closed the connection meanwhile.
            let _ = connection.write_all(&answer).await;
            let _ = connection.get_mut().shutdown().await;
            let _ = connection.read_u8().await;
        }
    })
}

#[tokio::test]
async fn hostile_fetcher_brings_nothing_else_in() {
    let (cache, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let between = root.path().join("between");
    std::fs::create_dir(&between).unwrap();
    std::fs::write(root.path().join("token"), by_hand()).unwrap();
    symlink("../token", between.join("relative")).unwrap();
    symlink(root.path().join("token"), between.join("absolute")).unwrap();
    std::fs::write(between.join("large"), vec![0; 100_001]).unwrap();
    std::fs::write(between.join("base"), by_hand()).unwrap();
    let away = Reason::BaseImageFetcherUnavailable;
    let resolved = format!("{{\"Resolved\":\"sha256:{}\"}}\n", "0".repeat(64));
    let secret = r#"{"Failed":{"SecretMissing":{"name":"a","field":"b"}}}"#;
    for (answer, want) in [
        (r#"{"Arrived":"../token"}"#.to_owned(), Some(away)),
        (format!("{{\"Arrived\":{:?}}}", root.path().join("token")), Some(away)),
        (r#"{"Arrived":"relative"}"#.to_owned(), Some(away)),
        (r#"{"Arrived":"absolute"}"#.to_owned(), Some(away)),
        (r#"{"Arrived":"."}"#.to_owned(), Some(away)),
        (r#"{"Arrived":"socket"}"#.to_owned(), Some(away)),
        (r#"{"Arrived":"large"}"#.to_owned(), Some(Reason::BaseImageTooLarge)),
        (r#"{"Resolved":"sha256:x\ny"}"#.to_owned(), Some(away)),
        (format!("{resolved}{resolved}"), Some(away)),
        (secret.to_owned(), Some(away)),
        (r#""Alive""#.to_owned(), Some(away)),
        ("no JSON".to_owned(), Some(away)),
        ("[".repeat(100_000), Some(away)),
        (r#"{"Arrived":"base"}"#.to_owned(), None),
    ] {
        let socket = between.join("socket");
        let hostile = start_hostile(&socket, format!("{answer}\n").into_bytes());
        let images = open_images(cache.path(), Some(socket.clone()));
        let fetched = images.fetch_image("http://192.0.2.1/base.iso", Base::Kept, None).await;
        let shown = &answer[..answer.len().min(100)];
        assert_eq!(fetched.as_ref().err().map(BaseImageError::reason), want, "{shown}");
        assert_eq!(names(cache.path()).is_empty(), want.is_some(), "{shown}");
        hostile.abort();
        std::fs::remove_file(&socket).unwrap();
    }
}

#[tokio::test]
async fn named_digest_is_compared_with_the_copy() {
    let (cache, between) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let socket = between.path().join("socket");
    std::fs::write(between.path().join("base"), by_hand()).unwrap();
    let _hostile = start_hostile(&socket, b"{\"Arrived\":\"base\"}\n".to_vec());
    let images = open_images(cache.path(), Some(socket));
    let digest = format!("sha256:{}", "0".repeat(64));
    let error = images.fetch_image("http://192.0.2.1/base.iso", Base::Kept, Some(&digest)).await.unwrap_err();
    assert_eq!(error.reason(), Reason::BaseImageDigestMismatch);
    assert!(names(cache.path()).is_empty());
}
