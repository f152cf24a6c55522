//! Detects that the coordinator rejected the certificate of this host.
//!
//! With TLS 1.3 the client's handshake ends before the server has seen the certificate. The
//! server's alert arrives on the open connection, and gRPC reports it like any other broken
//! connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use rustls::AlertDescription;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::client::transport::Tap;

/// The rejection of the certificate on one connection.
#[derive(Clone, Debug, Default)]
pub struct Rejection(Arc<AtomicBool>);

impl Rejection {
    pub fn is_rejected(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn record_error(&self, error: &io::Error) {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
        if let Some(rustls::Error::AlertReceived(alert)) = cause
            && concerns_certificate(*alert)
        {
            tracing::info!(?alert, "the coordinator rejected the certificate of this host");
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// True for alerts after which another certificate may help.
const fn concerns_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
    )
}

/// A TLS stream that watches for alerts.
pub(super) struct Watched<S> {
    pub(super) stream: S,
    pub(super) rejection: Rejection,
    pub(super) tap: Option<Tap>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(tap) = &mut self.tap {
            tap(&buffer.filled()[before..]);
        }
        if let Poll::Ready(Err(error)) = &read {
            self.rejection.record_error(error);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_alerts_about_the_certificate_reject_it() {
        let alert = |alert| io::Error::new(io::ErrorKind::InvalidData, rustls::Error::AlertReceived(alert));
        for (name, error, want) in [
            ("expired", alert(AlertDescription::CertificateExpired), true),
            ("another authority", alert(AlertDescription::UnknownCA), true),
            ("revoked", alert(AlertDescription::CertificateRevoked), true),
            ("overloaded", alert(AlertDescription::InternalError), false),
            ("closed", alert(AlertDescription::CloseNotify), false),
            ("reset", io::ErrorKind::ConnectionReset.into(), false),
            ("garbled", io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError), false),
        ] {
            let rejection = Rejection::default();
            rejection.record_error(&error);
            assert_eq!(rejection.is_rejected(), want, "{name}");
        }
    }
}
