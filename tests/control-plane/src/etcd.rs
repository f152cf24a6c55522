//! Keys of etcd, beneath the API server: what a restored backup lacks vanishes here without a
//! deletion, which would be a request to clean up first.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::{Value, json};

/// Operations in one transaction that etcd takes by default.
const TRANSACTION: usize = 128;

/// etcd did not remove what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request could not be made or sent, or its answer not be read.
    #[error("{attempt} of etcd")]
    Request { attempt: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    /// etcd answered with an error.
    #[error("etcd answered {status}: {answer}")]
    Answer { status: http::StatusCode, answer: String },
    /// A transaction would not be one.
    #[error("{0} keys are more than one transaction takes")]
    TooMany(usize),
}

/// An object as etcd stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// `resource` is the plural for a built-in kind, as in `secrets`, and `<group>/<plural>` for a
    /// custom one, as in `cluster.x-k8s.io/machines`.
    pub fn new(resource: &str, namespace: &str, name: &str) -> Self {
        Self(format!("/registry/{resource}/{namespace}/{name}"))
    }
}

/// The client port of one etcd, without TLS.
#[derive(Debug, Clone)]
pub(crate) struct Etcd {
    url: String,
}

impl Etcd {
    pub(crate) fn at(port: u16) -> Self {
        Self { url: format!("http://127.0.0.1:{port}") }
    }

    /// Removes all `keys` in one revision. The watch caches above see deletions of objects that
    /// have no `deletionTimestamp`. The answer is the keys that were not there.
    pub(crate) async fn remove(&self, keys: &[Key]) -> Result<Vec<Key>, Error> {
        if keys.len() > TRANSACTION {
            return Err(Error::TooMany(keys.len()));
        }
        let operations: Vec<Value> = keys
            .iter()
            .map(|Key(key)| json!({ "requestDeleteRange": { "key": STANDARD.encode(key) } }))
            .collect();
        let answer: Answer = self.post("/v3/kv/txn", &json!({ "success": operations })).await?;
        let deleted = answer.responses.iter().map(|response| response.response_delete_range.deleted == "1");
        Ok(keys.iter().zip(deleted).filter(|(_, deleted)| !deleted).map(|(key, _)| key.clone()).collect())
    }

    async fn post<T: serde::de::DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Error> {
        let client: Client<HttpConnector, Full<bytes::Bytes>> =
            Client::builder(TokioExecutor::new()).build_http();
        let request = http::Request::post(format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .body(Full::from(body.to_string()))
            .map_err(failed("make a request"))?;
        let response = client.request(request).await.map_err(failed("send a request"))?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(failed("read an answer"))?.to_bytes();
        if !status.is_success() {
            return Err(Error::Answer { status, answer: String::from_utf8_lossy(&body).into_owned() });
        }
        serde_json::from_slice(&body).map_err(failed("understand an answer"))
    }
}

fn failed<E: Into<Box<dyn std::error::Error + Send + Sync>>>(attempt: &'static str) -> impl Fn(E) -> Error {
    move |source| Error::Request { attempt, source: source.into() }
}

/// etcd's gateway writes numbers as text and leaves zeros out.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    response_delete_range: DeleteRange,
}

#[derive(Deserialize, Default)]
struct DeleteRange {
    #[serde(default)]
    deleted: String,
}
