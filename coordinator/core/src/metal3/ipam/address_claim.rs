//! The change that is due for an `IPAddressClaim` of Cluster API on an `IPPool`.
//!
//! Its address is reserved like the address of an `IPClaim`: by creating the `IPAddress` of
//! Metal3 whose name is derived from the address. The claim then gets an `IPAddress` of Cluster
//! API with the name of the claim.

use coordinator_api::capi_ipam::{
    ADDRESS_FINALIZER, CLAIM_FINALIZER, IPAddress, IPAddressClaim, IPAddressClaimStatus, IPAddressSpec,
    NameRef,
};
use coordinator_api::conditions::{self, ConditionUpdate, Reason, Type, condition_false, condition_true};
use coordinator_api::metal3::ipam::{IPAddress as Reservation, IPPool};
use coordinator_api::names::kind;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt as _};

use super::{ClaimKind, Pool, address_name, chosen_address, find_pool, is_held_by, is_held_by_alone};

/// Inputs of a decision about a claim.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    pub claim: &'a IPAddressClaim,
    /// The claim or its Cluster is paused.
    pub is_paused: bool,
    pub pool: Option<&'a IPPool>,
    /// The `IPAddress` of Metal3 for the chosen address, even if another claim holds it.
    pub reserved: Option<&'a Reservation>,
    /// The `IPAddress` of Cluster API with the name of the claim.
    pub allocated: Option<&'a IPAddress>,
    pub now: Timestamp,
}

/// The one change that is due for a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum AddressClaimStep {
    Rest,
    /// Choose an address of the pool and record it on the claim.
    Choose(Pool),
    /// Reserve the chosen address.
    Reserve(Box<Reservation>),
    /// Create the `IPAddress` of Cluster API.
    Allocate(Box<IPAddress>),
    /// The `IPAddress` of Cluster API was deleted while the claim needs it: remove its finalizer,
    /// so that it is created again.
    Reallocate,
    Report(IPAddressClaimStatus),
    /// Delete the `IPAddress` of Cluster API and the `IPAddress` of Metal3 of this name, then
    /// remove the finalizer.
    Release(Option<String>),
}

/// The claim is on an `IPPool`.
pub fn is_ours(claim: &IPAddressClaim) -> bool {
    let pool = &claim.spec.pool_ref;
    (pool.api_group.as_str(), pool.kind.as_str()) == ("ipam.metal3.io", kind::IP_POOL)
}

pub fn decide_address_claim(situation: &Situation<'_>) -> AddressClaimStep {
    let Situation { claim, pool, .. } = *situation;
    if !is_ours(claim) || situation.is_paused {
        return AddressClaimStep::Rest;
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return release_address(situation);
    }
    let (name, chosen) = (&claim.spec.pool_ref.name, chosen_address(claim));
    let (pool, parsed) = match find_pool(pool, name, chosen.is_none()) {
        Ok(found) => found,
        Err(message) => return refuse(situation, Reason::AllocationFailed, message),
    };
    let Some(chosen) = chosen else { return AddressClaimStep::Choose(parsed) };
    let mut wanted = parsed.describe_address(pool, &claim.name_any(), chosen);
    wanted.spec.claim.kind = Some(ClaimKind::AddressClaim.as_str().to_owned());
    match situation.reserved {
        None => AddressClaimStep::Reserve(Box::new(wanted)),
        Some(held) if is_held_by(held, ClaimKind::AddressClaim, &claim.name_any(), name) => {
            allocate_address(situation, pool, &wanted)
        }
        Some(_) => AddressClaimStep::Choose(parsed),
    }
}

fn allocate_address(situation: &Situation<'_>, pool: &IPPool, wanted: &Reservation) -> AddressClaimStep {
    let claim = situation.claim;
    let Some(prefix) = wanted.spec.prefix else {
        let message = "the IPPool has no prefix for this address: set spec.prefix, or subnet of its range";
        return refuse(situation, Reason::AllocationFailed, message.to_owned());
    };
    let Some(allocated) = situation.allocated else {
        return AddressClaimStep::Allocate(Box::new(describe_address(claim, pool, wanted, prefix)));
    };
    let is_of_claim =
        allocated.spec.claim_ref.name == claim.name_any() && allocated.spec.pool_ref == claim.spec.pool_ref;
    if !is_of_claim || allocated.spec.address != wanted.spec.address {
        let message =
            format!("IPAddress {} exists and does not belong to this claim: delete it", allocated.name_any());
        return refuse(situation, Reason::AllocationFailed, message);
    }
    if allocated.metadata.deletion_timestamp.is_some() {
        return AddressClaimStep::Reallocate;
    }
    let ready = condition_true(Type::Ready, Reason::Available, "");
    report(situation, Some(NameRef { name: allocated.name_any() }), ready)
}

