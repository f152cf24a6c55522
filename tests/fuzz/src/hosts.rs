//! Bytes from hosts, and bytes on their disks.

use agent::ground::paths::Root;
use agent::state::{journal, seed};
use coordinator::ca::{Peer, RequestedKey};
use coordinator_api::inventory::KeyClass;
use coordinator_api::registration::MachineRegistration;
use coordinator_core::attestation::Opened;
use coordinator_core::inventory::{Identity, draft_inventory};
use coordinator_core::network::{describe_drift, parse_observed};
use coordinator_core::plan::read_record;
use jiff::Timestamp;
use prost::Message as _;
use proto::plan::Plan;
use proto::v1alpha1 as wire;

use crate::{choose_parser, split_parts, with_text};

/// A plan over the wire, and a plan record in a Secret.
pub(crate) fn read_plan(bytes: &[u8]) {
    choose_parser(bytes, &[read_wire_plan, read_stored_plan]);
}

fn read_wire_plan(bytes: &[u8]) {
    let Ok(message) = wire::Plan::decode(bytes) else { return };
    if let Ok(plan) = Plan::try_from(message) {
        assert_eq!(Plan::try_from(wire::Plan::from(&plan)).as_ref(), Ok(&plan));
    }
}

pub(crate) fn read_stored_plan(bytes: &[u8]) {
    match read_record(bytes) {
        Err(error) => assert!(!error.to_string().contains("canary"), "{error}"),
        Ok(Some(plan)) => assert_eq!(Plan::try_from(wire::Plan::from(&plan)).as_ref(), Ok(&plan)),
        Ok(None) => {}
    }
}

/// The messages by which a host registers.
pub(crate) fn register(bytes: &[u8]) {
    choose_parser(bytes, &[begin, complete, observe]);
}

fn begin(bytes: &[u8]) {
    let Ok(request) = wire::BeginRequest::decode(bytes) else { return };
    if let Some(wire::begin_request::Attestation::TpmKeys(keys)) = &request.attestation {
        let _ = Opened::parse(keys, &request.public_key, [0; 32]);
    }
}

fn registration() -> MachineRegistration {
    let spec = serde_json::json!({
        "machineName": "${System Information/Serial Number}-${Random/Hex/4}",
        "machineInventoryLabels": {
            "cpu": "${System Data/CPU/Model}",
            "${System Information/Manufacturer}": "x",
        },
        "machineInventoryAnnotations": { "note": "${System Information/Family}" },
    });
    let object = serde_json::json!({ "metadata": { "name": "hosts" }, "spec": spec });
    serde_json::from_value(object).unwrap()
}

fn complete(bytes: &[u8]) {
    let Ok(request) = wire::CompleteRequest::decode(bytes) else { return };
    let _ = RequestedKey::parse(&request.certificate_request);
    if let Some(facts) = &request.facts {
        let identity = Identity { hash: "00", class: KeyClass::Emulated };
        if let Ok(draft) = draft_inventory(&registration(), facts, identity, &[7; 32]) {
            let is_plain = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-' | '.');
            assert!(draft.name.chars().all(is_plain) && draft.name.len() <= 253, "{:?}", draft.name);
            assert!(draft.labels.values().all(|value| value.len() <= 63), "{:?}", draft.labels);
        }
    }
}

pub(crate) fn observe(bytes: &[u8]) {
    let Ok(network) = wire::ObservedNetwork::decode(bytes) else { return };
    let taken = parse_observed(network).network;
    assert_eq!(describe_drift(&taken, &taken), None);
}

/// The keys of a TPM, its answer and its certificate.
pub(crate) fn attest(bytes: &[u8]) {
    let [endorsement_key, endorsement_certificate, attestation_key, public_key, proof, attest, signature] =
        split_parts(bytes).map(<[u8]>::to_vec);
    let keys = wire::TpmKeys { endorsement_key, endorsement_certificate, attestation_key };
    let Ok(opened) = Opened::parse(&keys, &public_key, [0; 32]) else { return };
    let quote = wire::TpmQuote { attest, signature };
    assert!(opened.verify_answer(&[0; 32], &proof, Some(&quote)).is_err(), "nobody knows the credential");
    let _ = opened.verify_certificate(&proof, Timestamp::UNIX_EPOCH);
}

/// A certificate request, and the certificate of a peer.
pub(crate) fn read_certificates(bytes: &[u8]) {
    choose_parser(
        bytes,
        &[|request| drop(RequestedKey::parse(request)), |certificate| drop(Peer::parse(certificate))],
    );
}

/// The seed on the disk of a host: stored and loaded, it is equal.
pub(crate) fn read_seed(bytes: &[u8]) {
    let names = ["meta-data", "user-data", "network-config", "network_data.json", "eno1.nmconnection"];
    let parts: [&[u8]; 5] = split_parts(bytes);
    with_text(parts[0], |text| drop(seed::instance_id(text)));
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let root = Root::at(directory.path());
    std::fs::create_dir_all(root.nocloud_seed()).unwrap();
    for (name, content) in names.into_iter().zip(parts) {
        std::fs::write(root.nocloud_seed().join(name), content).unwrap();
    }
    let found = seed::load_nocloud(&root).unwrap().unwrap();
    seed::store(&root.state(), &found).unwrap();
    assert!(seed::load(&root.state()).unwrap().unwrap() == found, "another seed was stored");
}

/// The journal of a host; the first byte chooses whether the checksum is made to match the body.
pub(crate) fn read_journal(bytes: &[u8]) {
    choose_parser(bytes, &[|file| drop(journal::parse(file)), read_sealed_journal]);
}

fn read_sealed_journal(body: &[u8]) {
    with_text(body, |body| {
        let sum = proto::plan::Checksum::of(body.as_bytes());
        let _ = journal::parse(format!("{} {sum}\n{body}\n", journal::LAYOUT).as_bytes());
    });
}
