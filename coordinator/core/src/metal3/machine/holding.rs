//! The host of a machine, whichever name of the other one either of them has lost. A machine has one host,
//! so that a second one is neither claimed nor released.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::explain::EventReason;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::Metal3Machine;
use coordinator_api::metal3::{Consumer, names};
use coordinator_api::names::{annotation, kind, label};
use coordinator_api::object::Namespace;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::provision::{change_host, describe_state};
use super::{Outcome, Situation, Step, is_pinned, named_host};
use crate::problem::{Blocker, Problem};
use crate::provider_id::ProviderId;

/// A machine, and the `BareMetalHost` that has its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    pub host: String,
    pub machine: String,
}

impl Stated {
    /// The machine of the node that an inventory states, or for which it was claimed. Both outlive the
    /// names in the `BareMetalHost`. An abandoned host was given up by its machine.
    pub fn of_inventory(inventory: &MachineInventory) -> Option<Self> {
        if inventory.annotations().contains_key(annotation::ABANDONED) {
            return None;
        }
        let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
        let node = host.and_then(|host| host.carried.as_ref()?.node.as_ref());
        let of_node =
            node.and_then(|node| Self::of_provider_id(&Namespace::of(inventory), &node.provider_id));
        of_node.or_else(|| {
            let claim = inventory.claim().filter(|claim| claim.kind == kind::BARE_METAL_HOST)?;
            let stated = Self { host: claim.baremetal_machine, machine: claim.machine };
            // A host without a machine has its own name there.
            (stated.machine != stated.host && !stated.machine.is_empty()).then_some(stated)
        })
    }

    fn of_provider_id(namespace: &str, provider_id: &str) -> Option<Self> {
        let provider_id = ProviderId::parse(provider_id)?;
        let [of_namespace, host, machine] = provider_id.metal3_names()?;
        (of_namespace == namespace).then(|| Self { host: host.to_owned(), machine: machine.to_owned() })
    }
}

/// The machine of the node that ran when the host was provisioned, if the host lost its `consumerRef`.
pub(super) fn recorded_machine(host: &BareMetalHost) -> Option<String> {
    if host.spec.consumer_ref.is_some() {
        return None;
    }
    let provider_id = host.annotations().get(names::PROVIDER_ID)?;
    let stated = Stated::of_provider_id(&Namespace::of(host), provider_id)?;
    (stated.host == host.name_any()).then_some(stated.machine)
}

/// The machine has the finalizer that keeps it until its host is released.
fn is_held(machine: &Metal3Machine) -> bool {
    machine.finalizers().iter().any(|name| name == names::MACHINE_FINALIZER)
}

/// A machine that names its host gets its finalizer before all else.
pub(super) fn needs_finalizer(machine: &Metal3Machine) -> bool {
    let is_deleted = machine.metadata.deletion_timestamp.is_some();
    !is_deleted && named_host(machine).is_some() && !is_held(machine)
}

/// The step that is due before machine and host name each other, and no other host names the machine.
pub(super) fn settle_host(situation: &Situation<'_>) -> Option<Outcome> {
    let machine = situation.machine;
    let is_deleted = machine.metadata.deletion_timestamp.is_some();
    if is_deleted && !is_held(machine) {
        return None;
    }
    let named = named_host(machine);
    let others: Vec<_> = situation.owned.iter().filter(|host| Some(host.as_str()) != named).collect();
    match (named, &others[..]) {
        (_, []) => {}
        (None, [host]) => return Some(Outcome::of_step(Step::NameHost((*host).clone()))),
        // Another host than the named one is to be released.
        (Some(named), [host]) if is_deleted && !situation.owns(named) => {
            return Some(Outcome::of_step(Step::NameHost((*host).clone())));
        }
        (Some(named), [host]) if is_late_choice(situation, named) => {
            return Some(Outcome::of_step(Step::NameHost((*host).clone())));
        }
        (named, others) => return Some(Outcome::of_blocker(several_hosts(named, others))),
    }
    let host = situation.host.filter(|host| host.spec.consumer_ref.is_none())?;
    let is_lost = situation.owns(&host.name_any()) || has_data_of(situation, host);
    is_lost.then(|| change_host(consumer_change(situation), EventReason::HostAssociated))
}

