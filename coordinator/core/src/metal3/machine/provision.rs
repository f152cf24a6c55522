//! From no host to a providerID.

use std::collections::BTreeMap;

use coordinator_api::capi::Machine;
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::explain::EventReason;
use coordinator_api::metal3::data::{Metal3DataClaim, Metal3DataClaimSpec};
use coordinator_api::metal3::host::{BareMetalHost, CleaningMode, Image};
use coordinator_api::metal3::{Consumer, ObjectRef, SecretRef, names};
use coordinator_api::names::{annotation, kind, label};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Outcome, Situation, Step, choice, is_candidate, is_consumer, named_host, node};
use crate::cluster::is_paused;
use crate::demand::version_missing;
use crate::image_catalog;
use crate::metal3::data::{META_DATA, NETWORK_DATA};
use crate::metal3::host::{IMAGE_URL, resolve_image};
use crate::problem::{Blocker, Problem};

/// What has to be there before a host is chosen.
pub(super) fn find_missing(situation: &Situation<'_>, owner: &Machine) -> Option<Blocker> {
    let waiting = |reason, message: String| {
        Some(Blocker::waiting_for(Type::AssociateBareMetalHost, Problem::of_cause(reason, message)))
    };
    let Some(infrastructure) = situation.infrastructure else {
        let message = "the Metal3Cluster that the Cluster names does not exist: create it".to_owned();
        return waiting(Reason::WaitingforMetal3Cluster, message);
    };
    if !infrastructure.status.as_ref().is_some_and(|status| status.ready) {
        let message = format!("Metal3Cluster {} is not ready: see its conditions", infrastructure.name_any());
        return waiting(Reason::WaitingForClusterInfrastructureReady, message);
    }
    if owner.spec.bootstrap.data_secret_name.is_none() {
        let message = "the Machine has no spec.bootstrap.dataSecretName yet: wait for its bootstrap provider, or set it";
        return waiting(Reason::WaitingForBootstrapData, message.to_owned());
    }
    let spec = &situation.machine.spec;
    let refuse = |message: String| {
        Some(Blocker::failed_with(
            Type::AssociateBareMetalHost,
            Problem::of_cause(Reason::FieldUnsupported, message),
        ))
    };
    if spec.custom_deploy.is_some() {
        return refuse(
            "spec.customDeploy: there is no agent of Ironic: name spec.image in the template".to_owned(),
        );
    }
    let references = [
        (&spec.meta_data, "spec.metaData"),
        (&spec.network_data, "spec.networkData"),
        (&spec.user_data, "spec.userData"),
    ];
    let own = situation.machine.namespace();
    let is_foreign = |reference: &SecretRef| {
        reference
            .namespace
            .as_ref()
            .is_some_and(|namespace| !namespace.is_empty() && Some(namespace) != own.as_ref())
    };
    for (reference, field) in references {
        if reference.as_ref().is_some_and(is_foreign) {
            return refuse(format!("{field}.namespace is not that of this object: remove it"));
        }
    }
    choose_image(situation, owner).err()
}

/// The image for the host.
fn choose_image(situation: &Situation<'_>, owner: &Machine) -> Result<Image, Blocker> {
    let failed = |reason, message: String| {
        Blocker::failed_with(Type::AssociateBareMetalHost, Problem::of_cause(reason, message))
    };
    if situation.machine.annotations().contains_key(names::IMAGE_FROM_CATALOG) {
        let version = owner
            .spec
            .version
            .as_deref()
            .ok_or_else(|| Blocker::failed_with(Type::AssociateBareMetalHost, version_missing()))?;
        let annotations = situation.cluster.map(ResourceExt::annotations);
        let registry = annotations.and_then(|annotations| annotations.get(annotation::REGISTRY_ADDRESS));
        let empty = BTreeMap::new();
        let catalog = situation.catalog.unwrap_or(&empty);
        let image = image_catalog::resolve_image(catalog, version, None, registry.map(String::as_str))
            .map_err(|error| failed(Reason::ImageCatalogMiss, error.to_string()))?;
        return Ok(Image { url: format!("oci://{}", image.as_str()), ..Image::default() });
    }
    let Some(image) = &situation.machine.spec.image else {
        let message = "either image or customDeploy is required: name spec.image in the template";
        return Err(failed(Reason::FieldUnsupported, message.to_owned()));
    };
    let remedy = format!("set the annotation {} on the Metal3Machine", names::IMAGE_FROM_CATALOG);
    let refused = resolve_image(image, IMAGE_URL, &remedy);
    refused.map_err(|blocker| Blocker { condition: Type::AssociateBareMetalHost, ..blocker })?;
    Ok(image.clone())
}

