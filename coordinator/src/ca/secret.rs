//! Where the authority is kept: one Secret, made once.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};

use super::{Authority, CaError, first_certificate};

/// Name of the Secret, in the coordinator's own namespace.
pub const SECRET_NAME: &str = "baremetal-coordinator-ca";
const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";
/// As cert-manager has them; its `ca.crt` is who issued the certificate.
const ISSUED_CERTIFICATE: &str = "tls.crt";
const ISSUED_KEY: &str = "tls.key";

/// Reads the authority, or makes it when there is none. Of two replicas that
/// start at once one creates the Secret, and the other reads what it made.
pub async fn read_or_create(secrets: &Api<Secret>, now: Timestamp) -> Result<Authority, CaError> {
    if let Some(stored) = read_secret(secrets).await? {
        return parse_authority(&stored);
    }
    let made = Authority::generate(now)?;
    match secrets.create(&PostParams::default(), &render_secret(&made)).await {
        Ok(_) => Ok(made),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let stored = read_secret(secrets)
                .await?
                .ok_or_else(|| CaError::Stored { reason: "it vanished while it was read".to_owned() })?;
            parse_authority(&stored)
        }
        Err(source) => Err(CaError::Api { attempt: "create", source }),
    }
}

async fn read_secret(secrets: &Api<Secret>) -> Result<Option<Secret>, CaError> {
    secrets.get_opt(SECRET_NAME).await.map_err(|source| CaError::Api { attempt: "read", source })
}

pub(super) fn parse_authority(secret: &Secret) -> Result<Authority, CaError> {
    let text = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        let text = bytes.and_then(|bytes| std::str::from_utf8(&bytes.0).ok());
        text.ok_or_else(|| CaError::Stored { reason: format!("{key} is missing") })
    };
    if text(KEY).is_ok() || text(ISSUED_KEY).is_err() {
        return Authority::parse(text(CERTIFICATE)?, text(KEY)?);
    }
    // Those behind it sign for others too: hosts are to trust this one alone.
    Authority::parse(first_certificate(text(ISSUED_CERTIFICATE)?), text(ISSUED_KEY)?)
}

fn render_secret(authority: &Authority) -> Secret {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    Secret {
        metadata: ObjectMeta { name: Some(SECRET_NAME.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([
            (CERTIFICATE.to_owned(), bytes(authority.certificates())),
            (KEY.to_owned(), bytes(&authority.key_pem())),
        ])),
        // A changed authority rejects every host, so the Secret is immutable.
        immutable: Some(true),
        ..Secret::default()
    }
}
