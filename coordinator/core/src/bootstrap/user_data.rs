//! User data that a host gets without edits: all that cloud-init acts on.
//!
//! cloud-init ignores any other data without an error, so that a host would be installed for a node that never
//! joins.

use std::borrow::Cow;

use super::content::gunzip_bytes;
use super::tree::{self, Value};
use super::{BootstrapError, Looks, USER_DATA, check_content, kept, not_yaml};

pub(crate) const GZIP: [u8; 2] = [0x1f, 0x8b];
const TEMPLATE: &str = "## template: jinja";
const CLOUD_CONFIG: &str = "#cloud-config";
/// The first line of the other formats, in small letters.
const OTHERS: [&str; 6] =
    ["#!", "#include", "#part-handler", "#cloud-boothook", "#cloud-config-archive", "#cloud-config-jsonp"];
/// Headers of a message with several parts, one of which is the first line.
const HEADERS: [&str; 2] = ["content-type: multipart/", MIME_VERSION];
/// The header by which cloud-init knows a message, within these first bytes.
const MIME_VERSION: &str = "mime-version:";
const MIME_BYTES: usize = 4096;

/// Reads user data as text, decompressed if it is compressed.
///
/// # Errors
/// [`BootstrapError`] if the data is empty, or of no format on which cloud-init acts: Ignition, for example.
pub fn read_user_data(data: &[u8]) -> Result<Cow<'_, str>, BootstrapError> {
    let text = if data.starts_with(&GZIP) {
        let plain = gunzip_bytes(data).ok_or(BootstrapError::NotCloudConfig(Looks::Compressed))?;
        Cow::Owned(String::from_utf8_lossy(&plain).into_owned())
    } else {
        String::from_utf8_lossy(data)
    };
    check_text(&text)?;
    Ok(text)
}

fn check_text(text: &str) -> Result<(), BootstrapError> {
    let whole = text.trim_start();
    let has_template = is_template(whole);
    let body = if has_template { whole.split_once('\n').map_or("", |(_, rest)| rest) } else { whole };
    let body = body.trim_start();
    let first = body.lines().next().ok_or(BootstrapError::Empty)?;
    let head = first.to_ascii_lowercase();
    if OTHERS.into_iter().any(|start| head.starts_with(start)) || is_mime(body, &head) {
        return Ok(());
    }
    if !head.starts_with(CLOUD_CONFIG) {
        return Err(BootstrapError::NotCloudConfig(Looks::of_line(first)));
    }
    if body.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Err(BootstrapError::Empty);
    }
    if has_template {
        // An expression of a template may be anything until the host renders it.
        return kept::read_mapping(text).map_or(Ok(()), |document| check_content(&document));
    }
    check_mapping(text)
}

/// The line names jinja as cloud-init expects it. Data with any other template is ignored by cloud-init.
pub(super) fn is_template(line: &str) -> bool {
    line.get(..TEMPLATE.len()).is_some_and(|start| start.eq_ignore_ascii_case(TEMPLATE))
}

fn is_mime(body: &str, head: &str) -> bool {
    let begin = String::from_utf8_lossy(&body.as_bytes()[..body.len().min(MIME_BYTES)]).to_ascii_lowercase();
    HEADERS.into_iter().any(|start| head.starts_with(start)) && begin.contains(MIME_VERSION)
}

fn check_mapping(text: &str) -> Result<(), BootstrapError> {
    let documents = tree::parse_tree(text).map_err(|error| not_yaml(USER_DATA, text, error))?;
    match documents.as_slice() {
        [] => Err(BootstrapError::Empty),
        [root] if matches!(root.value, Value::Mapping { .. }) => check_content(root),
        [root, ..] => {
            let message = "it is not one mapping".to_owned();
            Err(not_yaml(USER_DATA, text, tree::NotYaml { line: root.line, message }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    fn compress(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn data_that_cloud_init_runs_is_accepted() {
        for text in [
            "#cloud-config\nruncmd: [a]\n",
            "\n#Cloud-Config\r\nruncmd: [a]\r\n",
            "#cloud-config\n{}\n",
            "## template: jinja\n#cloud-config\nruncmd: [{{ ds.meta_data.uuid }}]\n",
            "## template: jinja\n#!/bin/sh\n",
            "#!/bin/bash\nkubeadm join\n",
            "#include\nhttps://files.example/user-data\n",
            "Content-Type: multipart/mixed; boundary=\"b\"\nMIME-Version: 1.0\n\n--b\n",
            "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n",
        ] {
            assert_eq!(read_user_data(text.as_bytes()).as_deref(), Ok(text), "{text}");
            assert_eq!(read_user_data(&compress(text)).as_deref(), Ok(text), "compressed: {text}");
        }
    }

    #[test]
    fn data_that_cloud_init_ignores_is_refused() {
        for (text, want) in [
            ("", "is empty"),
            (" \n\t\n", "is empty"),
            ("#cloud-config\n", "is empty"),
            ("#cloud-config\n# nothing\n", "is empty"),
            ("## template: jinja\n", "is empty"),
            ("## template: jinja\n#cloud-config\n\n", "is empty"),
            ("{\"ignition\":{\"version\":\"3.4.0\"}}", "Ignition"),
            ("\n {\"ignition\":{}}", "Ignition"),
            ("## template: jinja\n{\"ignition\":{}}", "Ignition"),
            ("variant: fcos\nversion: 1.5.0\n", "unknown format"),
            ("runcmd: [a]\n", "unknown format"),
            ("\u{feff}#cloud-config\nruncmd: [a]\n", "unknown format"),
            ("##template: jinja\n#cloud-config\nruncmd: [a]\n", "unknown format"),
            ("Content-Type: multipart/mixed; boundary=b\n\n--b\n", "MIME"),
            ("## template: basic\n#cloud-config\na: $b\n", "unknown format"),
            ("<powershell>\n</powershell>", "unknown format"),
            ("#cloud-config\nruncmd: [\n", "not valid YAML at line"),
            ("#cloud-config\n- a\n", "not one mapping"),
        ] {
            for data in [text.as_bytes().to_vec(), compress(text)] {
                let error = read_user_data(&data).unwrap_err().to_string();
                assert!(error.contains(want), "{text:?}: {error}");
            }
        }
        let whole = compress("#cloud-config\nruncmd: [a]\n");
        let error = read_user_data(&whole[..12]).unwrap_err().to_string();
        assert!(error.contains("cannot be decompressed"), "{error}");
    }
}
