//! Admission by `ValidatingAdmissionPolicy`, whose expressions the crate `cel` evaluates.
//!
//! A policy acts through a binding that denies. Parameters, selectors and message expressions are
//! not served: a policy that has one is refused, so that no test takes it for enforced.

use std::collections::HashMap;

use cel::Program;
use k8s_openapi::api::admissionregistration::v1::{
    NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::request::Call;
use crate::schema::rules::{compile_cel, new_context, to_cel};
use crate::store::Store;

/// Group of both kinds.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";
pub(crate) const POLICIES: &str = "validatingadmissionpolicies";
pub(crate) const BINDINGS: &str = "validatingadmissionpolicybindings";

/// A compiled policy.
#[derive(Debug)]
pub(crate) struct Policy {
    name: String,
    rules: Vec<NamedRuleWithOperations>,
    conditions: Vec<Program>,
    variables: Vec<(String, Program)>,
    validations: Vec<(Program, String)>,
}

impl Policy {
    /// # Errors
    /// When an expression does not compile, or the policy has a part that is not served.
    pub(crate) fn compile(object: &Value) -> Result<Self, String> {
        let policy: ValidatingAdmissionPolicy =
            serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
        let spec = policy.spec.unwrap_or_default();
        let matching = spec.match_constraints.unwrap_or_default();
        let validations = spec.validations.unwrap_or_default();
        let has_unserved = spec.param_kind.is_some()
            || spec.audit_annotations.is_some()
            || matching.namespace_selector.is_some_and(|one| one != LabelSelector::default())
            || matching.object_selector.is_some_and(|one| one != LabelSelector::default())
            || matching.exclude_resource_rules.is_some()
            || spec.failure_policy.as_deref() == Some("Ignore")
            || validations.iter().any(|one| one.message_expression.is_some() || one.reason.is_some());
        if has_unserved {
            return Err("it has a part that this server does not evaluate".to_owned());
        }
        let compile = |text: &str| compile_cel(text).map_err(|error| format!("{text}: {error}"));
        Ok(Self {
            name: policy.metadata.name.unwrap_or_default(),
            rules: matching.resource_rules.unwrap_or_default(),
            conditions: spec
                .match_conditions
                .into_iter()
                .flatten()
                .map(|condition| compile(&condition.expression))
                .collect::<Result<_, _>>()?,
            variables: spec
                .variables
                .into_iter()
                .flatten()
                .map(|variable| Ok((variable.name, compile(&variable.expression)?)))
                .collect::<Result<_, String>>()?,
            validations: validations
                .into_iter()
                .map(|validation| {
                    let text = format!("failed expression: {}", validation.expression);
                    Ok((compile(&validation.expression)?, validation.message.unwrap_or(text)))
                })
                .collect::<Result<_, String>>()?,
        })
    }

    fn is_about(&self, call: &Call, operation: &str) -> bool {
        let Call { request, kind, .. } = call;
        let resource = if request.subresource.is_empty() {
            request.resource.clone()
        } else {
            format!("{}/{}", request.resource, request.subresource)
        };
        let contains = |list: &Option<Vec<String>>, wanted: &str| {
            list.iter().flatten().any(|one| one == "*" || one == wanted)
        };
        self.rules.iter().any(|rule| {
            contains(&rule.operations, operation)
                && contains(&rule.api_groups, &kind.group)
                && contains(&rule.api_versions, &kind.version)
                && contains(&rule.resources, &resource)
        })
    }

    /// Why the policy denies the request.
    fn find_denial(&self, variables: &HashMap<&str, cel::Value>) -> Option<String> {
        let mut context = new_context();
        for (name, value) in variables {
            context.add_variable_from_value(*name, value.clone());
        }
        for condition in &self.conditions {
            match condition.execute(&context) {
                Ok(cel::Value::Bool(true)) => {}
                Ok(_) => return None,
                Err(error) => return Some(format!("match condition: {error}")),
            }
        }
        // A variable that cannot be evaluated fails the expressions that use it, and no other.
        let mut evaluated = HashMap::new();
        for (name, program) in &self.variables {
            context.add_variable_from_value("variables", evaluated.clone());
            if let Ok(value) = program.execute(&context) {
                evaluated.insert(name.clone(), value);
            }
        }
        context.add_variable_from_value("variables", evaluated);
        self.validations.iter().find_map(|(program, message)| match program.execute(&context) {
            Ok(cel::Value::Bool(true)) => None,
            Ok(_) => Some(message.clone()),
            Err(error) => Some(format!("expression resulted in error: {error}")),
        })
    }
}

impl Store {
    /// Compiles a policy before it is stored.
    pub(crate) fn check_policy(call: &Call, object: &Value) -> Result<(), Failure> {
        if call.kind.group != GROUP || call.kind.plural != POLICIES {
            return Ok(());
        }
        let compiled = Policy::compile(object);
        compiled.map(drop).map_err(|why| Failure::invalid(&call.kind, &call.request.name, "spec", &why))
    }

    /// Compiles the policies that a binding denies by, after a change of either kind.
    pub(crate) fn compile_policies(&mut self) {
        let denying: Vec<String> = self
            .list(&format!("{BINDINGS}.{GROUP}"), None)
            .filter_map(|(_, object)| {
                let binding: ValidatingAdmissionPolicyBinding =
                    serde_json::from_value(Value::clone(object)).ok()?;
                let denies = binding.spec.validation_actions.iter().any(|action| action == "Deny");
                denies.then_some(binding.spec.policy_name)
            })
            .collect();
        self.policies = self
            .list(&format!("{POLICIES}.{GROUP}"), None)
            .filter(|((_, _, name), _)| denying.contains(name))
            .filter_map(|(_, object)| Policy::compile(object).ok())
            .collect();
    }

    /// Refuses what a policy denies. `old` is the stored object of an update.
    pub(crate) fn admit(
        &self,
        call: &Call,
        name: &str,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Failure> {
        let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
        let mut policies = self.policies.iter().filter(|policy| policy.is_about(call, operation)).peekable();
        if policies.peek().is_none() {
            return Ok(());
        }
        let request = json!({
            "operation": operation,
            "namespace": call.request.namespace,
            "name": name,
            "subResource": call.request.subresource,
            "dryRun": call.is_dry_run(),
            "userInfo": { "username": call.username },
            "resource": { "group": call.kind.group, "version": call.kind.version, "resource": call.kind.plural },
        });
        let variables = HashMap::from([
            ("request", to_cel(&request)),
            ("object", to_cel(new)),
            ("oldObject", old.map_or(cel::Value::Null, to_cel)),
        ]);
        let denial = policies.find_map(|policy| Some((&policy.name, policy.find_denial(&variables)?)));
        denial.map_or(Ok(()), |(policy, message)| Err(Failure::denied(&call.kind, name, policy, &message)))
    }
}
