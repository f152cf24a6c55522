//! The name by which Cluster API finds a node.

use std::fmt;

use crate::ids::HostName;

const PREFIX: &str = "baremetal:///";

/// `baremetal:///<inventory>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProviderId(String);

impl ProviderId {
    #[must_use]
    pub fn of_host(host: &HostName) -> Self {
        Self(format!("{PREFIX}{host}"))
    }

    /// `None` for one of another provider.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.strip_prefix(PREFIX)?;
        (!name.is_empty() && !name.contains('/')).then(|| Self(text.to_owned()))
    }

    /// The host that it names.
    #[must_use]
    pub fn host(&self) -> Option<HostName> {
        HostName::parse(self.0.strip_prefix(PREFIX)?)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
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
        let cases = [("baremetal:///rack-1", true), ("baremetal:///", false), ("metal3://rack-1", false)];
        for (text, valid) in cases {
            assert_eq!(ProviderId::parse(text).is_some(), valid, "{text}");
        }
    }
}
