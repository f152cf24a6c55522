//! Who holds a host: the claim in its inventory compared with the name in the machine.

use coordinator_api::inventory::Claim;

use crate::ids::HostName;

/// The machine of a claim, by kind and name. A UID is a hint, because a restore changes it.
#[derive(Clone, Copy, Debug)]
pub struct Holder<'a> {
    pub kind: &'a str,
    pub name: &'a str,
    /// The host that the machine names.
    pub host: Option<&'a HostName>,
}

/// The sides that name each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    Both,
    /// The claim names the machine. The machine names another host, or it names none and writes this
    /// name back.
    HostOnly {
        names_other: bool,
    },
    MachineOnly,
    Neither,
}

/// Compares a machine with a host of its namespace.
pub fn compare_names(machine: Holder<'_>, host: &HostName, claim: Option<&Claim>) -> Holding {
    let is_claimed =
        claim.is_some_and(|claim| claim.kind == machine.kind && claim.baremetal_machine == machine.name);
    match (is_claimed, machine.host) {
        (true, Some(named)) if named == host => Holding::Both,
        (true, named) => Holding::HostOnly { names_other: named.is_some() },
        (false, Some(named)) if named == host => Holding::MachineOnly,
        (false, _) => Holding::Neither,
    }
}

impl Holding {
    /// The claim is kept, because its machine names the host or is going to.
    pub fn keeps_claim(self) -> bool {
        matches!(self, Self::Both | Self::HostOnly { names_other: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_sides_decide() {
        let [one, two] = ["host-1", "host-2"].map(|name| HostName::parse(name).unwrap());
        let claim = Claim { kind: "Machine".into(), baremetal_machine: "m".into(), ..Claim::default() };
        let of = |name, host| compare_names(Holder { kind: "Machine", name, host }, &one, Some(&claim));
        assert_eq!(of("m", Some(&one)), Holding::Both);
        assert_eq!(of("m", Some(&two)), Holding::HostOnly { names_other: true });
        assert_eq!(of("m", None), Holding::HostOnly { names_other: false });
        assert_eq!(of("other", Some(&one)), Holding::MachineOnly);
        assert_eq!(of("other", Some(&two)), Holding::Neither);
        let other = Holder { kind: "Other", name: "m", host: None };
        assert_eq!(compare_names(other, &one, Some(&claim)), Holding::Neither);
        assert_eq!([of("m", Some(&one)), of("m", None)].map(Holding::keeps_claim), [true; 2]);
        assert!(!of("m", Some(&two)).keeps_claim());
    }
}
