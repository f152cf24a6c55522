//! Events on objects, as `kubectl describe` shows them.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};

use crate::telemetry::chain;

/// Our name on events.
const REPORTER: &str = "baremetal-coordinator";

/// Writes events; the same one within a few minutes becomes a series.
#[derive(Clone)]
pub struct Events(Recorder);

impl Events {
    /// Events by `instance`, the name of this replica where it is known.
    #[must_use]
    pub fn new(client: Client, instance: impl Into<Option<String>>) -> Self {
        Self(Recorder::new(client, Reporter { controller: REPORTER.into(), instance: instance.into() }))
    }

    /// Something went as intended.
    pub async fn normal(&self, object: &impl Resource<DynamicType = ()>, reason: &str, note: &str) {
        self.publish_event(EventType::Normal, &object.object_ref(&()), reason, note).await;
    }

    /// Something needs an operator.
    pub async fn warning(&self, object: &impl Resource<DynamicType = ()>, reason: &str, note: &str) {
        self.publish_event(EventType::Warning, &object.object_ref(&()), reason, note).await;
    }

    /// An event that cannot be written must not stop the work it tells of.
    async fn publish_event(&self, type_: EventType, object: &ObjectReference, reason: &str, note: &str) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note.chars().take(1000).collect()),
            action: reason.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.0.publish(&event, object).await {
            tracing::debug!(error = %chain(&error), reason, "an event could not be written");
        }
    }
}
