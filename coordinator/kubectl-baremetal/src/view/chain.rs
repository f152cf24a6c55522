//! The text of a chain of causes.

use std::fmt::Write as _;

use anstyle::Style;
use coordinator_api::explain::Attention;
use jiff::Timestamp;

use super::text::{format_age, paint, style_of, with_ends};
use crate::why::{Chain, Link};

/// A chain of causes, each below the one before, and the next action.
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
        Attention::Wait => format!("waits, and continues by itself: {}", last.object.short()),
        Attention::Act => format!("act on {} in namespace {}", last.object.short(), last.object.namespace),
    };
    let _ = writeln!(text, "\n{}", paint(style, &summary));
    let parts = [
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
    let message = with_ends(": ", Some(&finding.message).filter(|message| !message.is_empty()), "");
    if finding.attention == Attention::None {
        return format!("{name}  as intended{message}");
    }
    let condition = with_ends("", finding.condition.as_ref(), " ");
    let since = with_ends(" (", finding.since.map(|since| format_age(Some(since), now)), ")");
    let reason = paint(style_of(finding.attention), &finding.reason);
    format!("{name}  {condition}{reason}{since}{message}")
}
