//! Keyfiles of `NetworkManager` as devices, for images that network-config configures.
//! Settings that only `NetworkManager` supports are named.

use std::collections::{BTreeMap, BTreeSet};

use coordinator_api::network::{ObservedBond, ObservedInterface, ObservedNetwork};

use super::keyfile::{Keyfile, newer_name};
use super::model::{Device, Kind, Network};
use super::{NetworkError, bad_value, bond, check_name, ip_groups, parse_mac, parse_vlan_id};

/// Keys of `[connection]` that are followed, or that do not change the network.
const CONNECTION_KEYS: [&str; 18] = [
    "id",
    "uuid",
    "type",
    "interface-name",
    "master",
    "controller",
    "slave-type",
    "port-type",
    "autoconnect",
    "autoconnect-priority",
    "autoconnect-slaves",
    "autoconnect-ports",
    "autoconnect-retries",
    "permissions",
    "timestamp",
    "read-only",
    "metered",
    "lldp",
];
const GROUPS: [&str; 9] =
    ["connection", "ethernet", "bond", "bridge", "bridge-port", "vlan", "ipv4", "ipv6", "proxy"];
const HARDWARE_KEYS: [&str; 3] = ["mac-address", "cloned-mac-address", "mtu"];

#[derive(Debug, Default)]
pub(super) struct Translation {
    pub(super) network: Network,
    /// Settings that network-config cannot express. Values may be secret and are left out.
    pub(super) untranslated: Vec<String>,
}

/// A keyfile that `NetworkManager` activates.
struct Profile<'a> {
    name: &'a str,
    file: Keyfile,
    /// Name of the interface.
    device: String,
}

/// Translates keyfiles by file name. `observed` names an interface that its keyfile
/// identifies only by the MAC address.
pub(super) fn translate_connections(
    connections: &BTreeMap<String, String>,
    observed: Option<&ObservedNetwork>,
) -> Result<Translation, NetworkError> {
    let mut translation = Translation::default();
    let mut profiles = Vec::new();
    for (name, text) in connections {
        let file = Keyfile::parse(name, text)?;
        profiles.extend(translation.select_profile(name, file, observed)?);
    }
    for profile in &profiles {
        let Some(kind) = translation.parse_kind(profile, &profiles, observed)? else { continue };
        let mut device = Device { mtu: parse_mtu(profile)?, ..Device::new(kind) };
        if master(&profile.file).is_none() {
            let notes = ip_groups::parse_groups(profile.name, &profile.file, &profile.device, &mut device)?;
            translation.untranslated.extend(notes);
        }
        translation.name_unknown_keys(profile);
        if translation.network.devices.insert(profile.device.clone(), device).is_some() {
            let place = format!("connection {}", profile.name);
            return Err(NetworkError::Duplicate { place, value: profile.device.clone() });
        }
    }
    translation.add_plain_parents(observed)?;
    translation.network.check()?;
    Ok(translation)
}

/// Checks that a keyfile can be read.
pub(super) fn check_connection(name: &str, text: &str) -> Result<(), NetworkError> {
    check_file_name(name)?;
    required(name, &Keyfile::parse(name, text)?, "type").map(drop)
}

/// A file that `NetworkManager` reads in its directory. A path to another directory is refused.
fn check_file_name(name: &str) -> Result<(), NetworkError> {
    let is_valid = (1..=128).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:@ ".contains(c))
        && !name.starts_with('.');
    if is_valid { Ok(()) } else { Err(bad_value("connections", name, "name of a keyfile")) }
}

fn required<'a>(name: &str, file: &'a Keyfile, key: &'static str) -> Result<&'a str, NetworkError> {
    let value = file.value("connection", key);
    value.ok_or_else(|| NetworkError::KeyMissing { connection: name.to_owned(), key })
}

/// Name or UUID of the connection of the bond or bridge, or name of its interface.
fn master(file: &Keyfile) -> Option<&str> {
    file.value("connection", "controller").or_else(|| file.value("connection", "master"))
}

