//! Provisioning of a machine, from the choice of its host to its providerID.

use std::collections::BTreeMap;

use coordinator_api::capi::Machine;
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::explain::EventReason;
use coordinator_api::metal3::data::{Metal3DataClaim, Metal3DataClaimSpec};
use coordinator_api::metal3::host::{BareMetalHost, CleaningMode, Image};
use coordinator_api::metal3::{ObjectRef, SecretRef, names};
use coordinator_api::names::annotation;
use coordinator_api::object::Namespace;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    Outcome, Situation, Step, choice, holding, is_candidate, is_consumer, is_pinned, named_host, node,
    release,
};
use crate::demand::version_missing;
use crate::image_catalog;
use crate::metal3::data::{META_DATA, NETWORK_DATA};
use crate::metal3::host::{IMAGE_URL, resolve_image};
use crate::pause::is_paused;
use crate::problem::{Blocker, Problem};

/// The missing precondition for the choice of a host.
pub(super) fn find_missing(situation: &Situation<'_>, owner: &Machine) -> Option<Blocker> {
    // Told first, because no wait makes such a field supported.
    if let Some(problem) = find_unsupported(situation) {
        return Some(Blocker::failed_with(Type::AssociateBareMetalHost, problem));
    }
    let image = choose_image(situation, owner).err();
    if image.as_ref().is_some_and(|blocker| blocker.problem.reason == Reason::FieldUnsupported) {
        return image;
    }
    match find_waiting(situation, owner) {
        Some(problem) => Some(Blocker::waiting_for(Type::AssociateBareMetalHost, problem)),
        None => image,
    }
}

fn find_waiting(situation: &Situation<'_>, owner: &Machine) -> Option<Problem> {
    let Some(infrastructure) = situation.infrastructure else {
        let message = "the Metal3Cluster that the Cluster names does not exist";
        return Some(Problem::new(Reason::WaitingforMetal3Cluster, message, "create it"));
    };
    if !infrastructure.status.as_ref().is_some_and(|status| status.ready) {
        let message = format!("Metal3Cluster {} is not ready", infrastructure.name_any());
        let reason = Reason::WaitingForClusterInfrastructureReady;
        return Some(Problem::new(reason, message, "see its conditions"));
    }
    owner.spec.bootstrap.data_secret_name.is_none().then(|| {
        let message = "the Machine has no spec.bootstrap.dataSecretName yet";
        let action = "wait for its bootstrap provider, or set the field";
        Problem::new(Reason::WaitingForBootstrapData, message, action)
    })
}

fn find_unsupported(situation: &Situation<'_>) -> Option<Problem> {
    let spec = &situation.machine.spec;
    if spec.custom_deploy.is_some() {
        let message = "spec.customDeploy is not supported, because there is no agent of Ironic";
        return Some(Problem::new(Reason::FieldUnsupported, message, "name spec.image in the template"));
    }
    let own = Namespace::of(situation.machine);
    let is_secret_outside =
        |reference: &Option<SecretRef>| reference.as_ref().is_some_and(|secret| secret.is_outside(&own));
    let (_, field) = [
        (is_secret_outside(&spec.meta_data), "spec.metaData"),
        (is_secret_outside(&spec.network_data), "spec.networkData"),
        (is_secret_outside(&spec.user_data), "spec.userData"),
        (spec.data_template.as_ref().is_some_and(|template| template.is_outside(&own)), "spec.dataTemplate"),
    ]
    .into_iter()
    .find(|(is_outside, _)| *is_outside)?;
    let message = format!("{field}.namespace is not the namespace of this object");
    Some(Problem::new(Reason::FieldUnsupported, message, "remove the field"))
}

fn choose_image(situation: &Situation<'_>, owner: &Machine) -> Result<Image, Blocker> {
    if situation.machine.annotations().contains_key(names::IMAGE_FROM_CATALOG) {
        let version = owner.spec.version.as_deref().ok_or_else(|| fail(version_missing()))?;
        let annotations = situation.cluster.map(ResourceExt::annotations);
        let registry = annotations.and_then(|annotations| annotations.get(annotation::REGISTRY_ADDRESS));
        let empty = BTreeMap::new();
        let catalog = situation.catalog.unwrap_or(&empty);
        let image = image_catalog::resolve_image(catalog, version, None, registry.map(String::as_str))
            .map_err(|error| fail(Problem { reason: Reason::ImageCatalogMiss, ..error.problem() }))?;
        return Ok(Image { url: format!("oci://{}", image.as_str()), ..Image::default() });
    }
    let Some(image) = &situation.machine.spec.image else {
        let message = "either image or customDeploy is required";
        return Err(fail(Problem::new(Reason::FieldUnsupported, message, "name spec.image in the template")));
    };
    let remedy = format!("set the annotation {} on the Metal3Machine", names::IMAGE_FROM_CATALOG);
    let refused = resolve_image(image, IMAGE_URL, &remedy);
    refused.map_err(|blocker| Blocker { condition: Type::AssociateBareMetalHost, ..blocker })?;
    Ok(image.clone())
}

