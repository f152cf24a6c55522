//! What IPVS needs beside keepalived: its module, tracked connections, and two
//! rules. One marks what comes to the holder for the address: IPVS would take the
//! connections of each member's own programs as well, and those that it leads
//! back to the member hang. The other replaces the source of what is forwarded, so
//! that another member's answer comes back through the holder.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::time::Duration;

use proto::balancer::Duty;

use crate::ground::paths::Root;
use crate::host::command::Invocation;
use crate::host::system::SystemError;

const DEADLINE: Duration = Duration::from_secs(10);
const TABLE: &str = "baremetal_alive";
/// Connections are tracked, and those of a member that left are reset, where they would get no answer.
const SETTINGS: [&str; 2] = ["conntrack", "expire_nodest_conn"];
/// Of packets for the address. kube-proxy has 0xC000 and Calico 0xFFFF0000; Cilium reads this bit
/// only where one of 0x0F00 is set as well.
pub(super) const MARK: u32 = 0x1000;
/// Just before IPVS takes packets at the hook (99), and what it looks at before (98).
const BEFORE_IPVS: u32 = 97;

/// Why connections are not spread.
#[derive(Debug, thiserror::Error)]
pub enum SpreadError {
    /// The kernel has no IPVS.
    #[error("the kernel has no IPVS (ip_vs)")]
    NoIpvs,
    /// An answer of another member could not come back.
    #[error("the kernel does not forward ({0} is not 1)")]
    NoForwarding(&'static str),
    /// IPVS would not track its connections, or would keep those of a member that left.
    #[error("cannot set net.ipv4.vs.{0}")]
    Setting(&'static str, #[source] io::Error),
    /// The rules could not be written.
    #[error("cannot write the rules for nft")]
    Write(#[source] io::Error),
    /// The rule could not be set.
    #[error("nft cannot replace the source of what IPVS forwards")]
    Rule(#[source] SystemError),
}

pub async fn prepare_kernel(root: &Root, duty: &Duty) -> Result<(), SpreadError> {
    let table = root.join("/proc/net/ip_vs");
    if !table.exists() {
        // An image may have it built in, or lack it: the table tells.
        let _ = Invocation::new("modprobe", &["--quiet", "ip_vs"], DEADLINE).run().await;
    }
    if !table.exists() {
        return Err(SpreadError::NoIpvs);
    }
    check_forwarding(root, duty)?;
    for name in SETTINGS {
        let path = root.join(format!("/proc/sys/net/ipv4/vs/{name}"));
        fs::write(path, "1").map_err(|error| SpreadError::Setting(name, error))?;
    }
    let rules = render_rules(duty);
    let path = root.load_balancer().join("rules.nft");
    fs::write(&path, rules).map_err(SpreadError::Write)?;
    let file = path.display().to_string();
    let applied = Invocation::new("nft", &["--file", &file], DEADLINE).run().await;
    applied.map(drop).map_err(SpreadError::Rule)
}

/// Nodes of Kubernetes forward: kubeadm asks for it. Before that there is no other member.
fn check_forwarding(root: &Root, duty: &Duty) -> Result<(), SpreadError> {
    let (name, path) = if duty.address.is_ipv4() {
        ("net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward")
    } else {
        ("net.ipv6.conf.all.forwarding", "/proc/sys/net/ipv6/conf/all/forwarding")
    };
    let value = fs::read_to_string(root.join(path)).unwrap_or_default();
    if value.trim() == "1" { Ok(()) } else { Err(SpreadError::NoForwarding(name)) }
}

/// The table is declared before it is deleted: it may not be there.
fn render_rules(duty: &Duty) -> String {
    let family = if duty.address.is_ipv4() { "ip" } else { "ip6" };
    let members = duty.members.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut rules = format!("table {family} {TABLE}\ndelete table {family} {TABLE}\n");
    let _ = write!(
        rules,
        "\
table {family} {TABLE} {{
    chain input {{
        type filter hook input priority {BEFORE_IPVS}; policy accept;
        iifname != \"lo\" {family} daddr {address} tcp dport {port} meta mark set {MARK:#x}
    }}
    chain postrouting {{
        type nat hook postrouting priority srcnat; policy accept;
        {family} daddr {{ {members} }} tcp dport {port} ct original {family} daddr {address} masquerade
    }}
}}
",
        port = duty.port,
        address = duty.address,
    );
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::v1alpha1::LoadBalancerDuty;

    fn duty(address: &str) -> Duty {
        let members = ["10.0.0.1", "10.0.0.2"].map(str::to_owned).to_vec();
        let members = if address.contains(':') { vec!["fd00::1".to_owned()] } else { members };
        let (address, port, router_id) = (address.to_owned(), 6443, 51);
        let duty = LoadBalancerDuty { address, port, router_id, members, ..LoadBalancerDuty::default() };
        Duty::parse(&duty).unwrap().unwrap()
    }

    #[test]
    fn only_traffic_for_address_is_masqueraded() {
        let rules = render_rules(&duty("10.0.0.100"));
        let rule =
            "ip daddr { 10.0.0.1, 10.0.0.2 } tcp dport 6443 ct original ip daddr 10.0.0.100 masquerade";
        assert!(rules.contains(rule), "{rules}");
        let rule = "iifname != \"lo\" ip daddr 10.0.0.100 tcp dport 6443 meta mark set 0x1000";
        assert!(rules.contains(rule), "{rules}");
    }

    #[tokio::test]
    async fn a_kernel_without_ipvs_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let duty = duty("10.0.0.100");
        assert!(matches!(prepare_kernel(&root, &duty).await, Err(SpreadError::NoIpvs)));
    }

    #[test]
    fn a_kernel_that_does_not_forward_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        for (address, path) in [
            ("10.0.0.100", "/proc/sys/net/ipv4/ip_forward"),
            ("fd00::100", "/proc/sys/net/ipv6/conf/all/forwarding"),
        ] {
            let duty = duty(address);
            assert!(matches!(check_forwarding(&root, &duty), Err(SpreadError::NoForwarding(_))), "{address}");
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            for (value, forwards) in [("0\n", false), ("1\n", true)] {
                fs::write(&path, value).unwrap();
                assert_eq!(check_forwarding(&root, &duty).is_ok(), forwards, "{address}: {value}");
            }
        }
    }
}
