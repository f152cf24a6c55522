use super::*;
use crate::host::network::kernel::in_namespace::{in_namespace, run_ip};
use crate::state::before_node;

/// A host with one card, an address of its own, and a VLAN.
const OWN: [&str; 6] = [
    "link set lo up",
    "link add eno1 type veth peer name switch",
    "link set eno1 up",
    "link set switch up",
    "addr add 10.0.0.1/24 dev eno1",
    "route add 10.9.0.0/16 via 10.0.0.254",
];

/// Items that kube-vip, Calico, flannel, Cilium and kube-proxy leave.
const NODE: [&str; 15] = [
    "addr add 10.0.0.100/32 dev eno1",
    "addr add 10.0.0.101/24 dev eno1",
    "addr add 10.0.0.102/32 dev lo",
    "link add cni0 type bridge",
    "link set cni0 up",
    "addr add 10.244.0.1/24 dev cni0",
    "link add flannel.1 type vxlan id 1 dstport 8472",
    "link add pod1 type veth peer name pod1-peer",
    "link set pod1 master cni0",
    "route add 10.244.1.0/24 via 10.0.0.2 dev eno1 proto bird",
    "route add 10.244.2.0/24 via 10.0.0.3 dev eno1",
    "route add blackhole 10.244.0.64/26 proto bird",
    "route add local 0.0.0.0/0 dev lo table 2004",
    "route add 10.244.3.0/24 via 10.0.0.4 dev eno1 table 200",
    "rule add fwmark 0x200/0xf00 table 2004 priority 9",
];

fn run_all(commands: &[&str]) {
    for command in commands {
        run_ip(command);
    }
}

fn own(items: BTreeSet<KernelItem>) -> (tempfile::TempDir, Root, OwnItems) {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    std::fs::create_dir_all(root.state().path()).unwrap();
    before_node::record_items(&root, "1", items).unwrap();
    before_node::mark_node(&root, "1").unwrap();
    let own = before_node::own_items(&root, "1").unwrap();
    (directory, root, own)
}

#[test]
fn a_clean_leaves_the_hosts_own_kernel() {
    in_namespace(|| {
        let nowhere = tempfile::tempdir().unwrap();
        let list = || list_items(&Root::at(nowhere.path())).unwrap();
        run_all(&OWN);
        let before = list();
        assert!(before.contains(&KernelItem::Link("eno1".into())), "{before:?}");
        let (_directory, root, own) = own(before.clone());
        run_all(&NODE);
        nftables::tests::add_table(2, "kube-proxy");
        nftables::tests::add_table(10, "calico");
        let seen = list();
        for item in [
            "address 10.0.0.100/32 of eno1",
            "address 10.0.0.102/32 of lo",
            "link cni0",
            "link flannel.1",
            "route 10.244.1.0/24 via 10.0.0.2 by eno1",
            "route blackhole 10.244.0.64/26",
            "route 10.244.3.0/24 via 10.0.0.4 by eno1 in table 200",
            "rule 9 to table 2004",
            "table ip kube-proxy of nftables",
            "table ip6 calico of nftables",
        ] {
            assert!(seen.iter().any(|seen| seen.to_string() == item), "{item}: {seen:?}");
        }
        remove_foreign(&root, &own).unwrap();
        assert_eq!(list(), before);
        assert_eq!(show_left(&own, &list()), Vec::<String>::new());
        remove_foreign(&root, &own).unwrap();
        assert_eq!(list(), before, "again");
    });
}

#[test]
fn a_machines_network_stays_until_a_boot() {
    in_namespace(|| {
        let nowhere = tempfile::tempdir().unwrap();
        let list = || list_items(&Root::at(nowhere.path())).unwrap();
        run_all(&OWN);
        let (_directory, root, own) = own(list());
        // The host is attached by the address and the route that its machine brought.
        run_ip("addr del 10.0.0.1/24 dev eno1");
        run_ip("addr add 10.5.0.7/24 dev eno1");
        run_ip("addr add 10.5.0.100/32 dev eno1");
        run_ip("route add default via 10.5.0.254");
        remove_foreign(&root, &own).unwrap();
        let left = show_left(&own, &list());
        assert_eq!(left, ["address 10.5.0.7/24 of eno1", "route 0.0.0.0/0 via 10.5.0.254 by eno1"]);
    });
}

#[test]
fn without_a_record_nothing_is_removed() {
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        std::fs::create_dir_all(root.state().path()).unwrap();
        before_node::mark_node(&root, "1").unwrap();
        let own = before_node::own_items(&root, "1").unwrap();
        run_all(&OWN);
        run_all(&NODE);
        let before = list_items(&root).unwrap();
        remove_foreign(&root, &own).unwrap();
        assert_eq!(list_items(&root).unwrap(), before);
        assert_eq!(show_left(&own, &before).len(), 1, "a reboot makes it certain");
    });
}

#[test]
fn devices_of_workload_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    for (path, content) in [
        ("run/netns/cni-1", ""),
        ("sys/fs/bpf/cilium", ""),
        ("proc/thread-self/net/ip_tables_names", "nat\nfilter\n"),
        (
            "proc/thread-self/net/ip_vs",
            "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  \
             -> RemoteAddress:Port Forward Weight ActiveConn InActConn\nTCP  0A600001:01BB rr\n  \
             -> 0A000002:192B      Masq    1      0          0\n",
        ),
        ("sys/class/block/dm-0/dm/name", "csi-1\n"),
        ("sys/class/block/loop0/loop/backing_file", "/run/rootfsbase/rootfs.squashfs\n"),
        ("sys/class/block/loop1/loop/backing_file", "/var/lib/kubelet/plugins/volume\n"),
        ("sys/class/block/loop2/loop/backing_file", "/var/lib/image (deleted)\n"),
        ("sys/class/block/rbd0/size", "2048\n"),
        ("sys/class/block/nbd0/size", "0\n"),
        ("sys/class/block/sda/size", "2048\n"),
    ] {
        root.put(path, content);
    }
    let mut found = devices::list_devices(&root);
    found.extend(ipvs::list_services(&root));
    let mut shown: Vec<_> = found.iter().map(ToString::to_string).collect();
    shown.sort();
    assert_eq!(
        shown,
        [
            "BPF program cilium",
            "device loop1 of /var/lib/kubelet/plugins/volume",
            "device loop2 of /var/lib/image (deleted)",
            "device mapper csi-1",
            "device rbd0",
            "network namespace cni-1",
            "service TCP 0A600001:01BB of IPVS",
            "table ip filter of iptables",
            "table ip nat of iptables",
        ]
    );
}

#[test]
fn a_long_list_is_counted() {
    let (_directory, _root, own) = own(BTreeSet::new());
    let links =
        |count: usize| (0..count).map(|number| KernelItem::Link(format!("veth{number:03}"))).collect();
    let shown = show_left(&own, &links(SHOWN));
    assert_eq!((shown.len(), shown.last().map(String::as_str)), (SHOWN, Some("link veth015")));
    let shown = show_left(&own, &links(100));
    assert_eq!((shown.len(), shown.last().map(String::as_str)), (SHOWN, Some("85 more")));
}
