//! The mark in the file of an agent: version and architecture as one text, so that a coordinator
//! knows the agent that it serves without running it.

const PREFIX: &[u8] = b"baremetal-agent-version:";
/// Longest version or architecture, in bytes.
const LONGEST: usize = 64;

/// Version and architecture of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentMark {
    /// Semantic version.
    pub version: String,
    /// Architecture by its name in Rust, for example `x86_64` or `aarch64`.
    pub architecture: String,
}

impl AgentMark {
    /// Reads `PREFIXversion:architecture;`.
    fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_prefix(PREFIX)?;
        let text = &text[..text.len().min(2 * LONGEST)];
        let end = text.iter().position(|byte| *byte == b';')?;
        let (version, architecture) = std::str::from_utf8(&text[..end]).ok()?.split_once(':')?;
        (is_word(version, ".-+") && is_word(architecture, "_"))
            .then(|| Self { version: version.to_owned(), architecture: architecture.to_owned() })
    }

    /// The first mark in the bytes of a file.
    pub fn find(file: &[u8]) -> Option<Self> {
        let begins = file.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
        begins.into_iter().find_map(|(begin, _)| Self::parse(&file[begin..]))
    }
}

fn is_word(word: &str, others: &str) -> bool {
    (1..=LONGEST).contains(&word.len())
        && word.chars().all(|letter| letter.is_ascii_alphanumeric() || others.contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_mark() {
        let mark = |version: &str| AgentMark { version: version.into(), architecture: "x86_64".into() };
        for (file, want) in [
            ("\0\0baremetal-agent-version:0.2.0:x86_64;\0", Some(mark("0.2.0"))),
            ("baremetal-agent-version:1.0.0-rc.1+b:x86_64;", Some(mark("1.0.0-rc.1+b"))),
            (
                "baremetal-agent-version: is looked for; baremetal-agent-version:0.2.0:x86_64;",
                Some(mark("0.2.0")),
            ),
            ("baremetal-agent-version:0.2.0:x86_64", None),
            ("baremetal-agent-version:0/2:x86_64;", None),
            ("", None),
        ] {
            assert_eq!(AgentMark::find(file.as_bytes()), want, "{file}");
        }
    }
}
