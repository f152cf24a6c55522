//! Text for reading: tables, trees, ages, colours. Colours are dropped by the stream
//! where it is no terminal.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use comfy_table::{ColumnConstraint, ContentArrangement, Row, Table};
use coordinator_api::explain::Attention;
use jiff::Timestamp;

use crate::host_row::HostRow;
use crate::tree::Branch;
use crate::why::{Chain, Link};

const BAR: usize = 12;
/// State of a host that does not exist any more.
pub(crate) const GONE: &str = "Gone";

/// The colour of what asks so much of an operator.
pub(crate) fn style_of(attention: Attention) -> Style {
    match attention {
        Attention::None => Style::new(),
        Attention::Wait => AnsiColor::Yellow.on_default(),
        Attention::Act => AnsiColor::Red.on_default().bold(),
    }
}

/// `text` in that style.
pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
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

/// Columns without lines between them. The last one is shortened to the width.
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

/// The columns of hosts.
pub(crate) fn host_header(is_wide: bool, has_namespace: bool) -> Vec<&'static str> {
    let namespace = has_namespace.then_some("NAMESPACE");
    let more: &[&str] =
        if is_wide { &["CLUSTER", "PLAN", "IMAGE", "BOOT", "IDENTITY", "ADDRESSES"] } else { &[] };
    let common = ["NAME", "STATE", "REASON", "POOL", "MACHINE", "AGE"];
    namespace.into_iter().chain(common).chain(more.iter().copied()).chain(["NEXT ACTION"]).collect()
}

/// The cells of a host, for [`host_header`].
pub(crate) fn host_cells(row: &HostRow, is_wide: bool, has_namespace: bool, now: Timestamp) -> Vec<String> {
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let style = style_of(row.attention);
    let state: &str = row.state.into();
    let mut cells = vec![];
    cells.extend(has_namespace.then(|| row.namespace.clone()));
    cells.extend([
        row.name.clone(),
        paint(style, state),
        paint(style, &or_dash(&row.reason)),
        or_dash(&row.pool),
        or_dash(&row.machine),
        format_age(row.created, now),
    ]);
    if is_wide {
        let addresses = row.addresses.join(",");
        let more = [&row.cluster, &row.plan, &row.image, &row.boot_mode, &row.identity, &addresses];
        cells.extend(more.map(|text| or_dash(text)));
    }
    cells.push(or_dash(&row.action));
    cells
}

/// The same of a host that does not exist any more.
pub(crate) fn gone_cells(row: &HostRow, is_wide: bool, has_namespace: bool) -> Vec<String> {
    let namespace = has_namespace.then(|| row.namespace.clone());
    let mut cells: Vec<_> = namespace.into_iter().chain([row.name.clone(), GONE.to_owned()]).collect();
    cells.resize(host_header(is_wide, has_namespace).len(), "-".to_owned());
    cells
}

/// A chain of causes, each below the one before, and what to do.
pub(crate) fn format_chain(chain: &Chain, now: Timestamp) -> String {
    let mut text = String::new();
    for (depth, link) in chain.links.iter().enumerate() {
        let arm = if depth == 0 { String::new() } else { format!("{}└─ ", "   ".repeat(depth - 1)) };
        let _ = writeln!(text, "{arm}{}", format_link(link, now));
    }
    let Some(last) = chain.last() else { return text };
    let style = style_of(last.finding.attention);
    let summary = match last.finding.attention {
        Attention::None => "nothing is in the way".to_owned(),
        Attention::Wait => format!("waits, and goes on by itself: {}", last.object.short()),
        Attention::Act => format!("act on {} in namespace {}", last.object.short(), last.object.namespace),
    };
    let _ = writeln!(text, "\n{}", paint(style, &summary));
    let parts = [
        ("meaning", chain.meaning.as_deref()),
        ("cause", chain.cause),
        ("next", Some(chain.action.as_str()).filter(|_| last.finding.attention != Attention::None)),
    ];
    for (name, part) in parts {
        if let Some(part) = part {
            let _ = writeln!(text, "  {name:8} {part}");
        }
    }
    text
}

fn format_link(link: &Link, now: Timestamp) -> String {
    let finding = &link.finding;
    let name = paint(Style::new().bold(), &link.object.short());
    if finding.attention == Attention::None {
        let told = if finding.message.is_empty() { String::new() } else { format!(": {}", finding.message) };
        return format!("{name}  as intended{told}");
    }
    let condition = finding.condition.as_ref().map(|condition| format!("{condition} ")).unwrap_or_default();
    let since = finding.since.map(|since| format!(" ({})", format_age(Some(since), now))).unwrap_or_default();
    let reason = paint(style_of(finding.attention), &finding.reason);
    let message = if finding.message.is_empty() { String::new() } else { format!(": {}", finding.message) };
    format!("{name}  {condition}{reason}{since}{message}")
}

/// A tree; a plan that runs has a bar where `has_bars`.
pub(crate) fn format_tree(branch: &Branch, has_bars: bool) -> String {
    let mut text = String::new();
    write_branch(&mut text, branch, ("", ""), has_bars);
    text
}

fn write_branch(text: &mut String, branch: &Branch, (arm, below): (&str, &str), has_bars: bool) {
    let state = paint(style_of(branch.attention), &branch.state);
    let progress = branch.progress.map(|(done, all)| format!(" {}", format_progress(done, all, has_bars)));
    let name = paint(Style::new().bold(), &branch.name);
    let _ = writeln!(text, "{arm}{name}  {state}{}", progress.unwrap_or_default());
    for (index, child) in branch.children.iter().enumerate() {
        let is_last = index + 1 == branch.children.len();
        let (arm, next) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        write_branch(text, child, (&format!("{below}{arm}"), &format!("{below}{next}")), has_bars);
    }
}

fn format_progress(done: usize, all: usize, has_bars: bool) -> String {
    if !has_bars {
        return format!("{done}/{all}");
    }
    let full = BAR * done / all.max(1);
    format!("{}{} {done}/{all}", "█".repeat(full), "░".repeat(BAR - full))
}

#[cfg(test)]
mod tests;