/// The `IPAddress` of Cluster API. By the contract of Cluster API the claim is its controller.
fn describe_address(claim: &IPAddressClaim, pool: &IPPool, wanted: &Reservation, prefix: i32) -> IPAddress {
    let controller = claim.owner_ref(&()).map(|owner| OwnerReference { controller: Some(true), ..owner });
    let mut address = IPAddress::new(
        &claim.name_any(),
        IPAddressSpec {
            claim_ref: NameRef { name: claim.name_any() },
            pool_ref: claim.spec.pool_ref.clone(),
            address: wanted.spec.address.clone(),
            prefix: Some(prefix),
            gateway: wanted.spec.gateway.clone(),
        },
    );
    address.metadata.labels.clone_from(&claim.metadata.labels);
    address.metadata.finalizers = Some(vec![ADDRESS_FINALIZER.to_owned()]);
    address.metadata.owner_references = Some(controller.into_iter().chain(pool.owner_ref(&())).collect());
    address
}

fn release_address(situation: &Situation<'_>) -> AddressClaimStep {
    let claim = situation.claim;
    if !is_held_by_alone(claim, CLAIM_FINALIZER) {
        return AddressClaimStep::Rest;
    }
    let name = situation.pool.zip(chosen_address(claim));
    AddressClaimStep::Release(name.map(|(pool, chosen)| address_name(&pool.spec.name_prefix, chosen)))
}

/// Reports why the claim has no address.
pub fn refuse(situation: &Situation<'_>, reason: Reason, message: String) -> AddressClaimStep {
    report(situation, None, condition_false(Type::Ready, reason, message))
}

