//! The `content` of a `write_files` entry: its decoded text, and how
//! an edit of that gets back into the text.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use granit_parser::ScalarStyle;

use super::block::{self, Block};
use super::edit::{Edit, apply_edits};
use super::tree::{Node, Value};
use crate::yaml::quote_text;

/// Largest file looked into, bytes: a bomb of zeros must not eat the memory.
const LARGEST: u64 = proto::limits::PLAN_BYTES as u64;

/// Most that all files of one user-data may have when they are decoded, bytes.
pub(super) const LARGEST_SUM: usize = 4 * proto::limits::PLAN_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Layer {
    Base64,
    Gzip,
}

/// The contents that were read. An alias of one that was costs nothing: each of
/// thousands would be decoded and parsed again.
#[derive(Default)]
pub(super) struct Contents {
    read: HashSet<(Range<usize>, Vec<Layer>)>,
    bytes: usize,
}

/// The files have more than [`LARGEST_SUM`].
#[derive(Debug)]
pub(super) struct TooLarge;

impl Contents {
    /// Reads as [`Content::read_content`] does; `None` also for a content that was read before.
    pub(super) fn read_next(
        &mut self,
        data: &str,
        node: &Node,
        encoding: Option<&str>,
    ) -> Result<Option<Content>, TooLarge> {
        if !self.read.insert((node.span.clone(), parse_layers(node.tag.as_deref(), encoding))) {
            return Ok(None);
        }
        let content = Content::read_content(data, node, encoding);
        self.bytes += content.as_ref().map_or(0, |content| content.text.len());
        if self.bytes > LARGEST_SUM { Err(TooLarge) } else { Ok(content) }
    }
}

/// The content of one file.
pub(super) struct Content {
    pub(super) text: String,
    carrier: Carrier,
}

/// How the text lies in the user-data.
enum Carrier {
    /// Lines of a literal block, which are edited in place.
    Lines(Block),
    /// A value that is rewritten as a whole.
    Whole { layers: Vec<Layer>, style: ScalarStyle, span: Range<usize> },
}

impl Content {
    /// The content as text. `None` for a content that is not ours to edit: no text, or
    /// not decodable (jinja inside base64).
    fn read_content(data: &str, node: &Node, encoding: Option<&str>) -> Option<Self> {
        let Value::Scalar { text, style } = &node.value else { return None };
        let layers = parse_layers(node.tag.as_deref(), encoding);
        if layers.is_empty() && *style == ScalarStyle::Literal {
            // Lines that cannot be found are never skipped in silence: the
            // value is then rewritten as a whole.
            if let Some(block) = Block::literal_block(data, &node.span, text) {
                return Some(Self { text: block.content.clone(), carrier: Carrier::Lines(block) });
            }
        }
        let carrier = Carrier::Whole { layers, style: *style, span: node.span.clone() };
        Some(Self { text: carrier.decode_text(text)?, carrier })
    }

    /// Edits of the text as edits of the user-data. `None` when they cannot be
    /// carried over without touching more than they name.
    pub(super) fn lift_edits(&self, data: &str, edits: &[Edit]) -> Option<Vec<Edit>> {
        match &self.carrier {
            Carrier::Lines(block) => edits.iter().map(|edit| block.lift_edit(edit)).collect(),
            Carrier::Whole { .. } if edits.is_empty() => Some(Vec::new()),
            Carrier::Whole { layers, style, span } => {
                let edited = apply_edits(&self.text, edits)?;
                if layers.is_empty() && breaks_jinja(&edited) {
                    return None;
                }
                replace_whole(data, (*style, span), &edited, layers).map(|edit| vec![edit])
            }
        }
    }
}

impl Carrier {
    fn decode_text(&self, text: &str) -> Option<String> {
        let Self::Whole { layers, .. } = self else { return None };
        let mut bytes = text.as_bytes().to_vec();
        for layer in layers {
            bytes = match layer {
                Layer::Base64 => {
                    bytes.retain(|byte| !byte.is_ascii_whitespace());
                    STANDARD.decode(&bytes).ok()?
                }
                Layer::Gzip => gunzip_bytes(&bytes)?,
            };
        }
        String::from_utf8(bytes).ok()
    }
}

/// The edit that rewrites the value as a whole, in the style that it had where
/// that can hold it.
fn replace_whole(
    data: &str,
    (style, span): (ScalarStyle, &Range<usize>),
    text: &str,
    layers: &[Layer],
) -> Option<Edit> {
    let encoded = (!layers.is_empty()).then(|| encode_text(text, layers)).flatten();
    let (range, text) = match (style, encoded) {
        (ScalarStyle::Literal | ScalarStyle::Folded, Some(code)) => {
            (block::filled_spans(data, span)?.1, code)
        }
        (ScalarStyle::Literal | ScalarStyle::Folded, None) => {
            let (header, body) = block::filled_spans(data, span)?;
            (header.start..body.end, quote_text(text))
        }
        (ScalarStyle::Plain, Some(code)) => (span.clone(), code),
        (ScalarStyle::SingleQuoted, Some(code)) => (span.clone(), format!("'{code}'")),
        (ScalarStyle::DoubleQuoted, Some(code)) => (span.clone(), quote_text(&code)),
        (ScalarStyle::Plain | ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted, None) => {
            (span.clone(), quote_text(text))
        }
    };
    Some(Edit { range, text })
}

fn encode_text(text: &str, layers: &[Layer]) -> Option<String> {
    let mut bytes = text.as_bytes().to_vec();
    for layer in layers.iter().rev() {
        bytes = match layer {
            Layer::Base64 => STANDARD.encode(&bytes).into_bytes(),
            Layer::Gzip => gzip_bytes(&bytes)?,
        };
    }
    String::from_utf8(bytes).ok()
}

/// cloud-init's names of encodings; an unknown one is taken as text.
fn parse_layers(tag: Option<&str>, encoding: Option<&str>) -> Vec<Layer> {
    let mut layers = match tag {
        Some("binary") => vec![Layer::Base64],
        Some(_) | None => Vec::new(),
    };
    let encoding = encoding.unwrap_or_default().trim().to_ascii_lowercase();
    layers.extend_from_slice(match encoding.as_str() {
        "b64" | "base64" => &[Layer::Base64],
        "gz" | "gzip" => &[Layer::Gzip],
        "gz+b64" | "gz+base64" | "gzip+b64" | "gzip+base64" => &[Layer::Base64, Layer::Gzip],
        _ => &[],
    });
    layers
}

pub(super) fn gunzip_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let read = GzDecoder::new(bytes).take(LARGEST + 1).read_to_end(&mut plain).ok()?;
    (read as u64 <= LARGEST).then_some(plain)
}

/// The header has no time, so that the same text gives the same plan.
pub(crate) fn gzip_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

/// True if quoting would put a backslash into an expression: cloud-init renders
/// jinja before it reads YAML, so jinja would see it.
fn breaks_jinja(text: &str) -> bool {
    [("{{", "}}"), ("{%", "%}")].into_iter().any(|(open, close)| {
        text.split(open).skip(1).any(|rest| {
            let expression = rest.split(close).next().unwrap_or(rest);
            quote_text(expression).len() != expression.len() + 2
        })
    })
}
