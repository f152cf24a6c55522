//! Prepares the kernel for IPVS: its module, tracked connections, and two rules. One rule marks
//! connections to the endpoint at the holder, because IPVS would also take connections of each
//! member's own programs, and those that it led back to the member would hang. The other rule
//! replaces the source address of forwarded connections, so that another member's answer returns
//! through the holder.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use proto::balancer::Duty;
use proto::v1alpha1::FailureReason;
use tokio::time::sleep;

use crate::ground::failure::{Failure, describe_cause};
use crate::ground::paths::{Root, read_or_empty};
use crate::host::command::{CommandError, Invocation};
use crate::host::kernel_state::has_filter_table;

const DEADLINE: Duration = Duration::from_secs(10);
const TABLE: &str = "baremetal_alive";
/// A change of another program at the same moment, for example of kube-proxy, may fail the transaction.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(300);
/// The time after which rules are given to the kernel again.
const AGE: Duration = Duration::from_mins(1);
/// Most characters of a line of `nft` in a message.
const LINE: usize = 200;
/// Connections are tracked, and those of a member that left are reset, because they would get no
/// answer.
const SETTINGS: [&str; 2] = ["conntrack", "expire_nodest_conn"];
/// The mark of connections to the endpoint. kube-proxy uses 0xC000 and Calico 0xFFFF0000; Cilium
/// reads this bit only if a bit of 0x0F00 is set as well.
pub(super) const MARK: u32 = 0x1000;
/// The priority is just before IPVS at the same hook (98 and 99).
const BEFORE_IPVS: u32 = 97;

/// Rules that the kernel was given.
pub struct Applied {
    rules: String,
    at: Instant,
}

/// The host takes part, and serves all connections itself while it holds the endpoint.
fn serves_alone(cause: &str) -> Failure {
    Failure::new(
        FailureReason::Command,
        format!("the holder of the address serves alone: {cause}"),
        "none needed; to spread connections, use an OS image with ip_vs and nft that forwards",
    )
}

/// Makes the kernel spread connections. `applied` are the rules that this process gave it. They are given
/// again if they differ, if another program has removed their table, and each minute, because it may have
/// changed the table; not at each call, because the kernel announces each address and link of the node.
pub async fn prepare_kernel(root: &Root, duty: &Duty, applied: &mut Option<Applied>) -> Result<(), Failure> {
    let table = root.join("/proc/net/ip_vs");
    if !table.exists() {
        // The result does not matter, because an image may have IPVS built in or lack it: the table
        // shows it.
        let _ = Invocation::new("modprobe", &["--quiet", "ip_vs"], DEADLINE).run().await;
    }
    if !table.exists() {
        return Err(serves_alone("the kernel has no IPVS (ip_vs)"));
    }
    check_forwarding(root, duty)?;
    for name in SETTINGS {
        let path = root.join(format!("/proc/sys/net/ipv4/vs/{name}"));
        fs::write(path, "1").map_err(|error| {
            serves_alone(&describe_cause(&format!("cannot set net.ipv4.vs.{name}"), &error))
        })?;
    }
    let rules = render_rules(duty);
    let is_fresh = |applied: &Applied| applied.rules == rules && applied.at.elapsed() < AGE;
    if applied.as_ref().is_some_and(is_fresh) && has_filter_table(family_of(duty), TABLE) {
        return Ok(());
    }
    *applied = None;
    let path = root.load_balancer().join("rules.nft");
    fs::write(&path, &rules)
        .map_err(|error| serves_alone(&describe_cause("cannot write the rules for nft", &error)))?;
    let file = path.display().to_string();
    let nft = Invocation::new("nft", &["--file", &file], DEADLINE);
    let mut run = nft.run().await;
    for _ in 1..TRIES {
        if !matches!(run, Err(CommandError::Failed { .. })) {
            break;
        }
        sleep(PAUSE).await;
        run = nft.run().await;
    }
    run.map_err(|error| serves_alone(&describe_failure(&error)))?;
    *applied = Some(Applied { rules, at: Instant::now() });
    Ok(())
}

/// Names the first line that `nft` printed.
fn describe_failure(error: &CommandError) -> String {
    let message = describe_cause("nft cannot replace the source of what IPVS forwards", error);
    let CommandError::Failed { output, .. } = error else { return message };
    let line = output.0.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line: String = line.chars().take(LINE).collect();
    if line.is_empty() { message } else { format!("{message} ({line})") }
}

fn family_of(duty: &Duty) -> &'static str {
    if duty.address.is_ipv4() { "ip" } else { "ip6" }
}

/// Nodes of Kubernetes forward, because kubeadm requires it; before kubeadm has run there is no
/// other member.
fn check_forwarding(root: &Root, duty: &Duty) -> Result<(), Failure> {
    let (name, path) = if duty.address.is_ipv4() {
        ("net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward")
    } else {
        ("net.ipv6.conf.all.forwarding", "/proc/sys/net/ipv6/conf/all/forwarding")
    };
    if read_or_empty(root.join(path)).trim() == "1" {
        return Ok(());
    }
    Err(serves_alone(&format!("the kernel does not forward ({name} is not 1)")))
}

/// The table is declared before it is deleted, because it may not exist.
fn render_rules(duty: &Duty) -> String {
    let family = family_of(duty);
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
        let error = prepare_kernel(&root, &duty, &mut None).await.unwrap_err();
        assert!(error.message.contains("no IPVS"), "{error}");
    }

    #[tokio::test]
    async fn what_nft_says_is_told() {
        let script = "echo; echo 'Error: Could not process rule: Device or resource busy' >&2; exit 1";
        for (script, want) in
            [(script, "exit code 1 (Error: Could not process rule"), ("exit 1", "exit code 1")]
        {
            let error = Invocation::new("/bin/sh", &["-c", script], DEADLINE).run().await.unwrap_err();
            let told = describe_failure(&error);
            assert!(told.contains(want) && told.contains('(') == want.contains('('), "{told}");
        }
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
            let error = check_forwarding(&root, &duty).unwrap_err();
            assert!(error.message.contains("does not forward"), "{address}: {error}");
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            for (value, forwards) in [("0\n", false), ("1\n", true)] {
                fs::write(&path, value).unwrap();
                assert_eq!(check_forwarding(&root, &duty).is_ok(), forwards, "{address}: {value}");
            }
        }
    }
}
