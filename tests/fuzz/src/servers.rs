//! Bytes from registries, from images and from workload clusters.

use std::io::Cursor;

use coordinator::base_image::fuzzing::{read_document, scan_layer};
use coordinator::seed_iso::compose::{Content, NewFile, compose};
use coordinator::seed_iso::layout::Base;
use coordinator::workload::fuzzing::{read_kubeconfig, read_nodes};
use coordinator_core::node_link::{Expected, decide_link};

use crate::choose_parser;

/// Bytes that an overlay may hold beyond the size of its base.
const OVERLAY_SIZE: u64 = 1 << 20;

/// A manifest or an index, and a layer.
pub(crate) fn read_image(bytes: &[u8]) {
    choose_parser(bytes, &[read_document, scan_layer]);
}

/// A seed that is made of a base ISO.
pub(crate) fn compose_iso(bytes: &[u8]) {
    let text =
        |directory, name| NewFile { directory, name, content: Content::Text(b"x\n".as_slice().into()) };
    let files = [text(None, "livecd-cloud-config.yaml"), text(Some("baremetal"), "registration.yaml")];
    let mut base = Base::new(Cursor::new(bytes)).unwrap();
    if let Ok(overlay) = compose(&mut base, &files) {
        let most = bytes.len() as u64 + OVERLAY_SIZE;
        assert!(overlay.stored() <= most, "{} bytes are held for {}", overlay.stored(), bytes.len());
    }
}

/// A kubeconfig, and a list of Nodes.
pub(crate) fn read_workload(bytes: &[u8]) {
    choose_parser(bytes, &[read_kubeconfig, link_node]);
}

fn link_node(bytes: &[u8]) {
    let Some(nodes) = read_nodes(bytes) else { return };
    let expected = Expected {
        provider_ids: vec!["baremetal:///host-1".to_owned()],
        label: "metal3.io/uuid".to_owned(),
        label_values: vec!["0".to_owned()],
        hostnames: vec!["host-1".to_owned()],
        may_use_hostname: true,
    };
    let _ = decide_link(&expected, &nodes);
}
