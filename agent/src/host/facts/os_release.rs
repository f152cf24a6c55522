//! os-release(5): shell-like assignments.

use proto::v1alpha1::OperatingSystem;

use crate::ground::paths::{Root, read_or_empty};

pub fn read(root: &Root) -> OperatingSystem {
    let text = read_or_empty(root.os_release());
    let value = |key| parse_value(&text, key);
    OperatingSystem {
        name: value("NAME"),
        version: value("VERSION"),
        version_id: value("VERSION_ID"),
        id: value("ID"),
        pretty_name: value("PRETTY_NAME"),
        image: value("IMAGE"),
        cpe_name: value("CPE_NAME"),
    }
}

/// `IMAGE`, the reference of the running image; empty if it is missing.
pub fn parse_image(text: &str) -> String {
    parse_value(text, "IMAGE")
}

fn parse_value(text: &str, wanted: &str) -> String {
    text.lines()
        // The last assignment wins, as in a shell.
        .rev()
        .filter_map(|line| line.trim().split_once('='))
        .find(|(key, _)| *key == wanted)
        .map_or_else(String::new, |(_, value)| unquote_value(value))
}

fn unquote_value(value: &str) -> String {
    let inner = match value.as_bytes() {
        [b'"', .., b'"'] | [b'\'', .., b'\''] => &value[1..value.len() - 1],
        _ => value,
    };
    let mut text = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => text.extend(characters.next()),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_escapes_are_taken_off() {
        for (name, value, want) in [
            ("plain", "os", "os"),
            ("double", "\"A B\"", "A B"),
            ("single", "'A B'", "A B"),
            ("escaped", r#""a \"b\" \$c""#, r#"a "b" $c"#),
            ("a lone quote", "\"", "\""),
            ("empty", "", ""),
        ] {
            assert_eq!(parse_image(&format!("ID=x\nIMAGE={value}\n")), want, "{name}");
        }
    }

    #[test]
    fn the_last_assignment_of_the_very_name_holds() {
        for (name, text, want) in [
            ("last", "IMAGE=a\nIMAGE=b\n", "b"),
            ("other names", "IMAGE_REPO=lab/os\nIMAGE_TAG=v1\n", ""),
            ("nothing", "", ""),
        ] {
            assert_eq!(parse_image(text), want, "{name}");
        }
    }
}
