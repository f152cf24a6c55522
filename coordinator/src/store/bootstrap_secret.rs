//! The Secret with the bootstrap data of a machine. It belongs to the bootstrap provider; one key
//! belongs to the coordinator.

use coordinator_core::plan::SECRET_BYTES;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use proto::plan::Secret;
use serde_json::json;

use super::{StoreError, open_api};

const KIND: &str = "Secret";
/// The type of the Secrets of Cluster API's providers. The admission policy allows no other type.
const TYPE: &str = "cluster.x-k8s.io/secret";
/// The bootstrap data in the form of the plan.
const RESOLVED: &str = "resolved-value";

/// Writes the bootstrap data of the plan beside the original. Sends no request if the data is
/// stored, if the Secret is none of Cluster API, if it cannot be changed, or if it has no room.
pub async fn write_resolved(
    client: &Client,
    secret: &KubeSecret,
    resolved: &Secret,
) -> Result<(), StoreError> {
    if !is_due(secret, resolved) {
        return Ok(());
    }
    let name = secret.name_any();
    let api: Api<KubeSecret> = open_api(client, secret);
    let patch = json!({
        "metadata": { "resourceVersion": secret.resource_version() },
        "data": { RESOLVED: ByteString(resolved.expose().to_vec()) },
    });
    let written = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    written.map(drop).map_err(StoreError::request("write resolved-value to", KIND, &name))
}

fn is_due(secret: &KubeSecret, resolved: &Secret) -> bool {
    let stored = secret.data.as_ref().and_then(|data| data.get(RESOLVED));
    let is_written = stored.is_some_and(|stored| stored.0 == resolved.expose());
    let others = secret.data.iter().flatten().filter(|(key, _)| *key != RESOLVED);
    let bytes = others.map(|(_, value)| value.0.len()).sum::<usize>() + resolved.expose().len();
    !is_written
        && bytes <= SECRET_BYTES
        && secret.type_.as_deref() == Some(TYPE)
        && secret.immutable != Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_secrets_that_may_change_are_written() {
        let resolved = Secret::new(b"x".to_vec());
        let known = |value: &[u8]| Some([(RESOLVED.to_owned(), ByteString(value.to_vec()))].into());
        let full = Some([("value".to_owned(), ByteString(vec![0; SECRET_BYTES]))].into());
        let of_provider = KubeSecret { type_: Some(TYPE.into()), ..KubeSecret::default() };
        for (name, secret, want) in [
            ("of a bootstrap provider", of_provider.clone(), true),
            ("with another value", KubeSecret { data: known(b"y"), ..of_provider.clone() }, true),
            ("written", KubeSecret { data: known(b"x"), ..of_provider.clone() }, false),
            ("immutable", KubeSecret { immutable: Some(true), ..of_provider }, false),
            ("of an operator", KubeSecret::default(), false),
            (
                "without room",
                KubeSecret { data: full, type_: Some(TYPE.into()), ..KubeSecret::default() },
                false,
            ),
        ] {
            assert_eq!(is_due(&secret, &resolved), want, "{name}");
        }
    }
}
