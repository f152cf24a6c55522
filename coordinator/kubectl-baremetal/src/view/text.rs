//! Parts of text for reading: tables, ages and colours. The stream drops the colours if it is not a
//! terminal.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};
use comfy_table::{ColumnConstraint, ContentArrangement, Row, Table};
use coordinator_api::explain::Attention;
use jiff::Timestamp;

pub(crate) fn style_of(attention: Attention) -> Style {
    match attention {
        Attention::None => Style::new(),
        Attention::Wait => AnsiColor::Yellow.on_default(),
        Attention::Act => AnsiColor::Red.on_default().bold(),
    }
}

pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// `value` between `before` and `after`; nothing if there is no value.
pub(crate) fn with_ends(before: &str, value: Option<impl Display>, after: &str) -> String {
    value.map_or_else(String::new, |value| format!("{before}{value}{after}"))
}

/// An age as kubectl prints it.
pub(crate) fn format_age(since: Option<Timestamp>, now: Timestamp) -> String {
    let Some(since) = since else { return "<unknown>".to_owned() };
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

/// Columns without lines between them. The last column is shortened to the width.
pub(crate) fn format_table(header: &[&str], rows: Vec<Vec<String>>, width: Option<u16>) -> String {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(header);
    table.set_truncation_indicator("…");
    for row in rows {
        let mut row = Row::from(row);
        row.max_height(1);
        table.add_row(row);
    }
    let last = header.len().saturating_sub(1);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index == last { 0 } else { 3 }));
        if index != last {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.set_content_arrangement(ContentArrangement::Disabled);
    if let Some(width) = width {
        table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
    }
    let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

pub(super) fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests;
