//! Parameters of a bond. The kernel prints all of them with their defaults, for every mode. Those are
//! reported that differ from the default and have an effect in the mode of the bond, because a
//! configuration with others is refused by `NetworkManager`.

use netlink_packet_route::link::{BondAllPortActive, BondLacpRate, InfoBond};
use proto::v1alpha1::Bond;

/// The system priority of 802.3ad by default.
const ACTOR_PRIORITY: u16 = 65535;
/// Intervals without an ARP answer, after which a member is down by default.
const MISSED_MAX: u8 = 2;

/// The bond, and the index of its preferred member.
pub(super) fn parse_bond(data: &[InfoBond]) -> (Bond, Option<u32>) {
    let mut bond = Bond::default();
    let mut primary = None;
    for part in data {
        match part {
            InfoBond::Mode(mode) => bond.mode = mode.to_string(),
            InfoBond::Primary(index) => primary = Some(*index),
            InfoBond::AdLacpRate(BondLacpRate::Fast) => "fast".clone_into(&mut bond.lacp_rate),
            InfoBond::AdLacpRate(BondLacpRate::Slow) => "slow".clone_into(&mut bond.lacp_rate),
            InfoBond::XmitHashPolicy(policy) => bond.transmit_hash_policy = policy.to_string(),
            InfoBond::AllPortsActive(choice) => {
                bond.all_members_active = *choice == BondAllPortActive::Delivered;
            }
            part => parse_number(part, &mut bond),
        }
    }
    for choice in data.iter().filter_map(parse_choice) {
        match choice.values.iter().position(|value| *value == choice.value) {
            Some(0) => {}
            Some(_) => *(choice.field)(&mut bond) = choice.value,
            None => bond.unsupported.push(format!("{}={}", choice.name, choice.value)),
        }
    }
    keep_effective(&mut bond);
    let other = data.iter().filter_map(|part| describe_unsupported(part, &bond.mode));
    bond.unsupported.extend(other);
    (bond, primary)
}

/// A parameter with one of some values.
struct Choice {
    name: &'static str,
    value: String,
    /// The values that both languages of a network have, and first the default.
    values: &'static [&'static str],
    field: fn(&mut Bond) -> &mut String,
}

fn parse_choice(part: &InfoBond) -> Option<Choice> {
    let choice = match part {
        InfoBond::PrimaryReselect(choice) => Choice {
            name: "primary_reselect",
            value: choice.to_string(),
            values: &["always", "better", "failure"],
            field: |bond| &mut bond.primary_reselect,
        },
        InfoBond::AdSelect(choice) => Choice {
            name: "ad_select",
            value: choice.to_string(),
            values: &["stable", "bandwidth", "count"],
            field: |bond| &mut bond.ad_select,
        },
        InfoBond::FailOverMac(choice) => Choice {
            name: "fail_over_mac",
            value: choice.to_string(),
            values: &["none", "active", "follow"],
            field: |bond| &mut bond.fail_over_mac,
        },
        InfoBond::ArpValidate(choice) => Choice {
            name: "arp_validate",
            value: choice.to_string(),
            values: &["none", "active", "backup", "all"],
            field: |bond| &mut bond.arp_validate,
        },
        InfoBond::ArpAllTargets(choice) => Choice {
            name: "arp_all_targets",
            value: choice.to_string(),
            values: &["any", "all"],
            field: |bond| &mut bond.arp_all_targets,
        },
        _ => return None,
    };
    Some(choice)
}

fn parse_number(part: &InfoBond, bond: &mut Bond) {
    // A default of 1, so that 0 is a value.
    let other = |number: u32| (number != 1).then_some(number);
    match part {
        InfoBond::MiiMon(milliseconds) => bond.miimon = *milliseconds,
        InfoBond::UpDelay(milliseconds) => bond.up_delay = *milliseconds,
        InfoBond::DownDelay(milliseconds) => bond.down_delay = *milliseconds,
        InfoBond::ArpInterval(milliseconds) => bond.arp_interval = *milliseconds,
        InfoBond::ArpIpTarget(targets) => {
            let targets = targets.iter().filter(|target| !target.is_unspecified());
            bond.arp_ip_targets = targets.map(ToString::to_string).collect();
        }
        InfoBond::MinLinks(links) => bond.min_links = *links,
        InfoBond::NumPeerNotif(number) => bond.gratuitous_arp = other(u32::from(*number)),
        InfoBond::ResendIgmp(number) => bond.resend_igmp = other(*number),
        InfoBond::PacketsPerPort(number) => bond.packets_per_member = other(*number),
        InfoBond::LpInterval(seconds) => bond.learn_packet_interval = other(*seconds).unwrap_or(0),
        _ => {}
    }
}

/// Clears the parameters that the mode, or another parameter, leaves without effect.
fn keep_effective(bond: &mut Bond) {
    let is_mode = |modes: &[&str]| modes.contains(&bond.mode.as_str());
    let is_lacp = is_mode(&["802.3ad"]);
    let hashes = is_mode(&["802.3ad", "balance-xor", "balance-tlb"]);
    let takes_turns = is_mode(&["balance-rr"]);
    let asks_by_arp = !is_mode(&["802.3ad", "balance-tlb", "balance-alb"])
        && bond.arp_interval > 0
        && !bond.arp_ip_targets.is_empty();
    if !is_lacp {
        bond.lacp_rate.clear();
        bond.ad_select.clear();
    }
    if !hashes {
        bond.transmit_hash_policy.clear();
    }
    if !takes_turns {
        bond.packets_per_member = None;
    }
    if bond.miimon == 0 {
        (bond.up_delay, bond.down_delay) = (0, 0);
    }
    if !asks_by_arp {
        bond.arp_interval = 0;
        bond.arp_ip_targets.clear();
        bond.arp_validate.clear();
        bond.arp_all_targets.clear();
    }
}

/// A parameter that differs from the default and that no configuration of the coordinator has.
fn describe_unsupported(part: &InfoBond, mode: &str) -> Option<String> {
    let is_lacp = mode == "802.3ad";
    let text = match part {
        InfoBond::UseCarrier(false) => "use_carrier=0".to_owned(),
        InfoBond::TlbDynamicLb(false) if mode == "balance-tlb" => "tlb_dynamic_lb=0".to_owned(),
        InfoBond::AdLacpActive(false) if is_lacp => "lacp_active=off".to_owned(),
        InfoBond::CoupledControl(false) if is_lacp => "coupled_control=off".to_owned(),
        InfoBond::BroadcastNeigh(true) if is_lacp => "broadcast_neighbor=on".to_owned(),
        InfoBond::AdActorSysPrio(number) if is_lacp && *number != ACTOR_PRIORITY => {
            format!("ad_actor_sys_prio={number}")
        }
        InfoBond::AdUserPortKey(number) if is_lacp && *number != 0 => format!("ad_user_port_key={number}"),
        InfoBond::AdActorSystem(mac) if is_lacp && *mac != [0; 6] => {
            format!("ad_actor_system={}", super::links::format_mac(mac))
        }
        InfoBond::PeerNotifDelay(milliseconds) if *milliseconds != 0 => {
            format!("peer_notif_delay={milliseconds}")
        }
        InfoBond::MissedMax(number) if *number != MISSED_MAX => format!("arp_missed_max={number}"),
        InfoBond::NsIp6Target(targets) => {
            let targets = targets.iter().filter(|target| !target.is_unspecified());
            let targets: Vec<_> = targets.map(ToString::to_string).collect();
            if targets.is_empty() {
                return None;
            }
            format!("ns_ip6_target={}", targets.join(","))
        }
        _ => return None,
    };
    Some(text)
}
