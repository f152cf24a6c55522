//! Templates such as `${System Information/UUID}`, and the names that result from them. The keys are
//! the keys of the elemental operator.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::text::is_name;

/// Longest name and label value. Names of a Secret and a Node, with their suffixes, fit too.
const LONGEST: usize = 58;
/// Digits of the hash at the end of a name that was cut.
const HASH: usize = 10;

/// Values of the keys in templates.
pub struct Values {
    facts: BTreeMap<String, String>,
    random: [u8; 32],
}

/// A template with its values in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// Text with the values in place; a key without value is empty.
    pub text: String,
    /// Keys without a value.
    pub missing: Vec<String>,
}

impl Values {
    /// Facts by key, and bytes for the keys below `Random/`.
    pub fn new(facts: BTreeMap<String, String>, random: [u8; 32]) -> Self {
        Self { facts, random }
    }

    /// Only the keys below `Random/`, for `no-smbios`.
    pub fn with_random(random: [u8; 32]) -> Self {
        Self::new(BTreeMap::new(), random)
    }

    /// Replaces each `${key}`. An unterminated `${` is text.
    pub fn render_template(&self, template: &str) -> Rendered {
        let mut rendered = Rendered::default();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((key, after)) = after.split_once('}') else { break };
            rendered.text.push_str(before);
            match self.look_up(key.trim()) {
                Some(value) => rendered.text.push_str(&value),
                None => rendered.missing.push(key.trim().to_owned()),
            }
            rest = after;
        }
        rendered.text.push_str(rest);
        rendered
    }

    fn look_up(&self, key: &str) -> Option<String> {
        match key.strip_prefix("Random/") {
            Some(kind) => self.draw_random(key, kind),
            None => self.facts.get(key).cloned(),
        }
    }

    /// Derives the value from the key, so that a key has the same value everywhere.
    fn draw_random(&self, key: &str, kind: &str) -> Option<String> {
        let mut digest: [u8; 32] = Sha256::new_with_prefix(self.random).chain_update(key).finalize().into();
        match kind.split_once('/') {
            None if kind == "UUID" => {
                digest[6] = digest[6] & 0x0f | 0x40;
                digest[8] = digest[8] & 0x3f | 0x80;
                let hex = hex::encode(digest);
                Some([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32]].join("-"))
            }
            Some(("Hex", length)) => {
                let length = length.parse().ok().filter(|length| (1..=32).contains(length))?;
                Some(hex::encode(digest)[..length].to_owned())
            }
            Some(("Int", bound)) => {
                let bound = bound.parse::<u64>().ok().filter(|bound| *bound > 0)?;
                let number = digest.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
                Some((number % bound).to_string())
            }
            None | Some(_) => None,
        }
    }
}

/// The template has a random part, and is therefore rendered only once.
pub fn is_random(template: &str) -> bool {
    template.split("${").skip(1).any(|part| part.trim_start().starts_with("Random/"))
}

/// The name of an object in lower case, of letters, digits, dots and single dashes. Names of vendors
/// end in dots and commas, so that no dash stays beside a dot. A name that is too long ends in a hash
/// of the whole text, because hosts of a site often differ at the end alone.
pub fn sanitise_name(text: &str) -> String {
    let text = replace_others(text, ".").to_ascii_lowercase();
    let parts = text.split('.').map(|part| part.trim_matches(is_separator));
    let name = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".");
    if name.len() <= LONGEST {
        return name;
    }
    let hash = &hex::encode(Sha256::digest(&name))[..HASH];
    let kept = name[..LONGEST - HASH - 1].trim_end_matches(is_separator);
    format!("{kept}-{hash}")
}

/// The value of a label.
pub fn sanitise_label(text: &str) -> String {
    let value = replace_others(text, "._");
    // The cut may leave a separator at the end, which no value may have.
    let value = value.trim_matches(is_separator);
    value[..value.len().min(LONGEST)].trim_end_matches(is_separator).to_owned()
}

