//! Why the coordinator refuses a host, as a value of the contract, and the
//! next action as a field of its own.

/// Metadata key of a gRPC status that carries [`Refusal::code`].
pub const METADATA_KEY: &str = "baremetal-refusal";

/// Metadata key of a gRPC status that carries the next action, UTF-8.
pub const NEXT_ACTION_KEY: &str = "baremetal-next-action-bin";

/// Every reason for which a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No ready `MachineRegistration` has this token.
    UnknownToken,
    /// `emulate-tpm` is false and the host brought a software key.
    TpmRequired,
    /// The endorsement key of the TPM has no certificate of a CA that the
    /// operator named.
    TpmUntrusted,
    /// The keys of the TPM are not what an identity needs.
    TpmKeyRejected,
    /// The proof does not fit the key, the nonce or the connection.
    BadProof,
    /// A message violates the contract.
    BadRequest,
    /// `machineName` cannot be rendered with what the host reported.
    BadTemplate,
    /// The name belongs to an inventory with another key.
    NameTaken,
    /// Two live hosts claim one identity.
    Quarantined,
    /// The host waits for an operator to approve it.
    ApprovalPending,
    /// An operator shut the host out.
    Revoked,
    /// The token of a new host has expired.
    TokenExpired,
    /// As many hosts as the registration takes are registered.
    QuotaExhausted,
    /// The certificate's inventory does not exist.
    InventoryGone,
    /// The certificate's role does not allow the call.
    RoleNotAllowed,
    /// A report names a plan that is not this host's newest.
    StalePlan,
}

impl Refusal {
    /// Every value, for tables and metrics.
    pub const ALL: [Self; 16] = [
        Self::UnknownToken,
        Self::TpmRequired,
        Self::TpmUntrusted,
        Self::TpmKeyRejected,
        Self::BadProof,
        Self::BadRequest,
        Self::BadTemplate,
        Self::NameTaken,
        Self::Quarantined,
        Self::ApprovalPending,
        Self::Revoked,
        Self::TokenExpired,
        Self::QuotaExhausted,
        Self::InventoryGone,
        Self::RoleNotAllowed,
        Self::StalePlan,
    ];

