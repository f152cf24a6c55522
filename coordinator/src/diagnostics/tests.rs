//! Who is answered, with an API server that knows two tokens.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::AUTHORIZATION;
use http_body_util::BodyExt as _;
use kube::client::Body as ApiBody;
use proto::refusal::Refusal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use tower::ServiceExt as _;

use super::*;

const SCRAPER: &str = "10.0.0.1";

/// Path and object of each request to the API server.
type Requests = Arc<Mutex<Vec<(String, Value)>>>;

#[derive(Clone, Default)]
struct Server {
    requests: Requests,
    is_down: Arc<AtomicBool>,
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        let answer = move |request: http::Request<ApiBody>| {
            let server = server.clone();
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                Ok::<_, Infallible>(server.answer(path, &serde_json::from_slice(&body).unwrap()))
            }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    fn answer(&self, path: String, object: &Value) -> http::Response<ApiBody> {
        let spec = &object["spec"];
        let mut answer = object.clone();
        answer["status"] = match path.as_str() {
            "/apis/authentication.k8s.io/v1/tokenreviews" => match spec["token"].as_str().unwrap() {
                name @ ("scraper" | "stranger") => {
                    let user =
                        json!({ "username": name, "uid": "7", "groups": ["g"], "extra": { "k": ["v"] } });
                    json!({ "authenticated": true, "user": user })
                }
                _ => json!({ "error": "invalid bearer token" }),
            },
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                json!({ "allowed": spec["user"] == "scraper" })
            }
            _ => panic!("{path}"),
        };
        self.requests.lock().unwrap().push((path, object.clone()));
        let status = if self.is_down.load(Ordering::Relaxed) { 503 } else { 201 };
        let body = answer.to_string().into_bytes();
        http::Response::builder().status(status).body(ApiBody::from(body)).unwrap()
    }

    fn count_requests(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

async fn scrape(routes: &Router, source: &str, authorization: Option<&str>) -> (u16, String) {
    let mut request = http::Request::get("/metrics").body(Body::empty()).unwrap();
    let source: IpAddr = source.parse().unwrap();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((source, 1))));
    if let Some(authorization) = authorization {
        request.headers_mut().insert(AUTHORIZATION, authorization.parse().unwrap());
    }
    let response = routes.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn start() -> (Server, Router) {
    let server = Server::default();
    let routes = build_router(Metrics::default(), Some(Reviews::new(server.client())));
    (server, routes)
}

#[tokio::test]
async fn metrics_need_a_token_with_the_right() {
    let (server, routes) = start();
    let large = format!("Bearer {}", "a".repeat((8 << 10) + 1));
    for (authorization, status, requests) in [
        (None, 401, 0),
        (Some("Basic c2NyYXBlcg=="), 401, 0),
        (Some("scraper"), 401, 0),
        (Some("Bearer "), 401, 0),
        (Some("Bearer scraper scraper"), 401, 0),
        (Some(&*large), 401, 0),
        (Some("Bearer wrong"), 401, 1),
        (Some("Bearer stranger"), 403, 2),
        (Some("Bearer scraper"), 200, 2),
    ] {
        let before = server.count_requests();
        let (answered, text) = scrape(&routes, SCRAPER, authorization).await;
        assert_eq!(answered, status, "{authorization:?}");
        assert_eq!(text.contains("baremetal_coordinator"), status == 200, "{authorization:?}: {text}");
        assert_eq!(server.count_requests() - before, requests, "{authorization:?}");
    }
    let last = server.requests.lock().unwrap().pop().unwrap().1;
    let asked = json!({
        "user": "scraper", "uid": "7", "groups": ["g"], "extra": { "k": ["v"] },
        "nonResourceAttributes": { "path": "/metrics", "verb": "get" },
    });
    assert_eq!(last["spec"], asked);
}

