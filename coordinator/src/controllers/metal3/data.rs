//! `Metal3Data`: claims addresses, renders the Secrets, and releases the addresses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coordinator_api::capi::Machine;
use coordinator_api::metal3::data::{Metal3Data, Metal3DataStatus};
use coordinator_api::metal3::data_template::Metal3DataTemplate;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::ipam::{IPAddress, IPAddressSpec, IPClaim, IPClaimSpec};
use coordinator_api::metal3::machine::Metal3Machine;
use coordinator_api::metal3::{ObjectRef, names};
use coordinator_core::metal3::data::{META_DATA, NETWORK_DATA, Sources, list_pools, render_data};
use coordinator_core::metal3::machine::named_host;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use kube::runtime::controller::Action;

use crate::controllers::context::Context;
use crate::controllers::failures::show_event;
use crate::controllers::reconciled::{Failure, Reconciled};
use crate::key::Key;
use crate::store::{StoreError, metal3, open_api, status};

/// The interval until an object is looked for again that no watch announces.
const RECHECK: Duration = Duration::from_secs(5);

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
        addresses: &'a BTreeMap<String, IPAddressSpec>,
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
            release_addresses(&context, &data).await?;
            return Ok(Action::await_change());
        }
        let (ready, error_message) = match prepare_secrets(&context, &data).await? {
            Ok(()) => (true, None),
            Err(message) => (false, Some(message)),
        };
        // A rendered Secret stays, because hosts were provisioned with it.
        let was_ready = data.status.as_ref().is_some_and(|status| status.ready);
        let projected = Metal3DataStatus { ready: ready || was_ready, error_message };
        status::write_status(&context.client, &*data, &projected).await?;
        Ok(if ready { Action::await_change() } else { Action::requeue(RECHECK) })
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
        match claim_address(context, data, &pool).await? {
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

/// The address of a pool for this data, once its claim has an address.
async fn claim_address(
    context: &Context,
    data: &Metal3Data,
    pool: &str,
) -> Result<Result<IPAddressSpec, String>, StoreError> {
    let key = Key::of(data);
    let name = format!("{}-{pool}", key.name);
    let Some(claim) = context.cache.get::<IPClaim>(&key.in_namespace_of(&name)) else {
        let claim = new_claim(data, &name, pool);
        if let Some(existing) = metal3::create(&context.client, &key.namespace, &claim).await?
            && existing.labels().get(names::DATA_NAME).map(String::as_str) != Some(&*key.name)
        {
            return Ok(Err(format!("IPClaim {name} exists and is not of this data: delete it")));
        }
        return Ok(Err(format!("IPClaim {name} has no address yet: wait")));
    };
    let status = claim.status.clone().unwrap_or_default();
    if let Some(error) = status.error_message {
        return Ok(Err(format!("IP Allocation for {pool} failed : {error}")));
    }
    let address = status.address.map(|address| key.in_namespace_of(&address.name));
    let address = address.and_then(|address| context.cache.get::<IPAddress>(&address));
    Ok(address
        .map(|address| address.spec.clone())
        .ok_or_else(|| format!("IPClaim {name} has no address yet: wait")))
}

fn new_claim(data: &Metal3Data, name: &str, pool: &str) -> IPClaim {
    let pool_ref = ObjectRef { name: pool.to_owned(), ..ObjectRef::default() };
    let mut claim = IPClaim::new(name, IPClaimSpec { pool: pool_ref });
    let mut labels = data.labels().clone();
    labels.insert(names::DATA_NAME.to_owned(), data.name_any());
    labels.insert(names::POOL_NAME.to_owned(), pool.to_owned());
    claim.metadata.labels = Some(labels);
    claim
}

/// Deletes the claims; the data stays until they are deleted. The claims are listed in the API
/// server, because the cache may not have seen the last one.
async fn release_addresses(context: &Context, data: &Metal3Data) -> Result<(), StoreError> {
    let name = data.name_any();
    if !data.finalizers().iter().any(|held| held == names::DATA_FINALIZER) {
        return Ok(());
    }
    let api: Api<IPClaim> = open_api(&context.client, data);
    let of_data = ListParams::default().labels(&format!("{}={name}", names::DATA_NAME));
    let claims = api.list(&of_data).await.map_err(StoreError::request("list", "IPClaim", &name))?;
    if claims.items.is_empty() {
        return metal3::drop_finalizer(&context.client, data, names::DATA_FINALIZER).await;
    }
    for claim in claims.items.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none()) {
        metal3::delete(&context.client, claim).await?;
    }
    Ok(())
}
