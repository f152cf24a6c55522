//! The pin of the former release, which `make test-upgrade` builds.

use std::fs;
use std::process::Command;

use contract::documents::checkout;

fn read_pin() -> String {
    fs::read_to_string(checkout("tests/contract/former-release/commit")).unwrap()
}

/// The numbers of a version; what follows them, as in `-rc.1`, is before the version without it.
fn parse_version(text: &str) -> Option<(Vec<u32>, bool)> {
    let (numbers, rest) = text.split_once('-').map_or((text, None), |(numbers, rest)| (numbers, Some(rest)));
    let numbers = numbers.split('.').map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>()?;
    (numbers.len() == 3).then_some((numbers, rest.is_none()))
}

/// The version of the workspace.
fn find_version(manifest: &str) -> Option<&str> {
    let (_, package) = manifest.split_once("[workspace.package]")?;
    let line = package.lines().find_map(|line| line.strip_prefix("version = "))?;
    Some(line.trim_matches('"'))
}

#[test]
fn pin_is_one_whole_commit() {
    let pin = read_pin();
    let commit = pin.strip_suffix('\n').unwrap_or_default();
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    assert!(commit.len() == 40 && commit.bytes().all(is_digit), "{pin:?}");
}

/// A clone may be shallow, and a release is unpacked without its history.
#[test]
fn former_release_is_no_later_one() {
    let ours = fs::read_to_string(checkout("Cargo.toml")).unwrap();
    let ours = parse_version(find_version(&ours).unwrap()).unwrap();
    let pin = read_pin();
    let file = format!("{}:Cargo.toml", pin.trim());
    let output = Command::new("git").args(["show", &file]).current_dir(checkout("")).output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        eprintln!("commit {} is not in this clone", pin.trim());
        return;
    };
    let manifest = String::from_utf8(output.stdout).unwrap();
    let theirs = parse_version(find_version(&manifest).unwrap()).unwrap();
    assert!(theirs <= ours, "the former release is {theirs:?}, this one {ours:?}");
}

#[test]
fn versions_have_an_order() {
    let ordered = ["0.1.0-rc.1", "0.1.0", "0.1.1", "0.2.0-alpha.1", "0.2.0", "0.10.0", "1.0.0"];
    let parsed: Vec<_> = ordered.iter().map(|version| parse_version(version).unwrap()).collect();
    assert!(parsed.is_sorted_by(|earlier, later| earlier < later), "{parsed:?}");
    for text in ["", "1.0", "v1.0.0", "1.0.0.0", "1.x.0"] {
        assert_eq!(parse_version(text), None, "{text}");
    }
}
