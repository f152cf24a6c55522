use std::sync::Arc;

use clap::Parser as _;
use coordinator_api::metal3::{CONVERTED, crds, webhook};
use fake_apiserver::{FakeApi, Kind, Rules, Verb};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rustls::RootCertStore;
use rustls::crypto::ring::default_provider;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::ca::Authority;
use crate::clock::Clock;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::port::serve_port;
use crate::tls::Acceptor;

const RIGHTS: &str = include_str!("../../config/metal3/conversion.yaml");
const V1BETA1: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
const V1BETA2: &str = "infrastructure.cluster.x-k8s.io/v1beta2";

fn config(flags: &[&str]) -> Config {
    let own = ["coordinator", "--server-url=https://c", "--own-namespace=baremetal-system"];
    Config::parse_from(own.iter().chain(flags))
}

/// The webhook on a port, and an API server's view of it.
struct Served {
    authority: Authority,
    acceptor: Acceptor,
    address: SocketAddr,
    connector: TlsConnector,
}

impl Served {
    async fn start() -> Self {
        let authority = Authority::generate(Timestamp::now()).unwrap();
        let identity = authority.server(&definitions::certificate_names(&config(&[])), Timestamp::now());
        let acceptor = Acceptor::new(&authority, identity.unwrap(), Clock::system()).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = port.local_addr().unwrap();
        tokio::spawn(serve_port(port, Some(acceptor.for_callers()), build_router(), CALLERS));
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authority.roots().cloned());
        let client = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { authority, acceptor, address, connector: Arc::new(client).into() }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let name = format!("{}.baremetal-system.svc", webhook::SERVICE).try_into().unwrap();
        self.connector.connect(name, TcpStream::connect(self.address).await.unwrap()).await.unwrap()
    }

    async fn post(&self, body: &[u8]) -> (u16, String) {
        let mut stream = self.connect().await;
        let head = format!(
            "POST /convert HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server may answer before it has read everything.
        let _ = stream.write_all(body).await;
        let mut answer = vec![];
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        (head.split(' ').nth(1).map_or(0, |status| status.parse().unwrap()), body.to_owned())
    }

    async fn review(&self, target: &str, objects: &[Value]) -> Value {
        let request = json!({ "uid": "uid-1", "desiredAPIVersion": target, "objects": objects });
        let review = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request });
        let (status, body) = self.post(review.to_string().as_bytes()).await;
        assert_eq!(status, 200, "{body}");
        let review: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(review["apiVersion"], "apiextensions.k8s.io/v1");
        assert_eq!(review["kind"], "ConversionReview");
        assert_eq!(review["response"]["uid"], "uid-1");
        review["response"].clone()
    }
}

fn cluster(name: &str, spec: &Value) -> Value {
    let metadata = json!({ "name": name, "namespace": "fleet", "uid": name });
    json!({ "apiVersion": V1BETA1, "kind": "Metal3Cluster", "metadata": metadata, "spec": spec })
}

#[tokio::test]
async fn objects_are_converted_in_order_or_refused() {
    let served = Served::start().await;
    let given: Vec<_> = ["c", "a", "b"].map(|name| cluster(name, &json!({ "noCloudProvider": true }))).into();
    let answer = served.review(V1BETA2, &given).await;
    assert_eq!(answer["result"]["status"], "Success");
    let converted = answer["convertedObjects"].as_array().unwrap();
    let names: Vec<_> = converted.iter().map(|object| &object["metadata"]["name"]).collect();
    assert_eq!(names, ["c", "a", "b"]);
    assert!(converted.iter().all(|object| object["apiVersion"] == V1BETA2));
    assert!(converted.iter().all(|object| object["spec"] == json!({ "cloudProviderEnabled": false })));
    let returned = served.review(V1BETA1, converted).await;
    assert_eq!(returned["convertedObjects"], json!(given));
    let wrong = cluster("wrong", &json!({ "noCloudProvider": "yes" }));
    let refused = served.review(V1BETA2, &[given[0].clone(), wrong]).await;
    assert_eq!(refused["result"]["status"], "Failure");
    assert_eq!(
        refused["result"]["message"],
        "Metal3Cluster fleet/wrong: spec.noCloudProvider is not true or false"
    );
    assert_eq!(refused["convertedObjects"], json!([]));
}

