//! A connection to a replica over TLS, and the calls of a host on it.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proto::proof::{EXPORTER_LABEL, Exporter};
use proto::v1alpha1 as wire;
use proto::v1alpha1::host_client::HostClient;
use proto::v1alpha1::registration_client::RegistrationClient;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tower::Service as _;
use tower::util::BoxCloneService;

use super::{AGENT, Host, World};
use crate::ca::Authority;

type Wire =
    BoxCloneService<http::Request<tonic::body::Body>, http::Response<hyper::body::Incoming>, hyper::Error>;

pub(in crate::rpc::tests) struct Link {
    wire: Wire,
    registration: RegistrationClient<Wire>,
    host: HostClient<Wire>,
    /// The host's half of its stream: open as long as the link.
    half: Option<mpsc::Sender<wire::HostMessage>>,
    pub(in crate::rpc::tests) exporter: Exporter,
}

impl World {
    pub(in crate::rpc::tests) async fn connect(&self, identity: Option<(&Host, &str)>) -> Link {
        self.connect_to(0, identity).await
    }

    pub(in crate::rpc::tests) async fn connect_to(
        &self,
        replica: usize,
        identity: Option<(&Host, &str)>,
    ) -> Link {
        self.try_connect(&self.authority, replica, identity).await.unwrap()
    }

    pub(in crate::rpc::tests) async fn try_connect(
        &self,
        authority: &Authority,
        replica: usize,
        identity: Option<(&Host, &str)>,
    ) -> std::io::Result<Link> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.roots().next().unwrap().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((host, chain)) => {
                let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap);
                let key = PrivatePkcs8KeyDer::from(host.key.serialize_der());
                builder.with_client_auth_cert(chain.collect(), key.into()).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(self.replicas[replica].address).await?;
        let name = "127.0.0.1".try_into().unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let exporter = stream.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, None).unwrap();
        let io = TokioIo::new(stream);
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
        let (sender, connection) = handshake.map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        let wire = BoxCloneService::new(tower::service_fn(move |request| {
            let mut sender = sender.clone();
            async move { sender.send_request(request).await }
        }));
        let origin: http::Uri = "https://127.0.0.1".parse().unwrap();
        Ok(Link {
            wire: wire.clone(),
            registration: RegistrationClient::with_origin(wire.clone(), origin.clone()),
            host: HostClient::with_origin(wire, origin),
            half: None,
            exporter,
        })
    }
}

type Answer<T> = Result<T, tonic::Status>;

impl Link {
    pub(in crate::rpc::tests) async fn begin(&mut self, host: &Host, token: &str) -> Answer<Vec<u8>> {
        let request = wire::BeginRequest {
            registration_token: token.into(),
            public_key: host.public_key(),
            attestation: Some(wire::begin_request::Attestation::SoftwareKey(wire::SoftwareKey::default())),
        };
        Ok(self.registration.begin(request).await?.into_inner().nonce)
    }

