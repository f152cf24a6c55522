//! YAML as a tree with the position of each node in the text, so that text
//! can be edited instead of being dumped again.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};

/// Deeper nesting is rejected: the tree is built by recursion, and real
/// cloud-configs are far flatter.
const DEPTH: usize = 100;
/// More nodes are rejected: one takes two bytes of text and more than a hundred bytes of memory.
const NODES: usize = 200_000;

/// A node and its place.
pub(super) struct Node {
    /// Bytes of the node: of a scalar its text, of a flow collection both
    /// brackets, of a block collection from its first key or dash.
    pub(super) span: Range<usize>,
    pub(super) value: Value,
    /// Suffix of its tag (`binary`).
    pub(super) tag: Option<String>,
    /// Anchored, or reached by an alias: editing it would change two places.
    pub(super) shared: bool,
    /// Counted from one.
    pub(super) line: usize,
}

pub(super) type Entry<'a> = (&'a Rc<Node>, &'a Rc<Node>);
/// Keys and values, in their order.
pub(super) type Entries = Vec<(Rc<Node>, Rc<Node>)>;

pub(super) enum Value {
    Scalar { text: String, style: ScalarStyle },
    Mapping { entries: Entries, flow: bool },
    Sequence { items: Vec<Rc<Node>>, flow: bool },
}

/// Why text is no YAML.
pub(super) struct NotYaml {
    pub(super) line: usize,
    pub(super) message: String,
}

/// A duplicate key of a mapping: parsers differ on which one counts.
pub(super) struct Duplicate {
    pub(super) line: usize,
}

impl Node {
    /// The text of a scalar; `None` where there is nothing, or a collection.
    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => Some(text),
            Value::Scalar { .. } | Value::Mapping { .. } | Value::Sequence { .. } => None,
        }
    }

    /// Nothing, `~` or `null`.
    pub(super) fn is_null(&self) -> bool {
        match &self.value {
            Value::Scalar { text, style } => {
                matches!(style, ScalarStyle::Plain)
                    && (self.span.is_empty() || matches!(text.as_str(), "~" | "null" | "Null" | "NULL"))
            }
            Value::Mapping { .. } | Value::Sequence { .. } => false,
        }
    }

    pub(super) fn entries(&self) -> &[(Rc<Node>, Rc<Node>)] {
        match &self.value {
            Value::Mapping { entries, .. } => entries,
            Value::Scalar { .. } | Value::Sequence { .. } => &[],
        }
    }

    pub(super) fn items(&self) -> &[Rc<Node>] {
        match &self.value {
            Value::Sequence { items, .. } => items,
            Value::Scalar { .. } | Value::Mapping { .. } => &[],
        }
    }

    pub(super) fn find_entry(&self, key: &str) -> Result<Option<Entry<'_>>, Duplicate> {
        let mut found = self.entries().iter().filter(|(name, _)| name.as_text() == Some(key));
        let first = found.next();
        match found.next() {
            Some((name, _)) => Err(Duplicate { line: name.line }),
            None => Ok(first.map(|(name, value)| (name, value))),
        }
    }

    pub(super) fn find_text(&self, key: &str) -> Result<Option<&str>, Duplicate> {
        Ok(self.find_entry(key)?.and_then(|(_, value)| value.as_text()))
    }
}

/// The roots of all documents of a text; an empty document has none.
pub(super) fn parse_tree(text: &str) -> Result<Vec<Rc<Node>>, NotYaml> {
    let mut builder = Builder { text, parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    let mut roots = Vec::new();
    loop {
        match builder.next_event()? {
            (Event::DocumentStart(..), _) => {
                let (event, span) = builder.next_event()?;
                roots.push(builder.read_node(event, span, DEPTH)?);
            }
            (Event::StreamEnd, _) => return Ok(roots),
            _ => {}
        }
    }
}

struct Builder<'a> {
    text: &'a str,
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    anchors: HashMap<usize, Rc<Node>>,
    nodes: usize,
}

impl<'a> Builder<'a> {
    /// The next event that is not a comment.
    fn next_event(&mut self) -> Result<(Event<'a>, Span), NotYaml> {
        loop {
            match self.parser.next_event() {
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok(event)) => return Ok(event),
                Some(Err(error)) => {
                    return Err(NotYaml { line: error.marker().line(), message: error.info() });
                }
                None => return Ok((Event::StreamEnd, Span::default())),
            }
        }
    }

    fn read_node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Rc<Node>, NotYaml> {
        let line = span.start.line();
        let refuse = |message: &str| NotYaml { line, message: message.to_owned() };
        let depth = depth.checked_sub(1).ok_or_else(|| refuse("nested too deep"))?;
        self.nodes += 1;
        if self.nodes > NODES {
            return Err(refuse(&format!("more than {NODES} values")));
        }
        let bytes = span.byte_range().ok_or_else(|| refuse("the parser lost its place"))?;
        let mut start = bytes.start;
        let (value, tag, anchor, end) = match event {
            Event::Alias(id) => {
                return self.anchors.get(&id).cloned().ok_or_else(|| refuse("alias of itself"));
            }
            Event::Scalar(text, style, anchor, tag) => {
                let text = text.into_owned();
                (Value::Scalar { text, style }, tag, anchor, bytes.end)
            }
            Event::SequenceStart(style, anchor, tag) => {
                let (items, end) = self.read_items(depth)?;
                let flow = style == StructureStyle::Flow;
                if let (false, Some(first)) = (flow, items.first()) {
                    start = dash_position(self.text, start, first);
                }
                (Value::Sequence { items, flow }, tag, anchor, end)
            }
            Event::MappingStart(style, anchor, tag) => {
                let (entries, end) = self.read_entries(depth)?;
                let flow = style == StructureStyle::Flow;
                (Value::Mapping { entries, flow }, tag, anchor, end)
            }
            _ => return Err(refuse("a node is missing")),
        };
        let node = Rc::new(Node {
            span: start..end,
            value,
            tag: tag.map(|tag| tag.suffix().to_owned()),
            shared: anchor != 0,
            line,
        });
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        Ok(node)
    }

    fn read_items(&mut self, depth: usize) -> Result<(Vec<Rc<Node>>, usize), NotYaml> {
        let mut items = Vec::new();
        loop {
            match self.next_event()? {
                (Event::SequenceEnd, span) => return Ok((items, span_end(span))),
                (event, span) => items.push(self.read_node(event, span, depth)?),
            }
        }
    }

    fn read_entries(&mut self, depth: usize) -> Result<(Entries, usize), NotYaml> {
        let mut entries = Vec::new();
        loop {
            match self.next_event()? {
                (Event::MappingEnd, span) => return Ok((entries, span_end(span))),
                (event, span) => {
                    let key = self.read_node(event, span, depth)?;
                    let (event, span) = self.next_event()?;
                    entries.push((key, self.read_node(event, span, depth)?));
                }
            }
        }
    }
}

/// The first dash of a block sequence: one that is not indented below its key
/// is reported at its first item.
fn dash_position(text: &str, start: usize, first: &Node) -> usize {
    if start < first.span.start && text[start..].starts_with('-') {
        return start;
    }
    let before = text[..start].trim_end_matches([' ', '\t']);
    before.strip_suffix('-').map_or(start, str::len)
}

fn span_end(span: Span) -> usize {
    span.byte_range().map_or(0, |bytes| bytes.end)
}