#[tokio::test(start_paused = true)]
async fn verdicts_are_remembered_for_a_time() {
    let (server, routes) = start();
    for (token, status, seconds) in [("scraper", 200, 60), ("stranger", 403, 10), ("wrong", 401, 10)] {
        let authorization = format!("Bearer {token}");
        let ask = async || scrape(&routes, SCRAPER, Some(&authorization)).await.0;
        assert_eq!(ask().await, status);
        let asked = server.count_requests();
        sleep(Duration::from_secs(seconds - 1)).await;
        assert_eq!((ask().await, server.count_requests()), (status, asked), "{token} is remembered");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(ask().await, status);
        assert!(server.count_requests() > asked, "{token} is asked for again");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_of_the_api_server_refuses() {
    let (server, routes) = start();
    server.is_down.store(true, Ordering::Relaxed);
    assert_eq!(scrape(&routes, SCRAPER, Some("Bearer scraper")).await.0, 500);
    server.is_down.store(false, Ordering::Relaxed);
    assert_eq!(scrape(&routes, SCRAPER, Some("Bearer scraper")).await.0, 200, "a failure is not remembered");
    server.is_down.store(true, Ordering::Relaxed);
    assert_eq!(scrape(&routes, SCRAPER, Some("Bearer scraper")).await.0, 200, "the verdict is");
}

#[tokio::test(start_paused = true)]
async fn guessed_tokens_displace_no_scraper() {
    let server = Server::default();
    let reviews = Reviews::new(server.client());
    let scraper = SCRAPER.parse().unwrap();
    for source in 0..10 {
        let source = IpAddr::from([10, 0, 1, source]);
        for token in 0..60 {
            let verdict = reviews.judge_token(format!("{source} {token}"), source).await;
            assert_eq!(verdict, Verdict::Unknown, "{source} {token}");
        }
        let asked = server.count_requests();
        let verdict = reviews.judge_token(format!("{source} more"), source).await;
        assert_eq!((verdict, server.count_requests()), (Verdict::TooMany, asked), "{source}");
    }
    assert_eq!(reviews.count_known(), 256);
    assert_eq!(reviews.judge_token("scraper".to_owned(), scraper).await, Verdict::Allowed);
    let asked = server.count_requests();
    assert_eq!(reviews.judge_token("scraper".to_owned(), scraper).await, Verdict::Allowed);
    assert_eq!((server.count_requests(), reviews.count_known()), (asked, 256));
}

/// The answer that a client without TLS reads until the end of its connection.
async fn send_plain(reviewer: Option<Client>, bytes: &[u8]) -> String {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = port.local_addr().unwrap();
    tokio::spawn(serve_diagnostics(port, Metrics::default(), reviewer).unwrap());
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = vec![];
    // A connection that is reset has no answer either.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn plain_requests_are_answered_if_insecure() {
    let request =
        b"GET /metrics HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer scraper\r\nConnection: close\r\n\r\n";
    let server = Server::default();
    let answer = send_plain(Some(server.client()), request).await;
    assert!(!answer.contains("HTTP/1.1") && server.count_requests() == 0, "{answer}");
    let answer = send_plain(None, request).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("baremetal_coordinator"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn slow_handshake_ends_the_connection() {
    let start = Instant::now();
    // The head of a record with a `ClientHello`, and nothing of it.
    let answer = send_plain(Some(Server::default().client()), &[22, 3, 1, 2, 0]).await;
    assert_eq!(answer, "");
    let passed = start.elapsed();
    assert!(passed >= Duration::from_secs(10) && passed < Duration::from_mins(1), "{passed:?}");
}

#[tokio::test]
async fn refusals_have_the_name_in_the_manual() {
    let name = "baremetal_coordinator_refusals_total";
    let manual = std::fs::read_to_string("../docs/operations.md").unwrap();
    assert!(manual.contains(&format!("`{name}`")));
    let metrics = Metrics::default();
    let routes = build_router(metrics.clone(), None);
    metrics.count_refused(Refusal::UnknownToken.code());
    metrics.count_refused(Refusal::UnknownToken.code());
    let (status, text) = scrape(&routes, SCRAPER, None).await;
    assert_eq!(status, 200);
    assert!(text.lines().any(|line| line == format!("{name}{{reason=\"UnknownToken\"}} 2")), "{text}");
}
