//! Validation. A value that an update leaves as it was is not validated again (ratcheting).

use serde_json::{Map, Value};

use super::{Schema, Violation, join_path};

/// The rules in CEL are not evaluated for an object with one of these.
const BLOCKING: [&str; 5] = [
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
];
/// How the real server spells an empty path.
pub(super) const NO_FIELD: &str = "<nil>";

struct Findings {
    found: Vec<Violation>,
    /// The field of violations for which the real server names none.
    root: &'static str,
}

impl Findings {
    fn add(&mut self, field: &str, reason: &'static str, message: impl Into<String>) {
        self.found.push(Violation { field: field.to_owned(), reason, message: message.into() });
    }

    fn invalid(&mut self, field: &str, value: &Value, why: &str) {
        self.add(field, "FieldValueInvalid", format!("Invalid value: {value}: {field} in body {why}"));
    }
}

impl Schema {
    /// Validates an object without the rules in CEL, then, if it has no violation, by them.
    /// `old` is the stored object of an update, `subresource` what the request is for.
    pub(crate) fn validate(&self, new: &Value, old: Option<&Value>, subresource: &str) -> Vec<Violation> {
        let root = if subresource == "status" { "status" } else { NO_FIELD };
        let mut findings = Findings { found: Vec::new(), root };
        self.check_value("", new, old, &mut findings);
        if !findings.found.iter().any(|one| BLOCKING.contains(&one.reason)) {
            self.evaluate_rules("", new, old, &mut findings.found);
        } else if self.has_rules() {
            let why = "some validation rules were not checked because the object was invalid; correct the \
                       existing errors to complete validation";
            findings.add(NO_FIELD, "FieldValueInvalid", why);
        }
        findings.found
    }

    fn check_value(&self, path: &str, new: &Value, old: Option<&Value>, findings: &mut Findings) {
        if old == Some(new) {
            return;
        }
        self.check_enum(path, new, findings);
        if new.is_null() && self.is_nullable() {
            return;
        }
        if !self.has_type(new) {
            let wanted = self.props.type_.as_deref().unwrap_or("integer or string");
            let why =
                format!("Invalid value: {new}: {path} in body must be of type {wanted}: {}", type_of(new));
            findings.add(path, "FieldValueTypeInvalid", why);
            if new.is_f64() && self.props.type_.as_deref() == Some("integer") {
                let why = format!("Invalid value: {new}: Checked value must be of type integer");
                findings.add(findings.root, "FieldValueInvalid", why);
                self.check_number(path, new, findings);
            }
            return;
        }
        match new {
            Value::Object(members) => self.check_object(path, members, old, findings),
            Value::Array(items) => self.check_list(path, items, old, findings),
            Value::String(text) => self.check_string(path, text, findings),
            Value::Number(_) => self.check_number(path, new, findings),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn has_type(&self, value: &Value) -> bool {
        if self.props.x_kubernetes_int_or_string == Some(true) {
            return value.is_string() || is_integer(value);
        }
        // The real server compares formats instead of types here, and a list has none.
        if value.is_array() && self.props.format.is_some() && !self.is_numeric() {
            return true;
        }
        match self.props.type_.as_deref() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("number") => value.is_number(),
            Some("integer") => is_integer(value),
            _ => true,
        }
    }

    fn is_numeric(&self) -> bool {
        matches!(self.props.type_.as_deref(), Some("integer" | "number"))
    }

    fn check_enum(&self, path: &str, value: &Value, findings: &mut Findings) {
        let Some(allowed) = &self.props.enum_ else {
            return;
        };
        // Null never is, even where it is nullable and listed.
        if value.is_null() || !allowed.iter().any(|one| one.0 == *value) {
            let names: Vec<_> = allowed.iter().map(|one| one.0.to_string()).collect();
            let why = format!("Unsupported value: {value}: supported values: {}", names.join(", "));
            findings.add(path, "FieldValueNotSupported", why);
        }
    }

    fn check_object(
        &self,
        path: &str,
        members: &Map<String, Value>,
        old: Option<&Value>,
        findings: &mut Findings,
    ) {
        for name in self.props.required.iter().flatten() {
            if !members.contains_key(name) {
                findings.add(&join_path(path, name), "FieldValueRequired", "Required value");
            }
        }
        let count = members.len();
        if above(count, self.props.max_properties) {
            findings.add(path, "FieldValueTooMany", format!("Too many: {count}"));
        }
        if below(count, self.props.min_properties) {
            findings.invalid(path, &members.clone().into(), "should have more properties");
        }
        for (name, member) in members {
            if let Some(schema) = self.member(name) {
                schema.check_value(
                    &join_path(path, name),
                    member,
                    old.and_then(|old| old.get(name)),
                    findings,
                );
            }
        }
    }

    fn check_list(&self, path: &str, items: &[Value], old: Option<&Value>, findings: &mut Findings) {
        if above(items.len(), self.props.max_items) {
            findings.add(path, "FieldValueTooMany", format!("Too many: {}", items.len()));
        }
        if below(items.len(), self.props.min_items) {
            findings.invalid(path, &items.into(), "should have more items");
        }
        let is_set = self.props.x_kubernetes_list_type.as_deref() == Some("set");
        let keys = self.map_keys();
        let is_same = |one: &Value, other: &Value| match keys {
            Some(keys) => keys.iter().all(|key| one[key] == other[key]),
            None => is_set && one == other,
        };
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            if items[..index].iter().any(|earlier| is_same(earlier, item)) {
                findings.add(&path, "FieldValueDuplicate", format!("Duplicate value: {item}"));
            }
            if keys.is_some() && !item.is_object() && !item.is_null() {
                let why = format!("Invalid value: {item}: must be an object for an array of list-type map");
                findings.add(&path, "FieldValueInvalid", why);
            }
            if let Some(schema) = &self.items {
                schema.check_value(&path, item, self.correlated(item, old), findings);
            }
        }
    }

