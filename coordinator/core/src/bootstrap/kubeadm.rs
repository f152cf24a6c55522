//! kubeadm's documents: where the values of a node stand, and how they are put
//! there.

use std::rc::Rc;

use granit_parser::ScalarStyle;

use super::NodeNames;
use super::edit::{Edit, column_at, line_break};
use super::tree::{self, Duplicate, Node, NotYaml, Value};
use crate::yaml::{is_word, quote_text};

const GROUP: &str = "kubeadm.k8s.io/";

/// Why a document cannot be edited. Lines are those of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KubeadmError {
    NotYaml { line: usize, message: String },
    Duplicate { line: usize },
    Version { version: String },
    Shape { field: &'static str, line: usize },
}

impl From<Duplicate> for KubeadmError {
    fn from(duplicate: Duplicate) -> Self {
        Self::Duplicate { line: duplicate.line }
    }
}

impl From<NotYaml> for KubeadmError {
    fn from(error: NotYaml) -> Self {
        Self::NotYaml { line: error.line, message: error.message }
    }
}

/// How `kubeletExtraArgs` is written.
#[derive(Clone, Copy)]
enum Arguments {
    /// v1beta3.
    Map,
    /// v1beta4.
    List,
}

/// A value that is not there yet.
enum New<'a> {
    Text(&'a str),
    Map(Vec<(&'a str, New<'a>)>),
    List(Vec<New<'a>>),
}

/// The edits that make every document of a file name the node. None for a file
/// without kubeadm's node configuration, whatever it holds.
pub(super) fn kubeadm_edits(text: &str, node: NodeNames<'_>) -> Result<Vec<Edit>, KubeadmError> {
    // A script may hold a configuration as a here-document, with variables of
    // its own: only the shell can read that.
    if !text.contains(GROUP) || text.starts_with("#!") {
        return Ok(Vec::new());
    }
    let documents = match tree::parse_tree(text) {
        Ok(documents) => documents,
        Err(error) if holds_configuration(text) => return Err(error.into()),
        Err(_) => return Ok(Vec::new()),
    };
    let mut file = File { text, edits: Vec::new() };
    for document in &documents {
        file.edit_document(document, node)?;
    }
    Ok(file.edits)
}

/// True if text that is no YAML was meant as kubeadm's: documentation and
/// scripts may mention the group.
fn holds_configuration(text: &str) -> bool {
    has_line(text, "apiVersion: kubeadm.k8s.io/")
        && (has_line(text, "kind: InitConfiguration") || has_line(text, "kind: JoinConfiguration"))
}

fn has_line(text: &str, start: &str) -> bool {
    text.lines().any(|line| line.starts_with(start))
}

struct File<'a> {
    text: &'a str,
    edits: Vec<Edit>,
}

