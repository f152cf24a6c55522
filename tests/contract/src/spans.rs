//! Code inside of sentences, lists and tables of the documents.

use std::fs;
use std::io;

use crate::documents::checkout;

const FENCE: &str = "```";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The heading above it.
    pub section: String,
    /// The number of its paragraph, item of a list, or row of a table.
    pub paragraph: usize,
    pub text: String,
}

/// All code spans of a document, in order.
pub fn parse_spans(text: &str) -> Vec<Span> {
    let mut spans = vec![];
    let (mut section, mut paragraph, mut is_fenced) = (String::new(), 0, false);
    let mut open: Option<String> = None;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let begins = ["", "|", "#", "- ", FENCE].iter().any(|start| match *start {
            "" => trimmed.is_empty(),
            start => trimmed.starts_with(start),
        });
        if begins {
            (paragraph, open) = (paragraph + 1, None);
        }
        if trimmed.starts_with(FENCE) {
            is_fenced = !is_fenced;
            continue;
        }
        if is_fenced {
            continue;
        }
        if let Some(heading) = line.strip_prefix('#') {
            heading.trim_start_matches('#').trim().clone_into(&mut section);
        }
        for (index, piece) in line.split('`').enumerate() {
            if index > 0 {
                open = match open.take() {
                    None => Some(String::new()),
                    Some(text) => {
                        let text = text.replace("\\|", "|");
                        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                        spans.push(Span { section: section.clone(), paragraph, text });
                        None
                    }
                };
            }
            if let Some(text) = &mut open {
                text.push_str(piece);
            }
        }
        if let Some(text) = &mut open {
            text.push(' ');
        }
    }
    spans
}

/// The pages of the documents, by their paths; of a directory those in it, and of none below it.
///
/// # Errors
/// When a directory cannot be read.
pub fn list_pages(places: &[&str]) -> io::Result<Vec<String>> {
    let mut pages = vec![];
    for place in places {
        if !checkout(place).is_dir() {
            pages.push((*place).to_owned());
            continue;
        }
        for entry in fs::read_dir(checkout(place))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if std::path::Path::new(&name).extension().is_some_and(|kind| kind == "md") {
                pages.push(format!("{place}/{name}"));
            }
        }
    }
    pages.sort();
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_put_on_one_line() {
        let text = "# Page `a`\n\nText `b\n  c` and `d`.\n\n```sh\n`e`\n```\n## Part\n| `f` | `g \\| h` |\n| `i` |\n\
                    - lost ` here\n- `j`\n";
        let found = parse_spans(text);
        let texts: Vec<_> = found.iter().map(|span| (span.section.as_str(), span.text.as_str())).collect();
        let (page, part) = ("Page `a`", "Part");
        let want =
            [(page, "a"), (page, "b c"), (page, "d"), (part, "f"), (part, "g | h"), (part, "i"), (part, "j")];
        assert_eq!(texts, want);
        let same = |one: usize, other: usize| found[one].paragraph == found[other].paragraph;
        assert!(same(1, 2) && same(3, 4) && !same(0, 1) && !same(4, 5), "{found:?}");
    }
}
