//! Bytes and durations in the form of flags.

use std::time::Duration;

use jiff::SignedDuration;

pub const GI: u64 = 1 << 30;

pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => GI,
        _ => return Err("give bytes, or a number with Ki, Mi or Gi".to_owned()),
    };
    let count: u64 = digits.parse().map_err(|error| format!("{error}"))?;
    count.checked_mul(unit).ok_or_else(|| "too large".to_owned())
}

pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from(duration).map_err(|_| "give a positive duration".to_owned())
}
