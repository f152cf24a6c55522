//! Block scalars (`|`, `>`) in their text: the position of each of their lines.

use std::ops::Range;

use super::edit::Edit;

/// The lines of a block scalar, without indentation, and where they stand.
pub(super) struct Block {
    /// The content with the line breaks that the outer text has. No chomping.
    pub(super) content: String,
    indent: usize,
    lines: Vec<Line>,
}

struct Line {
    outer: usize,
    inner: usize,
    length: usize,
}

impl Block {
    /// Finds the lines of the block scalar at `span`. `value` is the
    /// parsed value of a literal one: the lines must have the same value, else `None`.
    pub(super) fn literal_block(outer: &str, span: &Range<usize>, value: &str) -> Option<Self> {
        let body = body_span(outer, span)?;
        let first = outer[body.clone()].lines().find(|line| !line.trim().is_empty())?;
        let deepest = first.len() - first.trim_start_matches(' ').len();
        (1..=deepest).rev().map(|indent| Self::with_indent(outer, &body, indent)).find(|block| {
            block.content.replace("\r\n", "\n").trim_end_matches('\n') == value.trim_end_matches('\n')
        })
    }

    fn with_indent(outer: &str, body: &Range<usize>, indent: usize) -> Self {
        let mut block = Self { content: String::new(), indent, lines: Vec::new() };
        let mut at = body.start;
        for line in outer[body.clone()].split_inclusive('\n') {
            let spaces = line.len() - line.trim_start_matches(' ').len();
            let skipped = spaces.min(indent);
            block.lines.push(Line {
                outer: at + skipped,
                inner: block.content.len(),
                length: line.len() - skipped,
            });
            block.content.push_str(&line[skipped..]);
            at += line.len();
        }
        block
    }

    /// An edit of the content as an edit of the outer text.
    pub(super) fn lift_edit(&self, edit: &Edit) -> Option<Edit> {
        let mut indented = String::from("\n");
        indented.extend(std::iter::repeat_n(' ', self.indent));
        Some(Edit {
            range: self.outer_position(edit.range.start)?..self.outer_position(edit.range.end)?,
            text: edit.text.replace('\n', &indented),
        })
    }

    fn outer_position(&self, inner: usize) -> Option<usize> {
        let after = self.lines.partition_point(|line| line.inner <= inner);
        let line = self.lines.get(after.checked_sub(1)?)?;
        (inner - line.inner <= line.length).then(|| line.outer + inner - line.inner)
    }
}

/// The header (`|-`) of a block scalar up to its line break, and the lines up
/// to the last that holds something.
pub(super) fn filled_spans(outer: &str, span: &Range<usize>) -> Option<(Range<usize>, Range<usize>)> {
    let body = body_span(outer, span)?;
    let header_end = outer[..body.start].trim_end_matches(['\n', '\r']).len();
    let line = outer[..header_end].rfind('\n').map_or(0, |newline| newline + 1);
    let header = line + outer[line..header_end].rfind(['|', '>'])?;
    let text = &outer[body.clone()];
    let start = body.start + (text.len() - text.trim_start().len());
    let end = body.start + text.trim_end().len();
    Some((header..header_end, start..end))
}

/// All lines of the block scalar: the parser tells where its first filled line
/// starts, and where the next token does.
fn body_span(outer: &str, span: &Range<usize>) -> Option<Range<usize>> {
    let mut start = line_start(outer, span.start);
    loop {
        let above = line_start(outer, start.checked_sub(1)?);
        if !outer[above..start].trim().is_empty() {
            break;
        }
        start = above;
    }
    let last = line_start(outer, span.end);
    let end = if outer[last..span.end].trim().is_empty() { last } else { span.end };
    (start <= end).then_some(start..end)
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}
