//! os-release(5): shell-like assignments.

use proto::v1alpha1::OperatingSystem;

/// Reads the fields that are told; the boot mode is not among them.
#[must_use]
pub fn parse_os_release(text: &str) -> OperatingSystem {
    let field = |wanted: &str| {
        text.lines()
            // As in the shell that it is written for: the last assignment holds.
            .rev()
            .filter_map(|line| line.trim().split_once('='))
            .find_map(|(key, value)| (key == wanted).then(|| unquote(value)))
            .unwrap_or_default()
    };
    OperatingSystem {
        name: field("NAME"),
        version: field("VERSION"),
        pretty_name: field("PRETTY_NAME"),
        image: field("IMAGE"),
        ..OperatingSystem::default()
    }
}

fn unquote(value: &str) -> String {
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
            let system = parse_os_release(&format!("ID=x\nIMAGE={value}\n"));
            assert_eq!(system.image, want, "{name}");
        }
    }

    #[test]
    fn the_last_assignment_of_the_very_name_holds() {
        for (name, text, want) in [
            ("last", "IMAGE=a\nIMAGE=b\n", "b"),
            ("other names", "IMAGE_REPO=lab/os\nIMAGE_TAG=v1\n", ""),
            ("nothing", "", ""),
        ] {
            assert_eq!(parse_os_release(text).image, want, "{name}");
        }
    }
}