fn master_kind(file: &Keyfile) -> Option<&str> {
    file.value("connection", "port-type").or_else(|| file.value("connection", "slave-type"))
}

impl Translation {
    fn note(&mut self, connection: &str, setting: &str) {
        self.untranslated.push(format!("connection {connection}: {setting}"));
    }

    /// The profile; `None` if it is not activated automatically, or network-config has no such
    /// type.
    fn select_profile<'a>(
        &mut self,
        name: &'a str,
        file: Keyfile,
        observed: Option<&ObservedNetwork>,
    ) -> Result<Option<Profile<'a>>, NetworkError> {
        check_file_name(name)?;
        let kind = newer_name(required(name, &file, "type")?);
        let is_known = ["ethernet", "bond", "bridge", "vlan"].contains(&kind);
        let is_member = master(&file).is_some();
        if !is_known || is_member && !matches!(master_kind(&file), None | Some("bond" | "bridge")) {
            self.note(name, "its type, or the type of its master");
            return Ok(None);
        }
        if matches!(file.value("connection", "autoconnect"), Some("false" | "no" | "0")) {
            self.note(name, "it is not activated automatically");
            return Ok(None);
        }
        let device = match kind {
            "vlan" => vlan_name(name, &file)?,
            "ethernet" => hardware_name(name, &file, observed)?,
            _ => Some(required(name, &file, "interface-name")?.to_owned()),
        };
        let Some(device) = device else {
            self.note(name, "it names no interface");
            return Ok(None);
        };
        check_name(&device)?;
        Ok(Some(Profile { name, file, device }))
    }

    fn parse_kind(
        &mut self,
        profile: &Profile<'_>,
        profiles: &[Profile<'_>],
        observed: Option<&ObservedNetwork>,
    ) -> Result<Option<Kind>, NetworkError> {
        let place = format!("connection {}", profile.name);
        let file = &profile.file;
        let mac = |key| parse_mac(&place, file.value("ethernet", key));
        Ok(Some(match newer_name(required(profile.name, file, "type")?) {
            "bond" => {
                let members = member_names(profile, profiles);
                if members.is_empty() {
                    self.note(profile.name, "a bond without members");
                    return Ok(None);
                }
                Kind::Bond {
                    mac: mac("cloned-mac-address")?,
                    members,
                    parameters: Box::new(parse_bond(&place, file)?),
                }
            }
            "bridge" => {
                let stp = file.value("bridge", "stp").map(|stp| !matches!(stp, "false" | "no" | "0"));
                let members = member_names(profile, profiles);
                Kind::Bridge { mac: mac("cloned-mac-address")?, members, stp }
            }
            "vlan" => {
                let id = parse_vlan_id(&place, file.value("vlan", "id").unwrap_or(""))?;
                let parent = file.value("vlan", "parent").unwrap_or("");
                Kind::Vlan { id, link: device_of(parent, profiles).to_owned() }
            }
            _ => {
                if file.value("ethernet", "cloned-mac-address").is_some() {
                    self.note(profile.name, "[ethernet] cloned-mac-address");
                }
                let mac = mac("mac-address")?.or_else(|| reported_mac(observed, &profile.device));
                Kind::Ethernet { mac }
            }
        }))
    }

    /// A parent without a keyfile becomes a card without configuration.
    fn add_plain_parents(&mut self, observed: Option<&ObservedNetwork>) -> Result<(), NetworkError> {
        let devices = &self.network.devices;
        let lower = devices.values().flat_map(|device| device.kind.lower_devices());
        let missing: BTreeSet<String> =
            lower.filter(|name| !name.is_empty() && !devices.contains_key(*name)).cloned().collect();
        for name in missing {
            check_name(&name)?;
            let mac = reported_mac(observed, &name);
            self.network.devices.insert(name, Device::new(Kind::Ethernet { mac }));
        }
        Ok(())
    }

    fn name_unknown_keys(&mut self, profile: &Profile<'_>) {
        let mut unknown = BTreeSet::new();
        for group in profile.file.groups() {
            if !GROUPS.contains(&group) && group != "user" {
                unknown.insert(format!("[{group}]"));
                continue;
            }
            let bond_keys: Vec<_> = bond::list_keys().collect();
            let known: &[&str] = match group {
                "connection" => &CONNECTION_KEYS,
                "ethernet" => &HARDWARE_KEYS,
                "bond" => &bond_keys,
                "bridge" => &["stp"],
                "vlan" => &["id", "parent", "flags", "interface-name"],
                _ => continue,
            };
            let keys = profile.file.keys(group).filter(|(key, _)| !known.contains(key));
            unknown.extend(keys.map(|(key, _)| format!("[{group}] {key}")));
        }
        for setting in unknown {
            self.note(profile.name, &setting);
        }
    }
}

