//! The webhook by which API servers convert objects of Metal3 between their versions (decision 0085).
//!
//! Whoever reaches the port is answered, because a conversion reads nothing but its request.

pub mod definitions;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use coordinator_api::metal3::webhook::PATH;
use coordinator_core::metal3::conversion::convert_object;
use kube::core::conversion::{ConversionRequest, ConversionResponse, ConversionReview};
use kube::core::response::Status;
use serde_json::Value;
use tokio::time::timeout;

use crate::listener::Source;
use crate::permits::Permits;
use crate::port::Bounds;

/// Several API servers may come from the address of one node.
pub const CALLERS: Bounds = Bounds { connections: 256, source_connections: 64 };

/// Most bytes of a request, which holds all objects of a list at once.
const REVIEW_BYTES: usize = 16 << 20;
/// Requests that are read and converted at a time, and those of one address; others wait.
const CONVERSIONS: usize = 4;
const SOURCE_CONVERSIONS: usize = 2;
/// Longest time of reading a request, so that no caller keeps others waiting.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The route of the webhook.
pub fn build_router() -> Router {
    Router::new().route(PATH, post(answer)).with_state(Permits::new(CONVERSIONS, SOURCE_CONVERSIONS))
}

async fn answer(
    State(permits): State<Permits<Source>>,
    ConnectInfo(remote): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let Some(_permit) = permits.acquire(&Source::from(remote.ip())).await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let Ok(read) = timeout(READ_TIMEOUT, to_bytes(request.into_body(), REVIEW_BYTES)).await else {
        return StatusCode::REQUEST_TIMEOUT.into_response();
    };
    let Ok(body) = read else { return StatusCode::PAYLOAD_TOO_LARGE.into_response() };
    // A large list takes longer than the other tasks of a thread may wait.
    match tokio::task::spawn_blocking(move || review(&body)).await {
        Ok(Ok(review)) => ([(CONTENT_TYPE, "application/json")], review).into_response(),
        Ok(Err(refused)) => (StatusCode::BAD_REQUEST, refused).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Answers a `ConversionReview`. Without its uid an API server takes no answer.
fn review(body: &Bytes) -> Result<Vec<u8>, String> {
    let review: ConversionReview = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut request = ConversionRequest::from_review(review).map_err(|error| error.to_string())?;
    let objects = std::mem::take(&mut request.objects);
    let converted = convert_objects(objects, &request.desired_api_version);
    let response = ConversionResponse::for_request(request);
    let response = match converted {
        Ok(objects) => response.success(objects),
        Err(message) => response.failure(Status::failure(&message, "Invalid").with_code(422)),
    };
    serde_json::to_vec(&response.into_review()).map_err(|error| error.to_string())
}

/// Converts all objects or none, in their order.
fn convert_objects(objects: Vec<Value>, target: &str) -> Result<Vec<Value>, String> {
    let convert = |object: Value| {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let name = format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
        convert_object(object, target).map_err(|error| {
            tracing::error!(object = name, target, %error, "object is not converted");
            format!("{name}: {error}")
        })
    };
    objects.into_iter().map(convert).collect()
}

#[cfg(test)]
mod tests;
