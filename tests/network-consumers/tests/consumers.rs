//! What is rendered, as `NetworkManager`, cloud-init and netplan read it.

// Tables are long, and a helper that cannot unwrap hides the case.
#![allow(clippy::unwrap_used, clippy::panic, clippy::too_many_lines, clippy::missing_panics_doc)]

#[path = "consumers/openstack.rs"]
mod openstack;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use coordinator_api::inventory::MachineInventorySpec;
use coordinator_core::network::{HostNetwork, host_network};
use serde_json::{Value, json};
use tempfile::TempDir;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}:\n{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

static TREE: LazyLock<String> =
    LazyLock::new(|| run(&mut Command::new(script("tree.sh"))).trim_end().to_owned());

/// What the consumers made of a network, as files.
struct Consumed {
    directory: TempDir,
}

impl Consumed {
    fn of(network: &HostNetwork) -> Self {
        let directory = tempfile::tempdir().unwrap();
        if let Some(text) = &network.network_config {
            fs::write(directory.path().join("network-config"), text).unwrap();
        }
        fs::create_dir(directory.path().join("connections")).unwrap();
        for (name, content) in &network.connections {
            fs::write(directory.path().join(format!("connections/{name}.nmconnection")), content.expose())
                .unwrap();
        }
        Self::consume(directory)
    }

    fn of_kernel_arguments(arguments: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("kernel-arguments"), arguments).unwrap();
        Self::consume(directory)
    }

    fn consume(directory: TempDir) -> Self {
        run(Command::new(script("consume.sh")).arg(&*TREE).arg(directory.path()));
        Self { directory }
    }

    /// Sections of a file in the form of systemd or `GLib`: the name, then its
    /// lines. A name may occur twice.
    fn sections(&self, file: &str) -> Vec<Vec<String>> {
        let path = self.directory.path().join(file);
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}: {}", self.list()));
        let mut sections: Vec<Vec<String>> = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match sections.last_mut() {
                Some(section) if !line.starts_with('[') => section.push(line.to_owned()),
                Some(_) | None => sections.push(vec![line.to_owned()]),
            }
        }
        sections
    }

    fn list(&self) -> String {
        run(Command::new("find").arg(self.directory.path()).args(["-type", "f"]))
    }

    /// Whether a section of the file has all the lines: `FILE [NAME] LINE…`.
    fn assert_holds(&self, case: &str, want: &str) {
        let mut words = want.split(' ');
        let file = words.next().unwrap();
        let words: Vec<_> = words.map(str::to_owned).collect();
        let sections = self.sections(file);
        let found = sections.iter().any(|section| words.iter().all(|word| section.contains(word)));
        assert!(found, "{case}: {want}: not in {sections:#?}");
    }
}

fn replay(observed: Value) -> HostNetwork {
    host_network(&MachineInventorySpec {
        observed_network: Some(serde_json::from_value(observed).unwrap()),
        ..MachineInventorySpec::default()
    })
    .unwrap()
}

const ETHERNET: &str = "netplan/run/systemd/network/10-netplan-";

