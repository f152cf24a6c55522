//! Notes of Events that name a host or a plan. The coordinator writes them, and the plugin reads
//! them to show the life of a host.

use std::fmt;

/// The host, the plan or both that a note names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostNote<'a> {
    /// `InventoryAllocated`: a machine claimed a host.
    Claimed {
        /// The `MachineInventory`.
        host: &'a str,
    },
    /// `PlanAssigned`: a plan for the host of a machine.
    Assigned {
        /// Id of the plan.
        plan: &'a str,
        /// The `MachineInventory`.
        host: &'a str,
    },
    /// `CustomPlanAssigned`, about the host itself.
    Custom {
        /// Id of the plan.
        plan: &'a str,
    },
}

const CLAIMED: &str = "claimed MachineInventory ";
const PLAN: &str = "plan ";
const FOR_HOST: &str = " for MachineInventory ";
const OF_OPERATOR: &str = " of an operator for this host";

impl fmt::Display for HostNote<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claimed { host } => write!(formatter, "{CLAIMED}{host}"),
            Self::Assigned { plan, host } => write!(formatter, "{PLAN}{plan}{FOR_HOST}{host}"),
            Self::Custom { plan } => write!(formatter, "{PLAN}{plan}{OF_OPERATOR}"),
        }
    }
}

impl<'a> HostNote<'a> {
    /// The host that a note names.
    pub fn read_host(note: &'a str) -> Option<&'a str> {
        let plan = note.strip_prefix(PLAN).and_then(|rest| rest.split_once(FOR_HOST));
        note.strip_prefix(CLAIMED).or(plan.map(|(_, host)| host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_as_they_were_written() {
        let notes = [
            (HostNote::Claimed { host: "h" }, Some("h")),
            (HostNote::Assigned { plan: "clean-1", host: "h" }, Some("h")),
            (HostNote::Custom { plan: "custom-1" }, None),
        ];
        for (note, host) in notes {
            assert_eq!(HostNote::read_host(&note.to_string()), host, "{note}");
        }
        for other in ["", "plan clean-1", "UID of the machine was updated"] {
            assert_eq!(HostNote::read_host(other), None, "{other}");
        }
    }
}
