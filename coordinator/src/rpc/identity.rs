//! Authentication and authorization of hosts. Only the certificate of the connection identifies a
//! host; no message names an inventory.

use coordinator_core::host::statement::is_boot_id;
use jiff::Timestamp;
use proto::refusal::Refusal;
use tonic::Request;

use super::RpcError;
use crate::ca::{Peer, Role};
use crate::tls::Session;

/// The calls of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(strum::VariantArray))]
pub enum Call {
    Begin,
    Complete,
    Attach,
    /// Accepts or refuses a plan, on the stream.
    Acknowledge,
    /// Any message on the stream.
    Message,
    /// Reports the running step, on the stream.
    ReportProgress,
    ReportStep,
    ReportInstall,
    ReportObserved,
    RenewCertificate,
    ReadAgent,
}

/// The rights of each role; `None` is a host without certificate.
pub fn may_call(role: Option<Role>, call: Call) -> bool {
    match (call, role) {
        // A registration proves its key by itself, so that the certificate does not matter.
        (Call::Begin | Call::Complete, _)
        | (Call::ReportInstall | Call::ReportObserved | Call::RenewCertificate, Some(_)) => true,
        (
            Call::Attach
            | Call::Acknowledge
            | Call::Message
            | Call::ReportProgress
            | Call::ReportStep
            | Call::ReadAgent,
            role,
        ) => role == Some(Role::Installed),
        (Call::ReportInstall | Call::ReportObserved | Call::RenewCertificate, None) => false,
    }
}

/// The TLS session of a request.
///
/// # Errors
/// [`RpcError::NoTlsSession`] if the request did not come through our own acceptor.
pub fn tls_session<T>(request: &Request<T>) -> Result<Session, RpcError> {
    request.extensions().get::<Session>().cloned().ok_or(RpcError::NoTlsSession)
}

/// The calling host, if it may make the call. The certificate is checked at each call, because a
/// connection can outlive its certificate.
pub fn authenticate_peer<T>(request: &Request<T>, call: Call, now: Timestamp) -> Result<Peer, RpcError> {
    let session = tls_session(request)?;
    let detail = match session.peer() {
        Some(peer) if peer.is_expired(now) => return Err(RpcError::CertificateExpired),
        Some(peer) if may_call(Some(peer.role), call) => return Ok(peer.clone()),
        Some(peer) => format!("the {} system may not do this", peer.role.as_str()),
        None => "no client certificate was shown: register first".to_owned(),
    };
    Err(RpcError::from_refusal(Refusal::RoleNotAllowed, detail))
}

/// Checks the boot id; it is empty if the host does not know the id.
pub fn check_boot_id(boot_id: &str) -> Result<(), RpcError> {
    if boot_id.is_empty() || is_boot_id(boot_id) {
        return Ok(());
    }
    Err(RpcError::from_refusal(Refusal::BadRequest, "the boot id is none that a kernel gives"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_system_registers_and_reports_only() {
        let (live, installed) = (Some(Role::Live), Some(Role::Installed));
        for (call, anonymous, by_live, by_installed) in [
            (Call::Begin, true, true, true),
            (Call::Complete, true, true, true),
            (Call::Attach, false, false, true),
            (Call::ReportStep, false, false, true),
            (Call::ReportInstall, false, true, true),
            (Call::ReportObserved, false, true, true),
            (Call::RenewCertificate, false, true, true),
            (Call::ReadAgent, false, false, true),
        ] {
            let got = (may_call(None, call), may_call(live, call), may_call(installed, call));
            assert_eq!(got, (anonymous, by_live, by_installed), "{call:?}");
        }
    }
}
