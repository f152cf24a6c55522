//! Reasons of rejected connections and requests. They are counted, and logged at a bounded rate.

use std::net::SocketAddr;

use rustls::{AlertDescription, CertificateError, Error as Rustls};

use crate::rpc::Rejections;
use crate::telemetry::chain;
use crate::tls::TlsError;

/// The reason for which a connection was rejected or closed, or a request rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub(super) enum Failure {
    /// `--source-connections`.
    SourceConnections,
    /// `--source-anonymous`.
    SourceAnonymous,
    /// `--source-handshakes`.
    SourceHandshakes,
    /// `--source-rate`.
    SourceRate,
    /// `--anonymous-connections`.
    AnonymousConnections,
    /// `--host-connections`.
    HostConnections,
    /// `--source-requests`.
    SourceRequests,
    /// The share of a source in `--registrations`.
    SourceRegistrations,
    /// Requests or bytes of one host.
    HostRequests,
    /// The message of a registration was not complete in time.
    MessageTimeout,
    /// `--call-timeout`.
    CallTimeout,
    /// The `ClientHello` was not complete in time.
    HelloTimeout,
    /// The handshake was not complete in time.
    HandshakeTimeout,
    /// The authority of a side did not sign the certificate of the other.
    Untrusted,
    /// Any other failure, for example of a probe, a scanner, a proxy, or a clock.
    HandshakeFailed,
    /// No request in time.
    NoRequest,
    /// No request for too long, and no client certificate.
    Idle,
    /// The client certificate has expired.
    Expired,
}

impl Failure {
    const fn next_action(self) -> &'static str {
        match self {
            Self::SourceConnections => {
                "find out what connects from there; where many hosts share an address, raise --source-connections"
            }
            Self::SourceAnonymous => {
                "find out what connects from there; where many hosts share an address, raise --source-anonymous"
            }
            Self::SourceHandshakes => {
                "find out what connects from there; where many hosts share an address, raise --source-handshakes"
            }
            Self::SourceRate => {
                "find out what connects from there; where many hosts share an address, raise --source-rate"
            }
            Self::AnonymousConnections => {
                "find out what connects; where more new hosts register at a time, raise --anonymous-connections"
            }
            Self::SourceRequests => {
                "find out what calls from there; where many hosts share an address, raise --source-requests"
            }
            Self::SourceRegistrations => {
                "find out what registers from there; where many hosts share an address, raise --registrations"
            }
            Self::CallTimeout => "none when it is one host: it retries; else check the API server",
            Self::HostRequests => "find out why the host sends so much: its key may be in other hands",
            Self::HostConnections => "find out why the host keeps more connections than --host-connections",
            Self::MessageTimeout | Self::HelloTimeout | Self::HandshakeTimeout | Self::HandshakeFailed => {
                "none when it is a probe; a host retries"
            }
            Self::Untrusted => {
                "the host's ISO is of another coordinator: download a fresh seed ISO and boot the host from it"
            }
            Self::NoRequest | Self::Idle | Self::Expired => "none: a host connects again",
        }
    }
}

/// Classifies a failed handshake.
pub(super) fn classify_handshake(error: &TlsError) -> Failure {
    let TlsError::Handshake(source) = error else { return Failure::HandshakeFailed };
    match source.get_ref().and_then(|cause| cause.downcast_ref()) {
        // The host sends the first two alerts about the server certificate. The second one comes if two
        // authorities have the same name and different keys, as the authorities of two coordinators.
        Some(
            Rustls::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError)
            | Rustls::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature),
        ) => Failure::Untrusted,
        _ => Failure::HandshakeFailed,
    }
}

/// Counts and logs a connection.
pub(super) fn record_failure(
    rejections: &Rejections,
    remote: SocketAddr,
    failure: Failure,
    error: Option<&TlsError>,
) {
    let next_action = failure.next_action();
    let cause = error.map(|error| chain(error)).unwrap_or_default();
    if failure == Failure::Untrusted {
        return rejections.record_untrusted(&format!("{remote}: {cause}"), next_action);
    }
    rejections.record_connection(failure.into(), remote, &cause, next_action);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::events::Events;
    use crate::metrics::Metrics;
    use crate::rpc::log;
    use std::io;
    use tokio::task::JoinSet;

    fn handshake(error: Rustls) -> TlsError {
        TlsError::Handshake(io::Error::new(io::ErrorKind::InvalidData, error))
    }

    #[test]
    fn another_authority_is_recognised_by_the_handshake() {
        let alert = |alert| handshake(Rustls::AlertReceived(alert));
        let bad = |error| handshake(Rustls::InvalidCertificate(error));
        for (error, want) in [
            (alert(AlertDescription::UnknownCA), Failure::Untrusted),
            (alert(AlertDescription::DecryptError), Failure::Untrusted),
            (bad(CertificateError::UnknownIssuer), Failure::Untrusted),
            (bad(CertificateError::BadSignature), Failure::Untrusted),
            (alert(AlertDescription::CertificateExpired), Failure::HandshakeFailed),
            (bad(CertificateError::Expired), Failure::HandshakeFailed),
            (TlsError::Handshake(io::ErrorKind::UnexpectedEof.into()), Failure::HandshakeFailed),
        ] {
            assert_eq!(classify_handshake(&error), want, "{error:?}");
        }
    }

    #[tokio::test]
    async fn failures_are_counted_and_logging_is_limited() {
        let alert = handshake(Rustls::AlertReceived(AlertDescription::UnknownCA));
        let end = TlsError::Handshake(io::ErrorKind::UnexpectedEof.into());
        let remote = SocketAddr::from(([192, 0, 2, 7], 4711));
        for (failure, error, counted, text) in [
            (
                Failure::Untrusted,
                Some(&alert),
                "refusals_total{reason=\"UnknownAuthority\"} 90",
                "of another coordinator: download a fresh seed ISO",
            ),
            (
                Failure::HandshakeFailed,
                Some(&end),
                "connection_failures_total{reason=\"HandshakeFailed\"} 90",
                "the handshake failed",
            ),
            (
                Failure::SourceHandshakes,
                None,
                "connection_failures_total{reason=\"SourceHandshakes\"} 90",
                "raise --source-handshakes",
            ),
        ] {
            let metrics = Metrics::default();
            let client = fake_apiserver::FakeApi::new().client("coordinator");
            let mut tasks = JoinSet::new();
            let events = Events::start(client.clone(), None, Clock::system(), metrics.clone(), &mut tasks);
            let rejections = Rejections::new(client, metrics.clone(), events);
            let lines = log::capture_log(|| {
                (0..90).for_each(|_| record_failure(&rejections, remote, failure, error));
            });
            // One, unless the test machine is suspended for a second.
            assert!(lines.lines().count() < 9, "{lines}");
            for part in ["192.0.2.7:4711", text] {
                assert!(lines.contains(part), "{part}: {lines}");
            }
            assert!(metrics.encode_text().unwrap().contains(counted), "{counted}");
        }
    }
}