fn report(situation: &Situation<'_>, address: Option<NameRef>, ready: ConditionUpdate) -> AddressClaimStep {
    let before = situation.claim.status.clone().unwrap_or_default();
    let mut status = IPAddressClaimStatus { address_ref: address, ..before.clone() };
    let generation = situation.claim.metadata.generation;
    conditions::set_conditions(&mut status.conditions, &[ready], generation, situation.now);
    if status == before { AddressClaimStep::Rest } else { AddressClaimStep::Report(status) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator_api::metal3::names;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    fn pool(spec: &Value) -> IPPool {
        let mut whole = json!({ "namePrefix": "net", "pools": [{ "start": "10.0.0.1", "end": "10.0.0.2" }] });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "apiVersion": "ipam.metal3.io/v1alpha1", "kind": "IPPool",
            "metadata": { "name": "pool", "namespace": "fleet", "uid": "uid-of-pool" }, "spec": whole,
        }))
        .unwrap()
    }

    fn with_prefix() -> IPPool {
        pool(&json!({ "prefix": 24, "gateway": "10.0.0.254" }))
    }

    #[allow(clippy::needless_pass_by_value, reason = "literals of tests")]
    fn claim(metadata: Value) -> IPAddressClaim {
        let mut object = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim",
            "metadata": { "name": "claim", "namespace": "fleet", "uid": "uid-of-claim" },
            "spec": { "poolRef": { "apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "pool" } },
        });
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        serde_json::from_value(object).unwrap()
    }

    fn chosen() -> IPAddressClaim {
        claim(json!({ "annotations": { names::CHOSEN_ADDRESS: "10.0.0.1" } }))
    }

    fn situation(claim: &IPAddressClaim) -> Situation<'_> {
        let now = Timestamp::UNIX_EPOCH;
        Situation { claim, is_paused: false, pool: None, reserved: None, allocated: None, now }
    }

    fn reserved(kind: Option<&str>) -> Reservation {
        let pool = with_prefix();
        let parsed = Pool::parse(&pool.spec).unwrap();
        let mut reserved = parsed.describe_address(&pool, "claim", "10.0.0.1".parse().unwrap());
        reserved.spec.claim.kind = kind.map(str::to_owned);
        reserved
    }

    /// The allocated address.
    fn allocated() -> IPAddress {
        let (pool, claim, held) = (with_prefix(), chosen(), reserved(Some("IPAddressClaim")));
        let situation = Situation { pool: Some(&pool), reserved: Some(&held), ..situation(&claim) };
        match decide_address_claim(&situation) {
            AddressClaimStep::Allocate(address) => *address,
            other => panic!("{other:?}"),
        }
    }

    fn name(step: &AddressClaimStep) -> String {
        match step {
            AddressClaimStep::Rest => "rest".into(),
            AddressClaimStep::Choose(_) => "choose".into(),
            AddressClaimStep::Reserve(address) => format!("reserve {}", address.name_any()),
            AddressClaimStep::Allocate(address) => format!("allocate {}", address.spec.address),
            AddressClaimStep::Reallocate => "reallocate".into(),
            AddressClaimStep::Report(status) => {
                let ready = &status.conditions[0];
                let address = status.address_ref.as_ref().map(|address| address.name.as_str());
                format!("report {} {} {}", address.unwrap_or("none"), ready.reason, ready.message)
            }
            AddressClaimStep::Release(address) => format!("release {}", address.as_deref().unwrap_or("none")),
        }
    }

    #[test]
    fn a_claim_goes_from_choice_to_address() {
        let (new, chosen, pool) = (claim(json!({})), chosen(), with_prefix());
        let (own, other) = (reserved(Some("IPAddressClaim")), reserved(None));
        let (address, mut gone) = (allocated(), allocated());
        gone.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let mut foreign = allocated();
        foreign.spec.address = "10.9.9.9".into();
        for (what, claim, reserved, allocated, want) in [
            ("new", &new, None, None, "choose"),
            ("chosen", &chosen, None, None, "reserve net-10-0-0-1"),
            ("an IPClaim of that name has it", &chosen, Some(&other), None, "choose"),
            ("reserved", &chosen, Some(&own), None, "allocate 10.0.0.1"),
            ("allocated", &chosen, Some(&own), Some(&address), "report claim Available "),
            ("the allocated one is deleted", &chosen, Some(&own), Some(&gone), "reallocate"),
            (
                "an address of its name",
                &chosen,
                Some(&own),
                Some(&foreign),
                "report none AllocationFailed IPAddress claim exists and does not belong to this claim: delete it",
            ),
        ] {
            let situation = Situation { pool: Some(&pool), reserved, allocated, ..situation(claim) };
            assert_eq!(name(&decide_address_claim(&situation)), want, "{what}");
        }
        let status = match decide_address_claim(&Situation {
            pool: Some(&pool),
            reserved: Some(&own),
            allocated: Some(&address),
            ..situation(&chosen)
        }) {
            AddressClaimStep::Report(status) => status,
            other => panic!("{other:?}"),
        };
        let mut reported = chosen.clone();
        reported.status = Some(status);
        let again = Situation {
            pool: Some(&pool),
            reserved: Some(&own),
            allocated: Some(&address),
            ..situation(&reported)
        };
        assert_eq!(decide_address_claim(&again), AddressClaimStep::Rest, "reported");
    }

    #[test]
    fn allocated_address_follows_the_contract() {
        let address = allocated();
        assert_eq!((address.name_any().as_str(), address.spec.claim_ref.name.as_str()), ("claim", "claim"));
        assert_eq!((address.spec.prefix, address.spec.gateway.as_deref()), (Some(24), Some("10.0.0.254")));
        assert_eq!(address.finalizers(), [ADDRESS_FINALIZER]);
        let owners = address.owner_references();
        assert_eq!((owners[0].kind.as_str(), owners[0].controller), ("IPAddressClaim", Some(true)));
        assert_eq!((owners[1].kind.as_str(), owners[1].controller), ("IPPool", None));
    }

    #[test]
    fn claims_without_a_usable_pool_say_why() {
        let (new, chosen) = (claim(json!({})), chosen());
        let mut deleted = with_prefix();
        deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let (invalid, bare) = (pool(&json!({ "gateway": "ten" })), pool(&json!({})));
        let own = reserved(Some("IPAddressClaim"));
        for (claim, pool, want) in [
            (&new, None, "create it"),
            (&new, Some(&invalid), "spec.gateway"),
            (&new, Some(&deleted), "is in deletion"),
            (&chosen, Some(&bare), "set spec.prefix"),
        ] {
            let situation = Situation { pool, reserved: Some(&own), ..situation(claim) };
            let step = name(&decide_address_claim(&situation));
            assert!(
                step.starts_with("report none AllocationFailed") && step.contains(want),
                "{want}: {step}"
            );
        }
    }

    #[test]
    fn other_claims_and_paused_ones_are_left_alone() {
        let mut foreign = claim(json!({}));
        foreign.spec.pool_ref.api_group = "ipam.cluster.x-k8s.io".into();
        let (own, pool) = (claim(json!({})), with_prefix());
        for (what, claim, is_paused) in [("another provider's", &foreign, false), ("paused", &own, true)] {
            let situation = Situation { pool: Some(&pool), is_paused, ..situation(claim) };
            assert_eq!(decide_address_claim(&situation), AddressClaimStep::Rest, "{what}");
        }
    }

    #[test]
    fn a_claim_in_deletion_gives_its_address_back() {
        let deleted = |finalizers: Value, annotations: Value| {
            claim(json!({
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers, "annotations": annotations,
            }))
        };
        let note = json!({ names::CHOSEN_ADDRESS: "10.0.0.1" });
        let pool = with_prefix();
        for (what, claim, want) in [
            ("with an address", deleted(json!([CLAIM_FINALIZER]), note.clone()), "release net-10-0-0-1"),
            ("without one", deleted(json!([CLAIM_FINALIZER]), json!({})), "release none"),
            ("still in use", deleted(json!([CLAIM_FINALIZER, "other"]), note.clone()), "rest"),
            ("released", deleted(json!(["other"]), note), "rest"),
        ] {
            let situation = Situation { pool: Some(&pool), ..situation(&claim) };
            assert_eq!(name(&decide_address_claim(&situation)), want, "{what}");
        }
    }
}
