//! The inputs of a plan that makes a node.

use std::collections::BTreeMap;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::names::annotation;
use proto::plan::{RegistryAccess, Secret};

use super::await_host_statement;
use crate::assignment::node_id::stated_id;
use crate::assignment::{
    Assignment, Host, SecretRead, SecretRef, Situation, Wake, assign_plan, host_network,
};
use crate::bootstrap::{self, NodeNames};
use crate::cloud_init::parse_meta_data;
use crate::demand::{BootstrapEdit, NodeDemand};
use crate::network::{self, HostNetwork};
use crate::plan::{Names, PlanInputs, Reprovision, StoredPlan};
use crate::problem::{Blocker, Problem};
use crate::provider_id::ProviderId;
use crate::registry_access::read_access;

/// For bootstrap data that names no socket: kubeadm's own default.
const CRI_SOCKET: &str = "unix:///var/run/containerd/containerd.sock";

pub(super) enum Next {
    Read(SecretRef),
    Blocked(Blocker, Wake),
}

/// What a plan is made of.
pub(super) struct Inputs<'a> {
    pub(super) data: &'a Secret,
    meta_data: Option<&'a Secret>,
    network_data: Option<&'a Secret>,
    registry: Option<Box<RegistryAccess>>,
    stored: &'a StoredPlan,
}

/// The Secrets, once everything that a plan is made of is there.
pub(super) fn gather_inputs<'a>(
    situation: &Situation<'a>,
    node: &NodeDemand,
    host: Host<'_>,
) -> Result<Inputs<'a>, Next> {
    if host.record.carried.is_none() {
        let blocker = Blocker::waiting_for(Type::PlanApplied, await_host_statement());
        return Err(Next::Blocked(blocker, Wake::OnChange));
    }
    let Some(name) = &node.bootstrap_secret else {
        let problem = Problem::new(
            Reason::BootstrapWaiting,
            "the Machine has no spec.bootstrap.dataSecretName yet",
            "wait for its bootstrap provider, or set it",
        );
        let blocker = Blocker::waiting_for(Type::BootstrapReady, problem);
        return Err(Next::Blocked(blocker, Wake::OnChange));
    };
    if let Err(blocker) = &node.image {
        return Err(Next::Blocked(blocker.clone(), Wake::OnChange));
    }
    let secrets = situation.secrets;
    let data = find_secret(&secrets.bootstrap, name, "bootstrap data", SecretRef::Bootstrap)?;
    let optional = |name: &Option<String>, read: &'a SecretRead, what, reference: fn(String) -> SecretRef| {
        name.as_ref().map(|name| find_secret(read, name, what, reference)).transpose()
    };
    let meta_data = optional(&node.meta_data_secret, &secrets.meta_data, "meta-data", SecretRef::MetaData)?;
    let network_data =
        optional(&node.network_data_secret, &secrets.network_data, "network data", SecretRef::NetworkData)?;
    let registry = read_registry(situation, node)?;
    let stored = secrets.plan.as_ref().ok_or(Next::Read(SecretRef::Plan))?;
    Ok(Inputs { data, meta_data, network_data, registry, stored })
}

/// Nothing announces a change of that Secret.
fn read_registry(situation: &Situation<'_>, node: &NodeDemand) -> Result<Option<Box<RegistryAccess>>, Next> {
    let (Some(name), Ok(image)) = (&node.registry_secret, &node.image) else { return Ok(None) };
    let (fault, action) = match &situation.secrets.registry {
        SecretRead::NotRead => return Err(Next::Read(SecretRef::Registry(name.clone()))),
        SecretRead::Missing => ("does not exist in this namespace".to_owned(), "create it"),
        SecretRead::Read(secret) => match read_access(secret, image.as_str()) {
            Ok(access) => return Ok(Some(Box::new(access))),
            Err(error) => (error.to_string(), "correct it"),
        },
    };
    let message = format!(
        "Secret {name}, which the annotation {} of the machine or its Cluster names, {fault}",
        annotation::REGISTRY_SECRET
    );
    let problem = Problem::new(Reason::RegistrySecretInvalid, message, action);
    Err(Next::Blocked(Blocker::needs_operator(Type::ImageResolved, problem), Wake::Backoff))
}

