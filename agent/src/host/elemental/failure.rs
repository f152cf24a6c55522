//! The cause of a command's failure, from its output, else from its exit code. The real `elemental`
//! ends with 1 after nearly every failure.

use std::fmt::Write as _;

use proto::v1alpha1::FailureReason;

use crate::ground::failure::{Failure, FailureClass};
use crate::host::command::{CommandError, Status};

/// Number of last lines that are searched for the cause; earlier lines did not end the command.
const LAST_LINES: usize = 30;
/// Longest part of a line in a message, in characters.
const LINE_CHARACTERS: usize = 300;

struct Rule {
    class: FailureClass,
    texts: &'static [&'static str],
    cause: &'static str,
    next_action: &'static str,
}

const RULES: [Rule; 10] = [
    Rule {
        class: FailureClass::NoSpace,
        texts: &["no space left on device", "disk quota exceeded"],
        cause: "the disk is full",
        next_action: "free space on the host's disk, or use a smaller image",
    },
    Rule {
        class: FailureClass::Terminal,
        texts: &[
            "could not parse reference",
            "invalid reference format",
            "invalid image reference",
            "first path segment in url cannot contain colon",
            "undefined upgrade source",
            "undefined system source",
            "invalid tag format",
        ],
        cause: "the reference of the image is invalid",
        next_action: "correct the image's reference",
    },
    Rule {
        class: FailureClass::Terminal,
        texts: &[
            "unauthorized",
            "authentication required",
            // A plain "permission denied" comes from the host itself and must not match.
            ": denied: ",
            "denied: requested access",
            "status code 401",
            "status code 403",
            "403 forbidden",
        ],
        cause: "the registry refuses the host",
        next_action: "allow anonymous pulls, or put credentials for the registry in the Secret that the annotation baremetal.cluster.io/registry-secret names",
    },
    Rule {
        class: FailureClass::Terminal,
        texts: &["manifest_unknown", "manifest unknown", "name_unknown", "name unknown", "status code 404"],
        cause: "the registry does not have the image",
        next_action: "push the image, or correct its reference",
    },
    Rule {
        class: FailureClass::Terminal,
        texts: &["signed by unknown authority", "server gave http response to https client"],
        cause: "the registry's certificate is not trusted",
        next_action: "put the registry's CA under the key ca.crt in the Secret that the annotation baremetal.cluster.io/registry-secret names, or in the image of the host",
    },
    Rule {
        class: FailureClass::Transient,
        texts: &[
            "no such host",
            "server misbehaving",
            "temporary failure in name resolution",
            "could not resolve host",
        ],
        cause: "the registry's name cannot be resolved",
        next_action: "check the host's DNS servers",
    },
    // This rule precedes the one for unavailable registries, because both texts contain "connection
    // refused".
    host_is_busy(&["failed to connect to bus", "failed to get d-bus connection"]),
    Rule {
        class: FailureClass::Transient,
        texts: &[
            "connect: connection timed out",
            "connection refused",
            "connection reset",
            "no route to host",
            "network is unreachable",
            "i/o timeout",
            "tls handshake timeout",
            "context deadline exceeded",
            "client.timeout exceeded",
            "unexpected eof",
            "toomanyrequests",
            "too many requests",
            "status code 429",
            "status code 5",
            "500 internal server error",
            "502 bad gateway",
            "503 service unavailable",
            "504 gateway time",
        ],
        cause: "the registry is not available",
        next_action: "check that the host reaches the registry and that it is up",
    },
    Rule {
        class: FailureClass::Unknown,
        texts: &["undefined state partition", "undefined recovery partition"],
        cause: "the disk's partitions are not visible",
        next_action: "check with `elemental state` that this is an installed system",
    },
    host_is_busy(&[
        "resource temporarily unavailable",
        "device or resource busy",
        "target is busy",
        "connection timed out",
        "transport endpoint is not connected",
    ]),
];

const fn host_is_busy(texts: &'static [&'static str]) -> Rule {
    Rule {
        class: FailureClass::Transient,
        texts,
        cause: "the host is busy",
        next_action: "look at the host's system log (`journalctl -b`) for what keeps it busy",
    }
}

pub fn diagnose(error: CommandError) -> Failure {
    let CommandError::Failed { status, .. } = error else { return error.into() };
    let mut failure = Failure::from(error);
    let Diagnosis { class, cause, next_action } = diagnose_output(status, &failure.output);
    failure.class = class;
    if class == FailureClass::NoSpace {
        failure.reason = FailureReason::NoSpace;
    }
    if !cause.is_empty() {
        let _ = write!(failure.message, ": {cause}");
    }
    let line = find_error_line(&failure.output);
    if !line.is_empty() {
        let _ = write!(failure.message, " ({line})");
    }
    match next_action {
        Some(next_action) => failure.with_next_action(next_action),
        None => failure,
    }
}

