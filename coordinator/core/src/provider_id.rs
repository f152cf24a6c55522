//! The name by which Cluster API finds a node.

/// Before the name of the inventory.
pub const PREFIX: &str = "baremetal:///";

/// `baremetal:///<inventory>`.
#[must_use]
pub fn of(inventory_name: &str) -> String {
    format!("{PREFIX}{inventory_name}")
}

/// The inventory that a provider id names; `None` for one of another provider.
#[must_use]
pub fn inventory(provider_id: &str) -> Option<&str> {
    provider_id.strip_prefix(PREFIX).filter(|name| !name.is_empty() && !name.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_id_leads_back_to_its_inventory() {
        assert_eq!(of("rack-1"), "baremetal:///rack-1");
        let cases =
            [("baremetal:///rack-1", Some("rack-1")), ("baremetal:///", None), ("metal3://rack-1", None)];
        for (given, want) in cases {
            assert_eq!(inventory(given), want, "{given}");
        }
    }
}
