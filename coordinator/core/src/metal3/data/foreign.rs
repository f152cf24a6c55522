//! Addresses of pools of other providers, by the contract of Cluster API.

use std::collections::BTreeMap;

use coordinator_api::capi_ipam::{IPAddress, IPAddressClaim, IPAddressClaimSpec};
use coordinator_api::conditions::{Type, find_condition};
use coordinator_api::metal3::data::Metal3Data;
use coordinator_api::metal3::ipam::IPAddressSpec;
use coordinator_api::metal3::names;
use coordinator_api::names::label;
use kube::ResourceExt as _;

use super::PoolId;

/// Name of the claim of data on a pool of either kind.
pub fn claim_name(data: &Metal3Data, pool: &str) -> String {
    format!("{}-{pool}", data.name_any())
}

/// Labels of such a claim: those of the data, and the names of both.
pub fn claim_labels(data: &Metal3Data, pool: &str) -> BTreeMap<String, String> {
    let mut labels = data.labels().clone();
    labels.insert(names::DATA_NAME.to_owned(), data.name_any());
    labels.insert(names::POOL_NAME.to_owned(), pool.to_owned());
    labels
}

/// The claim of data on a pool of another provider.
pub fn foreign_claim(data: &Metal3Data, pool: &PoolId) -> IPAddressClaim {
    let spec = IPAddressClaimSpec {
        cluster_name: data.labels().get(label::CLUSTER_NAME).cloned(),
        pool_ref: pool.reference(),
    };
    let mut claim = IPAddressClaim::new(&claim_name(data, &pool.name), spec);
    claim.metadata.labels = Some(claim_labels(data, &pool.name));
    claim
}

/// The address of a claim, or a sentence that says what it waits for. `address` is the object that the claim
/// names.
pub fn read_foreign_address(
    data: &Metal3Data,
    pool: &PoolId,
    claim: &IPAddressClaim,
    address: Option<&IPAddress>,
) -> Result<IPAddressSpec, String> {
    let name = claim.name_any();
    if claim.labels().get(names::DATA_NAME) != Some(&data.name_any()) {
        return Err(format!("IPAddressClaim {name} exists and is not of this data: delete it"));
    }
    if claim.spec.pool_ref != pool.reference() {
        return Err(format!(
            "IPAddressClaim {name} is on another pool than {pool}, because two pools have one name: rename one of them"
        ));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("IPAddressClaim {name} is in deletion: wait until its provider released it"));
    }
    let status = claim.status.clone().unwrap_or_default();
    let Some(reference) = status.address_ref.filter(|reference| !reference.name.is_empty()) else {
        let ready = find_condition(&status.conditions, Type::Ready).filter(|ready| ready.status == "False");
        return Err(match ready {
            Some(ready) => {
                format!("IPAddressClaim {name} has no address: {}: {}", ready.reason, ready.message)
            }
            None => format!(
                "IPAddressClaim {name} has no address and no answer: see that {pool} exists and that its provider runs"
            ),
        });
    };
    let address = address.filter(|address| address.spec.claim_ref.name == name);
    let address = address.ok_or_else(|| {
        format!(
            "IPAddress {} of IPAddressClaim {name} does not exist yet: wait for its provider",
            reference.name
        )
    })?;
    Ok(IPAddressSpec {
        address: address.spec.address.clone(),
        prefix: address.spec.prefix,
        gateway: address.spec.gateway.clone(),
        ..IPAddressSpec::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator_api::capi_ipam::{IPAddressClaimStatus, IPAddressSpec as GivenSpec, NameRef};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    fn pool() -> PoolId {
        PoolId::new("net", Some("ipam.cluster.x-k8s.io"), Some("InClusterIPPool"))
    }

    fn data() -> Metal3Data {
        serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Data",
            "metadata": { "name": "workers-0", "namespace": "fleet", "labels": { label::CLUSTER_NAME: "c1" } },
            "spec": { "index": 0, "claim": { "name": "m-1" }, "template": { "name": "workers" } },
        }))
        .unwrap()
    }

    #[test]
    fn claims_follow_the_contract_of_cluster_api() {
        let claim = foreign_claim(&data(), &pool());
        assert_eq!(claim.name_any(), "workers-0-net");
        let found = serde_json::to_value(&claim.spec).unwrap();
        let reference =
            json!({ "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "net" });
        assert_eq!(found, json!({ "clusterName": "c1", "poolRef": reference }));
        assert_eq!(claim.labels()[names::DATA_NAME], "workers-0");
    }

    #[test]
    fn a_claim_says_what_it_waits_for() {
        type Change = fn(&mut IPAddressClaim);
        let refused = |reason: &str| {
            serde_json::from_value::<IPAddressClaimStatus>(json!({ "conditions": [{
                "type": "Ready", "status": "False", "reason": reason, "message": "the pool is full",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }] }))
            .unwrap()
        };
        let mut full = foreign_claim(&data(), &pool());
        full.status = Some(refused("PoolExhausted"));
        let found = read_foreign_address(&data(), &pool(), &full, None).unwrap_err();
        assert!(found.contains("PoolExhausted: the pool is full"), "{found}");
        let named = NameRef { name: "a".into() };
        let cases: [(&str, Change); 5] = [
            ("no answer: see that InClusterIPPool net of ipam.cluster.x-k8s.io exists", |_| {}),
            ("is not of this data", |claim| claim.metadata.labels = None),
            ("two pools have one name", |claim| claim.spec.pool_ref.kind = "GlobalInClusterIPPool".into()),
            ("is in deletion", |claim| {
                claim.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
            }),
            ("IPAddress a of IPAddressClaim workers-0-net does not exist yet", |claim| {
                let named = NameRef { name: "a".into() };
                claim.status = Some(IPAddressClaimStatus { address_ref: Some(named), ..Default::default() });
            }),
        ];
        for (want, change) in cases {
            let mut claim = foreign_claim(&data(), &pool());
            change(&mut claim);
            let found = read_foreign_address(&data(), &pool(), &claim, None).unwrap_err();
            assert!(found.contains(want), "{want}: {found}");
        }
        let mut claim = foreign_claim(&data(), &pool());
        claim.status = Some(IPAddressClaimStatus { address_ref: Some(named), ..Default::default() });
        let given = GivenSpec {
            claim_ref: NameRef { name: claim.name_any() },
            address: "10.1.0.5".into(),
            prefix: Some(16),
            ..GivenSpec::default()
        };
        let address = IPAddress::new("a", given);
        let found = read_foreign_address(&data(), &pool(), &claim, Some(&address)).unwrap();
        assert_eq!((found.address.as_str(), found.prefix), ("10.1.0.5", Some(16)));
    }
}
