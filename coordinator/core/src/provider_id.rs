//! The name by which Cluster API finds a node.

use std::fmt;

use crate::ids::HostName;

const PREFIX: &str = "baremetal:///";
const METAL3: &str = "metal3://";

/// `baremetal:///<inventory>`, or of a host of Metal3 `metal3://<namespace>/<host>/<machine>`
/// and the older `metal3://<UID of the host>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProviderId(String);

impl ProviderId {
    pub fn of_host(host: &HostName) -> Self {
        Self(format!("{PREFIX}{host}"))
    }

    pub fn of_metal3(namespace: &str, host: &str, machine: &str) -> Self {
        Self(format!("{METAL3}{namespace}/{host}/{machine}"))
    }

    /// The older form of Metal3.
    pub fn of_uid(uid: &str) -> Self {
        Self(format!("{METAL3}{uid}"))
    }

    /// `None` for one of another provider, and for a form that was proposed for
    /// Metal3 and never used (`metal3://<namespace>/<host>?owner=<machine>`).
    pub fn parse(text: &str) -> Option<Self> {
        let is_known = match (text.strip_prefix(PREFIX), text.strip_prefix(METAL3)) {
            (Some(name), _) => count_parts(name) == Some(1),
            (None, Some(name)) => matches!(count_parts(name), Some(1 | 3)),
            (None, None) => false,
        };
        is_known.then(|| Self(text.to_owned()))
    }

    /// A note for an error about the form that was proposed and never used; else empty.
    pub fn proposed_form(text: &str) -> &'static str {
        if text.starts_with(METAL3) && text.contains("?owner=") {
            " (the form with ?owner= was proposed for Metal3 and is not accepted)"
        } else {
            ""
        }
    }

    /// The text without the scheme of Metal3, because its metadata has none.
    pub fn without_scheme(text: &str) -> &str {
        text.strip_prefix(METAL3).unwrap_or(text)
    }

    /// True for the form of Metal3 with the name of a machine.
    pub fn names_machine(&self) -> bool {
        self.metal3_names().is_some()
    }

    /// Namespace, host and machine, in the form of Metal3 that names the machine.
    pub fn metal3_names(&self) -> Option<[&str; 3]> {
        let names: Vec<_> = self.0.strip_prefix(METAL3)?.split('/').collect();
        names.try_into().ok()
    }

    pub fn host(&self) -> Option<HostName> {
        HostName::parse(self.0.strip_prefix(PREFIX)?)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Number of the filled parts; `None` if a part is empty, or has a query.
fn count_parts(name: &str) -> Option<usize> {
    let is_valid = !name.contains('?') && name.split('/').all(|part| !part.is_empty());
    is_valid.then(|| name.split('/').count())
}

impl fmt::Display for ProviderId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_id_names_its_host() {
        let host = HostName::parse("rack-1").unwrap();
        let id = ProviderId::of_host(&host);
        assert_eq!((id.as_str(), id.host()), ("baremetal:///rack-1", Some(host)));
        let cases = [
            ("baremetal:///rack-1", true),
            ("baremetal:///", false),
            ("metal3://d668eb95-5df6-4c10-a01a-fc69f4299fc6", true),
            ("metal3://fleet/rack-1/m-1", true),
            ("metal3://fleet/rack-1", false),
            ("metal3://fleet//m-1", false),
            ("metal3://fleet/rack-1?owner=m-1", false),
            ("aws:///rack-1", false),
        ];
        for (text, valid) in cases {
            assert_eq!(ProviderId::parse(text).is_some(), valid, "{text}");
        }
        let named = ProviderId::of_metal3("fleet", "rack-1", "m-1");
        assert_eq!(named.metal3_names(), Some(["fleet", "rack-1", "m-1"]));
        assert_eq!(ProviderId::of_uid("u").metal3_names(), None);
    }
}