pub(super) fn provision_host(situation: &Situation<'_>, owner: &Machine) -> Outcome {
    let machine = situation.machine;
    let Some(name) = named_host(machine) else { return Outcome::of_step(Step::Choose) };
    let Some(host) = situation.host else {
        let message = format!(
            "BareMetalHost {name} does not exist: restore it, or remove the annotation {} to choose another host",
            names::HOST_OF_MACHINE
        );
        let reason = Reason::InventoryMissing;
        return Outcome::of_blocker(Blocker::needs_operator(
            Type::AssociateBareMetalHost,
            Problem::of_cause(reason, message),
        ));
    };
    if !is_consumer(host, machine) {
        return claim_host(situation, host, owner);
    }
    if host.spec.image.is_none() {
        if let Some(outcome) = await_data(situation) {
            return outcome;
        }
        return match choose_image(situation, owner) {
            Ok(image) => change_host(provision_change(situation, owner, &image), EventReason::ImageSet),
            Err(blocker) => Outcome::of_blocker(blocker),
        };
    }
    let status = host.status.clone().unwrap_or_default();
    if status.provisioning.state == "provisioned" {
        return node::link_node(situation, owner, host);
    }
    let state = if status.provisioning.state.is_empty() { "not known" } else { &status.provisioning.state };
    let message = match status.error_message.as_str() {
        "" => format!("BareMetalHost {name} is {state}"),
        error => format!("BareMetalHost {name} is {state}: {error}"),
    };
    Outcome::of_blocker(Blocker::waiting_for(
        Type::HostProvisioned,
        Problem::of_cause(Reason::HostNotProvisioned, message),
    ))
}

/// What is due before the data of the template is there.
fn await_data(situation: &Situation<'_>) -> Option<Outcome> {
    let machine = situation.machine;
    let spec = &machine.spec;
    let template = spec.data_template.as_ref()?;
    // Both are given by the operator.
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
    let status = claim.status.as_ref();
    let error = data.and_then(|data| data.error_message.clone());
    let error = error.or_else(|| status.and_then(|status| status.error_message.clone()));
    let message = match error {
        Some(error) => {
            format!("the data of Metal3DataTemplate {} cannot be rendered: {error}", template.name)
        }
        None => format!("the data of Metal3DataTemplate {} is not rendered yet: wait", template.name),
    };
    let reason = Reason::WaitingForMetal3Data;
    Some(Outcome::of_blocker(Blocker::waiting_for(Type::Metal3DataReady, Problem::of_cause(reason, message))))
}

pub(super) fn change_host(change: Value, event: EventReason) -> Outcome {
    Outcome::of_step(Step::ChangeHost { change, event })
}

/// One compare-and-swap; of two machines that chose one host, the first has it.
fn claim_host(situation: &Situation<'_>, host: &BareMetalHost, owner: &Machine) -> Outcome {
    let machine = situation.machine;
    let reuse = choice::reuse_value(owner);
    if !is_candidate(host) || !choice::is_reusable(host.labels(), reuse.as_deref()) {
        return Outcome::of_step(Step::Unchoose);
    }
    let consumer = Consumer {
        api_version: Some("infrastructure.cluster.x-k8s.io/v1beta1".to_owned()),
        kind: kind::METAL3_MACHINE.to_owned(),
        name: machine.name_any(),
        namespace: machine.namespace(),
        ..Consumer::default()
    };
    let change = json!({
        "metadata": {
            "labels": { label::CLUSTER_NAME: owner.spec.cluster_name, names::NODE_REUSE: null },
            // A move waits for the pause of the host.
            "annotations": { names::KEPT_UNTIL: null, annotation::BLOCK_MOVE: "" },
        },
        "spec": { "consumerRef": consumer },
    });
    change_host(change, EventReason::HostAssociated)
}

