//! Commands, options, names and fields inside of the sentences of documents: they are not run, so each is
//! compared with what defines it.

mod kubectl;
mod names;
mod options;
mod programs;

use std::fs;

use contract::documents::{checkout, parse_blocks};
use contract::spans::{Span, list_pages, parse_spans};

/// Documents; decisions and what is generated among them.
const PLACES: [&str; 5] = ["README.md", "docs", "docs/examples", "docs/reference", "docs/decisions"];
/// It says what tests call, and they call it.
const FAULTS: &str = "docs/reference/faults.md";

/// Spans of several words that look like a command and are none.
const TEXTS: [&str; 19] = [
    "agent ► proto",
    "cannot be written",
    "clusters rights::",
    "coordinator ► core, api, proto",
    "did not attach",
    "in notin exists ! = == != gt lt",
    "inspection error",
    "is forbidden",
    "it was started 3 times",
    "kubectl-baremetal ► core, api, proto",
    "mod tests",
    "not signed",
    "not trimmed",
    "of another namespace without a grant",
    "proto ◄ core ► api",
    "provisioning error",
    "registration error",
    "use an Elemental live ISO",
    "watch interrupted",
];

fn read(path: &str) -> String {
    fs::read_to_string(checkout(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn list_spans() -> Vec<(String, Vec<Span>)> {
    let pages = list_pages(&PLACES).unwrap();
    pages.into_iter().map(|page| (page.clone(), parse_spans(&read(&page)))).collect()
}

/// Fails with what is wrong, and where.
fn assert_right(checked: usize, wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 50, "only {checked} were found");
}

#[test]
fn commands_are_known_to_their_programs() {
    let (mut checked, mut wrong) = (0, vec![]);
    for (page, spans) in list_spans() {
        for span in spans.iter().filter(|_| page != FAULTS) {
            let result = if TEXTS.contains(&&*span.text) { None } else { programs::check(&span.text) };
            if let Some(result) = result {
                checked += 1;
                wrong.extend(result.err().map(|error| format!("{page}: `{}`: {error}", span.text)));
            }
        }
    }
    assert_right(checked, &wrong);
}

/// What is listed beside the rules is in a document.
#[test]
fn exceptions_are_used() {
    let spans = list_spans();
    let is_used =
        |text: &&&str| spans.iter().flat_map(|(_, spans)| spans).any(|span| span.text.starts_with(**text));
    let options: Vec<_> = options::OF_OTHERS.iter().map(|(option, _)| *option).collect();
    let all = [&TEXTS[..], &names::NAMES_OF_OTHERS, &names::FIELDS_OF_OTHERS, &options].concat();
    let unused: Vec<_> = all.iter().filter(|text| !is_used(text)).collect();
    assert!(unused.is_empty(), "in no document: {unused:?}");
    let defined: Vec<_> = names::FIELDS_OF_OTHERS.iter().filter(|field| names::is_defined(field)).collect();
    assert!(defined.is_empty(), "ours: {defined:?}");
}

/// What no test runs is at least what its program takes.
#[test]
fn commands_not_run_are_accepted_by_programs() {
    let (mut checked, mut wrong) = (0, vec![]);
    for page in list_pages(&PLACES).unwrap() {
        let blocks = parse_blocks(&read(&page));
        for block in blocks.iter().filter(|block| block.is_commands() && block.not_run.is_some()) {
            for line in block.content.replace("\\\n", " ").lines() {
                let line = line.split(" #").next().unwrap_or_default().trim();
                let result = programs::check(line).unwrap_or_else(|| Err("no command".to_owned()));
                checked += 1;
                wrong.extend(result.err().map(|error| format!("{page}: `{line}`: {error}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 10, "only {checked} were found");
}

#[test]
fn names_and_fields_are_defined() {
    let (mut checked, mut wrong) = (0, vec![]);
    for (page, spans) in list_spans() {
        for span in spans {
            if let Some(result) = names::check(&span.text) {
                checked += 1;
                wrong.extend(result.err().map(|error| format!("{page}: `{}`: {error}", span.text)));
            }
        }
    }
    assert_right(checked, &wrong);
}

fn is_option(text: &str) -> bool {
    text.starts_with('-') && text.len() > 1
}

#[test]
fn options_belong_to_the_command_before_them() {
    let (mut checked, mut wrong) = (0, vec![]);
    for (page, spans) in list_spans() {
        for (index, span) in spans.iter().enumerate().filter(|(_, span)| is_option(&span.text)) {
            let before = spans[..index].iter().rev().take_while(|other| other.paragraph == span.paragraph);
            let command =
                before.map(|span| span.text.as_str()).find(|text| text.starts_with(options::PLUGIN));
            checked += 1;
            let result = options::check(&span.text, command);
            wrong.extend(result.err().map(|error| format!("{page}: `{}`: {error}", span.text)));
        }
    }
    assert_right(checked, &wrong);
}

#[test]
fn mistakes_are_found() {
    for command in [
        "kubectl baremetal hosts --states pending",
        "kubectl baremetal hosts --state waiting",
        "kubectl baremetal releases",
        "kubectl baremetal release --retry-clean",
        "kubectl baremetal why pod/NAME",
        "kubectl-baremetal completion basch",
        "kubectl anotate machineinventory NAME a=b",
        "kubectl annotate machineinventori NAME a=b",
        "kubectl annotate machineinventory NAME baremetal.cluster.io/instal-device=/dev/sda",
        "kubectl annotate machineinventory NAME",
        "kubectl get machineinventory NAME -o jsonpath={.status.host.hardwares}",
        "kubectl get secret NAME -o jsonpath='{.data.output}' | gunzip",
        "kubectl get secret NAME -o jsonpath='{.data.failed-output}' | gunsip",
        "kubectl delete clusterrolebinding coordinator",
        "kubectl --namespace baremetal scale deployment baremetal-coordinator --replicas=0",
        "kubectl apply -f coordinator/config/crds",
        "kubectl krew install --manifest=dist/metal.yaml",
        "make tests",
        "make demo METAL=3",
        "ELEMENTALS=/path make demo",
        "cargo test --package contracts",
        "cargo test --package contract generate::",
        "cargo test --package e2e --test clusters kind::",
        "helm roll-back baremetal-coordinator",
        "helm rollback coordinator",
        "clusterctl init --infrastructure metal",
        "journalctl -u baremetal-agents",
        "systemctl status baremetal-agent-live",
        "baremetal-agent fact",
        "rm /var/lib/baremetal-agent/update/record.json",
        "unknown program",
    ] {
        let result = programs::check(command).unwrap_or_else(|| panic!("{command} is taken for no command"));
        assert!(result.is_err(), "{command} is taken for right");
    }
    for text in ["baremetal.cluster.io/approvals=", "spec.tokenExpire", "status.host.sessions.bootId"] {
        assert!(names::check(text).is_some_and(|result| result.is_err()), "{text} is taken for right");
    }
    for (option, command) in [("--server-uri", None), ("--state", Some("kubectl baremetal logs HOST"))] {
        assert!(options::check(option, command).is_err(), "{option} is taken for right");
    }
}
