//! Secrets that others write: bootstrap data, credentials of registries, metadata.

use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{Api, Client};
use proto::plan::Secret;

use super::StoreError;

/// Reads a Secret by name.
///
/// # Errors
/// When the API server does not answer.
pub async fn read_secret(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<KubeSecret>, StoreError> {
    let api: Api<KubeSecret> = Api::namespaced(client.clone(), namespace);
    api.get_opt(name).await.map_err(StoreError::request("get", "Secret", name))
}

/// Reads the first of these keys of a Secret; `None` if there is none.
///
/// # Errors
/// When the API server does not answer.
pub async fn read_key(
    client: &Client,
    namespace: &str,
    name: &str,
    keys: &[&str],
) -> Result<Option<Secret>, StoreError> {
    Ok(read_secret(client, namespace, name).await?.and_then(|secret| value_of(&secret, keys)))
}

pub fn value_of(secret: &KubeSecret, keys: &[&str]) -> Option<Secret> {
    let data = secret.data.as_ref()?;
    keys.iter().find_map(|key| data.get(*key)).map(|value| Secret::new(value.0.clone()))
}
