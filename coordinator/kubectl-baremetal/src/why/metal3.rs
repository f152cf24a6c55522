//! Findings and causes of Metal3's kinds, most of which have no conditions.

use coordinator_api::conditions::Reason;
use coordinator_api::explain::Attention;
use coordinator_api::metal3::names;

use super::finding::{Finding, find_in_conditions};
use crate::fleet::{Fleet, Id, Kind, Object, join_words};

/// First word of the message of a pool without a free address.
const EXHAUSTED: &str = "Exhausted";

/// The finding of a kind whose status has an `errorMessage` and no conditions.
pub(super) fn find_reported(object: &Object) -> Finding {
    let status = object.status();
    let message = join_words(&status["errorMessage"]);
    if !message.is_empty() {
        let reason = match object.id.kind {
            Kind::IPClaim if message.starts_with(EXHAUSTED) => Reason::PoolExhausted,
            Kind::IPClaim => Reason::AllocationFailed,
            _ => Reason::WaitingForMetal3Data,
        };
        return Finding::act(reason.as_str(), &message);
    }
    let is_done = match object.id.kind {
        Kind::IPClaim => status["address"]["name"].is_string(),
        Kind::Metal3DataClaim => status["renderedData"]["name"].is_string(),
        _ => status["ready"] == true,
    };
    if is_done { Finding::fine("") } else { Finding::without_status() }
}

pub(super) fn find_bare_metal_host(object: &Object) -> Finding {
    let finding = find_in_conditions(object, true);
    let message = join_words(&object.status()["errorMessage"]);
    if finding.attention == Attention::Act || message.is_empty() {
        return finding;
    }
    Finding { attention: Attention::Act, message, ..finding }
}

/// The objects from which the state of an address, of data or of a remediation follows.
pub(super) fn list_causes(fleet: &Fleet, object: &Object) -> Vec<Id> {
    let name = object.id.name.as_str();
    match object.id.kind {
        Kind::Metal3Machine => list_of(fleet, object, Kind::Metal3DataClaim, |claim| claim.id.name == name),
        Kind::Metal3DataClaim => {
            list_of(fleet, object, Kind::Metal3Data, |data| data.spec()["claim"]["name"] == name)
        }
        Kind::Metal3Data => {
            list_of(fleet, object, Kind::IPClaim, |claim| claim.label(names::DATA_NAME) == Some(name))
        }
        Kind::IPClaim | Kind::IPAddressClaim => {
            let mut fields = ["pool", "poolRef"].into_iter();
            let pool = fields.find_map(|field| object.spec()[field]["name"].as_str());
            let pool = pool.map(|pool| Id::new(Kind::IPPool, &object.id.namespace, pool));
            let cluster = object.cluster().filter(|id| fleet.get(id).is_some_and(Object::is_paused));
            cluster.into_iter().chain(pool).collect()
        }
        Kind::Metal3Remediation => host_of_remediation(fleet, object).into_iter().collect(),
        _ => vec![],
    }
}

fn list_of(fleet: &Fleet, object: &Object, kind: Kind, is_cause: impl Fn(&Object) -> bool) -> Vec<Id> {
    let objects = fleet.of_namespace(kind, &object.id.namespace).filter(|one| is_cause(one));
    objects.map(|one| one.id.clone()).collect()
}

/// The host of the Machine that is remediated.
fn host_of_remediation(fleet: &Fleet, remediation: &Object) -> Option<Id> {
    let mut owners = remediation.data.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.kind == Kind::Machine.name())?;
    let machine = fleet.get(&Id::new(Kind::Machine, &remediation.id.namespace, &owner.name))?;
    fleet.get(&machine.infrastructure()?)?.bare_metal_host()
}
