//! The Secret with the token of a registration. It is read by name and never listed, and no object
//! owns it, so that it outlives a restore.

use std::collections::BTreeMap;

use coordinator_api::names::{annotation, label, registration_secret};
use coordinator_api::registration::MachineRegistration;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::{StoreError, patch};
use crate::key::Namespace;

const KIND: &str = "Secret";

/// A token and the Secret that holds it.
pub struct Token {
    pub token: String,
    secret: Secret,
}

/// The name of the Secret of a registration.
pub fn secret_name(registration: &str) -> String {
    format!("{registration}{}", registration_secret::SUFFIX)
}

/// Reads the token, which becomes that of the spec if the spec names one. A missing Secret is
/// created, with the token that the status shows, if any.
///
/// # Errors
/// [`StoreError::Taken`] if the Secret holds no token.
pub async fn ensure(client: &Client, registration: &MachineRegistration) -> Result<Token, StoreError> {
    let name = secret_name(&registration.name_any());
    let namespace = Namespace::of(registration);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let found = secrets.get_opt(&name).await.map_err(StoreError::request("get", KIND, &name))?;
    let fixed = registration.spec.token.clone().filter(|token| !token.is_empty());
    if let Some(secret) = found {
        let not_ours = StoreError::Taken { kind: KIND, name, why: "holds no registration token" };
        let stored = parse(secret).ok_or(not_ours)?;
        return match fixed.filter(|token| *token != stored.token) {
            Some(token) => store_token(client, registration, stored, token).await,
            None => Ok(stored),
        };
    }
    let shown = registration.status.as_ref().and_then(|status| status.registration_token.clone());
    let token = fixed.or(shown.filter(|token| !token.is_empty())).unwrap_or_else(generate);
    let secret = secrets.create(&PostParams::default(), &render(&name, &token)).await;
    let secret = secret.map_err(StoreError::request("create", KIND, &name))?;
    Ok(Token { token, secret })
}

/// Replaces the token that `stored` holds.
pub async fn replace(
    client: &Client,
    registration: &MachineRegistration,
    stored: Token,
) -> Result<String, StoreError> {
    store_token(client, registration, stored, generate()).await.map(|stored| stored.token)
}

async fn store_token(
    client: &Client,
    registration: &MachineRegistration,
    stored: Token,
    token: String,
) -> Result<Token, StoreError> {
    let mut secret = stored.secret;
    secret.metadata.namespace = registration.namespace();
    let data = json!({ registration_secret::TOKEN: ByteString(token.clone().into_bytes()) });
    let secret = patch(client, &secret, "replace the token of", json!({ "data": data })).await?;
    Ok(Token { token, secret })
}

/// Removes the annotation that asks for another token.
///
/// # Errors
/// Conflict when the registration has changed.
pub async fn clear_rotation(client: &Client, registration: &MachineRegistration) -> Result<(), StoreError> {
    let change = json!({ "metadata": { "annotations": { annotation::ROTATE_TOKEN: null } } });
    patch(client, registration, "clear annotation rotate-token of", change).await.map(drop)
}

fn parse(secret: Secret) -> Option<Token> {
    let bytes = secret.data.as_ref()?.get(registration_secret::TOKEN)?;
    let token = std::str::from_utf8(&bytes.0).ok()?.trim().to_owned();
    let is_token = secret.type_.as_deref() == Some(registration_secret::TYPE) && !token.is_empty();
    is_token.then_some(Token { token, secret })
}

fn render(name: &str, token: &str) -> Secret {
    let token = ByteString(token.as_bytes().to_vec());
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([
                (label::MANAGED.to_owned(), "true".to_owned()),
                (label::CLUSTERCTL_MOVE.to_owned(), String::new()),
            ])),
            ..ObjectMeta::default()
        },
        type_: Some(registration_secret::TYPE.to_owned()),
        data: Some(BTreeMap::from([(registration_secret::TOKEN.to_owned(), token)])),
        ..Secret::default()
    }
}

fn generate() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
