//! A workload cluster whose API server answers as it likes.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use kube::client::Body;

use super::*;
use crate::client::WORKLOAD_BYTES;

const DEPTH: usize = 1 << 20;

/// A management cluster, and a workload cluster of which `answer` gives status and body.
fn hostile(
    answer: impl Fn(&str) -> (StatusCode, String) + Send + Sync + 'static,
) -> (Setting, WorkloadClients, Arc<AtomicUsize>) {
    let (setting, asked) = (Setting::new(), Arc::<AtomicUsize>::default());
    let (counted, answer) = (asked.clone(), Arc::new(answer));
    let clients = WorkloadClients::new(Arc::new(move |_| {
        let (counted, answer) = (counted.clone(), answer.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            let (status, body) = answer(&request.uri().to_string());
            let mut response = Response::new(Full::new(Bytes::from(body)));
            *response.status_mut() = status;
            std::future::ready(Ok::<_, std::convert::Infallible>(response))
        });
        std::future::ready(Ok(Client::new(service, "default"))).boxed()
    }));
    (setting, clients, asked)
}

async fn read(setting: &Setting, clients: &WorkloadClients) -> Result<usize, String> {
    setting.write_kubeconfig("c1", "k").await;
    let search = NodeSearch::new("c1", UUID_LABEL, &["u-1".to_owned()]);
    match clients.read_nodes(&setting.management.client("coordinator"), "fleet", &search).await.unwrap() {
        NodesRead::Read(nodes) => Ok(nodes.len()),
        NodesRead::Unavailable(problem) => Err(problem.text()),
        NodesRead::NotRead => panic!("nothing was read"),
    }
}