fn find_secret<'a>(
    read: &'a SecretRead,
    name: &str,
    what: &str,
    reference: fn(String) -> SecretRef,
) -> Result<&'a Secret, Next> {
    match read {
        SecretRead::NotRead => Err(Next::Read(reference(name.to_owned()))),
        SecretRead::Missing => {
            let message = format!("Secret {name} with the {what} is missing or has no key value");
            let problem = Problem::new(Reason::BootstrapWaiting, message, "create it");
            Err(Next::Blocked(Blocker::waiting_for(Type::BootstrapReady, problem), Wake::Backoff))
        }
        SecretRead::Read(data) => Ok(data),
    }
}

pub(super) fn assign_reprovision(
    node: &NodeDemand,
    host: Host<'_>,
    inputs: &Inputs<'_>,
) -> Result<Assignment, Blocker> {
    let image = node.image.clone()?;
    let Some(names) = &node.names else {
        return Err(refuse_bootstrap("the node has no name".to_owned()));
    };
    let user_data = edit_bootstrap(node.bootstrap_edit, inputs.data, names).map_err(refuse_bootstrap)?;
    let network = match inputs.network_data {
        Some(data) => given_network(data, host)?,
        None => host_network(host.spec)?,
    };
    let mut meta_data = match inputs.meta_data {
        Some(data) => read_meta_data(data)?,
        None => BTreeMap::new(),
    };
    let mut names = names.clone();
    if let Some(stated) = stated_id(node, inputs.data, &names, &meta_data)? {
        // Templates find the newer form under its key, whichever the kubelet has.
        let newer = ProviderId::without_scheme(&names.provider_id).to_owned();
        meta_data.entry("providerid".to_owned()).or_insert(newer);
        names.provider_id = stated;
    }
    let registry = inputs.registry.clone();
    let resolved = (node.bootstrap_edit != BootstrapEdit::Unchanged).then(|| user_data.clone());
    let plan = Reprovision { image, registry, user_data, network, names, meta_data };
    let assignment = assign_plan(host.record, &PlanInputs::Reprovision(plan), inputs.stored)?;
    Ok(Assignment { resolved, ..assignment })
}

fn refuse_bootstrap(message: String) -> Blocker {
    Blocker::failed_with(Type::BootstrapReady, Problem::of_cause(Reason::BootstrapInvalid, message))
}

fn read_meta_data(data: &Secret) -> Result<BTreeMap<String, String>, Blocker> {
    let text = std::str::from_utf8(data.expose()).ok();
    text.and_then(parse_meta_data).ok_or_else(|| {
        let message = "the meta-data is not a map of texts in YAML or JSON";
        let problem = Problem::new(Reason::BootstrapInvalid, message, "correct the Secret");
        Blocker::failed_with(Type::BootstrapReady, problem)
    })
}

/// The network of a Secret, instead of the host's own.
fn given_network(data: &Secret, host: Host<'_>) -> Result<HostNetwork, Blocker> {
    let text = String::from_utf8_lossy(data.expose());
    network::network_data(&text, host.spec.observed_network.as_ref())
        .map_err(|error| Blocker::failed_with(Type::BootstrapReady, error.problem()))
}

fn edit_bootstrap(edit: BootstrapEdit, data: &Secret, names: &Names) -> Result<Secret, String> {
    if edit == BootstrapEdit::Unchanged {
        return Ok(data.clone());
    }
    let text = std::str::from_utf8(data.expose())
        .map_err(|_| "the bootstrap data is not UTF-8: only cloud-config is supported".to_owned())?;
    let node =
        NodeNames { hostname: &names.hostname, provider_id: &names.provider_id, cri_socket: CRI_SOCKET };
    let edited = bootstrap::normalise_data(text, &node).map_err(|error| error.to_string())?;
    Ok(Secret::new(edited.into_bytes()))
}