#[test]
fn every_consumer_reads_the_same_network() {
    let cases = [
        (
            "DHCP",
            json!({"interfaces": [
                {"name": "eno1", "mac": "02:00:00:00:00:01", "dhcp4": true, "acceptRa": true}
            ]}),
            vec![
                "NETPLANeno1.network [Network] DHCP=ipv4 IPv6AcceptRA=yes",
                "NETPLANeno1.network [Match] PermanentMACAddress=02:00:00:00:00:01",
                "NETPLANeno1.link [Link] Name=eno1",
                "NMeno1 [ethernet] mac-address=02:00:00:00:00:01",
                "NMeno1 [ipv4] method=auto",
                "NMeno1 [ipv6] method=auto",
                "CLOUDeno1 [ipv4] method=auto",
            ],
        ),
        (
            "static, both families, several NICs, resolvers",
            json!({
                "interfaces": [
                    {"name": "eno1", "mac": "02:00:00:00:00:01", "mtu": 9000, "addresses": ["192.0.2.7/24", "2001:db8::7/64"]},
                    {"name": "eno2", "mac": "02:00:00:00:00:02", "addresses": ["198.51.100.7/24"]},
                    {"name": "eno3", "mac": "02:00:00:00:00:03", "dhcp4": true}
                ],
                "routes": [
                    {"destination": "0.0.0.0/0", "gateway": "192.0.2.1", "interface": "eno1", "metric": 50},
                    {"destination": "::/0", "gateway": "2001:db8::1", "interface": "eno1"},
                    {"destination": "203.0.113.0/24", "gateway": "198.51.100.1", "interface": "eno2"},
                    {"destination": "203.0.114.0/24", "interface": "eno2", "metric": 7}
                ],
                "dnsServers": ["192.0.2.53", "2001:db8::53"], "searchDomains": ["example.com"]
            }),
            vec![
                "NETPLANeno1.network [Network] Address=192.0.2.7/24 Address=2001:db8::7/64 DNS=192.0.2.53 DNS=2001:db8::53 Domains=example.com",
                "NETPLANeno1.network [Route] Destination=0.0.0.0/0 Gateway=192.0.2.1 Metric=50",
                "NETPLANeno1.network [Route] Destination=::/0 Gateway=2001:db8::1",
                "NETPLANeno1.network [Link] MTUBytes=9000",
                "NETPLANeno2.network [Network] Address=198.51.100.7/24",
                "NETPLANeno2.network [Route] Destination=203.0.113.0/24 Gateway=198.51.100.1",
                "NETPLANeno2.network [Route] Destination=203.0.114.0/24 Scope=link Metric=7",
                "NETPLANeno3.network [Network] DHCP=ipv4",
                "NETWORKDeno1.network [Address] Address=192.0.2.7/24",
                "NETWORKDeno1.network [Route] Destination=0.0.0.0/0 Gateway=192.0.2.1 Metric=50",
                "NMeno1 [ipv4] method=manual address1=192.0.2.7/24 route1=0.0.0.0/0,192.0.2.1,50 dns=192.0.2.53; dns-search=example.com;",
                "NMeno1 [ipv6] method=manual address1=2001:db8::7/64 route1=::/0,2001:db8::1 dns=2001:db8::53;",
                "NMeno1 [ethernet] mtu=9000",
                "NMeno2 [ipv4] address1=198.51.100.7/24 route1=203.0.113.0/24,198.51.100.1 route2=203.0.114.0/24,0.0.0.0,7",
                "NMeno2 [ipv6] method=disabled",
                "CLOUDeno2 [ipv4] method=manual address1=198.51.100.7/24",
            ],
        ),
        (
            "VLAN on a bond, routes by a link-local gateway",
            json!({
                "interfaces": [
                    {"name": "bond0", "kind": "bond", "mac": "02:00:00:00:00:0a", "mtu": 9000,
                     "bond": {"mode": "802.3ad", "miimon": 100, "lacpRate": "fast", "transmitHashPolicy": "layer3+4",
                              "upDelay": 200, "downDelay": 300, "adSelect": "bandwidth", "minLinks": 2}},
                    {"name": "eno1", "permanentMac": "02:00:00:00:00:0a", "mac": "02:00:00:00:00:0a", "mtu": 9000, "master": "bond0"},
                    {"name": "eno2", "permanentMac": "02:00:00:00:00:0b", "mac": "02:00:00:00:00:0a", "mtu": 9000, "master": "bond0"},
                    {"name": "bond0.12", "kind": "vlan", "vlan": {"id": 12, "link": "bond0"}, "addresses": ["192.0.2.7/24", "2001:db8::7/64"]}
                ],
                "routes": [
                    {"destination": "0.0.0.0/0", "gateway": "192.0.2.1", "interface": "bond0.12"},
                    {"destination": "::/0", "gateway": "fe80::1", "interface": "bond0.12", "metric": 1024}
                ],
                "dnsServers": ["192.0.2.53"]
            }),
            vec![
                "NETPLANbond0.netdev [NetDev] Name=bond0 Kind=bond MACAddress=02:00:00:00:00:0a MTUBytes=9000",
                "NETPLANbond0.netdev [Bond] Mode=802.3ad MIIMonitorSec=100ms LACPTransmitRate=fast TransmitHashPolicy=layer3+4",
                "NETPLANbond0.netdev [Bond] UpDelaySec=200ms DownDelaySec=300ms AdSelect=bandwidth MinLinks=2",
                "NETPLANeno1.network [Match] PermanentMACAddress=02:00:00:00:00:0a",
                "NETPLANeno1.network [Network] Bond=bond0",
                "NETPLANeno2.network [Match] PermanentMACAddress=02:00:00:00:00:0b",
                "NETPLANeno2.network [Network] Bond=bond0",
                "NETPLANbond0.network [Network] VLAN=bond0.12",
                "NETPLANbond0.12.netdev [VLAN] Id=12",
                "NETPLANbond0.12.network [Network] Address=192.0.2.7/24 Address=2001:db8::7/64 DNS=192.0.2.53",
                "NETPLANbond0.12.network [Route] Destination=0.0.0.0/0 Gateway=192.0.2.1",
                "NETPLANbond0.12.network [Route] Destination=::/0 Gateway=fe80::1",
                "NMbond0 [bond] mode=802.3ad miimon=100 lacp_rate=fast xmit_hash_policy=layer3+4",
                "NMbond0 [bond] updelay=200 downdelay=300 ad_select=bandwidth min_links=2",
                "NMbond0 [ethernet] cloned-mac-address=02:00:00:00:00:0A mtu=9000",
                "NMeno1 [ethernet] mac-address=02:00:00:00:00:0A",
                "NMeno2 [ethernet] mac-address=02:00:00:00:00:0B",
                "NMbond0.12 [vlan] id=12",
                "NMbond0.12 [ipv4] address1=192.0.2.7/24 route1=0.0.0.0/0,192.0.2.1 dns=192.0.2.53;",
                "NMbond0.12 [ipv6] address1=2001:db8::7/64 route1=::/0,fe80::1",
                "CLOUDbond0 [bond] mode=802.3ad miimon=100",
                "CLOUDbond0.12 [vlan] id=12",
            ],
        ),
        (
            "bridge",
            json!({
                "interfaces": [
                    {"name": "br0", "kind": "bridge", "mac": "02:00:00:00:00:01", "addresses": ["192.0.2.7/24"]},
                    {"name": "eno1", "mac": "02:00:00:00:00:01", "master": "br0"}
                ],
                "routes": [{"destination": "0.0.0.0/0", "gateway": "192.0.2.1", "interface": "br0"}]
            }),
            vec![
                "NETPLANbr0.netdev [NetDev] Name=br0 Kind=bridge",
                "NETPLANeno1.network [Network] Bridge=br0",
                "NETPLANbr0.network [Network] Address=192.0.2.7/24",
                "NETPLANbr0.network [Route] Destination=0.0.0.0/0 Gateway=192.0.2.1",
                "NMbr0 [connection] type=bridge interface-name=br0",
                "NMbr0 [ipv4] address1=192.0.2.7/24 route1=0.0.0.0/0,192.0.2.1",
                "CLOUDbr0 [ipv4] address1=192.0.2.7/24",
            ],
        ),
        (
            "single addresses, their gateways outside",
            json!({
                "interfaces": [{"name": "eno1", "mac": "02:00:00:00:00:01", "addresses": ["192.0.2.7/32", "2001:db8::7/128"]}],
                "routes": [
                    {"destination": "0.0.0.0/0", "gateway": "198.51.100.1", "interface": "eno1", "onLink": true},
                    {"destination": "::/0", "gateway": "2001:db8:ff::1", "interface": "eno1", "onLink": true}
                ]
            }),
            vec![
                "NETPLANeno1.network [Route] Destination=198.51.100.1/32 Scope=link",
                "NETPLANeno1.network [Route] Destination=0.0.0.0/0 Gateway=198.51.100.1",
                "NETPLANeno1.network [Route] Destination=2001:db8:ff::1/128",
                "NETPLANeno1.network [Route] Destination=::/0 Gateway=2001:db8:ff::1",
                "NETWORKDeno1.network [Route] Destination=198.51.100.1/32",
                "NETWORKDeno1.network [Route] Destination=0.0.0.0/0 Gateway=198.51.100.1",
                "NMeno1 [ipv4] address1=192.0.2.7/32 route1=198.51.100.1/32 route2=0.0.0.0/0,198.51.100.1",
                "NMeno1 [ipv6] address1=2001:db8::7/128 route1=2001:db8:ff::1/128 route2=::/0,2001:db8:ff::1",
            ],
        ),
        (
            "a bond with parameters that keyfiles alone have",
            json!({
                "interfaces": [
                    {"name": "bond0", "kind": "bond", "mac": "02:00:00:00:00:0a", "addresses": ["192.0.2.7/24"],
                     "bond": {"mode": "active-backup", "arpInterval": 500, "arpIpTargets": ["192.0.2.1", "192.0.2.2"],
                              "arpValidate": "all", "arpAllTargets": "all", "resendIgmp": 5, "learnPacketInterval": 3,
                              "allMembersActive": true, "primaryReselect": "failure", "failOverMac": "active", "gratuitousArp": 5}},
                    {"name": "eno1", "permanentMac": "02:00:00:00:00:0a", "master": "bond0"}
                ]
            }),
            vec![
                "NETPLANbond0.netdev [Bond] Mode=active-backup PrimaryReselectPolicy=failure FailOverMACPolicy=active GratuitousARP=5",
                "NMbond0 [bond] arp_interval=500 arp_ip_target=192.0.2.1,192.0.2.2 arp_validate=all arp_all_targets=all",
                "NMbond0 [bond] resend_igmp=5 lp_interval=3 all_slaves_active=1 primary_reselect=failure fail_over_mac=active num_grat_arp=5",
                "CLOUDbond0 [bond] mode=active-backup",
            ],
        ),
    ];
    for (case, observed, wants) in cases {
        let consumed = Consumed::of(&replay(observed));
        for want in wants {
            consumed.assert_holds(case, &expand(want));
        }
    }
}