fn page(items: &str, next: &str) -> String {
    format!(r#"{{"kind":"NodeList","metadata":{{"continue":"{next}"}},"items":[{items}]}}"#)
}

fn repeat(item: &str, count: usize) -> String {
    vec![item; count].join(",")
}

#[tokio::test(start_paused = true)]
async fn answers_above_a_bound_are_refused() {
    let node =
        |labels: &str, more: &str| format!(r#"{{"metadata":{{"name":"n","labels":{{{labels}}}{more}}}}}"#);
    let labels = (0..1025).map(|n| format!(r#""l{n}":"""#)).collect::<Vec<_>>().join(",");
    let long = "x".repeat(1 << 20);
    let cases = [
        ("items of a page", page(&repeat(&node("", ""), 51), "")),
        ("empty items", page(&repeat("{}", WORKLOAD_BYTES / 3), "")),
        ("16 MiB of empty items", page(&repeat("{}", (16 << 20) / 3), "")),
        ("labels", page(&node(&labels, ""), "")),
        ("length of a name", page(&format!(r#"{{"metadata":{{"name":"{long}"}}}}"#), "")),
        ("length of a label", page(&node(&format!(r#""a":"{long}""#), ""), "")),
        ("length of a UID", page(&node("", &format!(r#","uid":"{long}""#)), "")),
        ("length of a token", page("", &long)),
        ("depth of an item", page(&"[".repeat(DEPTH), "")),
        ("depth of an unused field", format!(r#"{{"x":{}"#, "[".repeat(DEPTH))),
        ("text", long.clone()),
    ];
    for (what, body) in cases {
        let (setting, clients, asked) = hostile(move |_| (StatusCode::OK, body.clone()));
        let error = read(&setting, &clients).await.expect_err(what);
        assert!(error.len() < 600, "{what}: {error}");
        assert_eq!(asked.load(Ordering::SeqCst), 1, "{what}: it is not asked again");
    }
}

#[tokio::test(start_paused = true)]
async fn endless_pages_come_to_an_end() {
    let node = r#"{"metadata":{"name":"n"}}"#;
    for (what, items, most) in [("empty pages", String::new(), 400), ("full pages", repeat(node, 50), 201)] {
        let answer = move |_: &str| (StatusCode::OK, page(&items, "more"));
        let (setting, clients, asked) = hostile(answer);
        let error = read(&setting, &clients).await.expect_err(what);
        assert!(error.contains("more than 10000 Nodes"), "{error}");
        assert!(asked.load(Ordering::SeqCst) <= most, "{what}: {asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn error_is_cut_to_code_and_reason() {
    let canary = "canary\\n2026-01-01T00:00:00Z INFO forged".repeat(1000);
    let status = |reason: &str| format!(r#"{{"message":"{canary}","reason":"{reason}"}}"#);
    for (body, want) in [
        (status("Forbidden"), "Forbidden"),
        (status(&"A".repeat(65)), "Unknown"),
        (status("not a word: canary"), "Unknown"),
        (canary.clone(), "Unknown"),
        ("x".repeat(16 << 20), "Unknown"),
    ] {
        let (setting, clients, _) = hostile(move |_| (StatusCode::FORBIDDEN, body.clone()));
        let error = read(&setting, &clients).await.unwrap_err();
        assert!(error.contains(want) && error.contains("403"), "{error}");
        assert!(!error.contains("canary") && error.len() < 600, "{error}");
        let node = NodeRef { cluster: "c1".into(), name: "n".into(), uid: None };
        let management = setting.management.client("coordinator");
        let error = clients.set_provider_id(&management, "fleet", &node, "p").await.unwrap_err();
        assert!(chain(&error).contains("403") && !chain(&error).contains("canary"), "{}", chain(&error));
        let cluster = Key::new("fleet", "c1");
        let holder = clients.show_holder(&management, &cluster, "h", Timestamp::UNIX_EPOCH).await;
        let shown = chain(&holder.unwrap_err());
        assert!(shown.contains("403") && !shown.contains("canary"), "{shown}");
        let asked = clients.ask_endpoint(&management, &cluster, false).await.unwrap();
        assert!(matches!(asked.0, EndpointAnswer::Answered(_)), "a refusal is an answer");
    }
}

#[tokio::test(start_paused = true)]
async fn unused_fields_of_honest_nodes_are_skipped() {
    let images =
        repeat(r#"{"names":["registry.example/a@sha256:0","registry.example/a:v1"],"sizeBytes":1}"#, 50);
    let node = format!(
        r#"{{"metadata":{{"name":"n","uid":"u","labels":null,"annotations":{{"a":"b"}}}},"spec":{{"providerID":"","taints":[]}},"status":{{"images":[{images}]}}}}"#
    );
    let body = page(&repeat(&node, 50), "");
    let (setting, clients, _) = hostile(move |_| (StatusCode::OK, body.clone()));
    assert_eq!(read(&setting, &clients).await, Ok(50));
}

#[tokio::test(start_paused = true)]
async fn silent_cluster_takes_one_place_for_seconds() {
    let setting = Setting::new();
    let clients = WorkloadClients::new(Arc::new(|kubeconfig| {
        let is_silent = kubeconfig.expose() == b"silent";
        let service = tower::service_fn(move |_: Request<Body>| async move {
            // The honest one takes a moment, so that its questions meet.
            let time = Duration::from_millis(if is_silent { 3_600_000 } else { 20 });
            tokio::time::sleep(time).await;
            Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(page("", "")))))
        });
        std::future::ready(Ok(Client::new(service, "default"))).boxed()
    }));
    setting.write_kubeconfig("silent", "silent").await;
    setting.write_kubeconfig("honest", "k").await;
    let management = setting.management.client("coordinator");
    let ask = async |cluster: &str| {
        let search = NodeSearch::new(cluster, UUID_LABEL, &["u-1".to_owned()]);
        let read = clients.read_nodes(&management, "fleet", &search).await.unwrap();
        (matches!(read, NodesRead::Read(_)), Instant::now())
    };
    let start = Instant::now();
    let silent = futures::future::join_all((0..2 * QUESTIONS).map(|_| ask("silent")));
    let honest = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let (is_first_read, first) = ask("honest").await;
        let more = futures::future::join_all((0..QUESTIONS).map(|_| ask("honest"))).await;
        (is_first_read && more.iter().all(|(is_read, _)| *is_read), first)
    };
    let (silent, (is_read, first)) = tokio::join!(silent, honest);
    assert!(is_read, "machines of one cluster wait for each other");
    assert!(first < start + Duration::from_secs(1), "a silent cluster has one place");
    assert!(silent.iter().all(|(is_read, at)| !is_read && *at < start + Duration::from_secs(6)));
    let again = Instant::now();
    assert!(ask("silent").await.1 < again + Duration::from_secs(1), "it is not asked again soon");
}

#[tokio::test(start_paused = true)]
async fn writes_to_a_silent_cluster_take_one_place() {
    let setting = Setting::new();
    let (most, running) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, left) = (most.clone(), running.clone());
    let clients = WorkloadClients::new(Arc::new(move |_| {
        let (most, running) = (counted.clone(), left.clone());
        let service = tower::service_fn(move |_: Request<Body>| {
            let now = running.fetch_add(1, Ordering::Relaxed) + 1;
            most.fetch_max(now, Ordering::Relaxed);
            let running = running.clone();
            async move {
                // The deadline of a client of the coordinator.
                tokio::time::sleep(Duration::from_secs(10)).await;
                running.fetch_sub(1, Ordering::Relaxed);
                let answer = Response::builder().status(StatusCode::GATEWAY_TIMEOUT);
                Ok::<_, std::convert::Infallible>(answer.body(Full::new(Bytes::new())).unwrap())
            }
        });
        std::future::ready(Ok(Client::new(service, "default"))).boxed()
    }));
    setting.write_kubeconfig("silent", "silent").await;
    let management = setting.management.client("coordinator");
    let node = NodeRef { cluster: "silent".to_owned(), name: "n".to_owned(), uid: None };
    let key = Key::new("fleet", "silent");
    let start = Instant::now();
    let writes = (0..3 * QUESTIONS).map(async |number| {
        let written = match number % 3 {
            0 => clients.set_provider_id(&management, "fleet", &node, "p").await,
            1 => clients.delete_node(&management, "fleet", &node).await,
            _ => clients.show_holder(&management, &key, "h", Timestamp::UNIX_EPOCH).await,
        };
        assert!(written.is_err(), "{number}");
    });
    futures::future::join_all(writes).await;
    assert_eq!(most.load(Ordering::Relaxed), 1, "the others are refused and come again");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn silent_clusters_of_a_namespace_leave_places() {
    let setting = Setting::new();
    let clients = WorkloadClients::new(Arc::new(|kubeconfig| {
        let is_silent = kubeconfig.expose() == b"silent";
        let service = tower::service_fn(move |_: Request<Body>| async move {
            tokio::time::sleep(Duration::from_secs(if is_silent { 3600 } else { 0 })).await;
            Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(page("", "")))))
        });
        std::future::ready(Ok(Client::new(service, "default"))).boxed()
    }));
    let names: Vec<_> = (0..40).map(|number| format!("silent-{number}")).collect();
    for name in &names {
        setting.write_kubeconfig(name, "silent").await;
    }
    setting.write_kubeconfig_in("other", "honest", "k").await;
    let management = setting.management.client("coordinator");
    let ask = async |namespace: &str, name: &str| {
        let cluster = Key::new(namespace, name);
        let asked = clients.ask_endpoint(&management, &cluster, false).await.unwrap();
        (asked, Instant::now())
    };
    let start = Instant::now();
    let silent = futures::future::join_all(names.iter().map(|name| ask("fleet", name)));
    let honest = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let search = NodeSearch::new("honest", UUID_LABEL, &["u-1".to_owned()]);
        let read = clients.read_nodes(&management, "other", &search).await.unwrap();
        assert!(matches!(read, NodesRead::Read(_)));
        ask("other", "honest").await
    };
    let (silent, ((answer, _), at)) = tokio::join!(silent, honest);
    assert!(matches!(answer, EndpointAnswer::Answered(_)));
    assert_eq!(at, start + Duration::from_millis(1));
    let asked = silent.iter().filter(|((answer, _), _)| *answer != EndpointAnswer::NotAsked).count();
    assert_eq!(asked, NAMESPACE_QUESTIONS, "the others are asked later");
    assert!(silent.iter().all(|((_, next), at)| *at < start + Duration::from_secs(6) && next.is_some()));
}
