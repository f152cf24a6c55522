//! Bounds of every message: who sends more is refused before it costs memory.

/// Largest message of the registration service, bytes.
pub const REGISTRATION_BYTES: usize = 256 * 1024;
/// Of it, what a host says of its hardware, bytes.
pub const FACTS_BYTES: usize = 144 * 1024;
/// Of it and of a report, the network of a host, bytes.
pub const NETWORK_BYTES: usize = 96 * 1024;
/// Largest message that carries a plan, bytes.
pub const PLAN_BYTES: usize = 4 * 1024 * 1024;
/// Largest report, bytes.
pub const REPORT_BYTES: usize = 256 * 1024;
/// Proof, certificate request and quote have the rest of a registration.
const _: () = assert!(REGISTRATION_BYTES - FACTS_BYTES - NETWORK_BYTES >= 16 * 1024);
/// Captured output of one step, bytes: half from the head, half from the tail.
pub const OUTPUT_BYTES: usize = 16 * 1024;
/// Steps of one plan.
pub const STEPS: usize = 64;
/// Network interfaces of one host.
pub const INTERFACES: usize = 256;
/// Routes of one host.
pub const ROUTES: usize = 1024;
/// Disks of one host.
pub const DISKS: usize = 1024;
/// SMBIOS sections of one host.
pub const SMBIOS_SECTIONS: usize = 64;
/// Processors and graphics cards of one host, each.
pub const CARDS: usize = 64;
/// Addresses of one interface.
pub const ADDRESSES: usize = 64;
/// Certificate of an endorsement key, bytes.
pub const ENDORSEMENT_CERTIFICATE_BYTES: usize = 4 * 1024;
/// Any structure of a TPM, bytes: the largest of RSA 2048 has 320.
pub const TPM_STRUCTURE_BYTES: usize = 1024;
/// An agent that a host is sent, bytes.
pub const AGENT_BYTES: usize = 32 * 1024 * 1024;
/// One part of it, bytes.
pub const AGENT_PART_BYTES: usize = 256 * 1024;
