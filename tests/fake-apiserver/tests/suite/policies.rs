//! Validating admission policies.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{CaseResult, Fixture, Mismatch, define_cases, expect_equal, widget};

define_cases![bound_policies_deny, policies_see_the_former_object];

/// A bound policy for widgets whose names begin with the prefix.
async fn bind(fixture: &Fixture, prefix: &str, spec: Value) -> CaseResult {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(fixture.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(fixture.client.clone());
    let mut spec = spec;
    spec["failurePolicy"] = json!("Fail");
    spec["matchConstraints"] = json!({ "resourceRules": [{
        "apiGroups": ["test.baremetal.cluster.io"], "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"], "resources": ["widgets"],
    }] });
    let condition = format!(
        "request.namespace == '{}' && object.metadata.name.startsWith('{prefix}')",
        fixture.namespace
    );
    spec["matchConditions"] = json!([{ "name": "here", "expression": condition }]);
    let name = format!("{prefix}.{}", fixture.namespace);
    let policy = json!({ "metadata": { "name": name }, "spec": spec });
    policies.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
    let binding = json!({
        "metadata": { "name": name },
        "spec": { "policyName": name, "validationActions": ["Deny"] },
    });
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    Ok(())
}

async fn unbind(fixture: &Fixture, prefix: &str) -> CaseResult {
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(fixture.client.clone());
    bindings.delete(&format!("{prefix}.{}", fixture.namespace), &DeleteParams::default()).await?;
    Ok(())
}

/// Code, reason and message of a dry run, which creates nothing.
async fn try_create(
    fixture: &Fixture,
    name: &str,
    size: u32,
) -> Result<Option<(u16, String, String)>, Mismatch> {
    let mut new = widget(name);
    new.data = json!({ "spec": { "size": size } });
    match fixture.widgets().create(&PostParams { dry_run: true, ..PostParams::default() }, &new).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => {
            Ok(Some((status.code, status.reason.clone(), status.message.clone())))
        }
        Err(error) => Err(error.into()),
    }
}

async fn bound_policies_deny(fixture: Fixture) -> CaseResult {
    let spec = json!({
        "variables": [
            { "name": "size", "expression": "object.spec.size" },
            { "name": "isSmall", "expression": "variables.size < 5" },
        ],
        "validations": [{
            "expression": "variables.isSmall || object.metadata.?labels == object.metadata.?annotations && false",
            "message": "it is too large",
        }],
    });
    bind(&fixture, "denied", spec).await?;
    super::until("the policy denies", || async { Ok(try_create(&fixture, "denied-1", 9).await?.is_some()) })
        .await?;
    let policy = format!("denied.{}", fixture.namespace);
    let message = format!(
        "widgets.test.baremetal.cluster.io \"denied-1\" is forbidden: ValidatingAdmissionPolicy '{policy}' with \
         binding '{policy}' denied request: it is too large"
    );
    let expected = Some((422, "Invalid".to_owned(), message));
    expect_equal("the denial", &try_create(&fixture, "denied-1", 9).await?, &expected)?;
    expect_equal("a small one", &try_create(&fixture, "denied-1", 1).await?, &None)?;
    expect_equal("another name", &try_create(&fixture, "other-1", 9).await?, &None)?;
    unbind(&fixture, "denied").await?;
    super::until("the policy is unbound", || async {
        Ok(try_create(&fixture, "denied-1", 9).await?.is_none())
    })
    .await
}

async fn policies_see_the_former_object(fixture: Fixture) -> CaseResult {
    let widgets = fixture.widgets();
    fixture.widget("frozen-1", json!({ "size": 1 })).await?;
    let spec = json!({ "validations": [{
        "expression": "oldObject == null || object.spec == oldObject.spec || request.userInfo.username == 'nobody'",
        "message": "the spec never changes",
    }] });
    bind(&fixture, "frozen", spec).await?;
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let grow = |size: u32| Patch::Merge(json!({ "spec": { "size": size } }));
    super::until("the policy denies", || async {
        Ok(widgets.patch("frozen-1", &dry, &grow(2)).await.is_err())
    })
    .await?;
    let label = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    widgets.patch("frozen-1", &PatchParams::default(), &label).await?;
    let denied = widgets.patch("frozen-1", &PatchParams::default(), &grow(3)).await;
    let code = match denied {
        Err(kube::Error::Api(status)) => status.code,
        other => return Err(format!("not denied: {other:?}").into()),
    };
    expect_equal("the code", &code, &422)?;
    unbind(&fixture, "frozen").await
}
