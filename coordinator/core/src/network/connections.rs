//! Keyfiles of `NetworkManager` as devices: for images that are configured by
//! network-config. What only `NetworkManager` can do is named.

use std::collections::{BTreeMap, BTreeSet};

use coordinator_api::network::{ObservedBond, ObservedNetwork};

use super::connection_ip;
use super::keyfile::{Keyfile, newer_name};
use super::model::{DEFAULT_MTU, Device, Kind, Network};
use super::{NetworkError, bad_value, check_name, parse_mac};

/// Keys of `[connection]` that are followed, or that say nothing about the
/// network that a host is to have.
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
const BOND_KEYS: [&str; 5] = ["mode", "miimon", "lacp_rate", "xmit_hash_policy", "primary"];

#[derive(Debug, Default)]
pub(super) struct Translation {
    pub(super) network: Network,
    /// What network-config has no words for: places, never values.
    pub(super) untranslated: Vec<String>,
}

/// One keyfile that is to be active.
struct Profile<'a> {
    name: &'a str,
    file: Keyfile,
    /// The interface; for hardware perhaps known only by its address.
    device: String,
}

/// Translates keyfiles by file name. Names of interfaces that a keyfile knows
/// by their MAC address alone are taken from `observed`.
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
            let notes =
                connection_ip::parse_families(profile.name, &profile.file, &profile.device, &mut device)?;
            translation.untranslated.extend(notes);
        }
        translation.name_unknown_keys(profile);
        if translation.network.devices.insert(profile.device.clone(), device).is_some() {
            let place = format!("connection {}", profile.name);
            return Err(NetworkError::Duplicate { place, value: profile.device.clone() });
        }
    }
    translation.add_plain_parents(observed)?;
    let network = &translation.network;
    network.check_lower_devices()?;
    network.check_uniqueness()?;
    let mtu = |name: &str| network.devices.get(name).and_then(|device| device.mtu);
    network.check_mtus(|name| mtu(name).unwrap_or(DEFAULT_MTU))?;
    Ok(translation)
}

/// Checks that keyfiles can be read at all.
pub(super) fn check_connection(name: &str, text: &str) -> Result<(), NetworkError> {
    check_file_name(name)?;
    required(name, &Keyfile::parse(name, text)?, "type").map(drop)
}

/// What `NetworkManager` reads from its directory, and nothing outside it.
fn check_file_name(name: &str) -> Result<(), NetworkError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:@ ".contains(c);
    let fine = (1..=128).contains(&name.len()) && name.chars().all(allowed) && !name.starts_with('.');
    if fine { Ok(()) } else { Err(bad_value("connections", name, "name of a keyfile")) }
}

fn required<'a>(name: &str, file: &'a Keyfile, key: &'static str) -> Result<&'a str, NetworkError> {
    let missing = || NetworkError::KeyMissing { connection: name.to_owned(), key };
    file.value("connection", key).ok_or_else(missing)
}

/// Name or UUID of the connection or interface that this one is a member of.
fn master(file: &Keyfile) -> Option<&str> {
    file.value("connection", "controller").or_else(|| file.value("connection", "master"))
}

fn master_kind(file: &Keyfile) -> Option<&str> {
    file.value("connection", "port-type").or_else(|| file.value("connection", "slave-type"))
}

impl Translation {
    fn note(&mut self, connection: &str, what: &str) {
        self.untranslated.push(format!("connection {connection}: {what}"));
    }