fn fail(problem: Problem) -> Blocker {
    Blocker::failed_with(Type::AssociateBareMetalHost, problem)
}

/// State and error of the host. Its error calls the host "this object", which is the machine where it is
/// shown.
pub(super) fn describe_state(host: &BareMetalHost) -> String {
    let status = host.status.as_ref();
    let state = status.map(|status| status.provisioning.state.as_str()).filter(|state| !state.is_empty());
    let name = format!("BareMetalHost {}", host.name_any());
    let state = format!("{name} is {}", state.unwrap_or("not known"));
    match status.map_or("", |status| &status.error_message) {
        "" => state,
        error => format!("{state}: {}", error.replace("this object", &name)),
    }
}

pub(super) fn provision_host(situation: &Situation<'_>, owner: &Machine) -> Outcome {
    let machine = situation.machine;
    let Some(name) = named_host(machine) else { return Outcome::of_step(Step::Choose) };
    let Some(host) = situation.host else {
        if situation.owns(name) {
            return Outcome::of_blocker(holding::lost_host(situation));
        }
        let message = format!("BareMetalHost {name} does not exist");
        let action =
            format!("restore it, or remove the annotation {} to choose another host", names::HOST_OF_MACHINE);
        let problem = Problem::new(Reason::InventoryMissing, message, action);
        return Outcome::of_blocker(Blocker::needs_operator(Type::AssociateBareMetalHost, problem));
    };
    if !is_consumer(host, machine) {
        return claim_host(situation, host, owner);
    }
    // The host of a replaced manifest is cleaned before it gets the image again.
    if host.spec.image.is_none() && !release::is_busy(host) {
        if let Some(outcome) = await_data(situation) {
            return outcome;
        }
        return match choose_image(situation, owner) {
            Ok(image) => change_host(provision_change(situation, owner, &image), EventReason::ImageSet),
            Err(blocker) => Outcome::of_blocker(blocker),
        };
    }
    let state = host.status.as_ref().map_or("", |status| status.provisioning.state.as_str());
    if state == "provisioned" && host.spec.image.is_some() {
        return node::link_node(situation, owner, host);
    }
    let problem = Problem::of_cause(Reason::HostNotProvisioned, describe_state(host));
    Outcome::of_blocker(Blocker::waiting_for(Type::HostProvisioned, problem))
}

/// The step that is due before the data of the template is rendered.
fn await_data(situation: &Situation<'_>) -> Option<Outcome> {
    let machine = situation.machine;
    let spec = &machine.spec;
    let template = spec.data_template.as_ref()?;
    // The operator has set both Secrets.
    if spec.meta_data.is_some() && spec.network_data.is_some() {
        return None;
    }
    let Some(claim) = situation.data_claim else {
        let template = ObjectRef {
            name: template.name.clone(),
            namespace: template.namespace.clone(),
            ..ObjectRef::default()
        };
        let mut claim = Metal3DataClaim::new(&machine.name_any(), Metal3DataClaimSpec { template });
        claim.metadata.labels.clone_from(&machine.metadata.labels);
        return Some(Outcome::of_step(Step::ClaimData(Box::new(claim))));
    };
    let data = situation.data.and_then(|data| data.status.as_ref());
    if data.is_some_and(|data| data.ready) {
        return None;
    }
    let error = data.and_then(|data| data.error_message.as_ref());
    let error = error.or_else(|| claim.status.as_ref()?.error_message.as_ref());
    let message = match error {
        Some(error) => {
            format!("the data of Metal3DataTemplate {} cannot be rendered: {error}", template.name)
        }
        None => format!("the data of Metal3DataTemplate {} is not rendered yet", template.name),
    };
    let reason = Reason::WaitingForMetal3Data;
    Some(Outcome::of_blocker(Blocker::waiting_for(Type::Metal3DataReady, Problem::of_cause(reason, message))))
}

pub(super) fn change_host(change: Value, event: EventReason) -> Outcome {
    Outcome::of_step(Step::ChangeHost { change, event })
}

