//! `hostSelector`, which selects the hosts of a machine by their labels.

use std::collections::BTreeMap;

use coordinator_api::conditions::Reason;
use coordinator_api::metal3::machine::{HostRequirement, HostSelector};

use crate::problem::Problem;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector(Vec<(String, Operation)>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operation {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

/// Why a selector is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.hostSelector.matchExpressions, key {key}: {problem}")]
pub(super) struct SelectorError {
    key: String,
    problem: String,
}

impl SelectorError {
    pub(super) fn problem(&self) -> Problem {
        Problem::new(Reason::SelectorInvalid, self.to_string(), "correct the template")
    }
}

impl Selector {
    pub(super) fn parse(selector: &HostSelector) -> Result<Self, SelectorError> {
        let labels = selector.match_labels.iter();
        let labels = labels.map(|(key, value)| Ok((key.clone(), Operation::In(vec![value.clone()]))));
        let expressions = selector.match_expressions.iter().map(parse_requirement);
        labels.chain(expressions).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Labels that every matching host has.
    pub(super) fn equalities(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(key, operation)| match operation {
            Operation::In(values) => match values.as_slice() {
                [value] => Some((key.as_str(), value.as_str())),
                _ => None,
            },
            _ => None,
        })
    }

    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|(key, operation)| operation.matches(labels.get(key)))
    }
}

impl Operation {
    /// An absent label is not in any set, as in Kubernetes.
    fn matches(&self, value: Option<&String>) -> bool {
        match self {
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::Above(bound) => parse_number(value).is_some_and(|number| number > *bound),
            Self::Below(bound) => parse_number(value).is_some_and(|number| number < *bound),
        }
    }
}

fn parse_requirement(given: &HostRequirement) -> Result<(String, Operation), SelectorError> {
    let operation = parse_operation(&given.operator, &given.values);
    let operation = operation.map_err(|problem| SelectorError { key: given.key.clone(), problem })?;
    Ok((given.key.clone(), operation))
}

fn parse_operation(operator: &str, values: &[String]) -> Result<Operation, String> {
    let name = operator.to_lowercase();
    Ok(match (name.as_str(), values) {
        ("in" | "notin", []) => return Err(format!("operator {operator} takes values")),
        ("in", _) | ("=" | "==", [_]) => Operation::In(values.to_vec()),
        ("notin", _) | ("!=", [_]) => Operation::NotIn(values.to_vec()),
        ("exists", _) => Operation::Exists,
        ("!", _) => Operation::Absent,
        ("gt" | "lt", [value]) => {
            let bound = value.parse::<i64>().map_err(|_| format!("{value:?} is not an integer"))?;
            if name == "gt" { Operation::Above(bound) } else { Operation::Below(bound) }
        }
        ("=" | "==" | "!=" | "gt" | "lt", _) => {
            return Err(format!("operator {operator} takes exactly one value"));
        }
        (other, _) => return Err(format!("{other:?} is none of in, notin, exists, !, =, ==, !=, gt, lt")),
    })
}

fn parse_number(value: Option<&String>) -> Option<i64> {
    value?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(expression: (&str, &[&str])) -> Result<Selector, SelectorError> {
        let values = expression.1.iter().map(|value| (*value).to_owned()).collect();
        let requirement = HostRequirement { key: "k".into(), operator: expression.0.into(), values };
        Selector::parse(&HostSelector { match_expressions: vec![requirement], ..HostSelector::default() })
    }

    #[test]
    fn operators_are_those_of_kubernetes() {
        for (operator, values, value, want) in [
            ("in", &["a", "b"][..], Some("b"), true),
            ("In", &["a"], Some("b"), false),
            ("in", &["a"], None, false),
            ("notin", &["a"], Some("b"), true),
            ("NotIn", &["a"], Some("a"), false),
            ("notin", &["a"], None, true),
            ("exists", &[], Some(""), true),
            ("exists", &[], None, false),
            ("!", &[], None, true),
            ("!", &[], Some("a"), false),
            ("=", &["a"], Some("a"), true),
            ("==", &["a"], Some("b"), false),
            ("!=", &["a"], Some("b"), true),
            ("!=", &["a"], None, true),
            ("gt", &["5"], Some("6"), true),
            ("gt", &["5"], Some("5"), false),
            ("lt", &["5"], Some("4"), true),
            ("lt", &["5"], Some("x"), false),
            ("gt", &["5"], None, false),
        ] {
            let labels = value.map(|value| ("k".to_owned(), value.to_owned())).into_iter().collect();
            let selector = selector((operator, values)).unwrap();
            assert_eq!(selector.matches(&labels), want, "{operator} {values:?} {value:?}");
        }
    }

    #[test]
    fn unusable_expressions_name_their_key() {
        for (operator, values) in
            [("near", &["a"][..]), ("in", &[]), ("=", &["a", "b"]), ("gt", &["x"]), ("lt", &[])]
        {
            let text = selector((operator, values)).unwrap_err().problem().text();
            assert!(text.contains("key k") && text.contains("correct the template"), "{text}");
        }
    }

    #[test]
    fn all_parts_have_to_hold() {
        let mut given = HostSelector::default();
        assert!(Selector::parse(&given).unwrap().matches(&BTreeMap::new()), "an empty one allows every host");
        given.match_labels.insert("a".into(), "1".into());
        given.match_labels.insert("b".into(), "2".into());
        let selector = Selector::parse(&given).unwrap();
        let labels = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        assert!(selector.matches(&labels(&[("a", "1"), ("b", "2"), ("c", "3")])));
        assert!(!selector.matches(&labels(&[("a", "1")])));
    }
}
