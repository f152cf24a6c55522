//! `MachineRegistration`: makes sure that the Secret with the token exists, and shows token and URL.

use std::sync::Arc;

use coordinator_api::conditions::{
    self, ConditionUpdate, Reason, Type, condition_false, condition_true, fields_ignored,
};
use coordinator_api::explain::EventReason;
use coordinator_api::names::annotation;
use coordinator_api::registration::{MachineRegistration, MachineRegistrationStatus, Registration};
use coordinator_core::inventory::{RANDOM_KEY, admission, check_registration};
use coordinator_core::pause;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;

use super::context::Context;
use super::failures::show_condition;
use super::reconciled::{Failure, Reconciled};
use crate::clock::time_until;
use crate::key::Key;
use crate::store::registration::AUTHORITIES_SECRET;
use crate::store::registration_token::{self, Token};
use crate::store::{StoreError, secret, status};

impl Reconciled for MachineRegistration {
    async fn reconcile(registration: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        if registration.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        if pause::is_paused(&*registration, None) {
            let projected = with_conditions(&registration, &[pause::paused_condition(true)], &context);
            status::write_status(&context.client, &*registration, &projected).await?;
            return Ok(Action::await_change());
        }
        if let Some(other) = find_duplicate(&registration, &context) {
            show_duplicate(&registration, &other, &context).await?;
            // The other registration concerns this one when it gives up the token.
            return Ok(Action::await_change());
        }
        let stored = registration_token::ensure(&context.client, &registration).await?;
        let token = if registration.annotations().contains_key(annotation::ROTATE_TOKEN) {
            rotate(&registration, stored, &context).await?
        } else {
            stored.token
        };
        let now = context.clock.now();
        let are_vendors_named = names_vendors(&registration, &context).await?;
        let updates = registration_conditions(&registration, are_vendors_named, now);
        let is_ready = updates.iter().any(|update| update.reason == Reason::SuccessfullyCreated);
        let mut projected = with_conditions(&registration, &updates, &context);
        projected.registration_url = Some(format!("{}/elemental/registration/{token}", context.server_url));
        projected.registration_token = Some(token);
        let refusal = admission::shown_refusal(&registration, now);
        projected.last_refusal = refusal.map(|(refusal, _)| refusal.clone());
        let written = status::write_status(&context.client, &*registration, &projected).await?;
        if written.is_some() {
            tracing::info!(is_ready, "registration reconciled");
            warn_of_seed(&registration, &context);
        }
        let expiry = admission::token_expiry(&registration).filter(|expiry| *expiry > now);
        let wake = expiry.into_iter().chain(refusal.map(|(_, until)| until)).min();
        let wait = wake.map(|wake| time_until(wake, now));
        Ok(wait.map_or_else(Action::await_change, Action::requeue))
    }

    async fn show_failure(&self, context: &Context, error: &StoreError) -> Result<(), StoreError> {
        show_condition(context, self, error, |status| &mut status.conditions).await
    }
}

/// Another registration that has the token of `spec.token` before this one.
fn find_duplicate(registration: &MachineRegistration, context: &Context) -> Option<String> {
    let token = registration.spec.token.as_deref()?;
    let holders = context.index.registrations_with_token(token).into_iter();
    let mut holders = holders.filter_map(|key| context.cache.get::<MachineRegistration>(&key));
    let own = precedence(registration, token);
    let other = holders.find(|found| found.uid() != registration.uid() && precedence(found, token) < own)?;
    Some(Key::of(&*other).to_string())
}

/// The order in which registrations have a token: the one that generated it, then the one that shows it
/// already, then by name. Times of creation are new after a restore, and would give the token to another
/// registration.
fn precedence(registration: &MachineRegistration, token: &str) -> (bool, bool, Key) {
    let shown = registration.status.as_ref().and_then(|status| status.registration_token.as_deref());
    (registration.spec.token.is_some(), shown != Some(token), Key::of(registration))
}

