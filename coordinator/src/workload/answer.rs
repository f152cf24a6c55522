//! Answers of workload clusters, whose control planes are not trusted: an answer is read up to a bound
//! and decoded into types that keep no more than is used, and an error is cut to its code and reason.

use std::time::Duration;

use http::Response;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::core::Status;
use kube::core::request::Error as BuildError;
use kube::{Client, Error};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::bounded::Text;
use crate::client::WORKLOAD_BYTES;

/// Most bytes of an error, of which only the reason is read.
const ERROR_BYTES: usize = 64 << 10;
/// Longest reason of an error that is shown. The reasons of Kubernetes have up to 21 letters.
const REASON_LENGTH: usize = 64;

type Request = Result<http::Request<Vec<u8>>, BuildError>;

/// An answer that an API server does not give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerError {
    #[error("the answer of the API server is larger than {} KiB", .0 >> 10)]
    TooLarge(usize),
    #[error("the answer of the API server is not usable at line {line}, column {column}")]
    Malformed { line: usize, column: usize },
    #[error("the API server did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the API server lists more than {0}")]
    TooMany(&'static str),
}

impl From<AnswerError> for Error {
    fn from(error: AnswerError) -> Self {
        Self::Service(Box::new(error))
    }
}

/// The answer to a request, decoded.
pub(super) async fn read_answer<T: DeserializeOwned>(
    client: &Client,
    request: Request,
) -> Result<(T, usize), Error> {
    let body = send_request(client, request).await?;
    let decoded = serde_json::from_slice(&body);
    // The text of the decoder would quote the answer.
    let decoded =
        decoded.map_err(|error| AnswerError::Malformed { line: error.line(), column: error.column() })?;
    Ok((decoded, body.len()))
}

/// Sends a request and gives the bytes of its answer.
pub(super) async fn send_request(client: &Client, request: Request) -> Result<Vec<u8>, Error> {
    let request = request.map_err(Error::BuildRequest)?;
    let response = client.send(request.map(Body::from)).await?;
    let status = response.status();
    if status.is_success() {
        return read_body(response, WORKLOAD_BYTES).await;
    }
    let body = read_body(response, ERROR_BYTES).await;
    let reason = body.ok().and_then(|body| read_reason(&body));
    let reason = reason.unwrap_or_else(|| "Unknown".to_owned());
    Err(Error::Api(Box::new(Status { code: status.as_u16(), reason, ..Status::default() })))
}

async fn read_body(response: Response<Body>, most: usize) -> Result<Vec<u8>, Error> {
    let (mut body, mut read) = (response.into_body(), vec![]);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if read.len() + data.len() > most {
            return Err(AnswerError::TooLarge(most).into());
        }
        read.extend_from_slice(&data);
    }
    Ok(read)
}

/// The reason of an error, if it is one word as those of Kubernetes are.
fn read_reason(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Reason {
        reason: Option<Text<REASON_LENGTH>>,
    }
    let Text(reason) = serde_json::from_slice::<Reason>(body).ok()?.reason?;
    let is_word = !reason.is_empty() && reason.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_word.then_some(reason)
}
