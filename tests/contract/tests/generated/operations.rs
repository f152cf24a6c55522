//! `docs/operations.md`: the rows of its tables of reasons, Events and refusals have the texts of
//! `docs/reference`. The text around these tables is written by hand.

use std::fs;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::explain::EventReason;
use proto::refusal::Refusal;

use super::reference::cell;
use super::{checkout, committed};

const PAGE: &str = "docs/operations.md";

/// The cells beside the name.
type Texts = (&'static str, &'static str);

type Find = fn(&str) -> Option<Texts>;

/// Each header of a table whose rows are generated, and the source of its rows.
const TABLES: [(&str, Find); 3] = [
    ("| reason | cause | next action |", find_reason),
    ("| Event | meaning | next action |", find_event),
    ("| code | cause | next action |", find_refusal),
];

fn find_reason(name: &str) -> Option<Texts> {
    let entry = name.parse::<Reason>().ok()?.explanation();
    Some((entry.cause, entry.action))
}

fn find_event(name: &str) -> Option<Texts> {
    let entry = EventReason::all().find(|reason| reason.as_str() == name)?.entry();
    Some((entry.meaning, entry.action))
}

fn find_refusal(name: &str) -> Option<Texts> {
    Refusal::from_code(name).map(|refusal| (refusal.cause(), refusal.next_action()))
}

#[test]
fn operations_have_the_texts_of_the_reference() {
    let mut find = None;
    let mut text = String::new();
    for line in fs::read_to_string(checkout(PAGE)).unwrap().lines() {
        if let Some(table) = TABLES.iter().find(|(header, _)| *header == line) {
            find = Some(table.1);
        } else if !line.starts_with('|') {
            find = None;
        }
        match (name_of_row(line), find) {
            (Some(name), Some(find)) => text.push_str(&row(name, find(name))),
            (name, _) => {
                let retold = name.filter(|name| is_explained(name));
                assert_eq!(retold, None, "a row that is written by hand, in a table of other columns");
                text.push_str(line);
            }
        }
        text.push('\n');
    }
    committed(PAGE, &text);
}

#[test]
fn operations_explain_the_reasons_of_their_titles() {
    for entry in fs::read_to_string(checkout(PAGE)).unwrap().split("\n### ").skip(1) {
        let (title, body) = entry.split_once('\n').unwrap();
        let rows: Vec<_> = body.lines().filter_map(name_of_row).collect();
        for name in title.split('`').skip(1).step_by(2).filter(|name| is_explained(name)) {
            assert!(rows.contains(&name), "the entry {title} has no row {name}");
        }
    }
}

/// The name in the first cell, if the cell has nothing else.
fn name_of_row(line: &str) -> Option<&str> {
    line.strip_prefix("| `")?.split_once("` |").map(|(name, _)| name)
}

fn is_explained(name: &str) -> bool {
    name.parse::<Type>().is_err() && TABLES.iter().any(|(_, find)| find(name).is_some())
}

fn row(name: &str, texts: Option<Texts>) -> String {
    let (cause, action) = texts.unwrap_or_else(|| panic!("{PAGE}: {name} is unknown"));
    format!("| `{name}` | {} | {} |", cell(cause), cell(action))
}
