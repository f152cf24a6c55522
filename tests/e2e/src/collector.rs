//! A collector of OTLP on loopback: keeps the spans that it receives.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1 as otlp;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use otlp::trace_service_server::{TraceService, TraceServiceServer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// A span with the name of the service that sent it.
#[derive(Clone, Debug)]
pub struct Received {
    /// `service.name`.
    pub service: String,
    pub span: Span,
}

impl Received {
    /// The text of an attribute; empty without it.
    pub fn attribute(&self, key: &str) -> String {
        find_text(&self.span.attributes, key)
    }
}

fn find_text(attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.as_ref()?.value.clone()) {
        Some(Value::StringValue(text)) => text,
        _ => String::new(),
    }
}

/// What arrived, by the id of the span: what is sent twice is one span.
#[derive(Clone, Debug)]
pub struct Collector {
    spans: Arc<Mutex<BTreeMap<Vec<u8>, Received>>>,
    count: Arc<watch::Sender<usize>>,
    address: SocketAddr,
}

impl Collector {
    /// Starts one that ends with the runtime.
    ///
    /// # Errors
    /// When there is no port.
    pub async fn start() -> anyhow::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0").await?;
        let collector = Self {
            spans: Arc::default(),
            count: Arc::new(watch::Sender::new(0)),
            address: port.local_addr()?,
        };
        let service = TraceServiceServer::new(collector.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(port)));
        Ok(collector)
    }

    /// What a process that sends to it has in its environment.
    pub fn environment(&self) -> (String, String) {
        ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("http://{}", self.address))
    }

    /// The spans, once they are as `is_complete` wants them.
    pub async fn wait_for(&self, is_complete: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        let mut arrivals = self.count.subscribe();
        loop {
            arrivals.borrow_and_update();
            let spans: Vec<_> = self.lock_spans().values().cloned().collect();
            if is_complete(&spans) || arrivals.changed().await.is_err() {
                return spans;
            }
        }
    }

    fn lock_spans(&self) -> std::sync::MutexGuard<'_, BTreeMap<Vec<u8>, Received>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<otlp::ExportTraceServiceRequest>,
    ) -> Result<Response<otlp::ExportTraceServiceResponse>, Status> {
        for process in request.into_inner().resource_spans {
            let service = process.resource.map(|resource| find_text(&resource.attributes, "service.name"));
            let service = service.unwrap_or_default();
            for span in process.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                let id = [span.trace_id.clone(), span.span_id.clone()].concat();
                self.lock_spans().insert(id, Received { service: service.clone(), span });
            }
        }
        self.count.send_modify(|count| *count += 1);
        Ok(Response::new(otlp::ExportTraceServiceResponse::default()))
    }
}
