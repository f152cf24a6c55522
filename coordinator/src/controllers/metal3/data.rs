//! `Metal3Data`: claims addresses, renders the Secrets, and releases the addresses.

use std::collections::BTreeMap;
use std::sync::Arc;

use coordinator_api::capi::Machine;
use coordinator_api::metal3::data::{Metal3Data, Metal3DataClaim, Metal3DataStatus};
use coordinator_api::metal3::data_template::Metal3DataTemplate;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::ipam::IPAddressSpec;
use coordinator_api::metal3::machine::Metal3Machine;
use coordinator_api::metal3::names;
use coordinator_core::metal3::data::{META_DATA, NETWORK_DATA, PoolId, Sources, list_pools, render_data};
use coordinator_core::metal3::machine::named_host;
use kube::runtime::controller::Action;

use super::data_addresses;
use super::orphans::{self, Care};
use crate::controllers::context::Context;
use crate::controllers::failures::show_event;
use crate::controllers::reconciled::{Failure, Reconciled};
use crate::key::{Key, OfKind as _};
use crate::store::{StoreError, metal3, status};

/// The objects of which values are taken.
struct Objects {
    template: Arc<Metal3DataTemplate>,
    machine: Arc<Machine>,
    metal3_machine: Arc<Metal3Machine>,
    host: Arc<BareMetalHost>,
}

impl Objects {
    /// Finds the objects; the error names the missing one.
    fn find(data: &Metal3Data, context: &Context) -> Result<Self, String> {
        let key = Key::of(data);
        let name = &data.spec.template.name;
        let template = context.cache.get::<Metal3DataTemplate>(&key.in_namespace_of(name));
        let template =
            template.ok_or_else(|| format!("Metal3DataTemplate {name} does not exist: restore it"))?;
        let name = &data.spec.claim.name;
        let metal3_machine = context.cache.get::<Metal3Machine>(&key.in_namespace_of(name));
        let metal3_machine =
            metal3_machine.ok_or_else(|| format!("Metal3Machine {name} does not exist: restore it"))?;
        let machine = context.find_owner(&*metal3_machine);
        let machine =
            machine.ok_or_else(|| format!("Metal3Machine {name} has no Machine: wait for Cluster API"))?;
        let host = named_host(&metal3_machine)
            .and_then(|host| context.cache.get::<BareMetalHost>(&key.in_namespace_of(host)));
        let host = host.ok_or_else(|| format!("Metal3Machine {name} has no BareMetalHost yet: wait"))?;
        Ok(Self { template, machine, metal3_machine, host })
    }

    fn sources<'a>(
        &'a self,
        data: &Metal3Data,
        addresses: &'a BTreeMap<PoolId, IPAddressSpec>,
    ) -> Sources<'a> {
        Sources {
            machine: &self.machine,
            metal3_machine: &self.metal3_machine,
            host: &self.host,
            index: data.spec.index,
            addresses,
        }
    }
}

impl Reconciled for Metal3Data {
    async fn reconcile(data: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        if context.is_paused(&*data) {
            return Ok(Action::await_change());
        }
        if data.metadata.deletion_timestamp.is_some() {
            data_addresses::release_addresses(&context, &data).await?;
            return Ok(Action::await_change());
        }
        let (claim, finalizer) = (&data.spec.claim.name, names::DATA_FINALIZER);
        let care =
            orphans::look_after::<Metal3DataClaim, _>(&context, &*data, claim, Some(finalizer)).await?;
        let (ready, error_message, action) = match care {
            Care::Changed => return Ok(Action::await_change()),
            Care::Orphaned { message, recheck } => (false, Some(message), recheck),
            Care::Held => {
                let key = Key::of(&*data);
                match prepare_secrets(&context, &data).await? {
                    Ok(()) => {
                        context.backoffs.reset_waits(Self::KIND, &key);
                        (true, None, Action::await_change())
                    }
                    // No watch announces all that the data may wait for.
                    Err(message) => {
                        let interval = context.backoffs.next_wait(Self::KIND, &key);
                        (false, Some(message), Action::requeue(interval))
                    }
                }
            }
        };
        // A rendered Secret stays, because hosts were provisioned with it.
        let was_ready = data.status.as_ref().is_some_and(|status| status.ready);
        let projected = Metal3DataStatus { ready: ready || was_ready, error_message };
        status::write_status(&context.client, &*data, &projected).await?;
        Ok(action)
    }

    async fn show_failure(&self, context: &Context, error: &StoreError) -> Result<(), StoreError> {
        show_event(context, self, error).await
    }
}

/// Writes the Secrets, or gives the reason why they cannot be rendered.
async fn prepare_secrets(context: &Context, data: &Metal3Data) -> Result<Result<(), String>, StoreError> {
    let objects = match Objects::find(data, context) {
        Ok(objects) => objects,
        Err(message) => return Ok(Err(message)),
    };
    let none = BTreeMap::new();
    let pools = match list_pools(&objects.template.spec, &objects.sources(data, &none)) {
        Ok(pools) => pools,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let mut addresses = BTreeMap::new();
    let mut waiting = vec![];
    for pool in pools {
        match data_addresses::claim_address(context, data, &pool).await? {
            Ok(address) => drop(addresses.insert(pool, address)),
            Err(message) => waiting.push(message),
        }
    }
    if let Some(message) = waiting.into_iter().next() {
        return Ok(Err(message));
    }
    let rendered = match render_data(&objects.template, &objects.sources(data, &addresses)) {
        Ok(rendered) => rendered,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let secrets = [
        (&data.spec.meta_data, META_DATA.0, rendered.meta_data),
        (&data.spec.network_data, NETWORK_DATA.0, rendered.network_data),
    ];
    for (reference, key, content) in secrets {
        let name = reference.as_ref().and_then(|reference| reference.name.as_deref());
        if let (Some(name), Some(content)) = (name, content) {
            metal3::ensure_secret(&context.client, data, name, (key, content)).await?;
        }
    }
    Ok(Ok(()))
}
