//! Why the coordinator refuses a host, as a value of the contract, with the cause and the next
//! action: one table, so that both sides and `docs/reference/events.md` have the same texts.

/// Metadata key of a gRPC status that carries [`Refusal::code`].
pub const METADATA_KEY: &str = "baremetal-refusal";

/// Metadata key of a gRPC status that carries the next action, UTF-8.
pub const NEXT_ACTION_KEY: &str = "baremetal-next-action-bin";

/// Declares the enum from rows `Name "cause" "next action";`.
macro_rules! refusals {
    ($($name:ident $cause:literal $action:literal;)+) => {
        /// Every reason for which a call is refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(clippy::doc_markdown, reason = "the texts are printed on terminals as they stand here")]
        pub enum Refusal {
            $(#[doc = $cause] $name,)+
        }

        impl Refusal {
            /// Every value, for tables and metrics.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Name on the wire, in logs and as a metric label.
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// Why the call was refused.
            pub const fn cause(self) -> &'static str {
                match self {
                    $(Self::$name => $cause,)+
                }
            }

            /// Next action of the operator, on the console of a live and of an installed host alike. A
            /// seed ISO booted on an installed host installs nothing: it refreshes the coordinator's
            /// address on the disk.
            pub const fn next_action(self) -> &'static str {
                match self {
                    $(Self::$name => $action,)+
                }
            }
        }
    };
}

impl Refusal {
    /// The reverse of [`Refusal::code`].
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|refusal| refusal.code() == code)
    }
}

refusals! {
    UnknownToken
        "no ready MachineRegistration has the token, and no inventory the key; no object has an Event"
        "download a fresh seed ISO and boot the host from it once, installed or not: the MachineRegistration is gone, not ready, or its token was changed";
    TpmRequired
        "emulate-tpm is false, and the live system found no TPM 2.0"
        "switch the TPM 2.0 on in the host's firmware setup or use a host that has one, or set spec.config.elemental.registration.emulate-tpm: true on the MachineRegistration";
    TpmUntrusted
        "the Secret tpm-ca exists, and none of its CAs signed the certificate of the host's TPM"
        "add the CA certificates of the TPM's vendor to the Secret tpm-ca (key tls.crt) in the namespace of the MachineRegistration, or delete that Secret to accept TPMs without a check";
    TpmKeyRejected
        "the keys of the TPM do not have the form that an identity needs"
        "bring the agent to the coordinator's version; if it repeats, update the TPM's firmware: only the TCG's default endorsement key for RSA 2048 is accepted";
    BadProof
        "the proof does not fit the key, the nonce, the connection or the certificate request"
        "boot the seed ISO again; if it repeats, a proxy terminates TLS between host and coordinator";
    BadRequest
        "a message violates the contract: agent and coordinator differ in version, or the message is too large"
        "bring the agent to the coordinator's version: a live system by a fresh seed ISO, an installed one by an upgrade of its OS image";
    BadTemplate
        "machineName cannot be rendered with what the host reported"
        "correct spec.machineName of the MachineRegistration; `baremetal-agent facts` prints what the host offers";
    NameTaken
        "the name belongs to an inventory with another key, which was installed or is other hardware"
        "if this is the same host with a lost key, delete its MachineInventory; else give the two hosts different names";
    Quarantined
        "two live systems claim one identity"
        "switch one of the two hosts off, reinstall it, then remove the quarantine annotation";
    KeyReplaced
        "the key of the host's certificate was replaced by a newer one, or an operator took it away"
        "if the host itself is refused, its key may have been stolen: `kubectl baremetal replace-key`, as docs/operations.md has it; else none, the key is of a former tenant";
    ApprovalPending
        "the host waits for an operator; its MachineInventory has the Event and the conditions"
        "approve the host: set the annotation baremetal.cluster.io/approval of its MachineInventory to Approved; the host continues by itself";
    Revoked
        "an operator shut the host out"
        "if the host is to be admitted again: set the annotation baremetal.cluster.io/approval of its MachineInventory to Approved";
    TokenExpired
        "spec.tokenExpiresAt is over, and no inventory has the key"
        "set spec.tokenExpiresAt of the MachineRegistration to a later time, or remove it; the host continues by itself";
    QuotaExhausted
        "the inventories of the MachineRegistration that exist, or were made in the last ten minutes, are spec.maxHosts (1000), or more new hosts came than spec.newHostsPerMinute (60)"
        "raise spec.maxHosts or spec.newHostsPerMinute of the MachineRegistration, or delete the MachineInventory of a host that is gone; the host continues by itself";
    InventoryGone
        "no inventory has the identity of the certificate"
        "restore the MachineInventory, and the host attaches again by itself; without it the host registers again when its certificate expires, or at once from a seed ISO";
    RoleNotAllowed
        "the certificate of a live system does not allow the call"
        "let the host boot its installed system";
    StalePlan
        "the report is of a plan that is not the newest one of the host"
        "none: the host takes up the newest plan by itself";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_parses_from_its_code() {
        for &refusal in Refusal::ALL {
            assert_eq!(Refusal::from_code(refusal.code()), Some(refusal));
        }
        assert_eq!(Refusal::from_code("Nonsense"), None);
    }

    #[test]
    fn every_next_action_is_one_line() {
        for &refusal in Refusal::ALL {
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