    fn check_string(&self, path: &str, text: &str, findings: &mut Findings) {
        let length = text.chars().count();
        let value = Value::from(text);
        // The API server tells the first of these alone.
        if above(length, self.props.max_length) {
            let max = self.props.max_length.unwrap_or_default();
            findings.add(path, "FieldValueTooLong", format!("Too long: may not be more than {max} bytes"));
        } else if below(length, self.props.min_length) {
            let min = self.props.min_length.unwrap_or_default();
            findings.invalid(path, &value, &format!("should be at least {min} chars long"));
        } else {
            match &self.pattern {
                Some(Ok(pattern)) if !pattern.is_match(text) => {
                    findings.invalid(path, &value, &format!("should match '{pattern}'"));
                }
                Some(Err(error)) => findings.invalid(path, &value, error),
                _ => {}
            }
        }
        let is_time = self.props.format.as_deref() == Some("date-time");
        if is_time && text.parse::<k8s_openapi::jiff::Timestamp>().is_err() {
            let why = format!("Invalid value: {value}: {path} in body must be of type date-time: {value}");
            findings.add(path, "FieldValueTypeInvalid", why);
        }
    }

    fn check_number(&self, path: &str, value: &Value, findings: &mut Findings) {
        let number = value.as_f64().unwrap_or_default();
        if let Some(minimum) = self.props.minimum {
            let exclusive = self.props.exclusive_minimum == Some(true);
            if number < minimum || (exclusive && number <= minimum) {
                findings.invalid(path, value, &format!("should be greater than or equal to {minimum}"));
            }
        }
        if let Some(maximum) = self.props.maximum {
            let exclusive = self.props.exclusive_maximum == Some(true);
            if number > maximum || (exclusive && number >= maximum) {
                findings.invalid(path, value, &format!("should be less than or equal to {maximum}"));
            }
        }
        let is_small = self.props.format.as_deref() == Some("int32");
        if is_small && is_integer(value) && value.as_i64().is_none_or(|number| i32::try_from(number).is_err())
        {
            let why =
                format!("Invalid value: {value}: Checked value must be of type integer with format int32");
            findings.add(findings.root, "FieldValueInvalid", why);
        }
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "\"null\"",
        Value::Bool(_) => "\"boolean\"",
        Value::Number(_) => "\"number\"",
        Value::String(_) => "\"string\"",
        Value::Array(_) => "\"array\"",
        Value::Object(_) => "\"object\"",
    }
}

fn above(count: usize, limit: Option<i64>) -> bool {
    limit.is_some_and(|limit| i64::try_from(count).is_ok_and(|count| count > limit))
}

fn below(count: usize, limit: Option<i64>) -> bool {
    limit.is_some_and(|limit| i64::try_from(count).is_ok_and(|count| count < limit))
}
