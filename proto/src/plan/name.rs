//! The names of a plan: by its kind and content, by its number, and by its bytes.

use std::fmt;

use super::PlanError;

/// Name of a plan: its kind, a dash and 16 hexadecimal digits of its content.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlanId(String);

impl PlanId {
    /// Accepts a text that is safe as a file name and as an instance-id of cloud-init.
    ///
    /// # Errors
    /// [`PlanError::Id`] when the text is empty, longer than 64 bytes or holds anything but `a-z`,
    /// `0-9` and `-`.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let is_safe = text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if text.is_empty() || text.len() > 64 || !is_safe {
            return Err(PlanError::Id);
        }
        Ok(Self(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PlanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Number of a plan: rises with every plan of an inventory, starts at 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u64);

impl Generation {
    /// No coordinator gives this number or a higher one.
    const END: u64 = u32::MAX as u64;

    /// `None` for a number that no coordinator gives to a plan.
    pub fn parse(number: u64) -> Option<Self> {
        (0 < number && number < Self::END).then_some(Self(number))
    }

    /// Parses the number as the status of an object has it.
    pub fn from_status(number: i64) -> Option<Self> {
        u64::try_from(number).ok().and_then(Self::parse)
    }

    /// The number as the status of an object has it.
    pub fn to_status(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Lower-case hexadecimal SHA-256 of a plan record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checksum(String);

impl Checksum {
    /// The checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(crate::proof::identity(bytes))
    }

    /// # Errors
    /// [`PlanError::Checksum`] when the text is not 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        if text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            Ok(Self(text.to_owned()))
        } else {
            Err(PlanError::Checksum)
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
