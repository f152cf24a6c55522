//! Keyfiles of `NetworkManager` in the dialect of `GLib`, which INI crates do not read: `;`
//! separates list items and begins no comment, and nothing is quoted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::NetworkError;

/// Older and newer names of groups and connection types.
const ALIASES: [(&str, &str); 3] = [
    ("802-3-ethernet", "ethernet"),
    ("802-11-wireless", "wifi"),
    ("802-11-wireless-security", "wifi-security"),
];

/// Groups of keys by their newer names.
#[derive(Clone, Debug, Default)]
pub(super) struct Keyfile {
    groups: BTreeMap<String, BTreeMap<String, String>>,
}

impl Keyfile {
    pub(super) fn parse(connection: &str, text: &str) -> Result<Self, NetworkError> {
        let mut file = Self::default();
        let mut group: Option<String> = None;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad_line =
                || NetworkError::Keyfile { connection: connection.to_owned(), line: index.saturating_add(1) };
            if let Some(name) = line.strip_prefix('[') {
                let name = name.strip_suffix(']').filter(|name| !name.is_empty()).ok_or_else(bad_line)?;
                let name = newer_name(name).to_owned();
                file.groups.entry(name.clone()).or_default();
                group = Some(name);
                continue;
            }
            let (key, value) = line.split_once('=').ok_or_else(bad_line)?;
            let keys = group.as_ref().and_then(|group| file.groups.get_mut(group)).ok_or_else(bad_line)?;
            keys.insert(key.trim_end().to_owned(), unescape(value.trim_start()));
        }
        Ok(file)
    }

    /// The value of a key, unless it is empty.
    pub(super) fn value(&self, group: &str, key: &str) -> Option<&str> {
        Some(self.groups.get(group)?.get(key)?.as_str()).filter(|value| !value.is_empty())
    }

    pub(super) fn keys(&self, group: &str) -> impl Iterator<Item = (&str, &str)> {
        let keys = self.groups.get(group).into_iter().flatten();
        keys.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(String::as_str)
    }
}

pub(super) fn newer_name(name: &str) -> &str {
    ALIASES.iter().find(|(older, _)| *older == name).map_or(name, |(_, newer)| newer)
}

fn unescape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        let escaped = (character == '\\').then(|| characters.next()).flatten();
        match escaped {
            None => text.push(character),
            Some('s') => text.push(' '),
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('\\') => text.push('\\'),
            Some(other) => text.extend(['\\', other]),
        }
    }
    text
}

/// Writes a keyfile group by group. The values of checked devices need no escapes.
#[derive(Default)]
pub(super) struct Writer {
    text: String,
}

impl Writer {
    pub(super) fn add_group(&mut self, name: &str) {
        let gap = if self.text.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.text, "{gap}[{name}]");
    }

    pub(super) fn add_key(&mut self, key: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{key}={value}");
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}
