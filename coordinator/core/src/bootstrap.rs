//! Bootstrap data, made to name this very node.
//!
//! The data is edited as text at known places: kubeadm's node configuration
//! inside `write_files`, and cloud-init's own hostname. Everything else stays
//! byte for byte, jinja, comments, quotes and line ends included, because the
//! data is rendered by cloud-init only on the host: parsed and dumped here it
//! would differ from the text of its author.
//!
//! Data without kubeadm (k3s, RKE2, scripts) is left as it is: the agent tells
//! the kubelet who it is on the host, whatever starts it.

mod block;
mod content;
mod edit;
mod foreign;
mod kept;
mod kubeadm;
mod stated;
mod tree;
mod user_data;

use std::rc::Rc;

use content::{Contents, LARGEST_SUM, TooLarge};
use edit::{Edit, apply_edits};
use kubeadm::KubeadmError;
use tree::{Duplicate, Node, NotYaml, Value};

use crate::text::is_node_name;
use crate::yaml::quote_text;

pub(crate) use content::gzip_bytes;
pub use kept::list_lost;
pub use stated::{render_expressions, stated_provider_id};
pub(crate) use user_data::GZIP;
pub use user_data::read_user_data;

/// Names that a node goes by. They win over any in the data, except for the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeNames<'a> {
    /// Name of the host and of the node, an RFC 1123 subdomain.
    pub hostname: &'a str,
    /// `baremetal:///<inventory>`.
    pub provider_id: &'a str,
    /// For data that names none.
    pub cri_socket: &'a str,
}

/// Why bootstrap data cannot be used. Nothing of the data is in the text: it
/// holds join tokens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// Nothing but white space and comments.
    #[error(
        "bootstrap data is empty: look why the bootstrap provider wrote an empty Secret, or fill the Secret that dataSecretName names"
    )]
    Empty,
    /// The first line is not `#cloud-config`.
    #[error(
        "bootstrap data is {0}, not cloud-config: set format: cloud-config on the bootstrap provider, or start the data with the line #cloud-config"
    )]
    NotCloudConfig(Looks),
    /// No YAML, or YAML that is no mapping.
    #[error("{place} is not valid YAML at line {line} ({message}): correct it{hint}")]
    Yaml {
        /// The user-data, or a file in it.
        place: String,
        /// Counted from one.
        line: usize,
        /// The error of the parser.
        message: String,
        /// The likely cause.
        hint: &'static str,
    },
    /// A mapping has a duplicate key.
    #[error("{place} has a key twice in one mapping at line {line}: remove one of them")]
    Duplicate {
        /// The user-data, or a file in it.
        place: String,
        /// Counted from one.
        line: usize,
    },
    /// A kubeadm API that is not known here.
    #[error("{place} is of kubeadm.k8s.io/{version}: write it as v1beta3 or v1beta4")]
    KubeadmVersion { place: String, version: String },
    /// A value to be set is present in a form that cannot be edited.
    #[error(
        "{place}: {field} at line {line} is not of a form that can be edited: write it out plainly, without anchors, tags and merge keys, as a list of name and value in v1beta4 and as a map in v1beta3"
    )]
    Shape {
        /// The user-data, or a file in it.
        place: String,
        /// Path of the field.
        field: String,
        /// Counted from one.
        line: usize,
    },
    /// The edit would not be the one that was meant.
    #[error("{place} cannot be edited safely: write its content as a literal block (content: |)")]
    Unsafe {
        /// The user-data, or a file in it.
        place: String,
    },
    /// Disks for data, by the key that names them.
    #[error(
        "the user-data has {field}: cloud-init mounts disks for data in the first boot alone, and no clean empties them; leave it out, and mount disks by units of the OS image"
    )]
    DataDisk { field: &'static str },
    /// A distribution of Kubernetes of which a clean would leave credentials and data.
    #[error(
        "the user-data makes a node of {name}, of which no clean would remove everything: use a bootstrap provider of {}",
        foreign::list_supported()
    )]
    Distribution { name: &'static str },
    /// The files, compressed ones among them, are too large to be looked into.
    #[error(
        "the files in the user-data have more than {} MiB when they are decoded: let the host download them instead",
        LARGEST_SUM >> 20
    )]
    TooLarge,
    /// A name of the node would be something else in YAML, jinja or a shell.
    #[error("{field} of the node is not usable: {allowed}")]
    Name { field: &'static str, allowed: &'static str },
}