#[tokio::test]
async fn what_is_no_review_is_refused() {
    let served = Served::start().await;
    for (body, status) in [(b"{}".to_vec(), 400), (b"[".to_vec(), 400), (vec![b' '; REVIEW_BYTES + 1], 413)] {
        let (answered, _) = served.post(&body).await;
        assert_eq!(answered, status);
    }
    let mut stream = served.connect().await;
    stream.write_all(b"GET /convert HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
}

#[tokio::test]
async fn no_request_is_refused_during_a_renewal() {
    let served = Served::start().await;
    let names = definitions::certificate_names(&config(&[]));
    let mut shown = std::collections::BTreeSet::new();
    for round in 0..20 {
        let open = served.connect().await;
        shown.insert(open.get_ref().1.peer_certificates().unwrap()[0].to_vec());
        let identity = served.authority.server(&names, Timestamp::now()).unwrap();
        let objects = [cluster("a", &json!({}))];
        let renew = async { served.acceptor.renew_identity(identity).unwrap() };
        let (answer, ()) = tokio::join!(served.review(V1BETA2, &objects), renew);
        assert_eq!(answer["result"]["status"], "Success", "{round}");
        drop(open);
    }
    assert_eq!(shown.len(), 20, "each renewal shows another certificate");
}

/// An API server with the definitions as the manifests have them.
async fn serve_definitions() -> (FakeApi, Api<CustomResourceDefinition>) {
    let fake = FakeApi::new();
    let (group, kind) = ("apiextensions.k8s.io", "CustomResourceDefinition");
    fake.register(Kind::cluster(group, "v1", kind, "customresourcedefinitions"));
    fake.authorize(
        "leader",
        Rules::of_service_account(RIGHTS, "baremetal-system", "baremetal-coordinator").unwrap(),
    );
    let definitions = Api::all(fake.client("operator"));
    for crd in crds() {
        definitions.create(&PostParams::default(), &crd).await.unwrap();
    }
    (fake, definitions)
}

fn count_patches(fake: &FakeApi) -> usize {
    let entries = fake.journal().entries();
    entries.iter().filter(|entry| entry.request.user == "leader" && entry.request.verb == Verb::Patch).count()
}

#[tokio::test(start_paused = true)]
async fn leader_names_its_authority_in_the_definitions() {
    let (fake, definitions) = serve_definitions().await;
    let authority = Authority::generate(Timestamp::now()).unwrap();
    let wanted = definitions::wanted_conversion(&config(&[]), &authority);
    let (lead, leadership) = watch::channel(false);
    let (client, metrics) = (fake.client("leader"), Metrics::default());
    tokio::spawn(definitions::keep_definitions(client, metrics.clone(), wanted.clone(), leadership));
    sleep(Duration::from_mins(5)).await;
    assert_eq!(count_patches(&fake), 0, "another replica leads");
    lead.send_replace(true);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(count_patches(&fake), CONVERTED.len());
    for name in CONVERTED {
        let found = definitions.get(name).await.unwrap();
        assert_eq!(found.spec.conversion.as_ref(), Some(&wanted), "{name}");
    }
    sleep(Duration::from_mins(5)).await;
    assert_eq!(count_patches(&fake), CONVERTED.len(), "what is right is not written");
    let shipped = crds().into_iter().find(|crd| crd.metadata.name.as_deref() == Some(CONVERTED[0])).unwrap();
    let applied =
        json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": null } } } } });
    definitions.patch(CONVERTED[0], &PatchParams::default(), &Patch::Merge(&applied)).await.unwrap();
    assert_eq!(definitions.get(CONVERTED[0]).await.unwrap().spec.conversion, shipped.spec.conversion);
    sleep(Duration::from_mins(2)).await;
    assert_eq!(definitions.get(CONVERTED[0]).await.unwrap().spec.conversion, Some(wanted));
    assert!(!metrics.encode_text().unwrap().contains("reconcile_failures_total{"));
}

#[tokio::test(start_paused = true)]
async fn definition_that_cannot_be_corrected_hinders_no_other() {
    let (fake, definitions) = serve_definitions().await;
    let versions = definitions.get(CONVERTED[0]).await.unwrap().spec.versions;
    let former = json!({ "spec": { "versions": [versions[0]] } });
    definitions.patch(CONVERTED[0], &PatchParams::default(), &Patch::Merge(&former)).await.unwrap();
    let authority = Authority::generate(Timestamp::now()).unwrap();
    let flags = ["--conversion-url=https://coordinator.example:9443"];
    let wanted = definitions::wanted_conversion(&config(&flags), &authority);
    let (_lead, leadership) = watch::channel(true);
    let (client, metrics) = (fake.client("leader"), Metrics::default());
    tokio::spawn(definitions::keep_definitions(client, metrics.clone(), wanted, leadership));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(count_patches(&fake), CONVERTED.len() - 1);
    assert!(metrics.encode_text().unwrap().contains("reconcile_failures_total{"));
    let found = definitions.get(CONVERTED[1]).await.unwrap().spec.conversion.unwrap();
    let client = found.webhook.unwrap().client_config.unwrap();
    assert_eq!(client.url.as_deref(), Some("https://coordinator.example:9443/convert"));
    assert_eq!(client.service, None);
    assert_eq!(
        definitions::certificate_names(&config(&flags)),
        ["baremetal-coordinator-conversion.baremetal-system.svc", "coordinator.example"]
    );
}
