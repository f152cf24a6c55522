//! Writes of what a host has reported: the status of its inventory and the
//! result keys of its plan Secret. Nothing is listed; nothing is written that
//! is there already.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_api::inventory::{MachineInventory, MachineInventoryStatus};
use coordinator_api::names::{annotation, plan_secret};
use coordinator_core::host::End;
use coordinator_core::plan::{self, PlanError, Stored};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use proto::plan::Generation;
use serde_json::{Map, Value, json};

/// Upstream's keys that only this module writes.
const LAST_APPLY_TIME: &str = "last-apply-time";
const SUCCESS_COUNT: &str = "success-count";
/// How often a write is tried against other writers of the same object.
const TRIES: usize = 5;
/// All captured output of one plan, bytes before compression: the Secret that
/// holds it must stay far below a mebibyte.
const OUTPUT_BYTES: usize = 128 * 1024;

/// Why a report is not stored.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Reading failed.
    #[error("cannot read {name}")]
    Read {
        /// Which object.
        name: String,
        /// What the API server said.
        source: kube::Error,
    },
    /// Writing failed.
    #[error("cannot write {name}")]
    Write {
        /// Which object.
        name: String,
        /// What the API server said.
        source: kube::Error,
    },
    /// The inventory was deleted, or made anew under its name.
    #[error("inventory {name} is gone")]
    Gone {
        /// Which one.
        name: String,
    },
    /// Somebody else writes all the time.
    #[error("{name} was changed by others {TRIES} times in a row")]
    Contended {
        /// Which object.
        name: String,
    },
    /// The plan Secret was changed since it was read: judge again.
    #[error("the plan Secret {name} was changed meanwhile")]
    Superseded {
        /// Which one.
        name: String,
    },
}

/// Whether the API server refused for the object having changed.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// What must be sent to turn `old` into `new` by a JSON merge patch.
pub(crate) fn difference(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut patch = Map::new();
            for key in old.keys().filter(|key| !new.contains_key(*key)) {
                patch.insert(key.clone(), Value::Null);
            }
            for (key, value) in new {
                let change = match old.get(key) {
                    Some(old) => difference(old, value),
                    None => Some(value.clone()),
                };
                patch.extend(change.map(|change| (key.clone(), change)));
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (old, new) => (old != new).then(|| new.clone()),
    }
}

/// Brings the status of an inventory to what `project` makes of it: no request
/// when that is what is there, one write otherwise. `known` may be behind: a
/// conflict reads the object and projects again.
///
/// # Errors
/// [`ReportError`].
pub async fn status(
    inventories: &Api<MachineInventory>,
    known: Arc<MachineInventory>,
    project: impl Fn(&MachineInventory) -> MachineInventoryStatus,
) -> Result<Arc<MachineInventory>, ReportError> {
    let (name, uid) = (known.name_any(), known.uid());
    let mut known = known;
    for _ in 0..TRIES {
        let Some(change) = status_change(&known, &project(&known)) else {
            return Ok(known);
        };
        let patch = json!({
            "metadata": { "resourceVersion": known.resource_version() },
            "status": change,
        });
        match inventories.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(written) => return Ok(Arc::new(written)),
            Err(error) if is_conflict(&error) => {
                known = Arc::new(read(inventories, &name, uid.as_deref()).await?);
            }
            Err(error) if is_not_found(&error) => return Err(ReportError::Gone { name }),
            Err(source) => return Err(ReportError::Write { name, source }),
        }
    }
    Err(ReportError::Contended { name })
}

fn status_change(known: &MachineInventory, next: &MachineInventoryStatus) -> Option<Value> {
    let empty = MachineInventoryStatus::default();
    let old = known.status.as_ref().unwrap_or(&empty);
    if old == next {
        return None;
    }
    let value = |status| serde_json::to_value(status).unwrap_or_default();
    difference(&value(old), &value(next))
}

