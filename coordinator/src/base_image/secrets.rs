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

/// Authorities in `spec.baseImageCASecret`, as PEM.
pub(super) async fn read_authorities(
    client: Option<&Client>,
    wanted: &Wanted,
) -> Result<Option<String>, BaseImageError> {
    let Some(name) = &wanted.authority_secret else { return Ok(None) };
    let secret = read_secret(client, &wanted.namespace, name, "spec.baseImageCASecret").await?;
    let pem = secret.data.as_ref().and_then(|data| data.get(AUTHORITY_KEY));
    let pem = pem.map(|pem| String::from_utf8_lossy(&pem.0).into_owned());
    match pem {
        Some(pem) if !parse_authorities(&pem).is_empty() => Ok(Some(pem)),
        _ => Err(BaseImageError::AuthoritySecret { name: name.clone() }),
    }
}

/// Certificates in PEM; none if one of them is malformed.
pub(super) fn parse_authorities(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().unwrap_or_default()
}

async fn read_secret(
    client: Option<&Client>,
    namespace: &str,
    name: &str,
    field: &str,
) -> Result<Secret, BaseImageError> {
    let missing = BaseImageError::SecretMissing { name: name.to_owned(), field: field.to_owned() };
    let Some(client) = client else { return Err(missing) };
    match Api::namespaced(client.clone(), namespace).get_opt(name).await {
        Ok(secret) => secret.ok_or(missing),
        Err(error) => Err(BaseImageError::SecretUnread { name: name.to_owned(), source: Box::new(error) }),
    }
}
