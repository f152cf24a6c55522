//! Secrets that a base needs, read by name when the base is fetched.

use coordinator_core::seed_image::pull_secret::{Credentials, find_credentials};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use oci_spec::distribution::Reference;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::{BaseImageError, Wanted};

const AUTHORITY_KEY: &str = "ca.crt";

/// Credentials for the image in `spec.baseImagePullSecret`.
pub(super) async fn read_credentials(
    client: Option<&Client>,
    wanted: &Wanted,
    image: &Reference,
) -> Result<Option<Credentials>, BaseImageError> {
    let Some(name) = &wanted.pull_secret else { return Ok(None) };
    let secret = read_secret(client, &wanted.namespace, name, "spec.baseImagePullSecret").await?;
    let found = find_credentials(&secret, image);
    found.map(Some).map_err(|source| BaseImageError::PullSecret { name: name.clone(), source })
}

/// Authorities in `spec.baseImageCASecret`.
pub(super) async fn read_authorities(
    client: Option<&Client>,
    wanted: &Wanted,
) -> Result<Vec<CertificateDer<'static>>, BaseImageError> {
    let Some(name) = &wanted.authority_secret else { return Ok(vec![]) };
    let secret = read_secret(client, &wanted.namespace, name, "spec.baseImageCASecret").await?;
    let pem = secret.data.as_ref().and_then(|data| data.get(AUTHORITY_KEY));
    let read = pem.map(|pem| CertificateDer::pem_slice_iter(&pem.0).collect::<Result<Vec<_>, _>>());
    match read {
        Some(Ok(found)) if !found.is_empty() => Ok(found),
        _ => Err(BaseImageError::AuthoritySecret { name: name.clone() }),
    }
}

async fn read_secret(
    client: Option<&Client>,
    namespace: &str,
    name: &str,
    field: &'static str,
) -> Result<Secret, BaseImageError> {
    let missing = BaseImageError::SecretMissing { name: name.to_owned(), field };
    let Some(client) = client else { return Err(missing) };
    match Api::namespaced(client.clone(), namespace).get_opt(name).await {
        Ok(secret) => secret.ok_or(missing),
        Err(error) => Err(BaseImageError::SecretUnread { name: name.to_owned(), source: Box::new(error) }),
    }
}
