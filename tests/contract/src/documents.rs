//! The commands in the documents: where they stand, and which test runs them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Documents with commands for operators and developers; below a directory all of its pages.
pub const DOCUMENTS: [&str; 3] = ["README.md", "docs", "docs/examples"];

/// The test of `control-plane` that installs and upgrades.
pub const INSTALLATION: &str = "control-plane install::document";
/// The test of `control-plane` that pushes the image.
pub const PUSH: &str = "control-plane install::image";
/// The test of `control-plane` that moves objects to another stored version.
pub const STORAGE: &str = "control-plane install::storage";
/// The test of `e2e` that tells the life of a cluster.
pub const STORY: &str = "e2e clusters::documented";
/// The test of `e2e` that moves a cluster.
pub const MOVE: &str = "e2e clusters::moved";
/// The test of `e2e` that rotates the authority and moves the URL.
pub const ROTATION: &str = "e2e clusters::rotated";
/// The test of `e2e` that restores a namespace.
pub const RESTORE: &str = "e2e clusters::restored";

/// The program of `e2e` that restores etcd on the host of a control plane: `make e2e`.
pub const QUORUM: &str = "e2e cluster_of_hosts::quorum";

/// Document, section, and the test that runs the commands of the section.
pub const RUN: &[(&str, &str, &str)] = &[
    ("docs/install.md", "Build", PUSH),
    ("docs/install.md", "clusterctl", INSTALLATION),
    ("docs/install.md", "Helm", INSTALLATION),
    ("docs/install.md", "Gateway", INSTALLATION),
    ("docs/install.md", "Manifests", INSTALLATION),
    ("docs/upgrade.md", "clusterctl", INSTALLATION),
    ("docs/upgrade.md", "Helm", INSTALLATION),
    ("docs/upgrade.md", "Agents", INSTALLATION),
    ("docs/upgrade.md", "Roll back by Helm", INSTALLATION),
    ("docs/upgrade.md", "Roll back by clusterctl", INSTALLATION),
    ("docs/upgrade.md", "Versions of the definitions", STORAGE),
    ("docs/first-cluster.md", "1. Registration and ISO", STORY),
    ("docs/first-cluster.md", "2. Download", STORY),
    ("docs/first-cluster.md", "3. Boot the hosts", STORY),
    ("docs/first-cluster.md", "4. Image of a version", STORY),
    ("docs/first-cluster.md", "5. Manifest of the cluster", STORY),
    ("docs/first-cluster.md", "6. First control plane", STORY),
    ("docs/first-cluster.md", "7. Whole cluster", STORY),
    ("docs/first-cluster.md", "8. Scale", STORY),
    ("docs/first-cluster.md", "9. Upgrade", STORY),
    ("docs/first-cluster.md", "10. Delete", STORY),
    ("docs/replace.md", "1. The new host", STORY),
    ("docs/replace.md", "2. A worker that answers", STORY),
    ("docs/replace.md", "3. Remove a host for good", STORY),
    ("docs/replace.md", "4. A host that is dead", STORY),
    ("docs/replace.md", "5. The successor", STORY),
    ("docs/replace.md", "A control plane without quorum", QUORUM),
    ("docs/operations.md", "A host waits for approval", STORY),
    ("docs/operations.md", "Shut a host out", STORY),
    ("docs/operations.md", "Only TPMs of known vendors", STORY),
    ("docs/operations.md", "Install a host again", STORY),
    ("docs/operations.md", "`RegistrySecretInvalid`, a private registry", STORY),
    ("docs/operations.md", "Run a plan of your own on a host", STORY),
    ("docs/operations.md", "Limit the coordinator to some namespaces", INSTALLATION),
    ("docs/operations.md", "Rotate the registration token", STORY),
    ("docs/operations.md", "Rotate the CA", ROTATION),
    ("docs/operations.md", "Move the URL", ROTATION),
    ("docs/operations.md", "`clusterctl move`", MOVE),
    ("docs/operations.md", "Backup", RESTORE),
    ("docs/operations.md", "Restore by kubectl", RESTORE),
    ("docs/observability.md", "Traces", STORY),
    ("docs/metal3.md", "Manifests", INSTALLATION),
    ("docs/examples/README.md", "Examples", INSTALLATION),
];

const FENCE: &str = "```";
const NOT_RUN: &str = "<!-- not run: ";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The heading above it.
    pub section: String,
    /// `sh` for commands, `text` for what they print.
    pub language: String,
    /// Its lines, without their common indentation.
    pub content: String,
    /// Why no test runs it.
    pub not_run: Option<String>,
}

impl Block {
    /// Whether it is commands.
    pub fn is_commands(&self) -> bool {
        self.language == "sh"
    }
}