    /// Name on the wire, in logs and as a metric label.
    pub const fn code(self) -> &'static str {
        match self {
            Self::UnknownToken => "UnknownToken",
            Self::TpmRequired => "TpmRequired",
            Self::TpmUntrusted => "TpmUntrusted",
            Self::TpmKeyRejected => "TpmKeyRejected",
            Self::BadProof => "BadProof",
            Self::BadRequest => "BadRequest",
            Self::BadTemplate => "BadTemplate",
            Self::NameTaken => "NameTaken",
            Self::Quarantined => "Quarantined",
            Self::ApprovalPending => "ApprovalPending",
            Self::Revoked => "Revoked",
            Self::TokenExpired => "TokenExpired",
            Self::QuotaExhausted => "QuotaExhausted",
            Self::InventoryGone => "InventoryGone",
            Self::RoleNotAllowed => "RoleNotAllowed",
            Self::StalePlan => "StalePlan",
        }
    }

    /// The reverse of [`Refusal::code`].
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.code() == code)
    }

    /// Why the call was refused.
    pub const fn cause(self) -> &'static str {
        match self {
            Self::UnknownToken => {
                "no ready MachineRegistration has the token, and no inventory the key; there is no object for an Event"
            }
            Self::TpmRequired => "emulate-tpm is false, and the live system found no TPM 2.0",
            Self::TpmUntrusted => {
                "the Secret tpm-ca exists, and none of its CAs vouches for the TPM of the host"
            }
            Self::TpmKeyRejected => "the keys of the TPM are not what an identity needs",
            Self::BadProof => "the proof does not fit key, nonce, connection or certificate request",
            Self::BadRequest => {
                "a message is not of the contract: agent and coordinator differ in version, or it is too large"
            }
            Self::BadTemplate => "machineName cannot be rendered with what the host reported",
            Self::NameTaken => {
                "the name belongs to an inventory with another key, which was installed or is other hardware"
            }
            Self::Quarantined => "two live systems claim one identity",
            Self::ApprovalPending => {
                "the host waits for an operator; Event and conditions are those of its MachineInventory"
            }
            Self::Revoked => "an operator shut the host out",
            Self::TokenExpired => "spec.tokenExpiresAt is over, and no inventory has the key",
            Self::QuotaExhausted => {
                "spec.maxHosts inventories of the MachineRegistration exist, or were made in the last ten minutes"
            }
            Self::InventoryGone => "no inventory has the identity of the certificate",
            Self::RoleNotAllowed => "the certificate of a live system does not allow the call",
            Self::StalePlan => "the report is of a plan that is not the newest one",
        }
    }

    /// What the operator does next; shown on the console of a live and of an
    /// installed host alike. A seed ISO booted on an installed host installs
    /// nothing: it refreshes the coordinator's address on the disk.
    pub const fn next_action(self) -> &'static str {
        match self {
            Self::UnknownToken => {
                "download a fresh seed ISO and boot the host from it once, installed or not: the MachineRegistration is gone, not ready, or its token was changed"
            }
            Self::TpmRequired => {
                "switch the TPM 2.0 on in the host's firmware setup or use a host that has one, or set spec.config.elemental.registration.emulate-tpm: true on the MachineRegistration"
            }
            Self::TpmUntrusted => {
                "add the CA certificates of the TPM's vendor to the Secret tpm-ca (key tls.crt) in the namespace of the MachineRegistration, or delete that Secret to accept TPMs without a check"
            }
            Self::TpmKeyRejected => {
                "bring the agent to the coordinator's version; if it repeats, update the TPM's firmware: only the TCG's default endorsement key for RSA 2048 is accepted"
            }
            Self::BadProof => {
                "boot the seed ISO again; if it repeats, a proxy terminates TLS between host and coordinator"
            }
            Self::BadRequest => {
                "bring the agent to the coordinator's version: a live system by a fresh seed ISO, an installed one by an upgrade of its OS image"
            }
            Self::BadTemplate => {
                "correct spec.machineName of the MachineRegistration; `baremetal-agent facts` prints what the host offers"
            }
            Self::NameTaken => {
                "if this is the same host with a lost key, delete its MachineInventory; else give the two hosts different names"
            }
            Self::Quarantined => {
                "switch one of the two hosts off, reinstall it, then remove the quarantine annotation"
            }
            Self::ApprovalPending => {
                "approve the host: set the annotation baremetal.cluster.io/approval of its MachineInventory to Approved; the host goes on by itself"
            }
            Self::Revoked => {
                "if the host is to be admitted again: set the annotation baremetal.cluster.io/approval of its MachineInventory to Approved"
            }
            Self::TokenExpired => {
                "set spec.tokenExpiresAt of the MachineRegistration to a later time, or remove it; the host goes on by itself"
            }
            Self::QuotaExhausted => {
                "raise spec.maxHosts of the MachineRegistration, or delete the MachineInventory of a host that is gone; the host goes on by itself"
            }
            Self::InventoryGone => {
                "restore the MachineInventory, and the host attaches again by itself; without it the host registers again when its certificate expires, or at once from a seed ISO"
            }
            Self::RoleNotAllowed => "let the host boot its installed system",
            Self::StalePlan => "none: the host takes up the newest plan by itself",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_parses_from_its_code() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_code(refusal.code()), Some(refusal));
        }
        assert_eq!(Refusal::from_code("Nonsense"), None);
    }

    #[test]
    fn every_next_action_is_one_line() {
        for refusal in Refusal::ALL {
            let action = refusal.next_action();
            assert!(!action.is_empty() && !action.contains('\n'), "{refusal:?}");
        }
    }

    #[test]
    fn next_actions_fit_live_and_installed_hosts() {
        for refusal in [Refusal::UnknownToken, Refusal::BadRequest] {
            let action = refusal.next_action();
            assert!(action.contains("fresh seed ISO") && action.contains("installed"), "{action}");
        }
    }
}
