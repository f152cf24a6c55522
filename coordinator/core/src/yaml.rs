//! YAML of operators is read within the budgets of the parser, and YAML is written that YAML 1.1 and YAML
//! 1.2 read alike.
//!
//! cloud-init reads YAML 1.1, in which `52:54:00:00:00:01` is a number to the base of sixty,
//! `0644` is octal, `no` is false and `2026-01-01` is a date. Therefore every text that is not
//! plainly a word is quoted.

use std::fmt::Write as _;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_norway::{Error, Number, Value};

/// Reads one document of a text that somebody else wrote. Depth, nodes, aliases and their copies are bounded.
pub(crate) fn from_yaml<T: DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    // `no` is a word, as for YAML 1.2. An error does not quote the text.
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options)
}

/// Renders a document in block style; maps keep the order of `value`.
pub(crate) fn to_yaml(value: &impl Serialize) -> Result<String, Error> {
    let mut text = String::new();
    write_node(&mut text, &serde_norway::to_value(value)?, 0);
    // A collection starts with the line break that follows a key.
    Ok(text.trim_start().to_owned() + "\n")
}

/// Writes the value after a key or a dash.
fn write_node(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Mapping(map) if !map.is_empty() => {
            for (key, value) in map {
                let _ = write!(text, "\n{:indent$}", "");
                write_node(text, key, indent);
                text.push(':');
                // A list has the indent of its key; a map has two more.
                write_value(text, value, if value.is_sequence() { indent } else { indent + 2 });
            }
        }
        Value::Sequence(items) if !items.is_empty() => {
            for item in items {
                let mut inner = String::new();
                write_value(&mut inner, item, indent + 2);
                let _ = write!(text, "\n{:indent$}- {}", "", inner.trim_start());
            }
        }
        Value::Mapping(_) => text.push_str("{}"),
        Value::Sequence(_) => text.push_str("[]"),
        Value::Null => text.push_str("null"),
        Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => text.push_str(&number_text(number)),
        Value::String(value) if is_word(value) => text.push_str(value),
        Value::String(value) => text.push_str(&quote_text(value)),
        Value::Tagged(tagged) => write_node(text, &tagged.value, indent),
    }
}

fn write_value(text: &mut String, value: &Value, indent: usize) {
    let is_block = match value {
        Value::Mapping(map) => !map.is_empty(),
        Value::Sequence(items) => !items.is_empty(),
        _ => false,
    };
    if !is_block {
        text.push(' ');
    }
    write_node(text, value, indent);
}

/// Adds the point and the sign of the exponent, without which YAML 1.1 reads no float.
fn number_text(number: &Number) -> String {
    let text = number.to_string();
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let point = if mantissa.contains('.') { "" } else { ".0" };
            let sign = if exponent.starts_with('-') { "" } else { "+" };
            format!("{mantissa}{point}e{sign}{exponent}")
        }
        None => text,
    }
}

/// Both versions of YAML read the text as a string without quotes.
pub(crate) fn is_word(text: &str) -> bool {
    let special = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
        && !special.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// A double-quoted scalar that YAML 1.1, YAML 1.2 and JSON read alike. Line separators of YAML
/// 1.1 are escaped because YAML 1.1 folds them.
pub(crate) fn quote_text(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn quoted_text_roundtrips_in_yaml_and_json() {
        for text in ["", "a", "a\n\tb\r\n", "\"\\'", "\u{85}\u{7f}\u{2028}\u{feff}", "é😀", "{{ x }}: #"] {
            let quoted = quote_text(text);
            assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), text);
            assert_eq!(serde_norway::from_str::<String>(&quoted).unwrap(), text);
        }
    }

    #[test]
    fn hostile_documents_end_at_a_budget() {
        let bomb = (0..30).fold("a0: &a0 [x]\n".to_owned(), |text, level| {
            format!("{text}a{next}: &a{next} [*a{level}, *a{level}]\n", next = level + 1)
        });
        let nested = ["[".repeat(100), "]".repeat(100)].concat();
        let many = format!("[{}]", "0,".repeat(300_000));
        for text in [&bomb, &nested, &many] {
            assert!(from_yaml::<serde_json::Value>(text).is_err(), "{}", &text[..40]);
        }
        let read: serde_json::Value = from_yaml("{a: no, b: 0644, c: 1e3, d: [~, true]}").unwrap();
        assert_eq!(read["a"], "no");
        assert_eq!(read["d"], json!([null, true]));
    }

    #[test]
    fn ambiguous_scalars_are_quoted_for_old_readers() {
        let value = json!({
            "a": ["52:54:00:00:00:01", "0644", "no", "2026-01-01", "word", "/path", "1_000", "~", ""],
            "b": {"c": {}, "d": [], "e": [[1, -2], {"f": null, "g": true}], "22:22": 1.5e300},
        });
        assert_eq!(
            to_yaml(&value).unwrap(),
            "a:
- \"52:54:00:00:00:01\"
- \"0644\"
- \"no\"
- \"2026-01-01\"
- word
- /path
- \"1_000\"
- \"~\"
- \"\"
b:
  \"22:22\": 1.5e+300
  c: {}
  d: []
  e:
  - - 1
    - -2
  - f: null
    g: true
"
        );
    }

    fn values() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            "(?s).{0,12}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::btree_map("(?s).{0,6}", inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_is_written_reads_back(value in values()) {
            let text = to_yaml(&value).unwrap();
            let read: serde_json::Value = serde_norway::from_str(&text).unwrap();
            prop_assert_eq!(read, value);
        }
    }
}