    pub(in crate::rpc::tests) async fn get(&mut self, path: &str) -> (u16, String) {
        let request = http::Request::get(format!("https://127.0.0.1{path}"));
        let request = request.body(tonic::body::Body::empty()).unwrap();
        let response = self.wire.call(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Asserts that the answer for a path is that nothing is there.
    pub(in crate::rpc::tests) async fn expect_404(&mut self, path: &str) {
        assert_eq!(self.get(path).await, (404, String::new()), "{path}");
    }

    /// Starts a call and sends a part of its message. The message ends when the sender is dropped. The
    /// coordinator has the headers of the call afterwards, because it has answered a later request.
    pub(in crate::rpc::tests) async fn start_message(
        &mut self,
        path: &str,
        part: &'static [u8],
    ) -> (mpsc::Sender<Bytes>, JoinHandle<Option<tonic::Status>>) {
        let (rest, parts) = mpsc::channel(1);
        rest.send(Bytes::from_static(part)).await.unwrap();
        let frames = ReceiverStream::new(parts).map(|part| Ok::<_, Infallible>(Frame::data(part)));
        let request = http::Request::post(format!("https://127.0.0.1{path}"))
            .header(http::header::CONTENT_TYPE, "application/grpc")
            .body(tonic::body::Body::new(StreamBody::new(frames)));
        let call = self.wire.call(request.unwrap());
        let answer = tokio::spawn(async move {
            let response = call.await.unwrap();
            tonic::Status::from_header_map(response.headers())
        });
        // The channel has a place again once the client has taken the part, after the headers.
        drop(rest.reserve().await.unwrap());
        self.get("/nothing").await;
        (rest, answer)
    }

    pub(in crate::rpc::tests) async fn complete(
        &mut self,
        request: wire::CompleteRequest,
    ) -> Answer<wire::CompleteResponse> {
        Ok(self.registration.complete(request).await?.into_inner())
    }

    pub(in crate::rpc::tests) async fn register(
        &mut self,
        host: &Host,
        token: &str,
    ) -> Answer<wire::CompleteResponse> {
        self.register_edited(host, token, |_| ()).await
    }

    /// As [`Link::register`], by a request that is not the one of a real host.
    pub(in crate::rpc::tests) async fn register_edited(
        &mut self,
        host: &Host,
        token: &str,
        edit: impl FnOnce(&mut wire::CompleteRequest),
    ) -> Answer<wire::CompleteResponse> {
        let nonce = self.begin(host, token).await?;
        let mut request = host.complete(&nonce, &self.exporter);
        edit(&mut request);
        self.complete(request).await
    }

    pub(in crate::rpc::tests) async fn attach(
        &mut self,
        hello: wire::Hello,
    ) -> Answer<tonic::Streaming<wire::CoordinatorMessage>> {
        let (half, messages) = mpsc::channel(8);
        let hello = wire::HostMessage { message: Some(wire::host_message::Message::Hello(hello)) };
        half.send(hello).await.unwrap();
        self.half = Some(half);
        let messages = ReceiverStream::new(messages);
        Ok(self.host.attach(messages).await?.into_inner())
    }

    pub(in crate::rpc::tests) async fn send(&self, message: wire::host_message::Message) {
        let message = wire::HostMessage { message: Some(message) };
        self.half.as_ref().unwrap().send(message).await.unwrap();
    }

    /// Sends a message, if the stream is still open.
    pub(in crate::rpc::tests) async fn try_send(&self, message: wire::host_message::Message) {
        let message = wire::HostMessage { message: Some(message) };
        // A stream that has ended takes no more messages.
        let _ = self.half.as_ref().unwrap().send(message).await;
    }

    pub(in crate::rpc::tests) async fn report_step(&mut self, report: wire::StepReport) -> Answer<()> {
        self.host.report_step(report).await.map(|_| ())
    }

    pub(in crate::rpc::tests) async fn report_install(
        &mut self,
        report: wire::InstallReport,
    ) -> Answer<String> {
        Ok(self.host.report_install(report).await?.into_inner().install_device)
    }

    pub(in crate::rpc::tests) async fn report_observed(
        &mut self,
        network: wire::ObservedNetwork,
    ) -> Answer<()> {
        let report = wire::ObservedReport { network: Some(network), system: None };
        self.host.report_observed(report).await.map(|_| ())
    }

    /// The agent that every replica of the world serves.
    pub(in crate::rpc::tests) async fn read_agent(&mut self) -> Answer<Vec<u8>> {
        let request = wire::ReadAgentRequest { checksum: proto::proof::identity(AGENT), offset: 0 };
        Ok(self.host.read_agent(request).await?.into_inner().data)
    }

    pub(in crate::rpc::tests) async fn renew(&mut self, host: &Host, boot_id: &str) -> Answer<String> {
        let request = wire::RenewCertificateRequest {
            certificate_request: host.request(),
            boot_id: boot_id.into(),
            boot_proof: None,
        };
        Ok(self.host.renew_certificate(request).await?.into_inner().certificate_chain)
    }
}
