//! What a plan that makes a node is made of.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::names::annotation;
use proto::plan::{RegistryAccess, Secret};

use super::NOT_STATED;
use crate::assignment::node_id::stated_id;
use crate::assignment::{
    Assignment, Host, SecretRead, SecretRef, Situation, Wake, assign_plan, host_network,
};
use crate::bootstrap::{self, NodeNames};
use crate::cloud_init::parse_meta_data;
use crate::demand::{Blocker, BootstrapEdit, NodeDemand};
use crate::network::{self, HostNetwork};
use crate::plan::{Names, PlanInputs, Reprovision, StoredPlan};
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
    let blocked = |blocker| Next::Blocked(blocker, Wake::OnChange);
    let waiting = |condition, reason, message: String| Blocker::waiting_for(condition, reason, message);
    if host.record.carried.is_none() {
        let message = NOT_STATED.to_owned();
        return Err(blocked(waiting(Type::PlanApplied, Reason::HostStatementMissing, message)));
    }
    let Some(name) = &node.bootstrap_secret else {
        let message = "the Machine has no spec.bootstrap.dataSecretName yet: wait for its bootstrap provider, or set it";
        return Err(blocked(waiting(Type::BootstrapReady, Reason::BootstrapWaiting, message.to_owned())));
    };
    if let Err(blocker) = &node.image {
        return Err(blocked(blocker.clone()));
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
    let invalid = |problem: String| {
        let message = format!(
            "Secret {name}, which the annotation {} of the machine or its Cluster names, {problem}",
            annotation::REGISTRY_SECRET
        );
        let blocker = Blocker::needs_operator(Type::ImageResolved, Reason::RegistrySecretInvalid, message);
        Next::Blocked(blocker, Wake::Backoff)
    };
    match &situation.secrets.registry {
        SecretRead::NotRead => Err(Next::Read(SecretRef::Registry(name.clone()))),
        SecretRead::Missing => Err(invalid("does not exist in this namespace: create it".to_owned())),
        SecretRead::Read(secret) => read_access(secret, image.as_str())
            .map(|access| Some(Box::new(access)))
            .map_err(|error| invalid(format!("{error}: correct it"))),
    }
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
            let message = format!("Secret {name} with the {what} is missing or has no key value: create it");
            let missing = Blocker::waiting_for(Type::BootstrapReady, Reason::BootstrapWaiting, message);
            Err(Next::Blocked(missing, Wake::Backoff))
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
    let invalid = |message| Blocker::failed_with(Type::BootstrapReady, Reason::BootstrapInvalid, message);
    let Some(names) = &node.names else {
        return Err(invalid("the node has no name".to_owned()));
    };
    let user_data = edit_bootstrap(node.bootstrap_edit, inputs.data, names).map_err(invalid)?;
    let network = match inputs.network_data {
        Some(data) => given_network(data, host)?,
        None => host_network(host.spec)?,
    };
    let meta_data = inputs.meta_data.map(|data| {
        let text = std::str::from_utf8(data.expose()).ok();
        let message = "the meta-data is not a map of texts in YAML or JSON: correct the Secret";
        text.and_then(parse_meta_data).ok_or_else(|| invalid(message.to_owned()))
    });
    let mut meta_data = meta_data.transpose()?.unwrap_or_default();
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

/// The network of a Secret, instead of the host's own.
fn given_network(data: &Secret, host: Host<'_>) -> Result<HostNetwork, Blocker> {
    let text = String::from_utf8_lossy(data.expose());
    network::network_data(&text, host.spec.observed_network.as_ref()).map_err(|error| {
        Blocker::failed_with(Type::BootstrapReady, Reason::NetworkInvalid, error.to_string())
    })
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
