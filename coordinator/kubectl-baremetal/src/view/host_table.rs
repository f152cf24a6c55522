//! The table of hosts.

use jiff::Timestamp;

use super::host_row::HostRow;
use super::text::{format_age, or_dash, paint, style_of};

/// The state of a host that does not exist any more.
pub(crate) const GONE: &str = "Gone";

/// The columns of the table.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    pub(crate) is_wide: bool,
    pub(crate) has_namespace: bool,
}

impl Columns {
    pub(crate) fn header(self) -> Vec<&'static str> {
        let namespace = self.has_namespace.then_some("NAMESPACE");
        let more: &[&str] =
            if self.is_wide { &["CLUSTER", "PLAN", "IMAGE", "BOOT", "IDENTITY", "ADDRESSES"] } else { &[] };
        let common = ["NAME", "STATE", "REASON", "POOL", "MACHINE", "AGE"];
        namespace.into_iter().chain(common).chain(more.iter().copied()).chain(["NEXT ACTION"]).collect()
    }

    pub(crate) fn cells(self, row: &HostRow, now: Timestamp) -> Vec<String> {
        let style = style_of(row.attention);
        let state: &str = row.state.into();
        let mut cells = vec![];
        cells.extend(self.has_namespace.then(|| row.namespace.clone()));
        cells.extend([
            row.name.clone(),
            paint(style, state),
            paint(style, &or_dash(&row.reason)),
            or_dash(&row.pool),
            or_dash(&row.machine),
            format_age(row.created, now),
        ]);
        if self.is_wide {
            let addresses = row.addresses.join(",");
            let more = [&row.cluster, &row.plan, &row.image, &row.boot_mode, &row.identity, &addresses];
            cells.extend(more.map(|text| or_dash(text)));
        }
        cells.push(or_dash(&row.action));
        cells
    }

    /// The cells of a host that does not exist any more.
    pub(crate) fn gone_cells(self, row: &HostRow) -> Vec<String> {
        let namespace = self.has_namespace.then(|| row.namespace.clone());
        let mut cells: Vec<_> = namespace.into_iter().chain([row.name.clone(), GONE.to_owned()]).collect();
        cells.resize(self.header().len(), or_dash(""));
        cells
    }
}
