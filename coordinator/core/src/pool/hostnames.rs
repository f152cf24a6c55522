//! Names of the nodes of a pool's members, and the members that share one.

use std::collections::{BTreeMap, BTreeSet};

use coordinator_api::pool::PoolMember;

/// Members by the names of their nodes, and the names of several members.
#[derive(Clone, Debug, Default)]
pub(super) struct Hostnames {
    members: BTreeMap<String, BTreeSet<String>>,
    shared: BTreeSet<String>,
}

impl Hostnames {
    pub(super) fn add_member(&mut self, member: &PoolMember) {
        let hostname = node_name(member);
        let members = self.members.entry(hostname.to_owned()).or_default();
        members.insert(member.name.clone());
        if members.len() > 1 {
            self.shared.insert(hostname.to_owned());
        }
    }

    pub(super) fn remove_member(&mut self, member: &PoolMember) {
        let hostname = node_name(member);
        let Some(members) = self.members.get_mut(hostname) else { return };
        members.remove(&member.name);
        if members.len() < 2 {
            self.shared.remove(hostname);
        }
        if members.is_empty() {
            self.members.remove(hostname);
        }
    }

    /// The first name of several members, with these members.
    pub(super) fn first_shared(&self) -> Option<(&str, impl Iterator<Item = &str>)> {
        let (hostname, members) = self.members.get_key_value(self.shared.first()?)?;
        Some((hostname, members.iter().map(String::as_str)))
    }
}

fn node_name(member: &PoolMember) -> &str {
    member.hostname.as_deref().unwrap_or(&member.name)
}
