//! The parsers of this module for the targets of `tests/fuzz`.

use std::sync::Arc;

use bytes::Bytes;
use coordinator_core::seed_image::platform::Platform;
use tokio::sync::mpsc;

use super::layer::Extraction;
use super::ledger::{Ledger, Room};
use super::manifest::{Document, choose_platform, parse_document};

/// Bytes of a base ISO, and twice as many of a layer.
const LIMIT: u64 = 1 << 20;

/// Reads a manifest or an index.
pub fn read_document(bytes: &[u8]) {
    if let Some(Document::Index(index)) = parse_document(bytes) {
        drop(choose_platform(&index, Platform::Amd64));
    }
}

/// Reads a layer in pieces, and its base ISO.
pub fn scan_layer(bytes: &[u8]) {
    scan_layer_within(bytes, LIMIT);
}

/// Reads a layer with a base ISO of at most `limit` bytes.
pub fn scan_layer_within(bytes: &[u8], limit: u64) {
    let Ok(directory) = tempfile::tempdir() else { return };
    let Ok(ledger) = Ledger::open(directory.path(), limit) else { return };
    let (sender, pieces) = mpsc::channel(bytes.len() / 1000 + 2);
    for piece in bytes.chunks(1000).map(Bytes::copy_from_slice).map(Some).chain([None]) {
        // The channel has room for all pieces.
        drop(sender.try_send(piece));
    }
    let room = Room { ledger: Arc::new(ledger), namespace: String::new(), limit };
    let mut extraction = Extraction::new(room);
    drop(extraction.scan_layer(pieces));
    drop(extraction.finish());
}