/// The cause of a failure; empty if it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Diagnosis {
    class: FailureClass,
    cause: &'static str,
    next_action: Option<&'static str>,
}

/// True if udev had not filled in the labels yet. In this case `elemental` changed nothing.
pub(super) fn are_labels_missing(failure: &Failure) -> bool {
    failure.reason == FailureReason::Command
        && failure.output.to_lowercase().contains("undefined state partition")
}

fn diagnose_output(status: Status, output: &str) -> Diagnosis {
    let lines = output.lines().rev().take(LAST_LINES).map(str::to_lowercase);
    let rule = lines
        .into_iter()
        .find_map(|line| RULES.iter().find(|rule| rule.texts.iter().any(|text| line.contains(text))));
    match (rule, status) {
        (Some(rule), _) => {
            Diagnosis { class: rule.class, cause: rule.cause, next_action: Some(rule.next_action) }
        }
        (None, Status::Code(code)) => diagnose_code(code),
        (None, Status::Signal(_)) => Diagnosis::default(),
    }
}

/// The last line that names an error, else the last line.
fn find_error_line(output: &str) -> String {
    let lines: Vec<_> = output.lines().map(str::trim).filter(|line| !line.is_empty()).rev().collect();
    let error = lines.iter().take(LAST_LINES).find(|line| names_error(line)).or_else(|| lines.first());
    let Some(line) = error.copied() else { return String::new() };
    let message = line.split_once("msg=\"").map_or(line, |(_, message)| message.trim_end_matches('"'));
    message.chars().take(LINE_CHARACTERS).collect()
}

fn names_error(line: &str) -> bool {
    let line = line.to_lowercase();
    ["error", "fatal", "fail", "erro["].iter().any(|word| line.contains(word))
}

const fn known(cause: &'static str, next_action: &'static str) -> Diagnosis {
    Diagnosis { class: FailureClass::Unknown, cause, next_action: Some(next_action) }
}

const fn terminal(cause: &'static str, next_action: &'static str) -> Diagnosis {
    Diagnosis { class: FailureClass::Terminal, ..known(cause, next_action) }
}

const fn cause_only(cause: &'static str) -> Diagnosis {
    Diagnosis { class: FailureClass::Unknown, cause, next_action: None }
}

