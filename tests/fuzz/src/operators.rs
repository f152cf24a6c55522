//! Text from operators and from Cluster API.

use std::collections::BTreeMap;

use coordinator_api::inventory::MachineInventorySpec;
use coordinator_core::bootstrap::{NodeNames, normalise_data, render_expressions, stated_provider_id};
use coordinator_core::cloud_init::parse_meta_data;
use coordinator_core::image_catalog::{registry_reference, resolve_image};
use coordinator_core::network::{host_network, network_data};
use coordinator_core::seed_image::base::parse_base;
use proto::plan::{Image, to_source};

use crate::{choose_parser, with_text};

pub(crate) const NODE: NodeNames<'_> = NodeNames {
    hostname: "host-1",
    provider_id: "baremetal:///host-1",
    cri_socket: "unix:///run/containerd/containerd.sock",
};

/// Bootstrap data: edited twice, it is the same.
pub(crate) fn edit_cloud_config(bytes: &[u8]) {
    with_text(bytes, |text| {
        let _ = stated_provider_id(text);
        let meta_data = parse_meta_data(text).unwrap_or_default();
        let _ = render_expressions(text, &meta_data);
        match normalise_data(text, &NODE) {
            Ok(once) => assert_eq!(normalise_data(&once, &NODE).as_ref(), Ok(&once)),
            Err(error) => assert!(!error.to_string().contains("canary"), "{error}"),
        }
    });
}

/// `network_data.json` of `OpenStack`, and the network of an inventory: network-config or keyfiles.
pub(crate) fn render_network(bytes: &[u8]) {
    choose_parser(bytes, &[read_network_data, read_host_network]);
}

pub(crate) fn read_network_data(bytes: &[u8]) {
    with_text(bytes, |text| drop(network_data(text, None)));
}

pub(crate) fn read_host_network(bytes: &[u8]) {
    if let Ok(spec) = serde_json::from_slice::<MachineInventorySpec>(bytes) {
        let _ = host_network(&spec);
    }
}

/// References of images and of base ISOs, with the catalog.
pub(crate) fn resolve_images(bytes: &[u8]) {
    with_text(bytes, |text| {
        let _ = parse_base(text);
        let _ = registry_reference(text);
        if let Ok(image) = Image::parse(text) {
            assert_eq!(image.as_str(), text);
            assert!(Image::parse(&to_source(text)).is_ok() || text.len() > 1000, "{text:?}");
        }
        let catalog = BTreeMap::from([("v1".to_owned(), text.to_owned())]);
        for registry in [None, Some("registry.example:5000/mirror")] {
            let _ = resolve_image(&catalog, "v1", Some("arm64"), registry);
        }
    });
}