/// Shows that hosts with the token register with the other registration.
async fn show_duplicate(
    registration: &MachineRegistration,
    other: &str,
    context: &Context,
) -> Result<(), StoreError> {
    let message = format!("MachineRegistration {other} has the token of spec.token: set another one");
    let failed = condition_false(Type::Ready, Reason::DuplicateToken, message);
    let mut projected = with_conditions(registration, &[failed], context);
    projected.registration_url = None;
    projected.registration_token = None;
    status::write_status(&context.client, registration, &projected).await.map(drop)
}

/// The conditions that show whether hosts can register, and which fields have no effect.
pub(crate) fn registration_conditions(
    registration: &MachineRegistration,
    are_vendors_named: bool,
    now: Timestamp,
) -> [ConditionUpdate; 5] {
    let unsupported = check_registration(registration);
    let ready = match unsupported.refusal() {
        Some(refusal) => condition_false(Type::Ready, Reason::FieldUnsupported, refusal),
        None if admission::is_token_expired(registration, now) => condition_false(
            Type::Ready,
            Reason::TokenExpired,
            "no new host can register: set spec.tokenExpiresAt to a later time, or remove it",
        ),
        None => condition_true(Type::Ready, Reason::SuccessfullyCreated, "hosts can register"),
    };
    let refusal = admission::shown_refusal(registration, now).map(|(refusal, _)| refusal);
    let admission = admission::admission_condition(registration, are_vendors_named);
    let ignored = fields_ignored(&unsupported.ignored);
    [pause::paused_condition(false), ready, ignored, admission, admission::refusal_condition(refusal)]
}

/// The Secret with the CAs of TPM vendors exists, where the condition depends on it.
async fn names_vendors(registration: &MachineRegistration, context: &Context) -> Result<bool, StoreError> {
    let namespace = registration.namespace().filter(|_| admission::relies_on_tpms(registration));
    let Some(namespace) = namespace else { return Ok(false) };
    secret::read_secret(&context.client, &namespace, AUTHORITIES_SECRET).await.map(|found| found.is_some())
}

fn with_conditions(
    registration: &MachineRegistration,
    updates: &[ConditionUpdate],
    context: &Context,
) -> MachineRegistrationStatus {
    let mut projected = registration.status.clone().unwrap_or_default();
    let generation = registration.metadata.generation;
    conditions::set_conditions(&mut projected.conditions, updates, generation, context.clock.now());
    projected
}

/// The token is replaced before the annotation is removed. A crash between the two replaces it once
/// more, before the status has shown it.
async fn rotate(
    registration: &MachineRegistration,
    stored: Token,
    context: &Context,
) -> Result<String, StoreError> {
    if registration.spec.token.is_some() {
        let note = "spec.token fixes the token: change it there";
        context.events.publish(registration, EventReason::TokenFixed, note);
        registration_token::clear_rotation(&context.client, registration).await?;
        return Ok(stored.token);
    }
    let token = registration_token::replace(&context.client, registration, stored).await?;
    registration_token::clear_rotation(&context.client, registration).await?;
    let note = "a new registration token was created; seed ISOs with the former one are of no use any more";
    context.events.publish(registration, EventReason::TokenRotated, note);
    tracing::info!("registration token replaced");
    Ok(token)
}

fn warn_of_seed(registration: &MachineRegistration, context: &Context) {
    let seed = read_settings(registration).and_then(|settings| settings.emulated_tpm_seed);
    if seed.is_some_and(|seed| seed != RANDOM_KEY) {
        let note = "emulated-tpm-seed is ignored: each host creates its own random key; remove the field";
        context.events.publish(registration, EventReason::EmulatedTpmSeedIgnored, note);
    }
}

fn read_settings(registration: &MachineRegistration) -> Option<&Registration> {
    registration.spec.config.as_ref()?.elemental.as_ref()?.registration.as_ref()
}

#[cfg(test)]
mod tests;
