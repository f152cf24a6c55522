//! `KUBELET_EXTRA_ARGS` in an environment file as systemd reads it.
//!
//! The last assignment of a variable counts. So the agent appends an assignment that repeats the
//! former value, and changes no other byte.

use std::fmt::Write as _;

use proto::plan::NodeIdentity;

const VARIABLE: &str = "KUBELET_EXTRA_ARGS";
/// Marks the line after it as written by the agent.
const MARK: &str = "# The next line is written by baremetal-agent at every boot.";

/// `text` with the identity's arguments after the existing ones.
pub(super) fn merge_labels(text: &str, identity: &NodeIdentity) -> String {
    let mut merged = remove_arguments(text);
    let before = parse_value(&merged).map_or_else(String::new, |value| value + " ");
    let arguments = format!(
        "{before}--node-labels=metal3.io/uuid={} --provider-id={}",
        identity.uuid, identity.provider_id
    );
    if !merged.is_empty() && !merged.ends_with('\n') {
        merged.push('\n');
    }
    let value = escape_value(arguments.trim_start());
    let _ = write!(merged, "{MARK}\n{VARIABLE}=\"{value}\"\n");
    merged
}

/// `text` without the lines that [`merge_labels`] added.
pub(super) fn remove_arguments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        if line.trim_end() == MARK {
            lines.next();
        } else {
            kept.push_str(line);
        }
    }
    kept
}

/// The value of the last assignment.
fn parse_value(text: &str) -> Option<String> {
    let joined = join_continued(text);
    let mut assignments = joined.lines().rev().filter_map(|line| line.split_once('='));
    let (_, value) = assignments.find(|(name, _)| name.trim() == VARIABLE)?;
    Some(unquote_value(value.trim()))
}

/// A backslash at the end of a line joins it with the next line; comments do not continue.
fn join_continued(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    for line in text.lines() {
        let comment = line.trim_start().starts_with(['#', ';']);
        match line.strip_suffix('\\') {
            Some(part) if !comment => joined.push_str(part),
            Some(_) | None => {
                joined.push_str(line);
                joined.push('\n');
            }
        }
    }
    joined
}

/// Removes quotes and escapes as systemd does in environment files.
fn unquote_value(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut quote = None;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if c == open => quote = None,
            (Some('"'), '\\') => {
                let special = characters.next_if(|next| "\"\\`$".contains(*next));
                plain.push(special.unwrap_or('\\'));
            }
            (None, '\\') => plain.extend(characters.next()),
            (Some(_) | None, _) => plain.push(c),
        }
    }
    plain
}

fn escape_value(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if "\"\\`$".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// True if `text` sets the variable outside of the agent's own lines.
pub(super) fn sets_variable(text: &str) -> bool {
    parse_value(&remove_arguments(text)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> NodeIdentity {
        NodeIdentity { uuid: "u-1".into(), provider_id: "baremetal:///host-1".into(), owner: String::new() }
    }

    const OURS: &str = "--node-labels=metal3.io/uuid=u-1 --provider-id=baremetal:///host-1";

    #[test]
    fn merging_keeps_every_other_byte() {
        let cases = [
            ("empty", "", ""),
            ("no newline at the end", "KUBELET_EXTRA_ARGS=--v=2", "--v=2 "),
            ("plain", "KUBELET_EXTRA_ARGS=--v=2\n", "--v=2 "),
            ("empty value", "KUBELET_EXTRA_ARGS=\n", ""),
            ("double quotes", "KUBELET_EXTRA_ARGS=\"--v=2 --node-labels=a=b\"\n", "--v=2 --node-labels=a=b "),
            ("single quotes", "KUBELET_EXTRA_ARGS='--v=2 --x'\n", "--v=2 --x "),
            ("comment and others", "# KUBELET_EXTRA_ARGS=no\nOTHER=x\nKUBELET_EXTRA_ARGS=--v=2\n", "--v=2 "),
            ("the last counts", "KUBELET_EXTRA_ARGS=--v=1\nKUBELET_EXTRA_ARGS=--v=2\n", "--v=2 "),
            ("continued", "KUBELET_EXTRA_ARGS=\"--v=2 \\\n--x\"\n", "--v=2 --x "),
            ("escapes", "KUBELET_EXTRA_ARGS=\"--x=\\\"a\\$b\\\"\"\n", "--x=\\\"a\\$b\\\" "),
            ("a longer name", "MY_KUBELET_EXTRA_ARGS=--v=1\n", ""),
        ];
        for (name, given, want) in cases {
            let merged = merge_labels(given, &identity());
            let line = merged.lines().last().unwrap();
            assert_eq!(line, format!("KUBELET_EXTRA_ARGS=\"{want}{OURS}\""), "{name}");
            assert!(merged.starts_with(given), "{name}");
            assert_eq!(merge_labels(&merged, &identity()), merged, "{name}: not idempotent");
            assert_eq!(remove_arguments(&merged).trim_end(), given.trim_end(), "{name}");
        }
    }

    #[test]
    fn another_identity_replaces_only_ours() {
        let given = "KUBELET_EXTRA_ARGS=--node-labels=metal3.io/uuid=by-hand\n";
        let first = merge_labels(given, &identity());
        let other = NodeIdentity {
            uuid: "u-2".into(),
            provider_id: "baremetal:///host-2".into(),
            owner: String::new(),
        };
        let second = merge_labels(&first, &other);
        assert!(second.contains("by-hand") && second.contains("u-2") && !second.contains("u-1"));
    }
}
