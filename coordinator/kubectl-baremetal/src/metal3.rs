//! Kinds of Metal3 that have no conditions, and what their state follows from.

use coordinator_api::conditions::Reason;
use coordinator_api::explain::Attention;
use coordinator_api::metal3::names;

use crate::finding::Finding;
use crate::fleet::{Fleet, Id, Object};
use crate::kind::Kind;

/// First word of the message of a pool without a free address.
const EXHAUSTED: &str = "Exhausted";

/// Of a kind whose status says in `errorMessage` what is missing.
pub(crate) fn find_reported(object: &Object) -> Finding {
    let status = object.status();
    let is_done = match object.id.kind {
        Kind::IPClaim => status["address"]["name"].is_string(),
        Kind::Metal3DataClaim => status["renderedData"]["name"].is_string(),
        _ => status["ready"] == true,
    };
    let words = status["errorMessage"].as_str().unwrap_or_default().split_whitespace();
    let message = words.collect::<Vec<_>>().join(" ");
    let reason = match object.id.kind {
        Kind::IPClaim if message.starts_with(EXHAUSTED) => Reason::PoolExhausted,
        Kind::IPClaim => Reason::AllocationFailed,
        _ => Reason::WaitingForMetal3Data,
    };
    match () {
        () if !message.is_empty() => Finding {
            attention: Attention::Act,
            condition: None,
            reason: reason.as_str().to_owned(),
            message,
            since: None,
        },
        () if is_done => Finding::fine(""),
        () => Finding::without_status(),
    }
}

/// The objects that the state of an address or of data follows from.
pub(crate) fn list_causes(fleet: &Fleet, object: &Object) -> Vec<Id> {
    let name = object.id.name.as_str();
    let of = |kind: Kind, is_cause: &dyn Fn(&Object) -> bool| -> Vec<Id> {
        let objects = fleet.of(kind).filter(|one| one.id.namespace == object.id.namespace && is_cause(one));
        objects.map(|one| one.id.clone()).collect()
    };
    match object.id.kind {
        Kind::Metal3Machine => of(Kind::Metal3DataClaim, &|claim| claim.id.name == name),
        Kind::Metal3DataClaim => of(Kind::Metal3Data, &|data| data.spec()["claim"]["name"] == name),
        Kind::Metal3Data => of(Kind::IPClaim, &|claim| claim.label(names::DATA_NAME) == Some(name)),
        Kind::IPClaim | Kind::IPAddressClaim => {
            let pool =
                ["pool", "poolRef"].into_iter().find_map(|field| object.spec()[field]["name"].as_str());
            let pool = pool.map(|pool| Id::new(Kind::IPPool, &object.id.namespace, pool));
            let cluster = object.cluster().filter(|id| fleet.get(id).is_some_and(Object::is_paused));
            cluster.into_iter().chain(pool).collect()
        }
        Kind::Metal3Remediation => host_of_remediation(fleet, object).into_iter().collect(),
        _ => vec![],
    }
}

/// The host of the Machine that is remediated.
fn host_of_remediation(fleet: &Fleet, remediation: &Object) -> Option<Id> {
    let owners = remediation.data.metadata.owner_references.iter().flatten();
    let owner = owners.into_iter().find(|owner| owner.kind == Kind::Machine.name())?;
    let machine = fleet.get(&Id::new(Kind::Machine, &remediation.id.namespace, &owner.name))?;
    fleet.get(&machine.infrastructure()?)?.bare_metal_host()
}
