//! The worst inputs that the bounds of the coordinator's parsers admit, and inputs above them: the largest, the
//! deepest, the ones with the most parts, and those that unpack to the most bytes.
//!
//! `tests/memory.rs` bounds the memory of each, and `make bench BENCH=hostile` also measures the CPU time.

use std::hint::black_box;
use std::io::{Cursor, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator::base_image::fuzzing::{read_document, scan_layer_within};
use coordinator::seed_iso::compose::{Content, NewFile, compose};
use coordinator::seed_iso::layout::{Base, both_endian};
use coordinator::workload::fuzzing::{read_kubeconfig, read_nodes};
use coordinator_core::bootstrap::{normalise_data, read_user_data};
use prost::Message as _;
use proto::limits::{FACTS_BYTES, NETWORK_BYTES, PLAN_BYTES};
use proto::v1alpha1 as wire;
use serde_json::json;

use crate::{hosts, operators};

const MIB: usize = 1 << 20;
/// All values of a Secret or a `ConfigMap`.
const SECRET_BYTES: usize = MIB;
/// Bytes of an object, which etcd takes.
const OBJECT_BYTES: usize = 3 * MIB / 2;

/// An input and its parser.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The target of this crate with the same parser.
    pub target: &'static str,
    pub name: &'static str,
    pub make: fn() -> Vec<u8>,
    pub read: fn(&[u8]),
}

impl Case {
    const fn new(target: &'static str, name: &'static str, make: fn() -> Vec<u8>, read: fn(&[u8])) -> Self {
        Self { target, name, make, read }
    }
}

pub const CASES: &[Case] = &[
    Case::new("workload", "Nodes with 1,024 labels", largest_page, |bytes| {
        assert_eq!(read_nodes(bytes).unwrap().len(), 50);
    }),
    Case::new("workload", "4 MiB of empty Nodes", empty_nodes, |bytes| assert!(read_nodes(bytes).is_none())),
    Case::new("workload", "kubeconfig of empty clusters", empty_clusters, read_kubeconfig),
    Case::new("workload", "kubeconfig of aliases", aliases, read_kubeconfig),
    Case::new("oci", "manifest with 512 layers", || manifest(512), read_document),
    Case::new("oci", "manifest with 30,000 layers", || manifest(30_000), read_document),
    Case::new("oci", "layer with the largest window", widest_layer, read_layer),
    Case::new("oci", "layer of 520,000 names, with the largest window", layer_of_names, read_layer),
    Case::new("iso", "4 trees of the largest tables", || trees(4, 16_000, MIB), compose_image),
    Case::new("iso", "16 trees with 4 MiB each", || trees(16, 400_000, 4 * MIB), compose_image),
    Case::new(
        "registration",
        "34,000 interfaces",
        || interfaces(34_000),
        |bytes| {
            assert!(proto::fields::are_bounded(bytes));
            read_facts(bytes);
        },
    ),
    Case::new("registration", "131,000 empty interfaces", || interfaces(131_000), read_facts),
    Case::new("registration", "131,000 interfaces behind a group", behind_group, |bytes| {
        assert!(!proto::fields::are_bounded(bytes));
        read_facts(bytes);
    }),
    Case::new("registration", "network of 96 KiB", observed_network, hosts::observe),
    Case::new("attestation", "keys and certificate of a TPM", || attestation().to_vec(), hosts::attest),
    Case::new("certificate", "request of nested sequences", nested_request, hosts::read_certificates),
    Case::new("plan", "record of small steps", record_of_steps, hosts::read_stored_plan),
    Case::new("plan", "record of empty files", record_of_files, hosts::read_stored_plan),
    Case::new(
        "cloud-config",
        "4 MiB of a list, compressed",
        || gzip(&flow_list(PLAN_BYTES)),
        read_bootstrap_data,
    ),
    Case::new("cloud-config", "four files of 4 MiB, compressed", compressed_files, read_bootstrap_data),
    Case::new("cloud-config", "nested to the bound", nested_lists, read_bootstrap_data),
    Case::new("cloud-config", "1 MiB of expressions", expressions, operators::edit_cloud_config),
    Case::new("network", "network_data.json of empty links", empty_links, operators::read_network_data),
    Case::new("network", "inventory of small values", small_values, operators::read_host_network),
    Case::new("image", "reference of 1.5 MiB", longest_reference, operators::resolve_images),
];

