//! `x-kubernetes-validations`: rules in CEL, evaluated by the crate `cel`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::{Context, Env, Program, extensions};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;
use serde_json::Value;

use super::validate::NO_FIELD;
use super::{Schema, Violation, join_path};

/// The standard library with optional values (`a.?b`) and functions on texts, as the real server has them.
static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut functions = Env::stdlib();
    let added = functions.add_extension(extensions::strings);
    debug_assert!(added.is_ok(), "a name is known already: {added:?}");
    Arc::new(functions)
});

/// # Errors
/// When the expression is not CEL.
pub(crate) fn compile_cel(text: &str) -> Result<Program, String> {
    ENV.compile(text).map_err(|error| error.to_string())
}

pub(crate) fn new_context<'p, 'v>() -> Context<'p, 'v> {
    Context::with_env(ENV.clone())
}

/// One compiled rule. A rule that does not compile holds for no object.
#[derive(Debug)]
pub(crate) struct Rule {
    program: Result<Program, String>,
    message: String,
    /// Names `oldSelf`: holds for every object that is created.
    is_transition: bool,
}

impl Rule {
    pub(crate) fn compile(rule: &ValidationRule) -> Self {
        let program = compile_cel(&rule.rule);
        let is_transition =
            program.as_ref().is_ok_and(|program| program.references().variables().contains(&"oldSelf"));
        let message = rule.message.clone().unwrap_or_else(|| format!("failed rule: {}", rule.rule));
        Self { program, message, is_transition }
    }

    /// Why the rule does not hold.
    fn failure(&self, new: &Value, old: Option<&Value>) -> Option<String> {
        let program = match &self.program {
            Ok(program) => program,
            Err(error) => return Some(format!("rule compile error: {error}")),
        };
        let mut context = new_context();
        context.add_variable_from_value("self", to_cel(new));
        if let Some(old) = old {
            context.add_variable_from_value("oldSelf", to_cel(old));
        }
        match program.execute(&context) {
            Ok(cel::Value::Bool(true)) => None,
            Ok(_) => Some(self.message.clone()),
            Err(error) => Some(format!("{}: rule evaluation error: {error}", self.message)),
        }
    }
}

impl Schema {
    pub(crate) fn evaluate_rules(
        &self,
        path: &str,
        new: &Value,
        old: Option<&Value>,
        found: &mut Vec<Violation>,
    ) {
        if new.is_null() {
            return;
        }
        for rule in &self.rules {
            let applies = if rule.is_transition { old.is_some() } else { old != Some(new) };
            if applies && let Some(message) = rule.failure(new, old) {
                let message = format!("Invalid value: {}: {message}", kind_of(new));
                let field = if path.is_empty() { NO_FIELD } else { path }.to_owned();
                found.push(Violation { field, reason: "FieldValueInvalid", message });
            }
        }
        match new {
            Value::Object(members) => {
                for (name, member) in members {
                    if let Some(schema) = self.member(name) {
                        let old = old.and_then(|old| old.get(name));
                        schema.evaluate_rules(&join_path(path, name), member, old, found);
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    if let Some(schema) = &self.items {
                        let old = self.correlated(item, old);
                        schema.evaluate_rules(&format!("{path}[{index}]"), item, old, found);
                    }
                }
            }
            _ => {}
        }
    }
}

fn kind_of(value: &Value) -> String {
    match value {
        Value::Object(_) => "\"object\"".to_owned(),
        Value::Array(_) => "\"array\"".to_owned(),
        value => value.to_string(),
    }
}

/// Integers are signed in CEL of Kubernetes, which serde would not make of positive ones.
pub(crate) fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => cel::Value::Int(integer),
            None => cel::Value::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(to_cel).collect::<Vec<_>>().into(),
        Value::Object(members) => {
            let members = members.iter().map(|(name, member)| (name.clone(), to_cel(member)));
            members.collect::<HashMap<_, _>>().into()
        }
    }
}
