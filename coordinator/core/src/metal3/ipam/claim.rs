//! The change that is due for an `IPClaim`, and the status of an `IPPool`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use coordinator_api::conditions::{self, Reason, Type, condition_false, condition_true};
use coordinator_api::metal3::ipam::{IPAddress, IPClaim, IPClaimStatus, IPPool, IPPoolStatus};
use coordinator_api::metal3::{ObjectRef, names};
use coordinator_api::names::label;
use coordinator_api::object::Namespace;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::{ClaimKind, Pool, address_name, chosen_address, find_pool, is_held_by, is_held_by_alone};

/// The one change that is due for a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimStep {
    Rest,
    /// Choose an address of the pool and record it on the claim, before any object is created.
    Choose(Pool),
    /// Create the object of the recorded address.
    Create(Box<IPAddress>),
    Report(IPClaimStatus),
    /// Delete the address of this name, then remove the finalizer.
    Release(Option<String>),
}

/// Decides. `find_address` finds an `IPAddress` by its name.
pub fn decide_claim<'a>(
    claim: &IPClaim,
    pool: Option<&IPPool>,
    find_address: impl Fn(&str) -> Option<&'a IPAddress>,
) -> ClaimStep {
    let chosen = chosen_address(claim);
    if claim.metadata.deletion_timestamp.is_some() {
        return release_address(claim, pool, chosen);
    }
    let name = &claim.spec.pool.name;
    let (pool, parsed) = match find_pool(pool, name, chosen.is_none()) {
        Ok(found) => found,
        Err(message) => return refuse(claim, message),
    };
    let Some(chosen) = chosen else { return ClaimStep::Choose(parsed) };
    match find_address(&address_name(&pool.spec.name_prefix, chosen)) {
        None => ClaimStep::Create(Box::new(parsed.describe_address(pool, &claim.name_any(), chosen))),
        Some(address) if is_of_claim(address, claim) => {
            let reference = ObjectRef::within(&Namespace::of(claim), &address.name_any());
            report(claim, IPClaimStatus { address: Some(reference), error_message: None })
        }
        Some(_) => ClaimStep::Choose(parsed),
    }
}

fn is_of_claim(address: &IPAddress, claim: &IPClaim) -> bool {
    is_held_by(address, ClaimKind::Claim, &claim.name_any(), &claim.spec.pool.name)
}

fn release_address(claim: &IPClaim, pool: Option<&IPPool>, chosen: Option<IpAddr>) -> ClaimStep {
    if !is_held_by_alone(claim, names::CLAIM_FINALIZER) {
        return ClaimStep::Rest;
    }
    let reported = claim.status.as_ref().and_then(|status| status.address.as_ref());
    let reported = reported.map(|address| address.name.clone());
    let derived = chosen.zip(pool).map(|(chosen, pool)| address_name(&pool.spec.name_prefix, chosen));
    ClaimStep::Release(derived.or(reported))
}

fn refuse(claim: &IPClaim, message: String) -> ClaimStep {
    let address = claim.status.as_ref().and_then(|status| status.address.clone());
    report(claim, IPClaimStatus { address, error_message: Some(message) })
}

fn report(claim: &IPClaim, status: IPClaimStatus) -> ClaimStep {
    if claim.status.as_ref() == Some(&status) { ClaimStep::Rest } else { ClaimStep::Report(status) }
}

/// Labels of a pool that belongs to a Cluster.
pub fn labels_of_pool(pool: &IPPool) -> BTreeMap<&'static str, &str> {
    let cluster = pool.spec.cluster_name.as_deref();
    cluster.map_or_else(BTreeMap::new, |name| [(label::CLUSTER_NAME, name), names::PROVIDER].into())
}