/// Reads an inventory that must still be the one with that UID.
///
/// # Errors
/// [`ReportError::Gone`], [`ReportError::Read`].
pub async fn read(
    inventories: &Api<MachineInventory>,
    name: &str,
    uid: Option<&str>,
) -> Result<MachineInventory, ReportError> {
    let gone = || ReportError::Gone { name: name.to_owned() };
    let found = inventories
        .get_opt(name)
        .await
        .map_err(|source| ReportError::Read { name: name.to_owned(), source })?
        .ok_or_else(gone)?;
    if uid.is_some_and(|uid| found.uid().as_deref() != Some(uid)) {
        return Err(gone());
    }
    Ok(found)
}

/// Marks an inventory that two hosts claim; a person takes the mark away.
///
/// # Errors
/// [`ReportError`].
pub async fn quarantine(
    inventories: &Api<MachineInventory>,
    known: &MachineInventory,
    why: &str,
) -> Result<Arc<MachineInventory>, ReportError> {
    let name = known.name_any();
    // By UID and not by version: whatever else changed, this mark must stand.
    let patch = json!({ "metadata": {
        "uid": known.uid(),
        "annotations": { (annotation::QUARANTINED): why },
    } });
    match inventories.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(written) => Ok(Arc::new(written)),
        Err(error) if is_not_found(&error) || is_conflict(&error) => Err(ReportError::Gone { name }),
        Err(source) => Err(ReportError::Write { name, source }),
    }
}

/// A plan Secret as it was read.
#[derive(Clone, Debug)]
pub struct PlanSecret {
    name: String,
    resource_version: Option<String>,
    results: BTreeMap<String, Vec<u8>>,
    /// The plan.
    pub stored: Stored,
}

/// Why there is no plan to stream.
#[derive(Debug, thiserror::Error)]
pub enum PlanSecretError {
    /// No Secret, or no plan in it.
    #[error(
        "the plan Secret {name} is missing or empty: restore it, or delete the Machine to have another plan written"
    )]
    Missing {
        /// Which Secret.
        name: String,
    },
    /// The bytes are no plan.
    #[error(
        "the plan Secret {name} cannot be used ({why}): restore the Secret, or delete the Machine to have another plan written"
    )]
    Invalid {
        /// Which Secret.
        name: String,
        /// Why.
        why: PlanError,
    },
    /// An older plan than the one that was announced.
    #[error(
        "the plan Secret {name} holds generation {found}, generation {announced} was announced: it was restored from an old copy; delete the Machine to have another plan written"
    )]
    Older {
        /// Which Secret.
        name: String,
        /// What is there.
        found: Generation,
        /// What should be there at least.
        announced: Generation,
    },
    /// The API server did not answer as hoped.
    #[error("cannot read the plan Secret {name}")]
    Read {
        /// Which Secret.
        name: String,
        /// What the API server said.
        source: kube::Error,
    },
}

/// Reads a plan Secret by name.
///
/// # Errors
/// [`PlanSecretError`].
pub async fn plan(
    secrets: &Api<Secret>,
    name: &str,
    announced: Generation,
) -> Result<PlanSecret, PlanSecretError> {
    let name = name.to_owned();
    let missing = || PlanSecretError::Missing { name: name.clone() };
    let read = secrets.get_opt(&name).await;
    let secret =
        read.map_err(|source| PlanSecretError::Read { name: name.clone(), source })?.ok_or_else(missing)?;
    let mut results: BTreeMap<_, _> =
        secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
    let bytes = results.remove(plan_secret::PLAN).ok_or_else(missing)?;
    let stored = plan::parse(&bytes, announced)
        .map_err(|why| PlanSecretError::Invalid { name: name.clone(), why })?
        .ok_or_else(missing)?;
    let found = stored.plan.generation;
    if found < announced {
        return Err(PlanSecretError::Older { name, found, announced });
    }
    Ok(PlanSecret { name, resource_version: secret.metadata.resource_version, results, stored })
}

