//! The pool of an item of a template, of Metal3 or of another provider of addresses.

use std::fmt;

use coordinator_api::capi_ipam::PoolRef;
use coordinator_api::names::kind;

const METAL3: &str = "ipam.metal3.io";

/// A pool by group, kind and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolId {
    pub group: String,
    pub kind: String,
    pub name: String,
}

impl PoolId {
    /// A pool whose group and kind are those of Metal3 if the reference leaves them out.
    pub fn new(name: &str, group: Option<&str>, kind: Option<&str>) -> Self {
        let (group, kind) = (group.unwrap_or(METAL3), kind.unwrap_or(kind::IP_POOL));
        Self { group: group.to_owned(), kind: kind.to_owned(), name: name.to_owned() }
    }

    pub fn of_metal3(name: &str) -> Self {
        Self::new(name, None, None)
    }

    /// An `IPPool` of Metal3, on which an `IPClaim` is made. Cluster API's claims are for all others.
    pub fn is_metal3(&self) -> bool {
        self.group == METAL3 && self.kind == kind::IP_POOL
    }

    /// Metal3 has one kind of pools, and the kinds of other groups are known to their providers.
    pub(super) fn is_usable(&self) -> bool {
        self.is_metal3() || self.group != METAL3
    }

    /// The pool as Cluster API's claims name it.
    pub fn reference(&self) -> PoolRef {
        PoolRef { api_group: self.group.clone(), kind: self.kind.clone(), name: self.name.clone() }
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_metal3() {
            return write!(f, "{}", self.name);
        }
        write!(f, "{} {} of {}", self.kind, self.name, self.group)
    }
}