/// A file of the checkout in which the test is run: checkouts that share a target directory share
/// what was built, and `UPDATE=1` must not write into another one.
pub fn checkout(path: &str) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let root = here.ancestors().find(|directory| directory.join("Cargo.lock").exists());
    root.unwrap_or(&here).join(path)
}

/// All fenced blocks of a document, in order.
pub fn parse_blocks(text: &str) -> Vec<Block> {
    let mut blocks = vec![];
    let (mut section, mut reason, mut open): (String, Option<String>, Option<(usize, Block)>) =
        Default::default();
    for line in text.lines() {
        let trimmed = line.trim_start();
        let fence = trimmed.strip_prefix(FENCE);
        if let Some((indentation, block)) = &mut open {
            if fence.is_some() {
                blocks.extend(open.take().map(|(_, block)| block));
            } else {
                block.content += line.get(*indentation..).unwrap_or_default();
                block.content.push('\n');
            }
        } else if let Some(language) = fence {
            let (section, language, not_run) = (section.clone(), language.to_owned(), reason.take());
            let block = Block { section, language, content: String::new(), not_run };
            open = Some((line.len() - trimmed.len(), block));
        } else if let Some(heading) = line.strip_prefix('#') {
            heading.trim_start_matches('#').trim().clone_into(&mut section);
        } else if let Some(rest) = trimmed.strip_prefix(NOT_RUN) {
            reason = Some(rest.trim_end_matches("-->").trim().to_owned());
        } else if !trimmed.is_empty() {
            reason = None;
        }
    }
    blocks
}

/// Puts values where the document has placeholders: whole words, or names that it gives as an
/// example.
pub fn fill(text: &str, values: &[(&str, String)]) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    values.iter().fold(text.to_owned(), |text, (name, value)| {
        let mut filled = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(name) {
            let (before, after) = (&rest[..at], &rest[at + name.len()..]);
            filled += before;
            let inside = before.ends_with(is_word) || after.starts_with(is_word);
            filled += if inside { name } else { value };
            rest = after;
        }
        filled + rest
    })
}

/// What one test runs of the documents.
#[derive(Debug)]
pub struct Reader {
    left: BTreeSet<(&'static str, &'static str)>,
}

impl Reader {
    /// Of what [`RUN`] has for this test.
    pub fn of(test: &str) -> Self {
        let own = RUN.iter().filter(|(_, _, runner)| *runner == test);
        Self { left: own.map(|(document, section, _)| (*document, *section)).collect() }
    }

    /// The blocks of one section that are run, with what follows them.
    ///
    /// # Errors
    /// When the document cannot be read, or the section is not one of this test.
    pub fn read(&mut self, document: &str, section: &str) -> io::Result<Vec<Block>> {
        let is = |(own, part): &(&str, &str)| *own == document && *part == section;
        if !RUN.iter().any(|(own, part, _)| is(&(*own, *part))) {
            return Err(io::Error::other(format!("{document}#{section} is not in the table")));
        }
        self.left.retain(|row| !is(row));
        let blocks = parse_blocks(&fs::read_to_string(checkout(document))?);
        let is_run = |block: &Block| block.section == section && block.not_run.is_none();
        Ok(blocks.into_iter().filter(is_run).collect())
    }

    /// What the test was to run and did not.
    pub fn finish(self) -> io::Result<()> {
        if self.left.is_empty() {
            return Ok(());
        }
        Err(io::Error::other(format!("not run: {:?}", self.left)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_section_and_reason() {
        let text = "# Page\n\n```sh\na\n```\n\n## Part\n\n<!-- not run: needs a host -->\n```sh\nb\n```\n\
                    1. Step:\n\n   ```sh\n   c <<EOF\n     d\n   EOF\n   ```\n\n   ```text\n   x\n   ```\n\
                    <!-- not run: lost -->\nText.\n```\ne\n```\n";
        let block = |section: &str, language: &str, content: &str, reason: Option<&str>| Block {
            section: section.to_owned(),
            language: language.to_owned(),
            content: content.to_owned(),
            not_run: reason.map(str::to_owned),
        };
        let want = [
            block("Page", "sh", "a\n", None),
            block("Part", "sh", "b\n", Some("needs a host")),
            block("Part", "sh", "c <<EOF\n  d\nEOF\n", None),
            block("Part", "text", "x\n", None),
            block("Part", "", "e\n", None),
        ];
        assert_eq!(parse_blocks(text), want);
    }

    #[test]
    fn placeholders_are_whole_words() {
        let values =
            [("NAME", "a".to_owned()), ("HOST1", "b-1".to_owned()), ("api.example.com", "::1".to_owned())];
        let cases = [
            ("get x/NAME -n NAMESPACE", "get x/a -n NAMESPACE"),
            ("{name: HOST1}, HOST10", "{name: b-1}, HOST10"),
            ("https://api.example.com:1", "https://::1:1"),
        ];
        for (text, want) in cases {
            assert_eq!(fill(text, &values), want);
        }
    }
}
