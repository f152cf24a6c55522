//! Scrapes of the coordinator's metrics with tokens of service accounts, reviewed by a real API server.
//! The coordinator waits for Cluster API meanwhile, which is not installed.

use std::time::Duration;

use control_plane::audit::Mark;
use control_plane::parts::Parts;
use control_plane::process::{Server, Spec};
use control_plane::{ControlPlane, Settings, apply, ports};
use e2e::manifests;
use e2e::replicas::{NAMESPACE, USER, find_binary};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

const DEADLINE: Duration = Duration::from_mins(2);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Two accounts; the role of scrapers is bound to the first one.
const ACCOUNTS: &str = "
{apiVersion: v1, kind: ServiceAccount, metadata: {name: prometheus, namespace: default}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: stranger, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: baremetal-metrics-reader}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: default}]
";

/// The code of the answer, and its body; the code of a connection without answer is 0.
async fn ask(url: &str, header: Option<&str>) -> (u16, String) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--insecure", "--max-time", "20", "--write-out", "\n%{http_code}", url]);
    curl.args(header.iter().flat_map(|header| ["--header", *header]));
    let output = curl.output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, code) = text.rsplit_once('\n').unwrap();
    (code.parse().unwrap(), body.to_owned())
}

struct Coordinator {
    management: ControlPlane,
    health: u16,
    diagnostics: u16,
    _server: Server,
}

impl Coordinator {
    /// Limited to a namespace, because reviews need a right beyond it.
    async fn start() -> Self {
        let parts = Parts::from_environment().unwrap();
        let management = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
        let admin = management.admin().await.unwrap();
        apply::manifest(&admin, "{apiVersion: v1, kind: Namespace, metadata: {name: fleet}}").await.unwrap();
        let users = include_str!("../../../../coordinator/config/users.yaml");
        for manifest in manifests::rights(&["fleet"]).iter().map(String::as_str).chain([users, ACCOUNTS]) {
            apply::manifest(&admin, manifest).await.unwrap();
        }
        let [port, health, diagnostics] = std::array::from_fn(|_| ports::free().unwrap());
        let directory = management.directory();
        let kubeconfig = management.kubeconfig(USER, "system:serviceaccounts").unwrap();
        let spec = Spec {
            name: "coordinator".to_owned(),
            binary: find_binary("coordinator", "baremetal-coordinator").unwrap(),
            arguments: vec![
                "--server-url=https://localhost:8443".to_owned(),
                format!("--listen=127.0.0.1:{port}"),
                format!("--health-listen=127.0.0.1:{health}"),
                format!("--diagnostics-address=127.0.0.1:{diagnostics}"),
                format!("--own-namespace={NAMESPACE}"),
                "--namespace=fleet".to_owned(),
            ],
            environment: vec![("KUBECONFIG".to_owned(), kubeconfig.display().to_string())],
            log: directory.join("coordinator.log"),
        };
        let server = Server::start(spec).unwrap();
        Self { management, health, diagnostics, _server: server }
    }

    async fn scrape(&self, token: &str) -> (u16, String) {
        let url = format!("https://127.0.0.1:{}/metrics", self.diagnostics);
        ask(&url, Some(&format!("Authorization: Bearer {token}"))).await
    }

    /// The API server follows changes of roles a moment later.
    async fn await_scrape(&self, token: &str, want: u16) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let (code, _) = self.scrape(token).await;
            if code == want {
                return;
            }
            assert!(Instant::now() < deadline, "{code}, never {want}");
            sleep(POLL_INTERVAL).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_decides_who_scrapes() {
    let coordinator = Coordinator::start().await;
    let management = &coordinator.management;
    let scraper = management.issue_token("default", "prometheus").await.unwrap();
    let stranger = management.issue_token("default", "stranger").await.unwrap();
    coordinator.await_scrape(&scraper, 200).await;
    coordinator.await_scrape(&stranger, 403).await;
    let mark = management.audit().mark().unwrap();
    for _ in 0..5 {
        let (code, text) = coordinator.scrape(&scraper).await;
        assert!(code == 200 && text.contains("baremetal_coordinator"), "{code}: {text}");
    }
    let asked = management.audit().counts(USER, mark).unwrap();
    let reviews = ["tokenreviews", "subjectaccessreviews"].map(|kind| asked.of("create", kind));
    assert!(reviews.iter().all(|count| *count <= 1), "each scrape is reviewed: {reviews:?}");

    let (health, diagnostics) = (coordinator.health, coordinator.diagnostics);
    let forged = format!("{scraper}x");
    for (token, want) in [("", 401), ("wrong", 401), (&*forged, 401), (&*"a".repeat(9 << 10), 401)] {
        let (code, text) = coordinator.scrape(token).await;
        assert!(code == want && text.is_empty(), "{token}: {code} {text}");
    }
    let bearer = format!("Authorization: Bearer {scraper}");
    for (url, header, want) in [
        (format!("https://127.0.0.1:{diagnostics}/metrics"), None, 401),
        (format!("http://127.0.0.1:{diagnostics}/metrics"), Some(&*bearer), 0),
        (format!("http://127.0.0.1:{health}/metrics"), Some(&*bearer), 404),
        (format!("http://127.0.0.1:{health}/healthz"), None, 200),
    ] {
        let (code, text) = ask(&url, header).await;
        assert_eq!(code, want, "{url}: {text}");
    }

    let used = management.audit().rights(USER, Mark::default()).unwrap().used;
    for right in
        [" create authentication.k8s.io/tokenreviews", " create authorization.k8s.io/subjectaccessreviews"]
    {
        assert!(used.contains(right), "{right}: {used:?}");
    }
}
