//! The contents of a step, which are kept apart from the step in a stored record.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The form in which a step has its contents: themselves ([`Inline`]), or references to the files
/// of a stored record.
pub trait Content: Clone + fmt::Debug + PartialEq + Eq {
    /// Bytes that may be secret.
    type Secret: Clone + fmt::Debug + PartialEq + Eq;
    /// Text.
    type Text: Clone + fmt::Debug + PartialEq + Eq;
    /// A file of an operator's plan.
    type File: Clone + fmt::Debug + PartialEq + Eq;
    /// An instruction of an operator's plan.
    type Instruction: Clone + fmt::Debug + PartialEq + Eq;
}

/// A form that is stored. A step with inline contents is never stored, because they are secret.
pub trait Stored:
    Content<
        Secret: Serialize + DeserializeOwned,
        Text: Serialize + DeserializeOwned,
        File: Serialize + DeserializeOwned,
        Instruction: Serialize + DeserializeOwned,
    >
{
}

/// Steps with their contents, as they are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline;

impl Content for Inline {
    type Secret = Secret;
    type Text = String;
    type File = super::CustomFile;
    type Instruction = super::CustomInstruction;
}

/// Replaces each content of a step. `name` is the file name of the content.
#[allow(clippy::missing_errors_doc)]
pub trait ReplaceContents<From: Content, To: Content> {
    /// The cause that a content has no replacement.
    type Error;
    /// Replaces bytes.
    fn replace_secret(&mut self, name: &str, secret: &From::Secret) -> Result<To::Secret, Self::Error>;
    /// Replaces text.
    fn replace_text(&mut self, name: &str, text: &From::Text) -> Result<To::Text, Self::Error>;
    /// Replaces a file of an operator.
    fn replace_file(&mut self, file: &From::File) -> Result<To::File, Self::Error>;
    /// Replaces an instruction of an operator.
    fn replace_instruction(&mut self, found: &From::Instruction) -> Result<To::Instruction, Self::Error>;
}

/// Bytes that are never shown, because bootstrap data contains join tokens and CA keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Hides `bytes` from every `Debug`.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes, for the place that writes or hashes them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret({} bytes)", self.0.len())
    }
}