fn vlan_name(name: &str, file: &Keyfile) -> Result<Option<String>, NetworkError> {
    let older = file.value("vlan", "interface-name");
    older.map_or_else(|| required(name, file, "interface-name"), Ok).map(|name| Some(name.to_owned()))
}

fn hardware_name(
    name: &str,
    file: &Keyfile,
    observed: Option<&ObservedNetwork>,
) -> Result<Option<String>, NetworkError> {
    if let Some(named) = file.value("connection", "interface-name") {
        return Ok(Some(named.to_owned()));
    }
    let place = format!("connection {name}");
    let Some(mac) = parse_mac(&place, file.value("ethernet", "mac-address"))? else {
        return Ok(None);
    };
    let mut interfaces = observed.into_iter().flat_map(|observed| &observed.interfaces);
    let found = interfaces.find(|given| card_mac(given).as_deref() == Some(mac.as_str()));
    // The interface of a host that has reported nothing is renamed to the connection's name.
    let fallback = check_name(name).is_ok().then_some(name);
    Ok(found.map(|given| given.name.as_str()).or(fallback).map(str::to_owned))
}

fn reported_mac(observed: Option<&ObservedNetwork>, name: &str) -> Option<String> {
    card_mac(observed?.interfaces.iter().find(|given| given.name == name)?)
}

fn card_mac(given: &ObservedInterface) -> Option<String> {
    let mac = given.card_mac().filter(|_| given.is_card());
    parse_mac("interfaces", mac).ok().flatten()
}

/// The interface of the connection with this UUID or name, else the interface with this name.
fn device_of<'a>(reference: &'a str, profiles: &'a [Profile<'_>]) -> &'a str {
    let mut named = ["uuid", "id"].into_iter().filter_map(|key| {
        profiles.iter().find(|profile| profile.file.value("connection", key) == Some(reference))
    });
    named.next().map_or(reference, |profile| profile.device.as_str())
}

fn member_names(profile: &Profile<'_>, profiles: &[Profile<'_>]) -> Vec<String> {
    let members = profiles.iter().filter(|other| {
        master(&other.file).is_some_and(|master| device_of(master, profiles) == profile.device)
    });
    let mut names: Vec<_> = members.map(|member| member.device.clone()).collect();
    names.sort();
    names
}

fn parse_bond(place: &str, file: &Keyfile) -> Result<ObservedBond, NetworkError> {
    let mut bond = ObservedBond::default();
    for key in bond::list_keys() {
        if let Some(text) = file.value("bond", key) {
            bond::set_parameter(&mut bond, place, key, text)?;
        }
    }
    Ok(bond)
}

fn parse_mtu(profile: &Profile<'_>) -> Result<Option<i64>, NetworkError> {
    let Some(text) = profile.file.value("ethernet", "mtu") else { return Ok(None) };
    let place = format!("connection {}", profile.name);
    let mtu: i64 = text.parse().map_err(|_| bad_value(&place, text, "MTU"))?;
    Ok((mtu > 0).then_some(mtu))
}