/// The value of an annotation, without control characters.
pub fn sanitise_annotation(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// Writes one dash for each run of characters that are no letters, digits, or in `kept`.
fn replace_others(text: &str, kept: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for c in text.chars() {
        let c = if c.is_ascii_alphanumeric() || kept.contains(c) { c } else { '-' };
        if c != '-' || !result.ends_with('-') {
            result.push(c);
        }
    }
    result
}

fn is_separator(c: char) -> bool {
    !c.is_ascii_alphanumeric()
}

/// The text is a valid key of a label or annotation.
pub fn is_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_name)
        && (1..=63).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !name.starts_with(is_separator)
        && !name.ends_with(is_separator)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::is_node_name;

    fn values() -> Values {
        let facts = [("System Information/UUID", "4C4C4544"), ("Runtime/Hostname", "host a")];
        Values::new(facts.map(|(key, value)| (key.to_owned(), value.to_owned())).into(), [7; 32])
    }

    #[test]
    fn template_is_rendered_and_missing_values_named() {
        let cases = [
            ("", "", vec![]),
            ("a", "a", vec![]),
            ("c-${System Information/UUID}-${Runtime/Hostname}", "c-4C4C4544-host a", vec![]),
            ("${ System Information/UUID }", "4C4C4544", vec![]),
            ("${System Information}", "", vec!["System Information"]),
            ("a${B/C}d${E}", "ad", vec!["B/C", "E"]),
            ("a ${System Information/UUID", "a ${System Information/UUID", vec![]),
            ("$a {b} $", "$a {b} $", vec![]),
            (
                "${Random/Hex/0}${Random/Hex/33}${Random/Int/0}${Random/X}",
                "",
                vec!["Random/Hex/0", "Random/Hex/33", "Random/Int/0", "Random/X"],
            ),
        ];
        for (given, text, missing) in cases {
            let missing = missing.into_iter().map(str::to_owned).collect();
            assert_eq!(
                values().render_template(given),
                Rendered { text: text.to_owned(), missing },
                "{given}"
            );
        }
    }

    #[test]
    fn random_values_are_valid_and_reproducible() {
        let render = |values: &Values, text: &str| values.render_template(text).text;
        let uuid = render(&values(), "${Random/UUID}");
        let parts: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!((parts, &uuid[14..15]), (vec![8, 4, 4, 4, 12], "4"));
        assert_eq!(render(&values(), "${Random/UUID}"), uuid);
        assert_ne!(render(&Values::with_random([8; 32]), "${Random/UUID}"), uuid);
        for length in [1, 32] {
            assert_eq!(render(&values(), &format!("${{Random/Hex/{length}}}")).len(), length);
        }
        for bound in 1..20u64 {
            assert!(render(&values(), &format!("${{Random/Int/{bound}}}")).parse::<u64>().unwrap() < bound);
        }
    }

    #[test]
    fn rendered_texts_become_names_and_label_values() {
        let long = "A".repeat(57) + "-" + "b";
        let cases = [
            ("cluster-a-4C4C4544", "cluster-a-4c4c4544", "cluster-a-4C4C4544"),
            ("--a  b//c_d.e--", "a-b-c-d.e", "a-b-c_d.e"),
            ("é", "", ""),
            ("Dell Inc.-4C4C4544-0031", "dell-inc.4c4c4544-0031", "Dell-Inc.-4C4C4544-0031"),
            ("Giga Computing Co., Ltd. (x)", "giga-computing-co.ltd.x", "Giga-Computing-Co.-Ltd.-x"),
            ("a..b.-.c-.", "a.b.c", "a..b.-.c"),
            (long.as_str(), &format!("{}-ac47558d3d", "a".repeat(47)), &"A".repeat(57)),
        ];
        for (given, want_name, want_label) in cases {
            assert_eq!(
                (sanitise_name(given).as_str(), sanitise_label(given).as_str()),
                (want_name, want_label),
                "{given}"
            );
        }
        assert_eq!(sanitise_annotation("a\r\nb: <c>"), "ab: <c>");
    }

    #[test]
    fn names_that_differ_at_the_end_stay_apart() {
        let vendor = "Hewlett Packard Enterprise ProLiant DL380 Gen10 Plus 16SFF ";
        let names: Vec<_> = (0..50).map(|rack| sanitise_name(&format!("{vendor}{rack}"))).collect();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        for name in &names {
            assert!(is_name(name) && is_node_name(name) && name.len() <= LONGEST, "{name}");
        }
    }

    #[test]
    fn kubelet_takes_names_of_at_most_63_characters() {
        let (longest, longer) = ("a".repeat(63), "a".repeat(64));
        for (name, is) in [
            ("worker-1.rack", true),
            (&longest, true),
            (&longer, false),
            ("Worker-1", false),
            ("a..b", false),
        ] {
            assert_eq!(is_node_name(name), is, "{name}");
        }
    }

    #[test]
    fn names_and_keys_are_those_of_kubernetes() {
        for (text, named, keyed) in [
            ("a", true, true),
            ("a.b-1", true, true),
            ("", false, false),
            ("a..b", false, true),
            ("a.-b", false, true),
            ("A_b", false, true),
            ("example.com/a", false, true),
            ("Example/a", false, false),
            ("a/b/c", false, false),
            ("a b", false, false),
        ] {
            assert_eq!((is_name(text), is_key(text)), (named, keyed), "{text}");
        }
    }
}