/// Detected format of bootstrap data that is no cloud-config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    /// `#!`.
    Script,
    Ignition,
    /// Several parts in one.
    Mime,
    /// gzip, cut off or larger than a plan may be.
    Compressed,
    Unknown,
}

impl Looks {
    fn of_line(first: &str) -> Self {
        match first {
            line if line.starts_with("#!") => Self::Script,
            line if line.starts_with('{') => Self::Ignition,
            line if ["Content-Type:", "MIME-Version:"].iter().any(|start| line.starts_with(start)) => {
                Self::Mime
            }
            _ => Self::Unknown,
        }
    }
}

impl std::fmt::Display for Looks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Script => "a script",
            Self::Ignition => "JSON (Ignition)",
            Self::Mime => "a MIME message",
            Self::Compressed => "compressed and cannot be decompressed",
            Self::Unknown => "of an unknown format",
        })
    }
}

/// Makes the data name this node: `nodeRegistration.name` and
/// `.kubeletExtraArgs`' `provider-id` of every kubeadm document, `.criSocket`
/// where it is absent or null, and cloud-init's own hostname where the data sets
/// one. The same data comes back from a second call.
///
/// # Errors
/// [`BootstrapError`] when the data is no cloud-config, or holds a kubeadm
/// configuration that cannot be edited without guessing.
pub fn normalise_data(data: &str, node: &NodeNames<'_>) -> Result<String, BootstrapError> {
    check_names(node)?;
    check_header(data)?;
    let edited = apply_edits(data, &collect_edits(data, *node)?).ok_or_else(unsafe_edit)?;
    // Verification: parsed again, nothing is left to set.
    match collect_edits(&edited, *node) {
        Ok(left) if left.is_empty() => Ok(edited),
        Ok(_) | Err(_) => Err(unsafe_edit()),
    }
}

const USER_DATA: &str = "the user-data";

fn unsafe_edit() -> BootstrapError {
    BootstrapError::Unsafe { place: USER_DATA.to_owned() }
}

fn check_names(node: &NodeNames<'_>) -> Result<(), BootstrapError> {
    if !is_node_name(node.hostname) {
        let allowed = "use 1 to 63 characters of a-z, 0-9, dash and dot, with a letter or digit at both ends \
                       and beside each dot";
        return Err(BootstrapError::Name { field: "the hostname", allowed });
    }
    for (field, text) in [("the provider id", node.provider_id), ("criSocket", node.cri_socket)] {
        let is_allowed = text.chars().all(|c| c.is_ascii_alphanumeric() || "-._:/".contains(c));
        if text.is_empty() || !is_allowed {
            let allowed = "use letters, digits and -._:/";
            return Err(BootstrapError::Name { field, allowed });
        }
    }
    Ok(())
}

/// `#cloud-config`, after the line that names the template engine.
fn check_header(data: &str) -> Result<(), BootstrapError> {
    let mut lines = data.trim_start().lines();
    let mut first = lines.next().ok_or(BootstrapError::Empty)?;
    if user_data::is_template(first) {
        first = lines.next().unwrap_or_default();
    }
    if first.trim_end() == "#cloud-config" {
        return Ok(());
    }
    Err(BootstrapError::NotCloudConfig(Looks::of_line(first)))
}

/// Refuses what a host cannot undo.
fn check_content(document: &Node) -> Result<(), BootstrapError> {
    foreign::check_distribution(document)?;
    kept::check_disks(document)
}

fn collect_edits(data: &str, node: NodeNames<'_>) -> Result<Vec<Edit>, BootstrapError> {
    let document = parse_document(data)?;
    check_content(&document)?;
    let mut edits = hostname_edits(&document, node)?;
    let files = document.find_entry("write_files").map_err(|error| duplicate_error(USER_DATA, &error))?;
    let Some((_, files)) = files else { return Ok(edits) };
    if !files.is_null() && !matches!(files.value, Value::Sequence { .. }) {
        return Err(shape_error("write_files", files));
    }
    let mut contents = Contents::default();
    for entry in files.items() {
        for edit in file_edits(data, entry, node, &mut contents)? {
            // Two encodings may name the same content.
            if !edits.contains(&edit) {
                edits.push(edit);
            }
        }
    }
    Ok(edits)
}

