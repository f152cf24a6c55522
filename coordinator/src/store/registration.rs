//! What a registration leaves in the API: the inventory, its plan Secret, and
//! the first status. Three writes for a new host, none for one that is known;
//! each call repairs what a crash between them left.

use std::collections::BTreeMap;
use std::sync::Arc;

use coordinator_api::inventory::{MachineInventory, MachineInventorySpec};
use coordinator_api::names::{label, plan_secret as key};
use coordinator_api::network::ObservedNetwork;
use coordinator_core::host;
use coordinator_core::inventory::Draft;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Resource as _, ResourceExt as _};

use super::report::{self, ReportError};

/// Why a host is not stored.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The inventory could not be made.
    #[error("cannot create inventory {name}")]
    CreateInventory {
        /// Which one.
        name: String,
        /// What the API server said.
        source: kube::Error,
    },
    /// The API server refuses the object itself: another try is useless.
    #[error("inventory {name} is not accepted: {message}")]
    Rejected {
        /// Which one.
        name: String,
        /// What the API server said.
        message: String,
    },
    /// The plan Secret could not be made.
    #[error("cannot create the plan Secret {name}")]
    CreateSecret {
        /// Which one.
        name: String,
        /// What the API server said.
        source: kube::Error,
    },
    /// The inventory exists and was made with another key.
    #[error("the name {name} belongs to an inventory with another key")]
    NameTaken {
        /// Which one.
        name: String,
    },
    /// See [`ReportError`].
    #[error(transparent)]
    Status(#[from] ReportError),
}

/// A host that has proven who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newcomer {
    /// `spec.tpmHash`.
    pub tpm_hash: String,
    /// The network that every reprovision will replay.
    pub observed_network: Option<ObservedNetwork>,
}

/// Makes the inventory of a host. Another replica may have done so a moment
/// ago: then that one is the answer, when it has the same key.
///
/// # Errors
/// [`RegistrationError`].
pub async fn create(
    inventories: &Api<MachineInventory>,
    draft: Draft,
    newcomer: Newcomer,
) -> Result<Arc<MachineInventory>, RegistrationError> {
    let name = draft.name.clone();
    let hash = newcomer.tpm_hash.clone();
    let inventory = render(draft, newcomer);
    match inventories.create(&PostParams::default(), &inventory).await {
        Ok(created) => Ok(Arc::new(created)),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let found = report::read(inventories, &name, None).await?;
            if found.spec.tpm_hash.as_deref() != Some(hash.as_str()) {
                return Err(RegistrationError::NameTaken { name });
            }
            Ok(Arc::new(found))
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => {
            Err(RegistrationError::Rejected { name, message: status.message })
        }
        Err(source) => Err(RegistrationError::CreateInventory { name, source }),
    }
}

fn render(draft: Draft, newcomer: Newcomer) -> MachineInventory {
    let spec = MachineInventorySpec {
        tpm_hash: Some(newcomer.tpm_hash),
        observed_network: newcomer.observed_network,
        network: draft.network,
        ip_address_pools: draft.ip_address_pools,
        ..MachineInventorySpec::default()
    };
    let mut inventory = MachineInventory::new(&draft.name, spec);
    inventory.metadata.labels = Some(draft.labels);
    inventory.metadata.annotations = Some(draft.annotations);
    inventory
}

/// Makes the plan Secret of an inventory and names it in the status, when that
/// was not done yet. One that was lost is made anew: a host registers when a
/// person boots the ISO to mend it.
///
/// # Errors
/// [`RegistrationError`].
pub async fn equip(
    client: &Client,
    inventory: Arc<MachineInventory>,
    now: Timestamp,
) -> Result<Arc<MachineInventory>, RegistrationError> {
    let namespace = inventory.namespace().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let named = inventory.plan().and_then(|plan| plan.secret_ref.as_ref()?.name.clone());
    let failed = |source| RegistrationError::CreateSecret { name: inventory.name_any(), source };
    if let Some(name) = named
        && secrets.get_metadata_opt(&name).await.map_err(failed)?.is_some()
    {
        return Ok(inventory);
    }
    let secret = plan_secret(&inventory, &inventory.name_any());
    match secrets.create(&PostParams::default(), &secret).await {
        Ok(_) => {}
        // Left by a crash before the status was written: what it holds is kept.
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(source) => return Err(failed(source)),
    }
    let reference = ObjectReference {
        name: secret.metadata.name,
        namespace: Some(namespace.clone()),
        ..ObjectReference::default()
    };
    let inventories: Api<MachineInventory> = Api::namespaced(client.clone(), &namespace);
    let project = |known: &MachineInventory| host::registered(known, reference.clone(), now);
    Ok(report::status(&inventories, inventory, project).await?)
}

/// The plan Secret of a host that has nothing to do.
pub(super) fn plan_secret(inventory: &MachineInventory, name: &str) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([(label::MANAGED.to_owned(), "true".to_owned())])),
            owner_references: inventory.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some(key::TYPE.to_owned()),
        data: Some(BTreeMap::from([(key::PLAN.to_owned(), ByteString(key::EMPTY.as_bytes().to_vec()))])),
        ..Secret::default()
    }
}
