//! `Metal3Remediation` and its template.

use super::ConversionError;
use super::fields::Fields;

const NANOSECONDS: u128 = 1_000_000_000;
/// Units of Go durations in nanoseconds.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", NANOSECONDS),
    ("m", 60 * NANOSECONDS),
    ("h", 3600 * NANOSECONDS),
];

/// The time becomes whole seconds. Zero stands for the default, as a time that is not set.
pub(super) fn spec_to_v1beta2(spec: &mut Fields<'_>) -> Result<(), ConversionError> {
    let Some(mut strategy) = spec.object("strategy")? else { return Ok(()) };
    strategy.remove_empty_text("timeout");
    let Some(timeout) = strategy.take_text("timeout")? else { return Ok(()) };
    match parse_seconds(&timeout).ok_or_else(|| strategy.error("timeout", "a duration"))? {
        0 => {}
        seconds => strategy.set("timeoutSeconds", seconds),
    }
    Ok(())
}

pub(super) fn spec_to_v1beta1(spec: &mut Fields<'_>) -> Result<(), ConversionError> {
    let Some(mut strategy) = spec.object("strategy")? else { return Ok(()) };
    let seconds = strategy.number("timeoutSeconds")?;
    strategy.remove("timeoutSeconds");
    if let Some(seconds) = seconds {
        strategy.set("timeout", format!("{seconds}s"));
    }
    Ok(())
}

/// Whole seconds of a Go duration, such as `1h30m` or `-0.5s`. The longest that fit stand for more.
fn parse_seconds(text: &str) -> Option<i32> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let seconds = i32::try_from(parse_nanoseconds(text)? / NANOSECONDS).unwrap_or(i32::MAX);
    Some(if is_negative { -seconds } else { seconds })
}

/// Nanoseconds of a Go duration without a sign. Arithmetic saturates, because the parser of `kube`
/// panics at large numbers.
fn parse_nanoseconds(mut rest: &str) -> Option<u128> {
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0_u128;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let (_, nanoseconds) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole = if whole.is_empty() { 0 } else { whole.parse().unwrap_or(u128::MAX) };
        total = total.saturating_add(whole.saturating_mul(nanoseconds));
        total = total.saturating_add(parse_fraction(fraction, nanoseconds)?);
        rest = after;
    }
    Some(total)
}

/// Digits behind the point, in nanoseconds. Digits after the twelfth are less than one nanosecond.
fn parse_fraction(digits: &str, nanoseconds: u128) -> Option<u128> {
    let mut place = nanoseconds.saturating_mul(1_000_000_000_000);
    let mut sum = 0_u128;
    for digit in digits.chars().take(12) {
        place /= 10;
        sum += u128::from(digit.to_digit(10)?) * place;
    }
    Some(sum / 1_000_000_000_000)
}