/// A replica that had not seen the claim of another host chose this one, and nothing was done with it.
fn is_late_choice(situation: &Situation<'_>, named: &str) -> bool {
    let machine = situation.machine;
    let is_chosen = !is_pinned(machine) && machine.spec.provider_id.is_none();
    let is_used =
        situation.host.is_some_and(|host| host.spec.consumer_ref.is_some() || has_data_of(situation, host));
    is_chosen && !situation.owns(named) && !is_used
}

/// The host was given the bootstrap data of the machine, which chose it. Its manager may be another one,
/// so that no inventory tells.
fn has_data_of(situation: &Situation<'_>, host: &BareMetalHost) -> bool {
    let given = host.spec.user_data.as_ref().and_then(|secret| secret.name.as_ref());
    let own = situation.owner.and_then(|owner| owner.spec.bootstrap.data_secret_name.as_ref());
    !is_pinned(situation.machine) && host.spec.image.is_some() && given.is_some() && given == own
}

/// Makes the machine the consumer of a host.
pub(super) fn consumer_change(situation: &Situation<'_>) -> Value {
    let machine = situation.machine;
    let consumer = Consumer {
        api_version: Some("infrastructure.cluster.x-k8s.io/v1beta1".to_owned()),
        kind: kind::METAL3_MACHINE.to_owned(),
        name: machine.name_any(),
        namespace: machine.namespace(),
        ..Consumer::default()
    };
    let mut labels = json!({ names::NODE_REUSE: null });
    if let Some(cluster) = situation.cluster {
        labels[label::CLUSTER_NAME] = json!(cluster.name_any());
    }
    json!({
        "metadata": {
            "labels": labels,
            // `clusterctl move` waits for the pause of the host.
            "annotations": { names::KEPT_UNTIL: null, annotation::BLOCK_MOVE: "" },
        },
        "spec": { "consumerRef": consumer },
    })
}

/// Another host that names the machine may run its node.
fn several_hosts(named: Option<&str>, others: &[&String]) -> Blocker {
    let others = others.iter().map(|host| host.as_str()).collect::<Vec<_>>().join(", ");
    let message = match named {
        Some(named) => format!(
            "this object names BareMetalHost {named}, and {others} names this object by its consumerRef, its node or its plan"
        ),
        None => format!("several BareMetalHosts name this object: {others}"),
    };
    let action = format!(
        "set the annotation {} to the host that runs the node of this machine; another one is cleaned and free without consumerRef, image and userData",
        names::HOST_OF_MACHINE
    );
    let problem = Problem::new(Reason::SeveralHosts, message, action);
    Blocker::needs_operator(Type::AssociateBareMetalHost, problem)
}

/// The host of a machine is not there, or not its own any more. No other host is touched.
pub(super) fn lost_host(situation: &Situation<'_>) -> Blocker {
    let (message, action) = match (named_host(situation.machine), situation.host) {
        (_, Some(host)) => return taken_host(situation, host),
        (Some(name), None) => {
            (format!("BareMetalHost {name} does not exist"), "restore it, or delete the Machine".to_owned())
        }
        (None, None) => (
            "no BareMetalHost names this object any more".to_owned(),
            format!(
                "write the annotation {} with the host that runs the node of this machine, or delete the Machine",
                names::HOST_OF_MACHINE
            ),
        ),
    };
    let problem = Problem::new(Reason::InventoryMissing, message, action);
    Blocker::needs_operator(Type::AssociateBareMetalHost, problem)
}

/// The host of the machine has another consumer or none.
pub(super) fn taken_host(situation: &Situation<'_>, host: &BareMetalHost) -> Blocker {
    let state = describe_state(host);
    let message = match &host.spec.consumer_ref {
        Some(consumer) => format!("{state}, and {} {} uses it", consumer.kind, consumer.name),
        None => format!("{state}, and its spec.consumerRef does not name this object"),
    };
    let action = format!(
        "write Metal3Machine {} to spec.consumerRef of the host if it runs the node of this machine, else delete the Machine",
        situation.machine.name_any()
    );
    let reason =
        if situation.owns(&host.name_any()) { Reason::HostCarriesNode } else { Reason::HostCarriesNoNode };
    let problem = Problem::new(reason, message, action);
    Blocker::needs_operator(Type::AssociateBareMetalHost, problem)
}
