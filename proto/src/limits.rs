//! Bounds of all messages. A larger message is rejected before it costs memory.

/// Largest message of the registration service, in bytes.
pub const REGISTRATION_BYTES: usize = 256 * 1024;
/// Largest part of such a message for the facts of a host, in bytes.
pub const FACTS_BYTES: usize = 144 * 1024;
/// Largest network of a host in a registration or a report, in bytes.
pub const NETWORK_BYTES: usize = 96 * 1024;
/// Largest message with a plan, in bytes.
pub const PLAN_BYTES: usize = 4 * 1024 * 1024;
/// Largest report, in bytes.
pub const REPORT_BYTES: usize = 256 * 1024;
/// The rest of a registration is for proof, certificate request and quote.
const _: () = assert!(REGISTRATION_BYTES - FACTS_BYTES - NETWORK_BYTES >= 16 * 1024);
/// Captured output of a step in bytes, half from its start and half from its end.
pub const OUTPUT_BYTES: usize = 16 * 1024;
/// Steps of a plan.
pub const STEPS: usize = 64;
/// Network interfaces of a host.
pub const INTERFACES: usize = 256;
/// Routes of a host.
pub const ROUTES: usize = 1024;
/// Disks of a host.
pub const DISKS: usize = 1024;
/// SMBIOS sections of a host.
pub const SMBIOS_SECTIONS: usize = 64;
/// Processors of a host, and its graphics cards.
pub const CARDS: usize = 64;
/// Addresses of an interface.
pub const ADDRESSES: usize = 64;
/// Largest certificate of an endorsement key, in bytes.
pub const ENDORSEMENT_CERTIFICATE_BYTES: usize = 4 * 1024;
/// Largest structure of a TPM, in bytes. The structures of RSA 2048 have at most 320.
pub const TPM_STRUCTURE_BYTES: usize = 1024;
/// Largest agent that is sent to a host, in bytes.
pub const AGENT_BYTES: usize = 32 * 1024 * 1024;
/// Largest part of an agent in one message, in bytes.
pub const AGENT_PART_BYTES: usize = 256 * 1024;
/// Keys for updates that a host trusts.
pub const UPDATE_KEYS: usize = 4;
