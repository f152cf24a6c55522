//! The live system's seed: the SeedImage's own `cloud-config`, from the file that the coordinator
//! puts into the ISO.

use std::collections::BTreeMap;
use std::fs;

use proto::plan::{Secret, Seed};
use serde_norway::Value;

use super::own_network;
use crate::ground::failure::{Failure, OnPath as _, describe_cause};
use crate::ground::paths::{Root, read_or_empty};
use crate::host::observed;
use crate::state::connections;
use crate::state::seed;

/// Writes the seed for this live boot. The network comes from the kernel's arguments, else from the
/// ISO's part for this host, else from its part for all hosts.
pub(super) fn write_seed(root: &Root) -> Result<(), Failure> {
    let path = root.live_config();
    let text = fs::read_to_string(&path)
        .on("read", &path)
        .map_err(|failure| failure.with_next_action("boot a seed ISO"))?;
    let mut seed = live_seed(&text, runs_yip(root), &observed::boot_id(root)?)?;
    if is_network_given(&read_or_empty(root.join("/proc/cmdline"))) {
        seed.network_config = Some(seed::NO_NETWORK.to_owned());
        seed.connections.clear();
    } else if let Some(own) = own_network::find_own(root) {
        take_network(&mut seed, Some(&own));
    }
    seed::place(root, &seed)?;
    connections::place_connections(root, &seed.connections)?;
    Ok(())
}

/// True if the live system gives the same cloud-config to yip, which must not be applied twice.
fn runs_yip(root: &Root) -> bool {
    let command_line = read_or_empty(root.join("/proc/cmdline"));
    command_line.split_whitespace().any(|word| word.starts_with("elemental.setup="))
}

/// True if the ISO has commands that only yip understands, and this live system does not run yip.
pub(super) fn drops_stages(root: &Root) -> bool {
    let config = serde_norway::from_str::<Value>(&read_or_empty(root.live_stages()));
    config.is_ok_and(|config| config.get("stages").is_some()) && !runs_yip(root)
}

/// True if the command line has network arguments of dracut. The live system follows them by
/// itself, and an operator typed them at the console of this host.
fn is_network_given(command_line: &str) -> bool {
    let mut arguments = command_line.split_whitespace().filter_map(|word| word.split_once('='));
    arguments.any(|(key, _)| ["ip", "vlan", "bond", "bridge"].contains(&key))
}

/// The seed of a live boot; every boot is a new instance.
fn live_seed(config: &str, runs_yip: bool, boot_id: &str) -> Result<Seed, Failure> {
    let config: Value = serde_norway::from_str(config).map_err(|error| {
        let message = describe_cause("livecd-cloud-config.yaml is not YAML", &error);
        Failure::input_output(message, "download a fresh seed ISO")
    })?;
    let mut user_data = "#cloud-config\n".to_owned();
    let cloud_config = config.get("cloud-config").filter(|value| !value.is_null() && !runs_yip);
    if let Some(cloud_config) = cloud_config {
        // The seed is JSON, which is valid YAML and has no plain scalars that YAML 1.1 reads
        // differently: cloud-init would read a MAC address of digits as a base-60 number.
        user_data += &serde_json::to_string_pretty(cloud_config).map_err(|error| {
            let message = "the cloud-config of the seed ISO has keys that are not strings";
            let next_action = "correct spec.cloud-config of the SeedImage, then download a fresh seed ISO";
            Failure::input_output(describe_cause(message, &error), next_action)
        })?;
    }
    let mut seed = Seed {
        user_data: Some(Secret::new(user_data.into_bytes())),
        meta_data: format!("instance-id: live-{boot_id}\n"),
        network_config: None,
        connections: BTreeMap::new(),
        network_data: None,
    };
    take_network(&mut seed, config.get("network"));
    Ok(seed)
}

fn take_network(seed: &mut Seed, network: Option<&Value>) {
    let network_config = network.and_then(|network| network.get("network-config")?.as_str());
    let keyfiles = network.and_then(|network| network.get("connections")?.as_mapping());
    // The image's networkd uses DHCP on every NIC, while cloud-init's default would configure one
    // NIC and shadow the others.
    seed.network_config = Some(network_config.unwrap_or(seed::NO_NETWORK).to_owned());
    seed.connections = keyfiles
        .into_iter()
        .flatten()
        .filter_map(|(name, text)| {
            Some((name.as_str()?.to_owned(), Secret::new(text.as_str()?.as_bytes().to_vec())))
        })
        .collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cloud_config_becomes_live_user_data() {
        let with = "elemental:\n  registration: {url: x}\ncloud-config:\n  users: [a]\n  runcmd:\n    - networkctl reload\n";
        let cases = [
            (
                "cloud-config",
                with,
                "#cloud-config\n{\n  \"users\": [\n    \"a\"\n  ],\n  \"runcmd\": [\n    \"networkctl reload\"\n  ]\n}",
            ),
            ("none", "elemental: {}\n", "#cloud-config\n"),
            ("null", "cloud-config: null\n", "#cloud-config\n"),
            ("an empty file", "\n", "#cloud-config\n"),
        ];
        for (name, given, want) in cases {
            for (runs_yip, want) in [(false, want), (true, "#cloud-config\n")] {
                let seed = live_seed(given, runs_yip, "b-1").unwrap();
                let user_data = seed.user_data.unwrap();
                assert_eq!(String::from_utf8_lossy(user_data.expose()), want, "{name}");
                assert_eq!(seed.meta_data, "instance-id: live-b-1\n", "{name}");
            }
        }
        assert!(live_seed("a: [", false, "b-1").is_err());
    }

    fn host(command_line: &str) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let config =
            "network:\n  network-config: \"version: 2\\n\"\n  connections: {a: \"[connection]\\n\"}\n";
        for (path, text) in [
            ("/proc/cmdline", command_line),
            ("/proc/sys/kernel/random/boot_id", "b-1\n"),
            ("/run/initramfs/live/livecd-cloud-config.yaml", config),
            ("/etc/systemd/system/multi-user.target.wants/NetworkManager.service", ""),
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        (directory, root)
    }

    #[test]
    fn kernel_arguments_override_network_of_iso() {
        for (command_line, is_followed) in [
            ("quiet elemental.mode=live", true),
            ("elemental.mode=live ip=dhcp", false),
            ("vlan=v12:bond0 ip=192.0.2.7::192.0.2.1:24::v12:none", false),
            ("ipv6.disable=1 skip=1", true),
        ] {
            let (_directory, root) = host(command_line);
            write_seed(&root).unwrap();
            let is_there = root.connections().join("baremetal-a.nmconnection").exists();
            assert_eq!(is_there, is_followed, "{command_line}");
            fs::remove_dir_all(root.join("/etc/systemd")).unwrap();
            let network_config = || {
                write_seed(&root).unwrap();
                seed::load_nocloud(&root).unwrap().unwrap().network_config.unwrap()
            };
            let want = |network| if is_followed { network } else { seed::NO_NETWORK };
            assert_eq!(network_config(), want("version: 2\n"), "{command_line}");
            let card = root.join("/sys/class/net/eno1");
            fs::create_dir_all(card.join("device")).unwrap();
            fs::write(card.join("address"), "02:00:00:00:00:01\n").unwrap();
            let own =
                r#"{"hosts": [{"macs": ["02:00:00:00:00:01"], "network": {"network-config": "own\n"}}]}"#;
            fs::write(root.live_networks(), own).unwrap();
            assert_eq!(network_config(), want("own\n"), "{command_line}");
        }
    }
}
