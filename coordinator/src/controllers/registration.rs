//! `MachineRegistration`: a token and a URL.

use std::sync::Arc;

use coordinator_api::conditions::{self, Finding, Reason, Type};
use coordinator_api::registration::MachineRegistration;
use jiff::Timestamp;
use kube::runtime::controller::Action;

use super::{Context, Error};
use crate::store::status::{self, Written};

/// Gives the registration its token, once; deleting the token from the status
/// makes a new one, and every earlier ISO useless.
///
/// # Errors
/// When the status cannot be written.
pub async fn reconcile(
    registration: Arc<MachineRegistration>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let mut new = registration.status.clone().unwrap_or_default();
    let token = new.registration_token.get_or_insert_with(|| uuid::Uuid::new_v4().simple().to_string());
    new.registration_url = Some(format!("{}/elemental/registration/{token}", context.server_url));
    let ready = Finding::holds(Type::Ready, Reason::SuccessfullyCreated, "hosts can register");
    conditions::apply(&mut new.conditions, &[ready], registration.metadata.generation, Timestamp::now());
    let written = status::apply(&context.client, &*registration, new).await?;
    let seed = registration
        .spec
        .config
        .as_ref()
        .and_then(|config| config.elemental.as_ref())
        .and_then(|elemental| elemental.registration.as_ref());
    if written == Written::Changed && seed.is_some_and(|seed| seed.emulated_tpm_seed.is_some()) {
        let note = "emulated-tpm-seed is ignored: each host makes its own random key; remove the field";
        context.events.warning(&*registration, "EmulatedTpmSeedIgnored", note).await;
    }
    Ok(Action::await_change())
}
