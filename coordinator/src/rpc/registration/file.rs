//! Answers a GET of the registration URL with the registration file, like the elemental operator. The
//! file has the URL and the CA certificate for the registration, and nothing else.
//!
//! Every wrong URL has the same answer, 404, because a guess must not learn if it was close.

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use coordinator_api::registration::{MachineRegistration, Registration};
use coordinator_core::inventory::admission::is_token_expired;
use coordinator_core::inventory::check_registration;
use http::{StatusCode, header};
use serde::Serialize;

use super::is_ready;
use crate::rpc::Context;

#[derive(Serialize)]
struct Document {
    elemental: Elemental,
}

#[derive(Serialize)]
struct Elemental {
    registration: Registration,
}

pub fn registration_router(context: Context) -> Router {
    Router::new().route("/elemental/registration/{token}", get(answer_request)).with_state(context)
}

async fn answer_request(State(context): State<Context>, Path(token): Path<String>) -> Response {
    let found = context.caches.tokens.find_object(&token);
    let found = found.and_then(|key| context.caches.registrations.get(&key)).filter(|found| {
        is_ready(found)
            && !is_token_expired(found, context.now())
            && check_registration(found).refusal().is_none()
    });
    match found.and_then(|found| render_file(&found, context.authority.certificates())) {
        Some(text) => ([(header::CONTENT_TYPE, "application/yaml")], text).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn render_file(registration: &MachineRegistration, authority: &str) -> Option<String> {
    let config = registration.spec.config.as_ref();
    let asked = config.and_then(|config| config.elemental.as_ref()?.registration.clone()).unwrap_or_default();
    let registration = Registration {
        url: registration.status.as_ref()?.registration_url.clone(),
        ca_cert: Some(authority.to_owned()),
        auth: asked.auth.or_else(|| Some("tpm".to_owned())),
        emulate_tpm: asked.emulate_tpm,
        emulated_tpm_seed: asked.emulated_tpm_seed,
        no_smbios: asked.no_smbios,
        ..Registration::default()
    };
    serde_norway::to_string(&Document { elemental: Elemental { registration } }).ok()
}
