//! Twelve targets for bytes that come from outside. A target must neither panic nor break what it asserts, whichever
//! bytes it gets.
//!
//! `tests/corpus.rs` plays the committed corpus and random changes of it in each run of the tests; `make fuzz` has
//! libFuzzer look for new inputs by coverage.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a target fails by a panic")]

pub mod hostile;
mod hosts;
mod operators;
mod servers;

/// A consumer of bytes from outside.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
}

const TARGETS: [Target; 12] = [
    Target { name: "plan", run: hosts::read_plan },
    Target { name: "registration", run: hosts::register },
    Target { name: "attestation", run: hosts::attest },
    Target { name: "certificate", run: hosts::read_certificates },
    Target { name: "oci", run: servers::read_image },
    Target { name: "iso", run: servers::compose_iso },
    Target { name: "seed", run: hosts::read_seed },
    Target { name: "cloud-config", run: operators::edit_cloud_config },
    Target { name: "network", run: operators::render_network },
    Target { name: "journal", run: hosts::read_journal },
    Target { name: "workload", run: servers::read_workload },
    Target { name: "image", run: operators::resolve_images },
];

pub fn list_names() -> Vec<&'static str> {
    TARGETS.iter().map(|target| target.name).collect()
}

pub fn find_target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// The first byte chooses between the parsers of one target.
fn choose_parser(bytes: &[u8], parsers: &[fn(&[u8])]) {
    if let Some((first, rest)) = bytes.split_first() {
        parsers[usize::from(*first) % parsers.len()](rest);
    }
}

/// Calls `parse` with bytes that are text.
fn with_text(bytes: &[u8], parse: impl FnOnce(&str)) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        parse(text);
    }
}

/// Parts of the input: each begins with its length in two bytes, and the last part is the rest.
fn split_parts<const COUNT: usize>(mut bytes: &[u8]) -> [&[u8]; COUNT] {
    let mut parts = [[].as_slice(); COUNT];
    for part in &mut parts[..COUNT - 1] {
        let Some((length, rest)) = bytes.split_first_chunk::<2>() else { break };
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        (*part, bytes) = rest.split_at(length);
    }
    parts[COUNT - 1] = bytes;
    parts
}
