use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::ui::follow::tests::{Watches, host, start};

async fn open_page() -> (Watches, Page) {
    let (watches, followed) = start();
    watches.list(&[host("a", "os:v1")]);
    (watches, Page::open(followed, "{}", 0).await.unwrap())
}

/// The answer to a request, which the server ends with the connection.
async fn ask(address: &str, method: &str, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn page_is_served_to_its_reader_alone() {
    let (_watches, page) = open_page().await;
    let (url, once) = (page.url.clone(), page.once.clone());
    tokio::spawn(serve(page));
    let parts: Vec<_> = url.split('/').collect();
    let (address, path) = (parts[2].to_owned(), format!("/{}/", parts[3]));
    let index = ask(&address, "GET", &path, "localhost").await;
    assert!(index.starts_with("HTTP/1.1 200") && index.contains("main.js"), "{index}");
    assert!(index.contains("content-security-policy: default-src 'self'"), "{index}");
    assert!(!index.to_lowercase().contains("access-control"), "{index}");
    for asset in ASSETS {
        let answer = ask(&address, "GET", &format!("{path}{}", asset.name), "127.0.0.1").await;
        assert!(answer.contains(asset.kind), "{answer}");
    }
    let shown = ask(&address, "GET", &format!("{path}object/host/site/a"), &address).await;
    assert!(shown.contains("application/json") && shown.contains("os:v1"), "{shown}");
    for (method, path, host, status) in [
        ("GET", format!("{path}object/pod/site/a"), "localhost", "404"),
        ("GET", format!("{path}live"), "evil.example", "421"),
        ("POST", path.clone(), "localhost", "405"),
        ("GET", "/wrong/".to_owned(), "localhost", "403"),
        ("GET", "/open/wrong".to_owned(), "localhost", "403"),
    ] {
        let answer = ask(&address, method, &path, host).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
        assert!(!answer.contains("os:v1"), "{answer}");
    }
    let once = format!("/{}", once.splitn(4, '/').nth(3).unwrap());
    let first = ask(&address, "GET", &once, "localhost").await;
    assert!(first.starts_with("HTTP/1.1 303") && first.contains(&format!("location: {path}")), "{first}");
    let second = ask(&address, "GET", &once, "localhost").await;
    assert!(second.starts_with("HTTP/1.1 403"), "{second}");
}

async fn read_until(reader: &mut Reader, name: &str) -> Vec<Told> {
    let mut told = vec![];
    loop {
        told.push(reader.next().await.unwrap());
        if told.last().is_some_and(|(last, _)| *last == name) {
            return told;
        }
    }
}

#[tokio::test]
async fn slow_page_starts_again() {
    let (watches, followed) = start();
    watches.list(&[host("a", "os:v1")]);
    let shared = Shared {
        followed: followed.clone(),
        place: "{}".into(),
        pages: Arc::new(Semaphore::new(1)),
        token: "t".into(),
        code: Arc::default(),
    };
    let permit = shared.pages.clone().try_acquire_owned().unwrap();
    let mut reader = Reader { shared, pending: VecDeque::new(), subscription: None, _permit: permit };
    read_until(&mut reader, "complete").await;
    // One by one: what is there at once is one change.
    for number in 0..200 {
        watches.apply(&host("a", &format!("os:v{number}")));
        while !followed.show(host("a", "").id).await.unwrap().contains(&format!("os:v{number}\"")) {}
    }
    let told = read_until(&mut reader, "complete").await;
    assert!(told.len() < 80, "{} events were held for a page that does not read", told.len());
    let newest = told.iter().rfind(|(name, _)| *name == "lines").unwrap();
    assert!(newest.1.contains("os:v199"), "{newest:?}");
}