impl PlanSecret {
    fn count(&self, key: &str) -> u64 {
        let text = self.results.get(key).and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    fn is_recorded(&self, end: &End) -> bool {
        let key = match end {
            End::Applied => plan_secret::APPLIED_CHECKSUM,
            End::Failed { .. } => plan_secret::FAILED_CHECKSUM,
        };
        self.results.get(key).is_some_and(|bytes| bytes == self.stored.checksum.as_bytes())
    }

    /// The result keys, as the upstream agent leaves them.
    fn render(
        &self,
        end: &End,
        outputs: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> BTreeMap<&'static str, Vec<u8>> {
        let checksum = self.stored.checksum.clone().into_bytes();
        let count = |key| (self.count(key) + 1).to_string().into_bytes();
        let output = compress(outputs);
        let mut results = BTreeMap::from([(
            LAST_APPLY_TIME,
            now.strftime("%a %b %e %H:%M:%S UTC %Y").to_string().into_bytes(),
        )]);
        results.extend(match end {
            End::Applied => [
                (plan_secret::APPLIED_CHECKSUM, checksum),
                (plan_secret::APPLIED_OUTPUT, output),
                (plan_secret::FAILED_CHECKSUM, vec![]),
                (plan_secret::FAILED_OUTPUT, vec![]),
                (plan_secret::FAILURE_COUNT, b"0".to_vec()),
                (SUCCESS_COUNT, count(SUCCESS_COUNT)),
            ]
            .to_vec(),
            End::Failed { .. } => [
                (plan_secret::FAILED_CHECKSUM, checksum),
                (plan_secret::FAILED_OUTPUT, output),
                (plan_secret::FAILURE_COUNT, count(plan_secret::FAILURE_COUNT)),
                (SUCCESS_COUNT, b"0".to_vec()),
            ]
            .to_vec(),
        });
        results
    }
}

/// gzip of a JSON map from name to base64, as upstream has it. What is too much
/// is left out, whole outputs at a time.
fn compress(outputs: &BTreeMap<String, String>) -> Vec<u8> {
    let mut room = OUTPUT_BYTES;
    let kept: BTreeMap<_, _> = outputs
        .iter()
        .filter(|(_, output)| {
            let fits = output.len() <= room;
            room -= if fits { output.len() } else { 0 };
            fits
        })
        .map(|(name, output)| (name, STANDARD.encode(output)))
        .collect();
    let mut encoder = GzEncoder::new(vec![], Compression::default());
    let text = serde_json::to_vec(&kept).unwrap_or_default();
    // Writing to memory cannot fail; if it did, results matter more than output.
    let _ = encoder.write_all(&text);
    encoder.finish().unwrap_or_default()
}

/// Writes how a plan ended into its Secret; no request when it is there.
///
/// # Errors
/// [`ReportError::Superseded`] when the Secret is not what was read.
pub async fn record(
    secrets: &Api<Secret>,
    plan: &PlanSecret,
    end: &End,
    outputs: &BTreeMap<String, String>,
    now: Timestamp,
) -> Result<(), ReportError> {
    if plan.is_recorded(end) {
        return Ok(());
    }
    let data: BTreeMap<_, _> =
        plan.render(end, outputs, now).into_iter().map(|(key, value)| (key, ByteString(value))).collect();
    let patch = json!({
        "metadata": { "resourceVersion": plan.resource_version },
        "data": data,
    });
    let name = plan.name.clone();
    match secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(error) if is_conflict(&error) || is_not_found(&error) => Err(ReportError::Superseded { name }),
        Err(source) => Err(ReportError::Write { name, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_difference_is_the_least_that_leads_from_one_to_the_other() {
        for (name, old, new, want) in [
            ("equal", json!({"a": 1}), json!({"a": 1}), None),
            ("added", json!({}), json!({"a": 1}), Some(json!({"a": 1}))),
            ("removed", json!({"a": 1, "b": 2}), json!({"b": 2}), Some(json!({"a": null}))),
            (
                "deep",
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"b": 3, "c": 2}}),
                Some(json!({"a": {"b": 3}})),
            ),
            ("lists whole", json!({"a": [1]}), json!({"a": [1, 2]}), Some(json!({"a": [1, 2]}))),
        ] {
            assert_eq!(difference(&old, &new), want, "{name}");
        }
    }

    #[test]
    fn output_is_kept_as_upstream_reads_it_and_bounded() {
        let outputs = BTreeMap::from([
            ("a".to_owned(), "done\n".to_owned()),
            ("b".to_owned(), "x".repeat(OUTPUT_BYTES)),
        ]);
        let mut text = String::new();
        flate2::read::GzDecoder::new(&compress(&outputs)[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, r#"{"a":"ZG9uZQo="}"#);
    }
}
