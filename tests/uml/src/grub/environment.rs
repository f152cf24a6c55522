//! GRUB's environment block: lines `NAME=VALUE` behind a header, filled up with `#` to the length of the file.

use std::collections::BTreeMap;

const HEADER: &str = "# GRUB Environment Block\n";

/// The variables of a block. One without the header has none.
pub(super) fn parse_environment(content: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(content);
    let lines = text.strip_prefix(HEADER).map_or("", |rest| rest).lines();
    let variables = lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A block of this length; none where the variables do not fit.
pub(super) fn format_environment(variables: &BTreeMap<String, String>, length: usize) -> Option<Vec<u8>> {
    let mut text = HEADER.to_owned();
    text.extend(variables.iter().map(|(name, value)| format!("{name}={value}\n")));
    let free = length.checked_sub(text.len())?;
    text.extend(std::iter::repeat_n('#', free));
    Some(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_keeps_its_length() {
        let block = format!("{HEADER}# WARNING: do not edit\na=1\nb=x y\n{}", "#".repeat(50));
        let mut variables = parse_environment(block.as_bytes());
        assert_eq!(variables.get("b").map(String::as_str), Some("x y"));
        variables.insert("c".to_owned(), String::new());
        let written = format_environment(&variables, block.len()).unwrap();
        assert_eq!(written.len(), block.len());
        assert_eq!(parse_environment(&written), variables);
    }

    #[test]
    fn a_block_without_header_or_room_is_refused() {
        assert!(parse_environment(b"a=1\n").is_empty());
        let variables = BTreeMap::from([("name".to_owned(), "x".repeat(100))]);
        assert_eq!(format_environment(&variables, 64), None);
    }
}