/// The status of a pool; `used` has the used addresses with the names of their claims.
pub fn project_pool(pool: &IPPool, used: Vec<(IpAddr, String)>, now: Timestamp) -> IPPoolStatus {
    let mut status = pool.status.clone().unwrap_or_default();
    let checked = Pool::parse(&pool.spec).and_then(|parsed| parsed.check(&used));
    let indexes = used.into_iter().map(|(address, claim)| (claim, address.to_string())).collect();
    if status.indexes != indexes {
        status.indexes = indexes;
        status.last_updated = Some(Time(now));
    }
    let ready = match checked {
        Ok(()) => condition_true(Type::Ready, Reason::Available, ""),
        Err(error) => condition_false(Type::Ready, Reason::PoolInvalid, error.to_string()),
    };
    conditions::set_conditions(&mut status.conditions, &[ready], pool.metadata.generation, now);
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pool() -> IPPool {
        serde_json::from_value(json!({
            "apiVersion": "ipam.metal3.io/v1alpha1", "kind": "IPPool",
            "metadata": { "name": "pool", "namespace": "fleet" },
            "spec": { "namePrefix": "net", "pools": [{ "start": "10.0.0.1", "end": "10.0.0.2" }] },
        }))
        .unwrap()
    }

    #[allow(clippy::needless_pass_by_value, reason = "literals of tests")]
    fn claim(metadata: Value, status: Value) -> IPClaim {
        let mut object = json!({
            "apiVersion": "ipam.metal3.io/v1alpha1", "kind": "IPClaim",
            "metadata": { "name": "claim", "namespace": "fleet" },
            "spec": { "pool": { "name": "pool" } },
        });
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        if !status.is_null() {
            object["status"] = status;
        }
        serde_json::from_value(object).unwrap()
    }

    fn address(claim: &str) -> IPAddress {
        let pool = pool();
        Pool::parse(&pool.spec).unwrap().describe_address(&pool, claim, "10.0.0.1".parse().unwrap())
    }

    fn name(step: &ClaimStep) -> String {
        match step {
            ClaimStep::Rest => "rest".into(),
            ClaimStep::Choose(_) => "choose".into(),
            ClaimStep::Create(address) => format!("create {}", address.name_any()),
            ClaimStep::Report(status) => {
                let error = status.error_message.as_deref().unwrap_or_default();
                let address = status.address.as_ref().map(|address| address.name.clone()).unwrap_or_default();
                format!("report {address}{error}")
            }
            ClaimStep::Release(address) => format!("release {}", address.as_deref().unwrap_or("nothing")),
        }
    }

    #[test]
    fn address_claim_steps_from_choice_to_release() {
        let chosen = json!({ "annotations": { names::CHOSEN_ADDRESS: "10.0.0.1" } });
        let reported = json!({ "address": { "name": "net-10-0-0-1", "namespace": "fleet" } });
        let deleted = |finalizers: Value, annotations: Value| json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers, "annotations": annotations });
        let ours = json!([names::CLAIM_FINALIZER]);
        let note = json!({ names::CHOSEN_ADDRESS: "10.0.0.1" });
        for (what, metadata, status, existing, want) in [
            ("new", json!({}), Value::Null, None, "choose"),
            ("chosen", chosen.clone(), Value::Null, None, "create net-10-0-0-1"),
            ("created", chosen.clone(), Value::Null, Some("claim"), "report net-10-0-0-1"),
            ("taken by another", chosen.clone(), Value::Null, Some("other"), "choose"),
            ("an IPAddressClaim of that name has it", chosen.clone(), Value::Null, Some("foreign"), "choose"),
            ("reported", chosen.clone(), reported.clone(), Some("claim"), "rest"),
            ("its object was deleted", chosen.clone(), reported.clone(), None, "create net-10-0-0-1"),
            (
                "deleted",
                deleted(ours.clone(), note.clone()),
                Value::Null,
                Some("claim"),
                "release net-10-0-0-1",
            ),
            (
                "deleted, restored without status",
                deleted(ours.clone(), note.clone()),
                Value::Null,
                None,
                "release net-10-0-0-1",
            ),
            (
                "deleted, written by another manager",
                deleted(ours.clone(), json!({})),
                reported,
                None,
                "release net-10-0-0-1",
            ),
            ("deleted, never chosen", deleted(ours, json!({})), Value::Null, None, "release nothing"),
            (
                "deleted and in use",
                deleted(json!([names::CLAIM_FINALIZER, "other"]), note),
                Value::Null,
                Some("claim"),
                "rest",
            ),
        ] {
            let existing = existing.map(|holder| match holder {
                "foreign" => {
                    let mut foreign = address("claim");
                    foreign.spec.claim.kind = Some("IPAddressClaim".into());
                    foreign
                }
                holder => address(holder),
            });
            let (claim, pool) = (claim(metadata, status), pool());
            let step = decide_claim(&claim, Some(&pool), |name| {
                existing.as_ref().filter(|address| address.name_any() == name)
            });
            assert_eq!(name(&step), want, "{what}");
        }
    }

    #[test]
    fn claims_without_a_usable_pool_say_why() {
        let claim = claim(json!({}), Value::Null);
        let mut invalid = pool();
        invalid.spec.pools[0].start = Some("ten".into());
        let mut deleted = pool();
        deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        for (pool, want) in
            [(None, "create it"), (Some(&invalid), "spec.pools[0].start"), (Some(&deleted), "is in deletion")]
        {
            let step = name(&decide_claim(&claim, pool, |_| None));
            assert!(step.starts_with("report ") && step.contains(want), "{want}: {step}");
        }
    }

    #[test]
    fn the_status_of_a_pool_lists_its_claims() {
        let now = Timestamp::UNIX_EPOCH;
        let used = vec![("10.0.0.1".parse().unwrap(), "claim".to_owned())];
        let status = project_pool(&pool(), used.clone(), now);
        assert_eq!(status.indexes.get("claim").map(String::as_str), Some("10.0.0.1"));
        assert_eq!(status.last_updated, Some(Time(now)));
        let mut again = pool();
        again.status = Some(status.clone());
        let later = Timestamp::from_second(9).unwrap();
        assert_eq!(project_pool(&again, used, later), status, "nothing changed");
        for (want, change) in [
            ("spec.pools[0].start", json!([{ "start": "ten" }])),
            ("10.0.0.1 of claim claim is in no range", json!([{ "start": "10.0.0.2", "end": "10.0.0.3" }])),
            (
                "spec.pools[0] and spec.pools[2]",
                json!([{ "start": "10.0.0.1", "end": "10.0.0.9" }, { "subnet": "2001:db8::/64" }, { "subnet": "10.0.0.8/30" }]),
            ),
        ] {
            again.spec.pools = serde_json::from_value(change).unwrap();
            let ready = project_pool(&again, vec![("10.0.0.1".parse().unwrap(), "claim".to_owned())], later)
                .conditions
                .remove(0);
            assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "PoolInvalid"));
            assert!(ready.message.contains(want), "{want}: {}", ready.message);
        }
    }
}
