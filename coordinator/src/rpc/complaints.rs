//! What a person cures at a registration is told there, as an Event: a host
//! that was turned away has no object of its own.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use coordinator_api::registration::MachineRegistration;
use kube::{Client, ResourceExt as _};
use proto::refusal::Refusal;
use tokio::time::Instant;

use crate::events::Events;

/// The same is not told again for so long: a host that is turned away comes
/// back every half minute.
const QUIET: Duration = Duration::from_mins(10);
/// Different complaints that are remembered; a template can make many names.
const KEPT: usize = 256;

/// UID of the registration, the refusal, and of what it was.
type Complaint = (String, Refusal, String);

/// Tells them.
pub(super) struct Complaints {
    events: Events,
    told: Mutex<HashMap<Complaint, Instant>>,
}

impl Complaints {
    pub(super) fn new(client: Client) -> Self {
        Self { events: Events::new(client, None), told: Mutex::default() }
    }

    /// Tells why a host that has the token was turned away.
    pub(super) async fn tell(&self, registration: &MachineRegistration, refusal: Refusal, detail: &str) {
        let complaint = (registration.uid().unwrap_or_default(), refusal, detail.to_owned());
        if self.is_new(complaint, Instant::now()) {
            let note = format!("{detail}: {}", refusal.next_action());
            self.events.warning(registration, refusal.code(), &note).await;
        }
    }

    fn is_new(&self, complaint: Complaint, now: Instant) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, last| now.duration_since(*last) < QUIET);
        // Beyond that somebody makes them up.
        if told.contains_key(&complaint) || told.len() >= KEPT {
            return false;
        }
        told.insert(complaint, now);
        true
    }
}