fn parse_document(data: &str) -> Result<Rc<Node>, BootstrapError> {
    let documents = tree::parse_tree(data).map_err(|error| not_yaml(USER_DATA, data, error))?;
    match documents.as_slice() {
        [] => Err(BootstrapError::Empty),
        [root] if matches!(root.value, Value::Mapping { .. }) => {
            let merge = root.find_entry("<<").map_err(|error| duplicate_error(USER_DATA, &error))?;
            merge.map_or_else(|| Ok(Rc::clone(root)), |(key, _)| Err(shape_error("a merge key (<<)", key)))
        }
        [root, ..] => {
            let message = "it is not one mapping".to_owned();
            Err(not_yaml(USER_DATA, data, NotYaml { line: root.line, message }))
        }
    }
}

/// cloud-init prefers `hostname` and `fqdn` of the user-data to the meta-data's
/// name, and `preserve_hostname` to both.
fn hostname_edits(document: &Node, node: NodeNames<'_>) -> Result<Vec<Edit>, BootstrapError> {
    let mut edits = Vec::new();
    for key in ["hostname", "fqdn", "preserve_hostname"] {
        let found = document.find_entry(key).map_err(|error| duplicate_error(USER_DATA, &error))?;
        let Some((_, value)) = found else { continue };
        match &value.value {
            Value::Scalar { .. } if value.is_null() => {}
            Value::Scalar { text, .. } if fits_name(key, text, node.hostname) => {}
            Value::Scalar { .. } if !value.shared && value.tag.is_none() => {
                let text =
                    if key == "preserve_hostname" { "false".to_owned() } else { quote_text(node.hostname) };
                edits.push(Edit { range: value.span.clone(), text });
            }
            Value::Scalar { .. } | Value::Mapping { .. } | Value::Sequence { .. } => {
                return Err(shape_error(key, value));
            }
        }
    }
    Ok(edits)
}

fn fits_name(key: &str, text: &str, hostname: &str) -> bool {
    match key {
        "hostname" => text == hostname,
        "fqdn" => text.strip_prefix(hostname).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')),
        _ => ["false", "no", "off"].iter().any(|word| text.eq_ignore_ascii_case(word)),
    }
}

fn file_edits(
    data: &str,
    entry: &Node,
    node: NodeNames<'_>,
    contents: &mut Contents,
) -> Result<Vec<Edit>, BootstrapError> {
    let find = |key| entry.find_entry(key).map_err(|error| duplicate_error(USER_DATA, &error));
    let place = find("path")?.and_then(|(_, value)| value.as_text()).unwrap_or("a file without path");
    if let Some((key, _)) = find("<<")? {
        return Err(shape_error("a merge key (<<)", key));
    }
    let Some((_, value)) = find("content")? else { return Ok(Vec::new()) };
    let encoding = find("encoding")?.and_then(|(_, value)| value.as_text());
    let read = contents.read_next(data, value, encoding);
    let Some(content) = read.map_err(|TooLarge| BootstrapError::TooLarge)? else {
        return Ok(Vec::new());
    };
    let edits =
        kubeadm::kubeadm_edits(&content.text, node).map_err(|error| in_file(place, &content.text, error))?;
    content.lift_edits(data, &edits).ok_or_else(|| BootstrapError::Unsafe { place: place.to_owned() })
}

fn duplicate_error(place: &str, error: &Duplicate) -> BootstrapError {
    BootstrapError::Duplicate { place: place.to_owned(), line: error.line }
}

fn shape_error(field: &str, node: &Node) -> BootstrapError {
    BootstrapError::Shape { place: USER_DATA.to_owned(), field: field.to_owned(), line: node.line }
}

fn not_yaml(place: &str, text: &str, error: NotYaml) -> BootstrapError {
    let jinja = ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark));
    let hint = if jinja {
        "; jinja must stand inside quoted YAML strings, since the data is read before it is rendered"
    } else {
        ""
    };
    BootstrapError::Yaml { place: place.to_owned(), line: error.line, message: error.message, hint }
}

fn in_file(place: &str, text: &str, error: KubeadmError) -> BootstrapError {
    let place = place.to_owned();
    match error {
        KubeadmError::NotYaml { line, message } => not_yaml(&place, text, NotYaml { line, message }),
        KubeadmError::Duplicate { line } => BootstrapError::Duplicate { place, line },
        KubeadmError::Version { version } => BootstrapError::KubeadmVersion { place, version },
        KubeadmError::Shape { field, line } => BootstrapError::Shape { place, field: field.to_owned(), line },
    }
}
