//! Parameters of a bond: their names in the kernel, which keyfiles and `network_data.json` use, and in
//! network-config.

use std::fmt;

use coordinator_api::network::ObservedBond;
use serde::Serialize;

use super::{NetworkError, bad_value};

/// Names in the kernel and in network-config, in the order of a rendered network. Parameters without the
/// second name are in keyfiles alone: cloud-init before 25 takes no network with a parameter that it does
/// not know, and it names the targets of ARP requests otherwise than netplan.
const NAMES: [(&str, Option<&str>); 20] = [
    ("mode", Some("mode")),
    ("miimon", Some("mii-monitor-interval")),
    ("lacp_rate", Some("lacp-rate")),
    ("xmit_hash_policy", Some("transmit-hash-policy")),
    ("primary", Some("primary")),
    ("updelay", Some("up-delay")),
    ("downdelay", Some("down-delay")),
    ("primary_reselect", Some("primary-reselect-policy")),
    ("ad_select", Some("ad-select")),
    ("min_links", Some("min-links")),
    ("fail_over_mac", Some("fail-over-mac-policy")),
    ("num_grat_arp", Some("gratuitous-arp")),
    ("arp_interval", None),
    ("arp_ip_target", None),
    ("arp_validate", None),
    ("arp_all_targets", None),
    ("resend_igmp", None),
    ("packets_per_slave", None),
    ("lp_interval", None),
    ("all_slaves_active", None),
];

/// A parameter that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    /// Name in the kernel.
    pub(super) key: &'static str,
    /// Name in network-config, which does not have each parameter.
    pub(super) name: Option<&'static str>,
    pub(super) value: Value,
}

/// The value of a parameter as network-config writes it; its `Display` is the form of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Value {
    Text(String),
    Number(i64),
    List(Vec<String>),
    Flag(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => formatter.write_str(text),
            Self::Number(number) => write!(formatter, "{number}"),
            Self::List(list) => formatter.write_str(&list.join(",")),
            Self::Flag(is_set) => formatter.write_str(if *is_set { "1" } else { "0" }),
        }
    }
}

/// The place of a parameter in the inventory.
enum Field<'a> {
    Mode(&'a mut String),
    Text(&'a mut Option<String>),
    Number(&'a mut Option<i64>),
    List(&'a mut Vec<String>),
    Flag(&'a mut bool),
}

fn find_field<'a>(bond: &'a mut ObservedBond, key: &str) -> Option<Field<'a>> {
    let field = match key {
        "mode" => Field::Mode(&mut bond.mode),
        "miimon" => Field::Number(&mut bond.miimon),
        "lacp_rate" => Field::Text(&mut bond.lacp_rate),
        "xmit_hash_policy" => Field::Text(&mut bond.transmit_hash_policy),
        "primary" => Field::Text(&mut bond.primary),
        "updelay" => Field::Number(&mut bond.up_delay),
        "downdelay" => Field::Number(&mut bond.down_delay),
        "primary_reselect" => Field::Text(&mut bond.primary_reselect),
        "ad_select" => Field::Text(&mut bond.ad_select),
        "min_links" => Field::Number(&mut bond.min_links),
        "arp_interval" => Field::Number(&mut bond.arp_interval),
        "arp_ip_target" => Field::List(&mut bond.arp_ip_targets),
        "arp_validate" => Field::Text(&mut bond.arp_validate),
        "arp_all_targets" => Field::Text(&mut bond.arp_all_targets),
        "fail_over_mac" => Field::Text(&mut bond.fail_over_mac),
        "num_grat_arp" => Field::Number(&mut bond.gratuitous_arp),
        "resend_igmp" => Field::Number(&mut bond.resend_igmp),
        "packets_per_slave" => Field::Number(&mut bond.packets_per_member),
        "lp_interval" => Field::Number(&mut bond.learn_packet_interval),
        "all_slaves_active" => Field::Flag(&mut bond.all_members_active),
        _ => return None,
    };
    Some(field)
}

/// Names in the kernel of the parameters that both languages have.
pub(super) fn list_keys() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().filter(|(_, name)| name.is_some()).map(|(key, _)| key)
}

/// Sets one parameter that both languages have. Any other one is refused, because a bond without
/// it may not come up on its switch.
pub(super) fn set_parameter(
    bond: &mut ObservedBond,
    place: &str,
    key: &str,
    text: &str,
) -> Result<(), NetworkError> {
    let is_common = list_keys().any(|known| known == key);
    let Some(field) = find_field(bond, key).filter(|_| is_common) else {
        return Err(bad_value(place, text, "parameter of a bond that network-config has"));
    };
    match field {
        Field::Mode(mode) => text.clone_into(mode),
        Field::Text(value) => *value = Some(text.to_owned()).filter(|text| !text.is_empty()),
        Field::Number(number) => {
            *number = Some(text.parse().map_err(|_| bad_value(place, text, "number"))?);
        }
        Field::List(list) => {
            let items = text.split([',', ' ']).filter(|item| !item.is_empty());
            *list = items.map(str::to_owned).collect();
        }
        Field::Flag(is_set) => *is_set = matches!(text, "1" | "on" | "true" | "yes" | "delivered"),
    }
    Ok(())
}

/// The parameters that are set.
pub(super) fn list_parameters(bond: &ObservedBond) -> Vec<Parameter> {
    let mut bond = bond.clone();
    let listed = NAMES.into_iter().filter_map(|(key, name)| {
        let value = match find_field(&mut bond, key)? {
            Field::Mode(mode) => Value::Text(mode.clone()),
            Field::Text(text) => Value::Text(text.clone()?),
            Field::Number(number) => Value::Number((*number)?),
            Field::List(list) => Value::List(list.clone()),
            Field::Flag(is_set) => Value::Flag(*is_set),
        };
        let is_unset = match &value {
            Value::Text(text) => text.is_empty(),
            Value::List(list) => list.is_empty(),
            Value::Flag(is_set) => !is_set,
            Value::Number(_) => false,
        };
        (!is_unset).then_some(Parameter { key, name, value })
    });
    listed.collect()
}
