//! The proven identity of a host, also in an annotation.
//!
//! A restore or a move brings an inventory back without its status. The key of a former tenant must not
//! pass as the first one of the host then, and the TPM of the host must not become needless.

use coordinator_api::inventory::{CertifiedKey, LiveTpm, MachineInventory};
use coordinator_api::names::annotation;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};

/// What is compared with the proofs of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownIdentity {
    /// The newest key that the host used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certified_key: Option<CertifiedKey>,
    /// Its TPM, as its live system quoted it.
    #[serde(rename = "liveTPM", default, skip_serializing_if = "Option::is_none")]
    pub live_tpm: Option<LiveTpm>,
}

impl KnownIdentity {
    /// Reads the status; where it knows no key, it was lost, and the annotation is read.
    pub fn of(inventory: &MachineInventory) -> Self {
        let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
        let shown = host.map_or_else(Self::default, |host| Self {
            certified_key: host.certified_key.clone(),
            live_tpm: host.live_tpm.clone(),
        });
        if shown.certified_key.is_some() {
            return shown;
        }
        let kept = inventory.annotations().get(annotation::HOST_IDENTITY);
        let kept: Self = kept.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Self { live_tpm: shown.live_tpm.or(kept.live_tpm), ..kept }
    }

    /// Text of the annotation; `None` if nothing is known.
    pub fn render(&self) -> Option<String> {
        (*self != Self::default()).then(|| serde_json::to_string(self).ok())?
    }
}

/// Writes into the status what it has lost.
pub fn recall_identity(inventory: &mut MachineInventory) {
    let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
    let is_lost = host.is_none_or(|host| host.certified_key.is_none());
    if is_lost && inventory.annotations().contains_key(annotation::HOST_IDENTITY) {
        let known = KnownIdentity::of(inventory);
        let host = inventory.status.get_or_insert_default().host.get_or_insert_default();
        (host.certified_key, host.live_tpm) = (known.certified_key, known.live_tpm);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::samples;

    #[test]
    fn identity_comes_back_without_the_status() {
        let key = |hash: &str| CertifiedKey { hash: hash.to_owned(), since: Time(Timestamp::UNIX_EPOCH) };
        let tpm = LiveTpm { attestation_key: "00".to_owned(), reset_count: 7, proves_renewals: true };
        let known = KnownIdentity { certified_key: Some(key("a")), live_tpm: Some(tpm) };
        let mut inventory = samples::inventory("host-1");
        assert_eq!(KnownIdentity::of(&inventory).render(), None);
        samples::annotate(&mut inventory, annotation::HOST_IDENTITY, &known.render().unwrap());

        inventory.status = None;
        assert_eq!(KnownIdentity::of(&inventory), known);
        let record = samples::record(&inventory);
        assert_eq!(
            (record.certified_key, record.live_tpm),
            (known.certified_key.clone(), known.live_tpm.clone())
        );
        recall_identity(&mut inventory);
        let host = inventory.status.as_ref().unwrap().host.as_ref().unwrap();
        assert_eq!((&host.certified_key, &host.live_tpm), (&known.certified_key, &known.live_tpm));

        samples::host_status(&mut inventory).certified_key = Some(key("b"));
        assert_eq!(KnownIdentity::of(&inventory).certified_key, Some(key("b")), "the status is newer");
        samples::annotate(&mut inventory, annotation::HOST_IDENTITY, "no JSON");
        inventory.status = None;
        assert_eq!(KnownIdentity::of(&inventory), KnownIdentity::default());
    }
}