/// Short names of files: `NMeno1` is what `NetworkManager` read of `eno1`,
/// `CLOUDeno1` what cloud-init would have written for it.
fn expand(want: &str) -> String {
    let (file, lines) = want.split_once(' ').unwrap();
    let file = if let Some(name) = file.strip_prefix("NM") {
        format!("nm/{name}.nmconnection")
    } else if let Some(name) = file.strip_prefix("CLOUD") {
        format!("network-manager/etc/NetworkManager/system-connections/cloud-init-{name}.nmconnection")
    } else if let Some(name) = file.strip_prefix("NETWORKD") {
        format!("networkd/etc/systemd/network/10-cloud-init-{name}")
    } else {
        file.replace("NETPLAN", ETHERNET)
    };
    format!("{file} {lines}")
}

#[test]
fn members_of_a_bond_find_their_master() {
    let network = replay(json!({
        "interfaces": [
            {"name": "bond0", "kind": "bond", "bond": {"mode": "active-backup", "miimon": 100, "primary": "eno1"}, "dhcp4": true},
            {"name": "eno1", "permanentMac": "02:00:00:00:00:0a", "master": "bond0"},
            {"name": "v7", "kind": "vlan", "vlan": {"id": 7, "link": "eno3"}, "addresses": ["192.0.2.7/24"]},
            {"name": "eno3", "permanentMac": "02:00:00:00:00:0c"}
        ]
    }));
    let consumed = Consumed::of(&network);
    let value = |file: &str, key: &str| {
        let lines = consumed.sections(&format!("nm/{file}.nmconnection")).concat();
        let mut values = lines.iter().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        values.next().unwrap_or_else(|| panic!("{file}: no {key}: {lines:?}")).to_owned()
    };
    assert!(lines_name(&consumed, "eno1", "bond0"));
    assert_eq!(value("v7", "parent"), value("eno3", "uuid"), "a VLAN finds its NIC under any name");
    consumed.assert_holds("primary", &expand("NETPLANeno1.network [Network] Bond=bond0 PrimarySlave=true"));
}