impl File<'_> {
    fn edit_document(&mut self, root: &Rc<Node>, node: NodeNames<'_>) -> Result<(), KubeadmError> {
        let version = root.find_text("apiVersion")?.and_then(|version| version.strip_prefix(GROUP));
        let kind = root.find_text("kind")?;
        let (Some(version), Some("InitConfiguration" | "JoinConfiguration")) = (version, kind) else {
            return Ok(());
        };
        let arguments = match version {
            "v1beta3" => Arguments::Map,
            "v1beta4" => Arguments::List,
            other => return Err(KubeadmError::Version { version: other.to_owned() }),
        };
        refuse_merge(root)?;
        match root.find_entry("nodeRegistration")? {
            None => self.insert_entries(root, &[("nodeRegistration", registration_entry(node, arguments))]),
            Some((key, value)) if value.is_null() => {
                self.fill_value((key, value), &registration_entry(node, arguments), "nodeRegistration")
            }
            Some((_, value)) => self.edit_registration(value, node, arguments),
        }
    }

    fn edit_registration(
        &mut self,
        value: &Rc<Node>,
        node: NodeNames<'_>,
        arguments: Arguments,
    ) -> Result<(), KubeadmError> {
        if value.shared || !matches!(value.value, Value::Mapping { .. }) {
            return Err(KubeadmError::Shape { field: "nodeRegistration", line: value.line });
        }
        refuse_merge(value)?;
        let mut missing = Vec::new();
        match value.find_entry("name")? {
            Some(found) => self.set_value(found, node.hostname, "nodeRegistration.name")?,
            None => missing.push(("name", New::Text(node.hostname))),
        }
        let cri_socket = New::Text(node.cri_socket);
        match value.find_entry("criSocket")? {
            None => missing.push(("criSocket", cri_socket)),
            Some(found) if found.1.is_null() => {
                self.fill_value(found, &cri_socket, "nodeRegistration.criSocket")?;
            }
            // The author knows which runtime the image has.
            Some(_) => {}
        }
        match value.find_entry("kubeletExtraArgs")? {
            None => missing.push(("kubeletExtraArgs", extra_arguments(node, arguments))),
            Some((key, value)) if value.is_null() => {
                self.fill_value((key, value), &extra_arguments(node, arguments), ARGUMENTS)?;
            }
            Some((_, value)) => self.edit_arguments(value, node, arguments)?,
        }
        self.insert_entries(value, &missing)
    }

    fn edit_arguments(
        &mut self,
        value: &Rc<Node>,
        node: NodeNames<'_>,
        arguments: Arguments,
    ) -> Result<(), KubeadmError> {
        let shape = KubeadmError::Shape { field: ARGUMENTS, line: value.line };
        if value.shared {
            return Err(shape);
        }
        match (arguments, &value.value) {
            (Arguments::Map, Value::Mapping { .. }) => {
                refuse_merge(value)?;
                match value.find_entry("provider-id")? {
                    Some(found) => self.set_value(found, node.provider_id, ARGUMENTS),
                    None => self.insert_entries(value, &[("provider-id", New::Text(node.provider_id))]),
                }
            }
            (Arguments::List, Value::Sequence { items, .. }) => {
                let mut present = false;
                for item in items {
                    if item.find_entry("name")?.is_some_and(|(_, name)| name.as_text() == Some("provider-id"))
                    {
                        let line = item.line;
                        let found = item.find_entry("value")?;
                        let found = found.ok_or(KubeadmError::Shape { field: ARGUMENTS, line })?;
                        self.set_value(found, node.provider_id, ARGUMENTS)?;
                        present = true;
                    }
                }
                if !present {
                    self.insert_item(value, &argument_entry(node));
                }
                Ok(())
            }
            (Arguments::Map | Arguments::List, _) => Err(shape),
        }
    }

    /// Replaces a scalar with another value.
    fn set_value(
        &mut self,
        (key, value): (&Rc<Node>, &Rc<Node>),
        wanted: &str,
        field: &'static str,
    ) -> Result<(), KubeadmError> {
        let shape = KubeadmError::Shape { field, line: value.line };
        if value.shared || value.tag.is_some() {
            return Err(shape);
        }
        if value.is_null() {
            return self.fill_value((key, value), &New::Text(wanted), field);
        }
        let replace = match &value.value {
            Value::Scalar { text, style: ScalarStyle::Plain } => text != wanted || !is_string(wanted),
            Value::Scalar { text, style: ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted } => {
                text != wanted
            }
            // An expression without quotes reads as a mapping of a mapping.
            Value::Mapping { .. } if self.is_expression(value) => true,
            Value::Scalar { .. } | Value::Mapping { .. } | Value::Sequence { .. } => return Err(shape),
        };
        if replace {
            self.edits.push(Edit { range: value.span.clone(), text: quote_text(wanted) });
        }
        Ok(())
    }

    fn is_expression(&self, node: &Node) -> bool {
        let text = &self.text[node.span.clone()];
        text.starts_with("{{") && text.ends_with("}}") && !text.contains('\n')
    }

    /// Puts a value where a key has none, or a null.
    fn fill_value(
        &mut self,
        (key, value): (&Rc<Node>, &Rc<Node>),
        new: &New<'_>,
        field: &'static str,
    ) -> Result<(), KubeadmError> {
        let shape = KubeadmError::Shape { field, line: key.line };
        if value.shared || value.tag.is_some() {
            return Err(shape);
        }
        if !value.span.is_empty() {
            self.edits.push(Edit { range: value.span.clone(), text: new.flow_text() });
            return Ok(());
        }
        let after = &self.text[key.span.end..];
        let colon = after.len() - after.trim_start_matches([' ', '\t']).len();
        if !after[colon..].starts_with(':') {
            return Err(shape);
        }
        self.edits.push(Edit::insert_at(key.span.end + colon + 1, format!(" {}", new.flow_text())));
        Ok(())
    }

    /// Adds entries at the head of a mapping.
    fn insert_entries(&mut self, mapping: &Node, entries: &[(&str, New<'_>)]) -> Result<(), KubeadmError> {
        let Value::Mapping { entries: present, flow } = &mapping.value else {
            return Err(KubeadmError::Shape { field: "the document", line: mapping.line });
        };
        if entries.is_empty() {
            return Ok(());
        }
        if *flow {
            let text: Vec<_> = entries
                .iter()
                .map(|(key, new)| format!("{}: {}", quote_text(key), new.flow_text()))
                .collect();
            self.insert_flow(mapping, &text.join(", "), present.is_empty());
        } else {
            let indent = column_at(self.text, mapping.span.start);
            let lines: Vec<_> = entries.iter().flat_map(|(key, new)| new.entry_lines(key)).collect();
            self.insert_lines(mapping, &lines, indent);
        }
        Ok(())
    }

    /// Adds an item at the head of a sequence.
    fn insert_item(&mut self, sequence: &Node, item: &New<'_>) {
        match &sequence.value {
            Value::Sequence { items, flow: true } => {
                self.insert_flow(sequence, &item.flow_text(), items.is_empty());
            }
            Value::Sequence { .. } | Value::Mapping { .. } | Value::Scalar { .. } => {
                let indent = column_at(self.text, sequence.span.start);
                self.insert_lines(sequence, &item.item_lines(), indent);
            }
        }
    }

    fn insert_flow(&mut self, collection: &Node, text: &str, empty: bool) {
        let separator = if empty { "" } else { ", " };
        self.edits.push(Edit::insert_at(collection.span.start + 1, format!("{text}{separator}")));
    }

    /// Before the first child: its column is the one that counts, and no
    /// comment or blank line at the end can come between.
    fn insert_lines(&mut self, collection: &Node, lines: &[String], indent: usize) {
        let newline = format!("{}{}", line_break(self.text), " ".repeat(indent));
        let text = lines.iter().fold(String::new(), |text, line| text + line + &newline);
        self.edits.push(Edit::insert_at(collection.span.start, text));
    }
}

const ARGUMENTS: &str = "nodeRegistration.kubeletExtraArgs";

fn registration_entry(node: NodeNames<'_>, arguments: Arguments) -> New<'_> {
    New::Map(vec![
        ("name", New::Text(node.hostname)),
        ("criSocket", New::Text(node.cri_socket)),
        ("kubeletExtraArgs", extra_arguments(node, arguments)),
    ])
}

fn extra_arguments(node: NodeNames<'_>, arguments: Arguments) -> New<'_> {
    match arguments {
        Arguments::Map => New::Map(vec![("provider-id", New::Text(node.provider_id))]),
        Arguments::List => New::List(vec![argument_entry(node)]),
    }
}

fn argument_entry(node: NodeNames<'_>) -> New<'_> {
    New::Map(vec![("name", New::Text("provider-id")), ("value", New::Text(node.provider_id))])
}

impl New<'_> {
    /// JSON, which is YAML in flow style.
    fn flow_text(&self) -> String {
        match self {
            Self::Text(text) => quote_text(text),
            Self::List(items) => {
                let items: Vec<_> = items.iter().map(Self::flow_text).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Map(entries) => {
                let entries = entries.iter();
                let entries: Vec<_> =
                    entries.map(|(key, new)| format!("{}: {}", quote_text(key), new.flow_text())).collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }

    /// Lines of an entry in block style.
    fn entry_lines(&self, key: &str) -> Vec<String> {
        let mut lines = vec![format!("{key}:")];
        match self {
            Self::Text(text) => lines[0] = format!("{key}: {}", quote_text(text)),
            Self::List(items) => lines.extend(items.iter().flat_map(Self::item_lines)),
            Self::Map(entries) => {
                let inner = entries.iter().flat_map(|(key, new)| new.entry_lines(key));
                lines.extend(inner.map(|line| format!("  {line}")));
            }
        }
        lines
    }

    /// Lines of an item in block style.
    fn item_lines(&self) -> Vec<String> {
        let lines = match self {
            Self::Text(text) => vec![quote_text(text)],
            Self::List(_) => vec![self.flow_text()],
            Self::Map(entries) => entries.iter().flat_map(|(key, new)| new.entry_lines(key)).collect(),
        };
        let numbered = lines.into_iter().enumerate();
        numbered.map(|(index, line)| format!("{}{line}", if index == 0 { "- " } else { "  " })).collect()
    }
}

/// A merge key may bring the very fields that are set here.
fn refuse_merge(mapping: &Node) -> Result<(), KubeadmError> {
    match mapping.find_entry("<<")? {
        Some((key, _)) => Err(KubeadmError::Shape { field: "a merge key (<<)", line: key.line }),
        None => Ok(()),
    }
}

/// True if unquoted text is a string to every parser:
/// the scheme of a URL is as good as a word.
fn is_string(text: &str) -> bool {
    is_word(text.split_once("://").map_or(text, |(scheme, _)| scheme))
}