/// The mode of the machine's template, where it has one and the machine another: a template is
/// changed for machines that exist, too.
pub(super) fn template_mode(situation: &Situation<'_>) -> Option<CleaningMode> {
    let template = situation.template.filter(|template| !is_paused(*template, None))?;
    let mode = template.spec.template.spec.automated_cleaning_mode?;
    (situation.machine.spec.automated_cleaning_mode != Some(mode)).then_some(mode)
}

/// A mode that was changed while the host runs the node.
pub(super) fn cleaning_change(situation: &Situation<'_>) -> Option<Value> {
    let mode = situation.machine.spec.automated_cleaning_mode?;
    let host = situation.host.filter(|host| is_consumer(host, situation.machine))?;
    let is_due = host.spec.image.is_some() && host.spec.automated_cleaning_mode != Some(mode);
    is_due.then(|| json!({ "spec": { "automatedCleaningMode": mode } }))
}

/// What the host has of the machine, and not of its own operator.
pub(super) struct GivenData<'a> {
    pub(super) meta_data: Option<&'a SecretRef>,
    pub(super) network_data: Option<&'a SecretRef>,
}

/// Those of the host's Secrets that the machine names, or that were rendered for it: the data
/// may be gone.
pub(super) fn find_given<'a>(situation: &Situation<'_>, host: &'a BareMetalHost) -> GivenData<'a> {
    let spec = &situation.machine.spec;
    let data = situation.data.map(|data| &data.spec);
    let is_given = |used: &SecretRef, named: [Option<&SecretRef>; 2], suffix: &str| {
        let rendered = format!("{}{suffix}", situation.machine.name_any());
        let mut named = named.into_iter().flatten().filter_map(|named| named.name.as_deref());
        let used = used.name.as_deref();
        used == Some(rendered.as_str()) || named.any(|named| used == Some(named))
    };
    let meta_data = [spec.meta_data.as_ref(), data.and_then(|data| data.meta_data.as_ref())];
    let network_data = [spec.network_data.as_ref(), data.and_then(|data| data.network_data.as_ref())];
    GivenData {
        meta_data: host.spec.meta_data.as_ref().filter(|used| is_given(used, meta_data, META_DATA.1)),
        network_data: host
            .spec
            .network_data
            .as_ref()
            .filter(|used| is_given(used, network_data, NETWORK_DATA.1)),
    }
}

fn provision_change(situation: &Situation<'_>, owner: &Machine, image: &Image) -> Value {
    let spec = &situation.machine.spec;
    let namespace = situation.machine.namespace();
    let within = |reference: &SecretRef| SecretRef { namespace: namespace.clone(), ..reference.clone() };
    let user_data = owner.spec.bootstrap.data_secret_name.clone();
    let mut change = json!({
        "image": image,
        "userData": SecretRef { name: user_data, namespace: namespace.clone() },
        "online": true,
    });
    let rendered = situation.data.filter(|_| spec.data_template.is_some()).map(|data| &data.spec);
    let meta_data = spec.meta_data.as_ref().or_else(|| rendered?.meta_data.as_ref());
    let network_data = spec.network_data.as_ref().or_else(|| rendered?.network_data.as_ref());
    // What the operator of the host has set stays where nothing replaces it.
    if let Some(meta_data) = meta_data {
        change["metaData"] = json!(within(meta_data));
    }
    if let Some(network_data) = network_data {
        change["networkData"] = json!(within(network_data));
    }
    if let Some(mode) = spec.automated_cleaning_mode {
        change["automatedCleaningMode"] = json!(mode);
    }
    json!({ "spec": change })
}
