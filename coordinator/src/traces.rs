//! Spans of machines, sent by OTLP over gRPC to the collector of `OTEL_EXPORTER_OTLP_ENDPOINT`.

use std::env;
use std::sync::Arc;
use std::time::SystemTime;

use coordinator_core::trace::{Span, TraceId};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor};
use tonic::transport::ClientTlsConfig;

use crate::telemetry::chain;

const SERVICE: &str = "baremetal-coordinator";
/// The name that the SDK gives to a service without a name.
const UNNAMED: &str = "unknown_service";

/// The destination of spans; none by default. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<Arc<BatchSpanProcessor>>);

impl Traces {
    /// Sends to the collector of the environment, if there is one, from inside the runtime. Spans
    /// that the collector does not take are dropped, because the queue is bounded.
    ///
    /// # Errors
    /// When the URL of the collector cannot be used.
    pub fn from_environment(instance: &str) -> Result<Self, ExporterBuildError> {
        if env::var("OTEL_SDK_DISABLED").is_ok_and(|disabled| disabled.eq_ignore_ascii_case("true")) {
            return Ok(Self::default());
        }
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint =
            set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| set("OTEL_EXPORTER_OTLP_ENDPOINT"));
        endpoint.map_or(Ok(Self::default()), |endpoint| Self::to_collector(&endpoint, instance))
    }

    fn to_collector(endpoint: &str, instance: &str) -> Result<Self, ExporterBuildError> {
        let mut exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint);
        if endpoint.starts_with("https:") {
            exporter = exporter.with_tls_config(ClientTlsConfig::new().with_enabled_roots());
        }
        let mut processor = BatchSpanProcessor::builder(exporter.build()?).build();
        processor.set_resource(&describe_process(instance));
        tracing::info!(endpoint, "spans of machines are sent to a collector");
        Ok(Self(Some(Arc::new(processor))))
    }

    /// Queues the span that `make` gives. Without a collector `make` is not called. `None` belongs
    /// to a machine without a UID.
    pub fn record_span(&self, make: impl FnOnce() -> Option<Span>) {
        let Some(processor) = &self.0 else { return };
        if let Some(span) = make() {
            processor.on_end(to_data(span));
        }
    }

    /// Sends the queued spans and blocks until they are sent.
    pub fn send_rest(&self) {
        let Some(processor) = &self.0 else { return };
        if let Err(error) = processor.shutdown() {
            tracing::warn!(error = chain(&error), "the last spans were not sent");
        }
    }
}

/// Adds the id of the trace to log lines.
pub fn note_trace(trace: Option<TraceId>) {
    if let Some(trace) = trace {
        tracing::Span::current().record("trace_id", tracing::field::display(trace));
    }
}

/// `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` are read too.
fn describe_process(instance: &str) -> Resource {
    let own = [
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", instance.to_owned()),
    ];
    let resource = Resource::builder().with_attributes(own);
    let name = Resource::builder().build().get(&"service.name".into());
    let is_unnamed = name.is_none_or(|name| name.as_str().starts_with(UNNAMED));
    if is_unnamed { resource.with_service_name(SERVICE) } else { resource }.build()
}

fn to_data(span: Span) -> SpanData {
    let trace = opentelemetry::trace::TraceId::from_bytes(span.trace.0.to_be_bytes());
    let id = |id: coordinator_core::trace::SpanId| SpanId::from_bytes(id.0.to_be_bytes());
    let mut attributes: Vec<_> =
        span.attributes.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect();
    attributes.extend(span.failure.map(|reason| KeyValue::new("error.type", reason)));
    SpanData {
        span_context: SpanContext::new(trace, id(span.id), TraceFlags::SAMPLED, false, TraceState::default()),
        parent_span_id: span.parent.map_or(SpanId::INVALID, id),
        // The parent may come from another replica.
        parent_span_is_remote: span.parent.is_some(),
        span_kind: SpanKind::Internal,
        name: span.name.into(),
        start_time: SystemTime::from(span.start),
        end_time: SystemTime::from(span.end),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: span.failure.map_or(Status::Unset, Status::error),
        instrumentation_scope: InstrumentationScope::builder(SERVICE).build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    #[test]
    fn spans_keep_their_ids_and_reasons() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let span = Span {
            trace: TraceId(0xa1),
            id: coordinator_core::trace::SpanId(0xb2),
            parent: None,
            name: "reboot",
            start: at(1),
            end: at(3),
            failure: Some("BootFallback"),
            attributes: vec![("baremetal.host", "host-1".into())],
        };
        let data = to_data(span);
        assert!(data.span_context.is_sampled(), "the SDK drops what is not");
        assert_eq!(data.span_context.trace_id().to_string(), format!("{:032x}", 0xa1));
        assert_eq!(data.span_context.span_id().to_string(), format!("{:016x}", 0xb2));
        assert_eq!(data.parent_span_id, SpanId::INVALID);
        assert_eq!(data.end_time.duration_since(data.start_time).unwrap().as_secs(), 2);
        assert_eq!(data.status, Status::error("BootFallback"));
        let attributes = [("baremetal.host", "host-1"), ("error.type", "BootFallback")];
        assert_eq!(data.attributes, attributes.map(|(key, value)| KeyValue::new(key, value)));
    }
}