    /// The profile, unless it is off or of a type that network-config has not.
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
            self.note(name, "it is not activated by itself");
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
        let mac = |key| parse_mac(&place, file.value("ethernet", key).unwrap_or_default());
        let members = || member_names(profile, profiles);
        Ok(Some(match newer_name(required(profile.name, file, "type")?) {
            "bond" => {
                let members = members();
                if members.is_empty() {
                    self.note(profile.name, "a bond without members");
                    return Ok(None);
                }
                Kind::Bond { mac: mac("cloned-mac-address")?, members, parameters: parse_bond(&place, file)? }
            }
            "bridge" => {
                let stp = file.value("bridge", "stp").map(|stp| !matches!(stp, "false" | "no" | "0"));
                Kind::Bridge { mac: mac("cloned-mac-address")?, members: members(), stp }
            }
            "vlan" => {
                let text = file.value("vlan", "id").unwrap_or_default();
                let id = text.parse().ok().filter(|id| (1..=4094).contains(id));
                let id = id.ok_or_else(|| bad_value(&place, text, "VLAN id (1 to 4094)"))?;
                let parent = file.value("vlan", "parent").unwrap_or_default();
                Kind::Vlan { id, link: device_of(parent, profiles).to_owned() }
            }
            _ => {
                if file.value("ethernet", "cloned-mac-address").is_some() {
                    self.note(profile.name, "[ethernet] cloned-mac-address");
                }
                let known = || observed.and_then(|observed| reported_mac(observed, &profile.device));
                Kind::Ethernet { mac: mac("mac-address")?.or_else(known) }
            }
        }))
    }

    /// A parent that has no keyfile of its own is left as it is.
    fn add_plain_parents(&mut self, observed: Option<&ObservedNetwork>) -> Result<(), NetworkError> {
        let devices = &self.network.devices;
        let lower = devices.values().flat_map(|device| device.kind.lower_devices());
        let missing: BTreeSet<String> =
            lower.filter(|name| !name.is_empty() && !devices.contains_key(*name)).cloned().collect();
        for name in missing {
            check_name(&name)?;
            let mac = observed.and_then(|observed| reported_mac(observed, &name));
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
            let known: &[&str] = match group {
                "connection" => &CONNECTION_KEYS,
                "ethernet" => &HARDWARE_KEYS,
                "bond" => &BOND_KEYS,
                "bridge" => &["stp"],
                "vlan" => &["id", "parent", "flags", "interface-name"],
                _ => continue,
            };
            let keys = profile.file.keys(group).filter(|(key, _)| !known.contains(key));
            unknown.extend(keys.map(|(key, _)| format!("[{group}] {key}")));
        }
        for what in unknown {
            self.note(profile.name, &what);
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
    let Some(mac) = parse_mac(&place, file.value("ethernet", "mac-address").unwrap_or_default())? else {
        return Ok(None);
    };
    let mut interfaces = observed.map(|observed| observed.interfaces.iter()).into_iter().flatten();
    let found = interfaces.find(|given| reported_mac_of(given).as_deref() == Some(mac.as_str()));
    // A host that has reported nothing: the name of the connection is as good
    // as any, and the interface takes it.
    let given = || check_name(name).is_ok().then(|| name.to_owned());
    Ok(found.map(|given| given.name.clone()).or_else(given))
}

fn reported_mac(observed: &ObservedNetwork, name: &str) -> Option<String> {
    observed.interfaces.iter().find(|given| given.name == name).and_then(reported_mac_of)
}

fn reported_mac_of(given: &coordinator_api::network::ObservedInterface) -> Option<String> {
    if given.kind.as_deref().is_some_and(|kind| !kind.is_empty()) {
        return None;
    }
    let mac = given.permanent_mac.as_deref().or(given.mac.as_deref())?;
    parse_mac("interfaces", mac).ok().flatten()
}

/// The interface of the connection with this UUID or name, else the interface
/// that is named.
fn device_of<'a>(reference: &'a str, profiles: &'a [Profile<'_>]) -> &'a str {
    let by =
        |key: &str| profiles.iter().find(|profile| profile.file.value("connection", key) == Some(reference));
    by("uuid").or_else(|| by("id")).map_or(reference, |profile| profile.device.as_str())
}

fn member_names(profile: &Profile<'_>, profiles: &[Profile<'_>]) -> Vec<String> {
    let is_member = |other: &&Profile<'_>| {
        master(&other.file).is_some_and(|master| device_of(master, profiles) == profile.device)
    };
    let mut names: Vec<_> = profiles.iter().filter(is_member).map(|member| member.device.clone()).collect();
    names.sort();
    names
}

fn parse_bond(place: &str, file: &Keyfile) -> Result<ObservedBond, NetworkError> {
    let text = |key| file.value("bond", key).map(str::to_owned);
    let miimon = file.value("bond", "miimon");
    let number = |text: &str| text.parse().map_err(|_| bad_value(place, text, "number of milliseconds"));
    Ok(ObservedBond {
        mode: text("mode").unwrap_or_default(),
        miimon: miimon.map(number).transpose()?,
        lacp_rate: text("lacp_rate"),
        transmit_hash_policy: text("xmit_hash_policy"),
        primary: text("primary"),
    })
}

fn parse_mtu(profile: &Profile<'_>) -> Result<Option<i64>, NetworkError> {
    let Some(text) = profile.file.value("ethernet", "mtu") else { return Ok(None) };
    let place = format!("connection {}", profile.name);
    let mtu: i64 = text.parse().map_err(|_| bad_value(&place, text, "MTU"))?;
    Ok((mtu > 0).then_some(mtu))
}
