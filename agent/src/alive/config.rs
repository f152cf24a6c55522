//! The configuration of keepalived for a duty.

use std::fmt::Write as _;
use std::path::Path;

use proto::balancer::Duty;

use super::placement::Placement;
use super::spread::MARK;

/// Seconds between two announcements. A member takes over if three of them and a part of a fourth
/// are missing, after 0.3 to 0.4 s.
const ADVERTISEMENT: &str = "0.1";
/// The highest priority of a member; 255 is reserved for the owner of an address.
const PRIORITY: usize = 250;

#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    pub duty: &'a Duty,
    /// The interface that holds the endpoint.
    pub placement: &'a Placement,
    /// The program with arguments that checks the API server.
    pub check: &'a str,
    /// IPVS spreads connections over the members.
    pub spreads: bool,
}

/// The unicast peers. Without a peer keepalived would announce to a multicast group that others may
/// use. It announces to the endpoint instead, at which it does not listen, because each
/// announcement that it hears causes a warning, ten times a second.
fn render_peers(duty: &Duty) -> String {
    let mut peers: Vec<_> = duty.peers().map(|peer| format!("        {peer}\n")).collect();
    if peers.is_empty() {
        peers.push(format!("        {}\n", duty.address));
    }
    peers.concat()
}

pub fn render_config(part: &Part<'_>) -> String {
    let Part { duty, placement, check, spreads } = part;
    let interface = &placement.interface;
    let address = duty.address;
    let prefix = if address.is_ipv4() { 32 } else { 128 };
    let peers = render_peers(duty);
    let mut text = format!(
        "\
global_defs {{
    router_id {own}
    vrrp_version 3
    script_user root
    enable_script_security
    # Neighbours that missed the announcement of a takeover learn of it later.
    vrrp_garp_master_refresh 30
}}

vrrp_script api_server {{
    script \"{check}\"
    interval 1
    timeout 8
    rise 1
    fall 2
    init_fail
}}

vrrp_instance control_plane {{
    state BACKUP
    nopreempt
    interface {interface}
    virtual_router_id {router_id}
    priority {priority}
    advert_int {ADVERTISEMENT}
    unicast_src_ip {own}
    unicast_peer {{
{peers}    }}
    virtual_ipaddress {{
        {address}/{prefix} dev {interface}
    }}
    track_script {{
        api_server
    }}
}}
",
        own = duty.own_address(),
        router_id = duty.router_id,
        priority = member_priority(duty),
    );
    if *spreads {
        text.push_str(&render_servers(duty));
    }
    text
}

/// The priorities are spread over the range, because the wait before a takeover depends on the
/// priority and two members must not take over at once.
fn member_priority(duty: &Duty) -> usize {
    (PRIORITY - duty.position * PRIORITY / duty.members.len()).max(1)
}

/// Spreads connections to the endpoint over the API servers that answer. The connections are marked
/// and their source addresses replaced ([`super::spread`]), so that the answers return through the
/// holder. An API server that serves no anonymous request answers the check with 401 or 403, which
/// counts as an answer: each host checks the readiness of its own API server.
fn render_servers(duty: &Duty) -> String {
    let port = duty.port;
    let mut text = format!(
        "
virtual_server fwmark {MARK} {{
    delay_loop 2
    lvs_sched rr
    lvs_method NAT
    # Where none answers the checks in time: the check of VRRP says whether this one is fit.
    sorry_server {own} {port}
",
        own = duty.own_address(),
    );
    for member in &duty.members {
        let _ = write!(
            text,
            "
    real_server {member} {port} {{
        SSL_GET {{
            url {{
                path /readyz
                status_code 200 401 403
            }}
            connect_timeout 2
            retry 1
            delay_before_retry 1
        }}
    }}
"
        );
    }
    text.push_str("}\n");
    text
}

/// The command by which keepalived checks the API server. The words are plain letters, because
/// keepalived splits the text itself.
pub fn check_command(program: &Path, root: &Path) -> String {
    if root == Path::new("/") {
        format!("{} check-api", program.display())
    } else {
        format!("{} --root {} check-api", program.display(), root.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::v1alpha1::LoadBalancerDuty;

    fn render(address: &str, members: &[&str], position: u32, spreads: bool) -> String {
        let duty = LoadBalancerDuty {
            generation: 1,
            address: address.to_owned(),
            port: 6443,
            router_id: 51,
            members: members.iter().map(|member| (*member).to_owned()).collect(),
            position,
            ..LoadBalancerDuty::default()
        };
        let duty = Duty::parse(&duty).unwrap().unwrap();
        let placement = Placement { interface: "lo".to_owned(), is_holder: false };
        render_config(&Part { duty: &duty, placement: &placement, check: "/bin/true", spreads })
    }

    #[test]
    fn members_take_over_in_their_order_without_preemption() {
        let members = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        let priority = |position| {
            let text = render("10.0.0.100", &members, position, false);
            assert!(text.contains("state BACKUP\n    nopreempt\n"), "{text}");
            assert!(!text.contains("virtual_server"), "{text}");
            text.lines().find_map(|line| line.trim().strip_prefix("priority ").map(str::to_owned)).unwrap()
        };
        assert_eq!([0, 1, 2].map(priority), ["250", "167", "84"]);
        let text = render("10.0.0.100", &members, 1, false);
        assert!(text.contains("unicast_src_ip 10.0.0.2\n"), "{text}");
        assert!(text.contains("unicast_peer {\n        10.0.0.1\n        10.0.0.3\n    }"), "{text}");
        assert!(text.contains("10.0.0.100/32 dev lo\n"), "{text}");
    }

    #[test]
    fn a_single_member_announces_to_no_group() {
        let text = render("10.0.0.100", &["10.0.0.1"], 0, false);
        assert!(text.contains("unicast_peer {\n        10.0.0.100\n    }"), "{text}");
    }

    #[test]
    fn connections_are_spread_over_all_members() {
        let text = render("10.0.0.100", &["10.0.0.1", "10.0.0.2"], 1, true);
        assert!(text.contains("virtual_server fwmark 4096 {"), "{text}");
        for member in ["10.0.0.1", "10.0.0.2"] {
            assert!(text.contains(&format!("real_server {member} 6443 {{")), "{text}");
        }
        assert_eq!(text.matches("path /readyz").count(), 2);
        assert!(text.contains("sorry_server 10.0.0.2 6443\n"), "{text}");
    }
}