fn lines_name(consumed: &Consumed, member: &str, master: &str) -> bool {
    let lines = consumed.sections(&format!("nm/{member}.nmconnection")).concat();
    ["master", "controller"].iter().any(|key| lines.contains(&format!("{key}={master}")))
}

#[test]
fn keyfiles_survive_translation_to_network_config() {
    let bond = "[connection]\nid=Bond\nuuid=6ba7b810-9dad-41d1-80b4-00c04fd430c8\ntype=bond\ninterface-name=bond0\n\
        [bond]\nmode=802.3ad\nmiimon=100\n[ipv4]\nmethod=disabled\n[ipv6]\nmethod=disabled\n";
    let member = "[connection]\nid=m\ntype=ethernet\ninterface-name=eno1\nmaster=bond0\nslave-type=bond\n";
    let vlan = "[connection]\nid=v\ntype=vlan\ninterface-name=v12\n[vlan]\nid=12\nparent=bond0\n\
        [ipv4]\nmethod=manual\naddress1=192.0.2.7/24\ngateway=192.0.2.1\nroute1=198.51.100.0/24,192.0.2.9,50\ndns=192.0.2.53;\n[ipv6]\nmethod=auto\n";
    let network = replay(json!({
        "connections": {"bond": bond, "member": member, "vlan": vlan},
        "interfaces": [{"name": "eno1", "mac": "02:00:00:00:00:0b", "permanentMac": "02:00:00:00:00:0a", "master": "bond0"},
                       {"name": "bond0", "kind": "bond", "mac": "02:00:00:00:00:0b"}]
    }));
    let consumed = Consumed::of(&network);
    for want in [
        "NMvlan [ipv4] address1=192.0.2.7/24 gateway=192.0.2.1 route1=198.51.100.0/24,192.0.2.9,50 dns=192.0.2.53;",
        "NETPLANv12.network [Network] Address=192.0.2.7/24 DNS=192.0.2.53 IPv6AcceptRA=yes",
        "NETPLANv12.network [Route] Destination=0.0.0.0/0 Gateway=192.0.2.1",
        "NETPLANv12.network [Route] Destination=198.51.100.0/24 Gateway=192.0.2.9 Metric=50",
        "NETPLANv12.netdev [VLAN] Id=12",
        "NETPLANeno1.network [Match] PermanentMACAddress=02:00:00:00:00:0a",
        "NETPLANeno1.network [Network] Bond=bond0",
        "NETPLANbond0.netdev [Bond] Mode=802.3ad MIIMonitorSec=100ms",
    ] {
        consumed.assert_holds("keyfiles", &expand(want));
    }
}

