//! The certificate authorities that the image of this host trusts.

use std::fs;
use std::io;

use crate::ground::paths::Root;

/// The files in which Go looks for the authorities of the system, in this order.
const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The system's authorities in PEM; empty if the image has none.
pub fn read_bundle(root: &Root) -> io::Result<Vec<u8>> {
    let found = BUNDLES.iter().map(|path| root.join(path)).find(|path| path.is_file());
    found.map_or_else(|| Ok(Vec::new()), fs::read)
}
