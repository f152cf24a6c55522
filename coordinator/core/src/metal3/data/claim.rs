//! The change that is due for a `Metal3DataClaim`, and the status of a template.

use std::collections::BTreeMap;

use coordinator_api::metal3::data::{Metal3Data, Metal3DataClaim, Metal3DataClaimStatus, Metal3DataSpec};
use coordinator_api::metal3::data_template::{Metal3DataTemplate, Metal3DataTemplateStatus};
use coordinator_api::metal3::{ObjectRef, SecretRef, names};
use coordinator_api::names::label;
use coordinator_api::object::Namespace;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{META_DATA, NETWORK_DATA};

/// The one change that is due for a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimStep {
    Rest,
    /// Choose the lowest free index and record it on the claim, before any object is created.
    Choose,
    /// Create the data of the recorded index.
    Create(Box<Metal3Data>),
    Report(Metal3DataClaimStatus),
    /// Delete the data of this name.
    Release(String),
    /// The claim has no data any more.
    RemoveFinalizer,
}

/// Name of the template with which a template shares its indexes, because it replaces it.
pub fn group_of_template(template: &Metal3DataTemplate) -> String {
    template.spec.template_reference.clone().unwrap_or_else(|| template.name_any())
}

/// Group of the template from which data was rendered.
pub fn group_of_data(data: &Metal3Data) -> String {
    data.spec.template_reference.clone().unwrap_or_else(|| data.spec.template.name.clone())
}

/// Name of the data with an index.
pub fn data_name(template: &Metal3DataTemplate, index: i64) -> String {
    format!("{}-{index}", group_of_template(template))
}

/// Decides. `find_data` finds a `Metal3Data` by its name; `own` is the `Metal3Data` of this claim
/// under any name.
pub fn decide_claim<'a>(
    claim: &Metal3DataClaim,
    template: Option<&Metal3DataTemplate>,
    own: Option<&Metal3Data>,
    find_data: impl Fn(&str) -> Option<&'a Metal3Data>,
) -> ClaimStep {
    let chosen = claim.annotations().get(names::CHOSEN_INDEX).and_then(|text| text.parse::<i64>().ok());
    if claim.metadata.deletion_timestamp.is_some() {
        let is_held = claim.finalizers().iter().any(|name| name == names::DATA_CLAIM_FINALIZER);
        let derived = template.zip(chosen).map(|(template, index)| data_name(template, index));
        let derived = derived.filter(|name| find_data(name).is_some_and(|data| is_of_claim(data, claim)));
        return match own.map(ResourceExt::name_any).or(derived) {
            Some(name) => ClaimStep::Release(name),
            None if is_held => ClaimStep::RemoveFinalizer,
            None => ClaimStep::Rest,
        };
    }
    let name = &claim.spec.template.name;
    if claim.spec.template.is_outside(&Namespace::of(claim)) {
        return refuse(claim, "the template is not in this namespace: name one that is".to_owned());
    }
    let Some(template) = template else {
        return refuse(claim, format!("no Metal3DataTemplate {name} in this namespace: create it"));
    };
    let Some(index) = chosen else { return ClaimStep::Choose };
    match find_data(&data_name(template, index)) {
        None => ClaimStep::Create(Box::new(new_data(claim, template, index))),
        Some(data) if is_of_claim(data, claim) => {
            let reference = ObjectRef::within(&Namespace::of(claim), &data.name_any());
            report(claim, Metal3DataClaimStatus { rendered_data: Some(reference), error_message: None })
        }
        // Its index is free and its name is not: no other choice would help.
        Some(data) if data.spec.index != index => {
            let (name, stated) = (data.name_any(), data.spec.index);
            refuse(
                claim,
                format!("Metal3Data {name} has the index {stated}, which does not fit its name: delete it"),
            )
        }
        Some(_) => ClaimStep::Choose,
    }
}

/// Compares names only, because UIDs change with a restore.
fn is_of_claim(data: &Metal3Data, claim: &Metal3DataClaim) -> bool {
    data.spec.claim.name == claim.name_any()
}

fn new_data(claim: &Metal3DataClaim, template: &Metal3DataTemplate, index: i64) -> Metal3Data {
    let namespace = Namespace::of(claim);
    // A claim has the name of its machine.
    let machine = claim.name_any();
    let secret = |suffix: &str| SecretRef {
        name: Some(format!("{machine}{suffix}")),
        namespace: Some(namespace.to_string()),
    };
    let spec = Metal3DataSpec {
        index,
        template_reference: template.spec.template_reference.clone(),
        meta_data: template.spec.meta_data.as_ref().map(|_| secret(META_DATA.1)),
        network_data: template.spec.network_data.as_ref().map(|_| secret(NETWORK_DATA.1)),
        claim: ObjectRef::within(&namespace, &machine),
        template: ObjectRef::within(&namespace, &template.name_any()),
    };
    let mut data = Metal3Data::new(&data_name(template, index), spec);
    data.metadata.labels.clone_from(&claim.metadata.labels);
    data.metadata.finalizers = Some(vec![names::DATA_FINALIZER.to_owned()]);
    data
}

fn refuse(claim: &Metal3DataClaim, message: String) -> ClaimStep {
    let rendered_data = claim.status.as_ref().and_then(|status| status.rendered_data.clone());
    report(claim, Metal3DataClaimStatus { rendered_data, error_message: Some(message) })
}

fn report(claim: &Metal3DataClaim, status: Metal3DataClaimStatus) -> ClaimStep {
    if claim.status.as_ref() == Some(&status) { ClaimStep::Rest } else { ClaimStep::Report(status) }
}

/// Labels of a template that belongs to a Cluster.
pub fn labels_of_template(template: &Metal3DataTemplate) -> BTreeMap<&'static str, &str> {
    let cluster = template.spec.cluster_name.as_deref();
    cluster.map(|name| (label::CLUSTER_NAME, name)).into_iter().collect()
}

/// The status of a template; `used` has the used indexes with the names of their claims.
pub fn project_template(
    template: &Metal3DataTemplate,
    used: Vec<(i64, String)>,
    now: Timestamp,
) -> Metal3DataTemplateStatus {
    let mut status = template.status.clone().unwrap_or_default();
    let indexes = used.into_iter().map(|(index, claim)| (claim, index)).collect();
    if status.indexes != indexes {
        status.indexes = indexes;
        status.last_updated = Some(Time(now));
    }
    status
}
