//! The parts of a status that clusters and machines share: readiness, conditions and failures.

use serde_json::Value;

use super::ConversionError;
use super::fields::Fields;

const FAILURES: [&str; 2] = ["failureReason", "failureMessage"];

/// The conditions of the coordinator are of one form at both versions. A status of CAPM3 has two lists.
pub(super) fn to_v1beta2(status: &mut Fields<'_>) -> Result<(), ConversionError> {
    let is_ready = status.bool("ready")?;
    status.remove("ready");
    let is_provisioned = read_provisioned(status)?;
    if is_ready == Some(true) && is_provisioned.is_none() {
        status.object_or_new("initialization")?.set("provisioned", true);
    }
    let conditions = match status.take_object("v1beta2")? {
        Some(mut newer) => Fields::root(&mut newer).take("conditions"),
        None => None,
    };
    let former = if let Some(conditions) = conditions {
        let former = status.take("conditions").unwrap_or_else(|| Value::Array(vec![]));
        status.set("conditions", conditions);
        Some(former)
    } else {
        None
    };
    let failures = FAILURES.map(|name| (name, status.take(name)));
    let moved = [("conditions", former)].into_iter().chain(failures);
    for (name, value) in moved.filter_map(|(name, value)| Some((name, value?))) {
        status.object_or_new("deprecated")?.object_or_new("v1beta1")?.set(name, value);
    }
    Ok(())
}

pub(super) fn to_v1beta1(status: &mut Fields<'_>) -> Result<(), ConversionError> {
    let is_provisioned = read_provisioned(status)?;
    status.set("ready", is_provisioned == Some(true));
    let mut former = match status.object("deprecated")? {
        Some(mut deprecated) => deprecated.take_object("v1beta1")?,
        None => None,
    };
    status.remove("deprecated");
    let Some(former) = &mut former else { return Ok(()) };
    let mut former = Fields::root(former);
    for name in FAILURES {
        if let Some(value) = former.take(name) {
            status.set(name, value);
        }
    }
    if let Some(conditions) = former.take("conditions") {
        let newer = status.take("conditions").unwrap_or_else(|| Value::Array(vec![]));
        status.object_or_new("v1beta2")?.set("conditions", newer);
        status.set("conditions", conditions);
    }
    Ok(())
}

fn read_provisioned(status: &mut Fields<'_>) -> Result<Option<bool>, ConversionError> {
    status.object("initialization")?.map_or(Ok(None), |initialization| initialization.bool("provisioned"))
}