/// Inputs that take seconds of a build without optimisation.
pub const LONG_CASES: &[Case] = &[
    Case::new("oci", "layer of 1 GiB of zeros, gzip", || gzip(&zeros(1 << 30)), read_layer),
    Case::new(
        "oci",
        "layer of 1 GiB of zeros, zstd",
        || zstd::encode_all(zeros(1 << 30).as_slice(), 1).unwrap(),
        read_layer,
    ),
];

fn largest_page() -> Vec<u8> {
    let labels: serde_json::Map<_, _> = (0..1024).map(|label| (format!("l{label}"), json!("v"))).collect();
    let node = json!({ "metadata": { "name": "n", "labels": labels }, "status": "x".repeat(60_000) });
    json!({ "items": vec![node; 50] }).to_string().into_bytes()
}

fn empty_nodes() -> Vec<u8> {
    format!(r#"{{"items":[{}{{}}]}}"#, "{},".repeat(4 * MIB / 3)).into_bytes()
}

/// Repeats an item up to the size of a Secret.
fn repeat_item(item: &str) -> String {
    vec![item; (SECRET_BYTES - 256) / (item.len() + 1)].join(",")
}

fn empty_clusters() -> Vec<u8> {
    format!("clusters: [{}]", repeat_item("{name: a}")).into_bytes()
}

fn empty_links() -> Vec<u8> {
    format!(r#"{{"links":[{}]}}"#, repeat_item("{}")).into_bytes()
}

/// Each list has the former one ten times.
fn aliases() -> Vec<u8> {
    let mut lines = vec!["a0: &a0 [x, x, x, x, x, x, x, x, x, x]".to_owned()];
    for level in 1..10 {
        let former = vec![format!("*a{}", level - 1); 10].join(", ");
        lines.push(format!("a{level}: &a{level} [{former}]"));
    }
    lines.push("clusters: *a9".to_owned());
    lines.join("\n").into_bytes()
}

fn manifest(layers: usize) -> Vec<u8> {
    let digest = format!("sha256:{}", "0".repeat(64));
    let annotations: serde_json::Map<_, _> = (0..300).map(|entry| (format!("a{entry}"), json!(""))).collect();
    let annotations = if layers > 1000 { serde_json::Map::new() } else { annotations };
    let layer = json!({ "mediaType": "x/y", "size": 1, "digest": digest, "annotations": annotations });
    let config = json!({ "mediaType": "x/y", "size": 1, "digest": digest });
    json!({ "schemaVersion": 2, "config": config, "layers": vec![layer; layers] }).to_string().into_bytes()
}

/// Zeros that fill the window of 32 MiB.
fn widest_layer() -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(vec![], 1).unwrap();
    encoder.window_log(25).unwrap();
    encoder.write_all(&zeros(48 * MIB)).unwrap();
    encoder.finish().unwrap()
}

/// Nearly as many names as an image may have.
fn layer_of_names() -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(vec![], 1).unwrap();
    encoder.window_log(25).unwrap();
    let mut archive = tar::Builder::new(encoder);
    let mut header = tar::Header::new_ustar();
    header.set_size(0);
    for number in 0..520_000 {
        let name = format!("{number:090}");
        archive.append_data(&mut header, name, std::io::empty()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

fn read_layer(bytes: &[u8]) {
    scan_layer_within(bytes, 1 << 30);
}

fn interfaces(count: usize) -> Vec<u8> {
    let nics = vec![wire::Nic::default(); count];
    let facts = wire::HostFacts { nics, hostname: "x".repeat(180_000), ..Default::default() };
    wire::CompleteRequest { facts: Some(facts), ..Default::default() }.encode_to_vec()
}

/// A decoder skips the group of a field that no message has.
fn behind_group() -> Vec<u8> {
    [b"\xfb\x7f\xfc\x7f".as_slice(), &interfaces(131_000)].concat()
}

/// Decodes the message if its fields are bounded, because the codec of the coordinator does so.
fn read_facts(bytes: &[u8]) {
    if proto::fields::are_bounded(bytes) {
        black_box(wire::CompleteRequest::decode(bytes).unwrap());
    }
}

fn observed_network() -> Vec<u8> {
    let route = wire::Route { destination: "::/0".to_owned(), ..Default::default() };
    let mut network = wire::ObservedNetwork::default();
    while network.encoded_len() < NETWORK_BYTES {
        network.routes.extend(vec![route.clone(); 256]);
        network.interfaces.extend(vec![wire::Interface::default(); 256]);
    }
    network.encode_to_vec()
}

fn attestation() -> &'static [u8] {
    include_bytes!("../corpus/attestation/keys")
}

/// The first byte chooses the parser of requests.
fn nested_request() -> Vec<u8> {
    let mut nested = vec![];
    while nested.len() < FACTS_BYTES {
        let length = u32::try_from(FACTS_BYTES - nested.len()).unwrap().to_be_bytes();
        nested.extend([0x30, 0x84]);
        nested.extend(length);
    }
    [vec![0], nested].concat()
}

fn record_of_steps() -> Vec<u8> {
    let steps = repeat_item(r#"{"step":"reboot"}"#);
    let plan = format!(r#"{{"id":"p-1","generation":1,"type":"clean","steps":[{steps}]}}"#);
    format!(r#"{{"baremetal.cluster.io/plan":{plan}}}"#).into_bytes()
}

fn record_of_files() -> Vec<u8> {
    format!(r#"{{"files":[{}]}}"#, repeat_item(r#"{"path":""}"#)).into_bytes()
}

fn flow_list(bytes: usize) -> Vec<u8> {
    format!("#cloud-config\nruncmd: [{}a]\n", "a,".repeat(bytes / 2 - 20)).into_bytes()
}

fn zeros(bytes: usize) -> Vec<u8> {
    vec![0; bytes]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn compressed_files() -> Vec<u8> {
    let head = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nx: [";
    let text = format!("{head}{}a]\n", "a,".repeat(PLAN_BYTES / 2 - 64));
    let content = STANDARD.encode(gzip(text.as_bytes()));
    let file = |number: usize| format!("- {{path: /f{number}, encoding: gz+b64, content: {content}}}\n");
    let files: String = (0..4).map(file).collect();
    format!("#cloud-config\nwrite_files:\n{files}").into_bytes()
}

fn nested_lists() -> Vec<u8> {
    let nest = format!("{}{},", "[".repeat(90), "]".repeat(90));
    format!("#cloud-config\nruncmd: [{}]\n", nest.repeat(SECRET_BYTES / nest.len() - 1)).into_bytes()
}

fn read_bootstrap_data(bytes: &[u8]) {
    if let Ok(text) = read_user_data(bytes) {
        black_box(normalise_data(&text, &operators::NODE).is_ok());
    }
}

fn expressions() -> Vec<u8> {
    let lines = "- echo {{ ds.meta_data.a }}\n".repeat(SECRET_BYTES / 28 - 8);
    format!("## template: jinja\n#cloud-config\nruncmd:\n{lines}").into_bytes()
}

fn small_values() -> Vec<u8> {
    let values = "0,".repeat((OBJECT_BYTES - 200) / 2);
    format!(r#"{{"network":{{"configurator":"nmc","config":{{"a":[{values}0]}}}}}}"#).into_bytes()
}

fn longest_reference() -> Vec<u8> {
    format!("registry.example/{}:v1", "a/".repeat(OBJECT_BYTES / 2)).into_bytes()
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

/// The KiB that `read` takes beyond what this process has. An allocator keeps what it got, so each measurement
/// needs a process of its own.
///
/// # Panics
/// Where `/proc` is not that of Linux.
pub fn measure_peak(read: impl FnOnce()) -> usize {
    // The highest use so far is forgotten.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = read_status("VmRSS");
    read();
    read_status("VmHWM").saturating_sub(before)
}

/// The number of KiB behind a name in the status of this process.
fn read_status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}
