//! A requirement of a device selector against one disk.

use proto::v1alpha1::DeviceRequirement;

use crate::host::facts::disks::Disk;

pub(super) fn holds_requirement(disk: &Disk, requirement: &DeviceRequirement) -> Result<bool, String> {
    let DeviceRequirement { key, operator, values } = requirement;
    let one_of = |matches: &dyn Fn(&str) -> bool| values.iter().any(|value| matches(value.trim()));
    let inside = match key.as_str() {
        "Size" => return holds_size(disk.size_bytes, operator, values),
        "Name" => one_of(&|value| disk.has_name(value.strip_prefix("/dev/").unwrap_or(value))),
        "Path" => one_of(&|value| {
            let is_name = value.strip_prefix("/dev/").is_some_and(|name| disk.has_name(name));
            is_name || disk.links.iter().any(|link| link == value)
        }),
        "WWN" => one_of(&|value| !disk.wwn.is_empty() && normalise_wwn(value) == normalise_wwn(&disk.wwn)),
        "Serial" => one_of(&|value| value == disk.serial),
        "Model" => one_of(&|value| value == disk.model),
        "Rotational" => {
            one_of(&|value| value.eq_ignore_ascii_case(if disk.rotational { "true" } else { "false" }))
        }
        _ => return Err(format!("key {key:?} is none of Name, Size, WWN, Serial, Model, Rotational, Path")),
    };
    match operator.as_str() {
        "In" => Ok(inside),
        "NotIn" => Ok(!inside),
        _ => Err(format!("operator {operator:?} of {key} is neither In nor NotIn")),
    }
}

fn holds_size(size: u64, operator: &str, values: &[String]) -> Result<bool, String> {
    let bounds = values.iter().map(|value| parse_quantity(value)).collect::<Result<Vec<_>, _>>()?;
    match (operator, bounds.as_slice()) {
        ("In", _) => Ok(bounds.contains(&size)),
        ("NotIn", _) => Ok(!bounds.contains(&size)),
        ("Gt", [bound]) => Ok(size > *bound),
        ("Lt", [bound]) => Ok(size < *bound),
        ("Gt" | "Lt", _) => Err(format!("operator {operator} of Size takes one value")),
        _ => Err(format!("operator {operator:?} of Size is none of In, NotIn, Gt, Lt")),
    }
}

/// A Kubernetes quantity of bytes, rounded up: `500G`, `1.5Ti`,
/// `1000204886016`.
fn parse_quantity(text: &str) -> Result<u64, String> {
    let text = text.trim();
    parse_bytes(text).ok_or_else(|| format!("{text:?} is no size such as 500G or 1.5Ti"))
}

fn parse_bytes(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    u64::try_from(digits.checked_mul(unit_factor(unit)?)?.div_ceil(scale)).ok()
}

fn unit_factor(unit: &str) -> Option<u128> {
    let (base, exponent) = match unit {
        "" => (1, 1),
        "k" | "K" => (1000, 1),
        "M" => (1000, 2),
        "G" => (1000, 3),
        "T" => (1000, 4),
        "P" => (1000, 5),
        "E" => (1000, 6),
        "Ki" => (1024, 1),
        "Mi" => (1024, 2),
        "Gi" => (1024, 3),
        "Ti" => (1024, 4),
        "Pi" => (1024, 5),
        "Ei" => (1024, 6),
        _ => return None,
    };
    Some(u128::pow(base, exponent))
}

/// Unifies the notations of udev, sysfs and link names.
fn normalise_wwn(text: &str) -> String {
    let lower = text.trim().to_ascii_lowercase();
    ["wwn-", "naa.", "eui.", "nvme-", "0x"]
        .iter()
        .fold(lower, |text, prefix| text.strip_prefix(prefix).map(str::to_owned).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        for (text, want) in [
            ("1000204886016", Some(1_000_204_886_016)),
            ("500G", Some(500_000_000_000)),
            ("1Ti", Some(1 << 40)),
            ("1.5Ti", Some(3 << 39)),
            (".5k", Some(500)),
            ("1.0001k", Some(1001)),
            ("2P", Some(2_000_000_000_000_000)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("1Pi", Some(1 << 50)),
            ("2Ei", Some(1 << 61)),
            ("16Ei", None),
            ("1.5.5G", None),
            ("G", None),
            (".", None),
            ("-1G", None),
            ("1GiB", None),
            ("", None),
            ("0.00000000000000000000000000000000000000000001G", None),
        ] {
            assert_eq!(parse_quantity(text).ok(), want, "{text}");
        }
    }
}