/// The exit codes of the Elemental toolkit that name a cause.
fn diagnose_code(code: i32) -> Diagnosis {
    match code {
        18 => known(
            "the source of the image cannot be pulled or unpacked",
            "check that the image exists, that the host reaches its registry, and that the disk has room",
        ),
        20 => terminal("the reference of the image is invalid", "correct the image's reference"),
        33 => known(
            "the specification is invalid, or the disk's partitions are not visible",
            "check with `elemental state` that this is an installed system",
        ),
        34 | 35 => known("the state or recovery partition cannot be mounted", "check the disk"),
        36..=39 | 50..=52 | 61..=63 | 72..=74 => known("a hook failed", "see the output for which one"),
        46 => cause_only("SELinux labels cannot be set"),
        47 => terminal("the device is not a disk", "correct the install device"),
        48 | 68 => terminal("the image holds no bootable system", "check how the image was built"),
        49 => cause_only("the boot loader cannot be installed"),
        54 => known("partitions cannot be mounted", "check the disk"),
        55 => known("the disk is in use", "remove the device mapper, RAID or mount that holds it"),
        56 => known("the disk cannot be partitioned", "check the disk"),
        57 => terminal(
            "the disk holds an installed system already",
            "release the host, name the disk in the annotation baremetal.cluster.io/reinstall of its MachineInventory, then boot the seed ISO again",
        ),
        58 => cause_only("root is required"),
        83 => cause_only("the size of the image is unknown"),
        84 | 85 => {
            known("the snapshot cannot be written or switched", "check that the state partition has room")
        }
        88 => cause_only("the recovery system cannot be written"),
        _ => Diagnosis::default(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use super::*;
    use crate::host::system::Output;

    fn fail(code: i32, output: &str) -> Failure {
        let (status, output) = (Status::Code(code), Output(output.into()));
        diagnose(CommandError::Failed { program: "elemental".into(), status, output })
    }

    /// Name, output, class, cause.
    const OUTPUTS: &[(&str, &str, FailureClass, &str)] = &[
        (
            "full",
            "level=error msg=\"write /x: no space left on device\"",
            FailureClass::NoSpace,
            "the disk is full",
        ),
        (
            "registry down",
            "Error: GET https://r/v2/: unexpected status code 503 Service Unavailable",
            FailureClass::Transient,
            "the registry is not available",
        ),
        (
            "name server",
            "Error: dial tcp: lookup r.example: no such host",
            FailureClass::Transient,
            "the registry's name cannot be resolved",
        ),
        (
            "credentials",
            "UNAUTHORIZED: authentication required",
            FailureClass::Terminal,
            "the registry refuses the host",
        ),
        (
            "no such tag",
            "MANIFEST_UNKNOWN: manifest unknown; map[Tag:v2]",
            FailureClass::Terminal,
            "the registry does not have the image",
        ),
        (
            "port",
            "parse \"10.0.2.100:5000/os:v1\": first path segment in URL cannot contain colon",
            FailureClass::Terminal,
            "the reference of the image is invalid",
        ),
        (
            "no labels",
            "undefined state partition",
            FailureClass::Unknown,
            "the disk's partitions are not visible",
        ),
        (
            "the last counts",
            "i/o timeout\nmanifest unknown",
            FailureClass::Terminal,
            "the registry does not have the image",
        ),
        (
            "denied",
            "GET https://r/v2/os/manifests/v1: DENIED: requested access to the resource is denied",
            FailureClass::Terminal,
            "the registry refuses the host",
        ),
        ("refused by the host itself", "open /x: permission denied: y", FailureClass::Unknown, ""),
        ("disk in use", "umount: /x: target is busy", FailureClass::Transient, "the host is busy"),
        ("bus", "Failed to connect to bus: Connection refused", FailureClass::Transient, "the host is busy"),
        ("systemd", "Failed to get D-Bus connection", FailureClass::Transient, "the host is busy"),
        ("fork", "fork: Resource temporarily unavailable", FailureClass::Transient, "the host is busy"),
        ("device", "mount: /dev/vda5: Device or resource busy", FailureClass::Transient, "the host is busy"),
        (
            "job",
            "Failed to stop x.service: Connection timed out",
            FailureClass::Transient,
            "the host is busy",
        ),
        (
            "silent registry",
            "dial tcp 10.0.0.1:443: connect: connection timed out",
            FailureClass::Transient,
            "the registry is not available",
        ),
        ("peer", "Transport endpoint is not connected", FailureClass::Transient, "the host is busy"),
        ("nothing known", "Error: hm", FailureClass::Unknown, ""),
    ];

    #[test]
    fn the_output_names_the_cause_before_the_code() {
        for &(name, output, class, cause) in OUTPUTS {
            let failure = fail(1, output);
            let message = failure.message.strip_prefix("elemental failed with exit code 1").unwrap();
            let found = message.strip_prefix(": ").map(|message| message.split(" (").next().unwrap());
            assert_eq!((failure.class, found.unwrap_or_default()), (class, cause), "{name}");
        }
    }

    #[test]
    fn exit_code_names_cause_and_next_action() {
        let cases = [
            (
                57,
                "elemental failed with exit code 57: the disk holds an installed system already",
                "release the host, name the disk in the annotation baremetal.cluster.io/reinstall of its MachineInventory, then boot the seed ISO again",
            ),
            (3, "elemental failed with exit code 3", "look at the host's system log (`journalctl -b`)"),
        ];
        for (code, cause, action) in cases {
            let error = fail(code, "");
            assert_eq!((error.message.as_str(), error.next_action.as_str()), (cause, action));
        }
    }

    #[test]
    fn the_message_repeats_the_last_error_line() {
        let output =
            "level=info msg=\"starting\"\ntime=\"x\" level=error msg=\"hook: exit status 3\"\nclean-up\n\n";
        assert_eq!(fail(1, output).message, "elemental failed with exit code 1 (hook: exit status 3)");
        assert_eq!(fail(1, "one\ntwo\n").message, "elemental failed with exit code 1 (two)");
    }

    #[test]
    fn a_command_that_fails_leaves_one_action() {
        let program = || "elemental".to_owned();
        let missing = CommandError::Run { program: program(), source: ErrorKind::NotFound.into() };
        let busy = CommandError::Busy { unit: "baremetal-step-p-4.service".into(), limit: Duration::ZERO };
        let cases = [
            ("unknown code", fail(1, "why"), "journalctl -b"),
            ("known code", fail(54, "why"), "check the disk"),
            ("not there", diagnose(missing), "an image that holds this program"),
            ("still running", diagnose(busy), "systemctl stop"),
        ];
        for (name, failure, want) in cases {
            assert!(failure.next_action.contains(want), "{name}: {failure}");
        }
    }
}
