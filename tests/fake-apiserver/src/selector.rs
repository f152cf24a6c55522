//! Label and field selectors.

use serde_json::Value;

use crate::failure::Failure;
use crate::object::metadata_text;

/// Which objects a list or watch asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Selector {
    pub(crate) fn parse(labels: &str, fields: &str) -> Result<Self, Failure> {
        let labels =
            split_requirements(labels).into_iter().map(parse_requirement).collect::<Result<_, _>>()?;
        let fields: Vec<_> =
            split_requirements(fields).into_iter().map(parse_requirement).collect::<Result<_, _>>()?;
        let known = |key: &str| ["metadata.name", "metadata.namespace"].contains(&key);
        match fields.iter().find(|requirement: &&Requirement| !known(&requirement.key)) {
            Some(Requirement { key, .. }) => {
                Err(Failure::bad_request(format!("field label not supported: {key}")))
            }
            None => Ok(Self { labels, fields }),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"][key].as_str();
        let field = |key: &str| Some(metadata_text(object, key.trim_start_matches("metadata.")));
        self.labels.iter().all(|requirement| requirement.holds(label(&requirement.key)))
            && self.fields.iter().all(|requirement| requirement.holds(field(&requirement.key)))
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let among = |values: &[String]| value.is_some_and(|v| values.iter().any(|w| w == v));
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(values) => among(values),
            // Also true for objects without the label, as in Kubernetes.
            Test::NotIn(values) => !among(values),
        }
    }
}

/// At commas outside parentheses.
fn split_requirements(selector: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = selector.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn parse_requirement(given: &str) -> Result<Requirement, Failure> {
    let set = |values: &str| -> Option<Vec<String>> {
        let inner = values.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(inner.split(',').map(|value| value.trim().to_owned()).collect())
    };
    let one = |value: &str| vec![value.trim().to_owned()];
    let (key, test) = if let Some((key, values)) = given.split_once(" notin ") {
        (key, set(values).map(Test::NotIn))
    } else if let Some((key, values)) = given.split_once(" in ") {
        (key, set(values).map(Test::In))
    } else if let Some((key, value)) = given.split_once("!=") {
        (key, Some(Test::NotIn(one(value))))
    } else if let Some((key, value)) = given.split_once("==").or_else(|| given.split_once('=')) {
        (key, Some(Test::In(one(value))))
    } else if let Some(key) = given.strip_prefix('!') {
        (key, Some(Test::Absent))
    } else {
        (given, Some(Test::Exists))
    };
    let test = test.ok_or_else(|| Failure::bad_request(format!("unable to parse requirement: {given}")))?;
    Ok(Requirement { key: key.trim().into(), test })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_choose_as_kubernetes_does() {
        let object = json!({"metadata": {"name": "x", "labels": {"a": "1", "b": "2"}}});
        let cases = [
            ("everything", "", "", true),
            ("equal", "a=1", "", true),
            ("double equal", "a==1,b=2", "", true),
            ("another value", "a=2", "", false),
            ("unequal", "a!=2,c!=1", "", true),
            ("one of", "a in (1, 2),b in (2)", "", true),
            ("none of", "a notin (1,2)", "", false),
            ("there", "a", "", true),
            ("not there", "!c", "", true),
            ("by name", "", "metadata.name=x", true),
            ("by another name", "", "metadata.name=y", false),
        ];
        for (name, labels, fields, want) in cases {
            let selector = Selector::parse(labels, fields).unwrap();
            assert_eq!(selector.matches(&object), want, "{name}");
        }
    }

    #[test]
    fn unknown_fields_cannot_be_selected() {
        assert_eq!(Selector::parse("", "spec.x=1").unwrap_err().code, 400);
    }
}