/// Claims the host by one compare-and-swap. If two machines chose the same host, the first one gets
/// it.
fn claim_host(situation: &Situation<'_>, host: &BareMetalHost, owner: &Machine) -> Outcome {
    let machine = situation.machine;
    let reuse = choice::reuse_value(owner);
    if !is_candidate(host) || !choice::is_reusable(host.labels(), reuse.as_deref()) {
        return if situation.owns(&host.name_any()) {
            Outcome::of_blocker(holding::taken_host(situation, host))
        } else if is_pinned(machine) {
            await_pinned(host)
        } else {
            Outcome::of_step(Step::Unchoose)
        };
    }
    change_host(holding::consumer_change(situation), EventReason::HostAssociated)
}

/// A host that an operator named is waited for, also while it registers, is paused or has an error.
fn await_pinned(host: &BareMetalHost) -> Outcome {
    let state = describe_state(host);
    let message = match &host.spec.consumer_ref {
        Some(consumer) => format!("{state}, and {} {} uses it", consumer.kind, consumer.name),
        None => state,
    };
    let action = format!(
        "wait until it is available, or remove the annotation {} to have another host chosen",
        names::HOST_OF_MACHINE
    );
    let problem = Problem::new(Reason::HostNotAvailable, message, action);
    Outcome::of_blocker(Blocker::waiting_for(Type::AssociateBareMetalHost, problem))
}

/// The cleaning mode of the template, if the machine has another one. A changed template applies to
/// existing machines, too.
pub(super) fn template_mode(situation: &Situation<'_>) -> Option<CleaningMode> {
    let template = situation.template.filter(|template| !is_paused(*template, None))?;
    let mode = template.spec.template.spec.automated_cleaning_mode?;
    (situation.machine.spec.automated_cleaning_mode != Some(mode)).then_some(mode)
}

/// The change of the cleaning mode of a host that runs the node.
pub(super) fn cleaning_change(situation: &Situation<'_>) -> Option<Value> {
    let mode = situation.machine.spec.automated_cleaning_mode?;
    let host = situation.host.filter(|host| is_consumer(host, situation.machine))?;
    let is_due = host.spec.image.is_some() && host.spec.automated_cleaning_mode != Some(mode);
    is_due.then(|| json!({ "spec": { "automatedCleaningMode": mode } }))
}

/// Secrets of the host that it has from the machine, and not from its operator.
pub(super) struct GivenData<'a> {
    pub(super) meta_data: Option<&'a SecretRef>,
    pub(super) network_data: Option<&'a SecretRef>,
}

/// The Secrets of the host that the machine names, or that were rendered for it. The name of a rendered
/// Secret is known even if the data is deleted.
pub(super) fn find_given<'a>(situation: &Situation<'_>, host: &'a BareMetalHost) -> GivenData<'a> {
    let spec = &situation.machine.spec;
    let data = situation.data.map(|data| &data.spec);
    let own_name = situation.machine.name_any();
    let meta_data = [spec.meta_data.as_ref(), data.and_then(|data| data.meta_data.as_ref())];
    let network_data = [spec.network_data.as_ref(), data.and_then(|data| data.network_data.as_ref())];
    GivenData {
        meta_data: find_named(host.spec.meta_data.as_ref(), meta_data, own_name.clone() + META_DATA.1),
        network_data: find_named(host.spec.network_data.as_ref(), network_data, own_name + NETWORK_DATA.1),
    }
}

fn find_named<'a>(
    used: Option<&'a SecretRef>,
    named: [Option<&SecretRef>; 2],
    rendered: String,
) -> Option<&'a SecretRef> {
    let named = named.into_iter().flatten().filter_map(|named| named.name.clone());
    let used_name = used?.name.as_ref()?;
    named.chain([rendered]).any(|name| name == *used_name).then_some(used).flatten()
}

fn provision_change(situation: &Situation<'_>, owner: &Machine, image: &Image) -> Value {
    let spec = &situation.machine.spec;
    let namespace = situation.machine.namespace();
    let user_data = owner.spec.bootstrap.data_secret_name.clone();
    let mut change = json!({
        "image": image,
        "userData": SecretRef { name: user_data, namespace: namespace.clone() },
        "online": true,
    });
    let rendered = situation.data.filter(|_| spec.data_template.is_some()).map(|data| &data.spec);
    let meta_data = spec.meta_data.as_ref().or_else(|| rendered?.meta_data.as_ref());
    let network_data = spec.network_data.as_ref().or_else(|| rendered?.network_data.as_ref());
    // Secrets of the host's operator stay unless the machine replaces them.
    for (field, reference) in [("metaData", meta_data), ("networkData", network_data)] {
        if let Some(reference) = reference {
            change[field] = json!(SecretRef { namespace: namespace.clone(), ..reference.clone() });
        }
    }
    if let Some(mode) = spec.automated_cleaning_mode {
        change["automatedCleaningMode"] = json!(mode);
    }
    json!({ "spec": change })
}
