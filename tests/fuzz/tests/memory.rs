//! Memory of the worst inputs that the bounds of a parser admit, and of inputs above them. Each is read in a
//! process of its own, because an allocator keeps what it got; ten of them at once fit the coordinator's pod.

#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy exempts only functions marked as tests")]

use std::hint::black_box;
use std::io::Cursor;
use std::process::Command;

use coordinator::base_image::fuzzing::read_document;
use coordinator::seed_iso::compose::{Content, NewFile, compose};
use coordinator::seed_iso::layout::{Base, both_endian};
use coordinator::workload::fuzzing::read_nodes;
use prost::Message as _;
use proto::v1alpha1 as wire;
use serde_json::json;

const MIB: usize = 1 << 20;
/// A tenth of the pod's limit of 1 GiB.
const MOST_KIB: usize = 100 * 1024;
const CASE: &str = "MEMORY_CASE";

type Case = (&'static str, fn() -> Vec<u8>, fn(&[u8]));

const CASES: &[Case] = &[
    ("Nodes with 1,024 labels", largest_page, |bytes| assert_eq!(read_nodes(bytes).unwrap().len(), 50)),
    ("4 MiB of empty Nodes", empty_nodes, |bytes| assert!(read_nodes(bytes).is_none())),
    ("manifest with 512 layers", || manifest(512), read_document),
    ("manifest with 30,000 layers", || manifest(30_000), read_document),
    ("4 trees of the largest tables", || trees(4, 16_000, MIB), compose_image),
    ("16 trees with 4 MiB each", || trees(16, 400_000, 4 * MIB), compose_image),
    (
        "34,000 interfaces, which are admitted",
        || interfaces(34_000),
        |bytes| {
            assert!(proto::fields::are_bounded(bytes));
            read_facts(bytes);
        },
    ),
    ("131,072 empty interfaces", || interfaces(131_000), read_facts),
];

fn largest_page() -> Vec<u8> {
    let labels: serde_json::Map<_, _> = (0..1024).map(|label| (format!("l{label}"), json!("v"))).collect();
    let node = json!({ "metadata": { "name": "n", "labels": labels }, "status": "x".repeat(60_000) });
    json!({ "items": vec![node; 50] }).to_string().into_bytes()
}

fn empty_nodes() -> Vec<u8> {
    format!(r#"{{"items":[{}{{}}]}}"#, "{},".repeat(4 * MIB / 3)).into_bytes()
}

fn manifest(layers: usize) -> Vec<u8> {
    let digest = format!("sha256:{}", "0".repeat(64));
    let annotations: serde_json::Map<_, _> = (0..300).map(|entry| (format!("a{entry}"), json!(""))).collect();
    let annotations = if layers > 1000 { serde_json::Map::new() } else { annotations };
    let layer = json!({ "mediaType": "x/y", "size": 1, "digest": digest, "annotations": annotations });
    let config = json!({ "mediaType": "x/y", "size": 1, "digest": digest });
    json!({ "schemaVersion": 2, "config": config, "layers": vec![layer; layers] }).to_string().into_bytes()
}

fn interfaces(count: usize) -> Vec<u8> {
    let nics = vec![wire::Nic::default(); count];
    let facts = wire::HostFacts { nics, hostname: "x".repeat(180_000), ..Default::default() };
    wire::CompleteRequest { facts: Some(facts), ..Default::default() }.encode_to_vec()
}

/// As the codec of the coordinator does.
fn read_facts(bytes: &[u8]) {
    if proto::fields::are_bounded(bytes) {
        black_box(wire::CompleteRequest::decode(bytes).unwrap());
    }
}

fn compose_image(bytes: &[u8]) {
    let content = Content::Text(b"x\n".as_slice().into());
    let files = [NewFile { directory: Some("baremetal"), name: "registration.yaml", content }];
    black_box(compose(&mut Base::new(Cursor::new(bytes)).unwrap(), &files).is_ok());
}

/// Trees with a path table of this many entries, and a root of this many bytes.
fn trees(count: usize, entries: usize, root: usize) -> Vec<u8> {
    let mut image = vec![0; 64 * 2048];
    for index in 0..count {
        let root_at = u32::try_from(image.len() / 2048).unwrap();
        image.extend(directory(root_at, root));
        let table_at = u32::try_from(image.len() / 2048).unwrap();
        let entry = [&[1, 0][..], &root_at.to_le_bytes(), &[1, 0, b'A', 0]].concat();
        image.extend(entry.repeat(entries));
        image.resize(image.len().next_multiple_of(2048), 0);
        let descriptor = &mut image[(16 + index) * 2048..][..2048];
        let number = |number: usize| both_endian(u32::try_from(number).unwrap());
        descriptor[..6].copy_from_slice(b"\x01CD001");
        descriptor[132..140].copy_from_slice(&number(entries * 10));
        descriptor[140..144].copy_from_slice(&table_at.to_le_bytes());
        descriptor[158..166].copy_from_slice(&both_endian(root_at));
        descriptor[166..174].copy_from_slice(&number(root));
    }
    image
}

fn directory(block: u32, bytes: usize) -> Vec<u8> {
    let mut record = [0; 34];
    record[0] = 34;
    record[2..10].copy_from_slice(&both_endian(block));
    record[10..18].copy_from_slice(&both_endian(u32::try_from(bytes).unwrap()));
    (record[25], record[32], record[33]) = (2, 1, 1);
    let mut packed = record.repeat(2048 / 34);
    packed.resize(2048, 0);
    let mut all = packed.repeat(bytes / 2048);
    all[33] = 0;
    all
}

/// The number of KiB behind a name in the status of this process.
fn read_status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// KiB that the parser takes beyond its input.
fn measure((_, make, read): &Case) -> usize {
    let input = make();
    // The highest use so far is forgotten.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = read_status("VmRSS");
    read(&input);
    read_status("VmHWM").saturating_sub(before)
}

#[test]
fn worst_inputs_take_a_tenth_each() {
    let program = std::env::current_exe().unwrap();
    for (name, ..) in CASES {
        let mut command = Command::new(&program);
        command.args(["--exact", "one_case", "--nocapture"]).env(CASE, name);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let taken = text.lines().find_map(|line| line.strip_prefix("taken: ")?.parse::<usize>().ok());
        let taken = taken.unwrap_or_else(|| panic!("{name}: {text}"));
        println!("{name}: {} MiB", taken / 1024);
        assert!(output.status.success() && taken < MOST_KIB, "{name}: {taken} KiB");
    }
}

/// The part of the test above that runs in a process of its own.
#[test]
fn one_case() {
    let Ok(name) = std::env::var(CASE) else { return };
    let case = CASES.iter().find(|(known, ..)| *known == name).unwrap();
    println!("\ntaken: {}", measure(case));
}
