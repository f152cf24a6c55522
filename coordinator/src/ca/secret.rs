//! The Secret of the authority, which is created once.

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
/// Keys of cert-manager, whose `ca.crt` is the certificate of the issuer.
const ISSUED_CERTIFICATE: &str = "tls.crt";
const ISSUED_KEY: &str = "tls.key";

/// Reads the authority, or creates it if the Secret does not exist. If two replicas start at once, one
/// creates the Secret and the other reads that Secret.
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
                .ok_or_else(|| CaError::stored("it vanished while it was read"))?;
            parse_authority(&stored)
        }
        Err(source) => Err(CaError::Api { attempt: "create", source }),
    }
}

async fn read_secret(secrets: &Api<Secret>) -> Result<Option<Secret>, CaError> {
    secrets.get_opt(SECRET_NAME).await.map_err(|source| CaError::Api { attempt: "read", source })
}

pub(super) fn parse_authority(secret: &Secret) -> Result<Authority, CaError> {
    if read_text(secret, KEY).is_ok() || read_text(secret, ISSUED_KEY).is_err() {
        return Authority::parse(read_text(secret, CERTIFICATE)?, read_text(secret, KEY)?);
    }
    // The certificates behind the first are left out, because these authorities sign for others too.
    let issued = first_certificate(read_text(secret, ISSUED_CERTIFICATE)?);
    Authority::parse(issued, read_text(secret, ISSUED_KEY)?)
}

fn read_text<'a>(secret: &'a Secret, key: &str) -> Result<&'a str, CaError> {
    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
    let text = bytes.and_then(|bytes| std::str::from_utf8(&bytes.0).ok());
    text.ok_or_else(|| CaError::stored(format!("{key} is missing")))
}

fn render_secret(authority: &Authority) -> Secret {
    Secret {
        metadata: ObjectMeta { name: Some(SECRET_NAME.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([
            (CERTIFICATE.to_owned(), ByteString(authority.certificates().into())),
            (KEY.to_owned(), ByteString(authority.key_pem().into())),
        ])),
        // A changed authority rejects every host, so the Secret is immutable.
        immutable: Some(true),
        ..Secret::default()
    }
}
