//! Who calls, and whether they may: the certificate of the connection is the
//! only authority. No message names an inventory.

use proto::refusal::Refusal;
use tonic::Request;

use super::failure::RpcError;
use crate::ca::{Peer, Role};
use crate::tls::Session;

/// Everything that can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Open a registration.
    Begin,
    /// Prove it.
    Complete,
    /// Receive plans.
    Attach,
    /// Report a step of a plan.
    ReportStep,
    /// Report the installation.
    ReportInstall,
    /// Report the network.
    ReportObserved,
    /// A new certificate.
    RenewCertificate,
}

/// The one table of who may call what; `None` shows no certificate.
#[must_use]
pub fn may(role: Option<Role>, call: Call) -> bool {
    match (call, role) {
        // A key is proven anew in each registration, whatever is shown.
        (Call::Begin | Call::Complete, _)
        | (Call::ReportInstall | Call::ReportObserved | Call::RenewCertificate, Some(_)) => true,
        (Call::Attach | Call::ReportStep, role) => role == Some(Role::Installed),
        (Call::ReportInstall | Call::ReportObserved | Call::RenewCertificate, None) => false,
    }
}

/// The connection of a request.
///
/// # Errors
/// [`RpcError::Connection`] when the request came past our own acceptor.
pub fn session<T>(request: &Request<T>) -> Result<Session, RpcError> {
    request.extensions().get::<Session>().cloned().ok_or(RpcError::Connection)
}

/// The host that calls, when it may.
///
/// # Errors
/// [`Refusal::RoleNotAllowed`].
pub fn peer<T>(request: &Request<T>, call: Call) -> Result<Peer, RpcError> {
    let session = session(request)?;
    let peer = session.peer();
    let refused = |detail: &str| RpcError::refused(Refusal::RoleNotAllowed, detail);
    match peer {
        Some(peer) if may(Some(peer.role), call) => Ok(peer.clone()),
        Some(peer) => Err(refused(&format!("the {} system may not do this", peer.role.as_str()))),
        None => Err(refused("no client certificate was shown: register first")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_system_registers_and_reports_and_an_installed_one_does_everything() {
        let (live, installed) = (Some(Role::Live), Some(Role::Installed));
        for (call, nobody, by_live, by_installed) in [
            (Call::Begin, true, true, true),
            (Call::Complete, true, true, true),
            (Call::Attach, false, false, true),
            (Call::ReportStep, false, false, true),
            (Call::ReportInstall, false, true, true),
            (Call::ReportObserved, false, true, true),
            (Call::RenewCertificate, false, true, true),
        ] {
            let got = (may(None, call), may(live, call), may(installed, call));
            assert_eq!(got, (nobody, by_live, by_installed), "{call:?}");
        }
    }
}
