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
    /// Reads a note; `None` for a note of another Event.
    pub fn parse(note: &'a str) -> Option<Self> {
        if let Some(host) = note.strip_prefix(CLAIMED) {
            return Some(Self::Claimed { host });
        }
        let rest = note.strip_prefix(PLAN)?;
        if let Some((plan, host)) = rest.split_once(FOR_HOST) {
            return Some(Self::Assigned { plan, host });
        }
        Some(Self::Custom { plan: rest.strip_suffix(OF_OPERATOR)? })
    }

    /// The host, if the note names one.
    pub fn host(self) -> Option<&'a str> {
        match self {
            Self::Claimed { host } | Self::Assigned { host, .. } => Some(host),
            Self::Custom { .. } => None,
        }
    }

    /// The plan, if one was assigned.
    pub fn plan(self) -> Option<&'a str> {
        match self {
            Self::Assigned { plan, .. } | Self::Custom { plan } => Some(plan),
            Self::Claimed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_were_written() {
        let notes = [
            HostNote::Claimed { host: "h" },
            HostNote::Assigned { plan: "clean-1", host: "h" },
            HostNote::Custom { plan: "custom-1" },
        ];
        for note in notes {
            assert_eq!(HostNote::parse(&note.to_string()), Some(note));
        }
        for other in ["", "plan clean-1", "UID of the machine was updated"] {
            assert_eq!(HostNote::parse(other), None, "{other}");
        }
    }
}