/// What `docs/operations.md` says of the live system of `iso/`: it starts this
/// generator. Options of a bond are not among what it takes.
#[test]
fn kernel_arguments_configure_a_live_system() {
    let consumed = Consumed::of_kernel_arguments(
        "ip=192.0.2.7::192.0.2.1:24::bond0.12:none vlan=bond0.12:bond0 bond=bond0:eno1,eno2:mode=802.3ad nameserver=192.0.2.53 ip=eno3:dhcp",
    );
    for want in [
        "kernel/70-bond0.12.network [Address] Address=192.0.2.7/24",
        "kernel/70-bond0.12.network [Route] Gateway=192.0.2.1",
        "kernel/70-bond0.12.network [Network] DHCP=no DNS=192.0.2.53",
        "kernel/70-bond0.12.netdev [VLAN] Id=12",
        "kernel/70-bond0.network [Network] VLAN=bond0.12",
        "kernel/70-bond0.netdev [NetDev] Kind=bond Name=bond0",
        "kernel/70-eno2.network [Network] Bond=bond0",
        "kernel/70-eno3.network [Network] DHCP=ipv4",
    ] {
        consumed.assert_holds("kernel arguments", want);
    }
    let bond = consumed.sections("kernel/70-bond0.netdev");
    assert_eq!(bond.len(), 1, "a mode is no longer ignored: correct docs/operations.md: {bond:?}");
}

/// The reason why images need netplan or `NetworkManager`.
#[test]
fn the_networkd_renderer_of_cloud_init_loses_bonds() {
    let consumed = Consumed::of(&replay(json!({
        "interfaces": [{"name": "bond0", "kind": "bond", "dhcp4": true, "bond": {"mode": "802.3ad"}},
                       {"name": "eno1", "permanentMac": "02:00:00:00:00:0a", "master": "bond0"}]
    })));
    let files = consumed.list();
    assert!(!files.contains("networkd/etc/systemd/network/10-cloud-init-bond0.netdev"), "{files}");
    assert!(files.contains("netplan/run/systemd/network/10-netplan-bond0.netdev"), "{files}");
}
