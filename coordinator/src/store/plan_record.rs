//! The Secret that holds the plan record of a host, and its results.

use std::collections::BTreeMap;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::{annotation, label, plan_secret};
use coordinator_core::host::HostRecord;
use coordinator_core::plan::{PlanEnd, StoredPlan};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use proto::plan::{Checksum, Kind, Secret};
use serde_json::{Value, json};

use super::{StoreError, is_conflict, is_not_found, is_terminating, open_api};

/// Keys of the upstream agent that only this module writes.
const LAST_APPLY_TIME: &str = "last-apply-time";
const SUCCESS_COUNT: &str = "success-count";
/// The captured output of one plan in bytes before compression. The Secret with it must stay far
/// below a mebibyte.
const OUTPUT_BYTES: usize = 128 * 1024;
const KIND: &str = "Secret";

/// A plan Secret as it was read, without its plan.
#[derive(Clone, Debug)]
pub struct PlanSecret {
    pub name: String,
    /// Precondition of the next write; `None` if there is no Secret.
    resource_version: Option<String>,
    results: BTreeMap<String, Vec<u8>>,
}

/// Reads the plan Secret of a host, and the plan in it.
///
/// # Errors
/// [`StoreError::Taken`] for a Secret that is no plan Secret, and when the API server does not
/// answer.
pub async fn read(secrets: &Api<KubeSecret>, name: &str) -> Result<(PlanSecret, StoredPlan), StoreError> {
    let found = secrets.get_opt(name).await.map_err(StoreError::request("get", KIND, name))?;
    if let Some(found) = &found {
        check_type(found)?;
    }
    let resource_version = found.as_ref().and_then(|secret| secret.metadata.resource_version.clone());
    let data = found.and_then(|secret| secret.data).unwrap_or_default();
    let mut results: BTreeMap<_, _> = data.into_iter().map(|(key, value)| (key, value.0)).collect();
    let plan = results.remove(plan_secret::PLAN).map(Secret::new);
    let secret = PlanSecret { name: name.to_owned(), resource_version, results };
    Ok((secret, StoredPlan::parse(plan.as_ref())))
}

/// Writes a plan record. The results of the former plan are blanked in the same write, so that an
/// old success does not pass as that of the new plan. A missing Secret is created, except for a
/// clean plan in a namespace that is being deleted.
pub async fn write(
    client: &Client,
    inventory: &MachineInventory,
    kind: Kind,
    record: &Secret,
    read: &PlanSecret,
) -> Result<(), StoreError> {
    let api: Api<KubeSecret> = open_api(client, inventory);
    let plan = ByteString(record.expose().to_vec());
    if read.resource_version.is_none() {
        let mut secret = render(&read.name, inventory.spec.tpm_hash.as_deref());
        secret.annotations_mut().insert(annotation::PLAN_TYPE.to_owned(), kind.as_str().to_owned());
        secret.data = Some([(plan_secret::PLAN.to_owned(), plan)].into());
        return match api.create(&PostParams::default(), &secret).await {
            Err(error) if is_terminating(&error) && kind == Kind::Clean => {
                tracing::info!(secret = read.name, "no plan Secret: its namespace is being deleted");
                Ok(())
            }
            created => created.map(drop).map_err(StoreError::request("create", KIND, &read.name)),
        };
    }
    let patch = json!({
        "metadata": {
            "resourceVersion": read.resource_version,
            "annotations": {
                annotation::PLAN_TYPE: kind.as_str(),
                annotation::TPM_HASH: inventory.spec.tpm_hash,
            },
        },
        "data": plan_and_no_results(&plan),
    });
    let written = api.patch(&read.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    written.map(drop).map_err(StoreError::request("write the plan record to", KIND, &read.name))
}

/// The data of a plan that has not run. The results are blank, so that an old success does not pass
/// as its own.
fn plan_and_no_results(plan: &ByteString) -> Value {
    let blank = ByteString(vec![]);
    json!({
        plan_secret::PLAN: plan,
        plan_secret::APPLIED_CHECKSUM: blank,
        plan_secret::APPLIED_OUTPUT: blank,
        plan_secret::FAILED_CHECKSUM: blank,
        plan_secret::FAILED_OUTPUT: blank,
        plan_secret::FAILURE_COUNT: ByteString(b"0".to_vec()),
    })
}

/// Tells whether the plan Secret of that name exists. A Secret of another host is emptied, because
/// its plan and results are not those of this host. A Secret that names no host is older than the
/// annotation, and stays.
pub(super) async fn adopt(
    secrets: &Api<KubeSecret>,
    name: &str,
    tpm_hash: Option<&str>,
) -> Result<bool, StoreError> {
    let found = secrets.get_opt(name).await.map_err(StoreError::request("get", KIND, name))?;
    let Some(found) = found else { return Ok(false) };
    check_type(&found)?;
    if !found.labels().contains_key(label::MANAGED) {
        return Err(refuse_foreign(&found));
    }
    let former = found.annotations().get(annotation::TPM_HASH);
    if former.is_none_or(|former| Some(former.as_str()) == tpm_hash) {
        return Ok(true);
    }
    let patch = json!({
        "metadata": {
            "resourceVersion": found.resource_version(),
            "annotations": { annotation::PLAN_TYPE: null, annotation::TPM_HASH: tpm_hash },
        },
        "data": plan_and_no_results(&ByteString(plan_secret::EMPTY.as_bytes().to_vec())),
    });
    let emptied = secrets.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    emptied.map(|_| true).map_err(StoreError::request("empty", KIND, name))
}

/// The plan Secret of a host that never had a plan. It has no owner reference, because the garbage
/// collector would delete it after a restore with new UIDs (decision 6).
pub(super) fn render(name: &str, tpm_hash: Option<&str>) -> KubeSecret {
    KubeSecret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([
                (label::MANAGED.to_owned(), "true".to_owned()),
                (label::CLUSTERCTL_MOVE.to_owned(), String::new()),
            ])),
            annotations: tpm_hash
                .map(|hash| BTreeMap::from([(annotation::TPM_HASH.to_owned(), hash.to_owned())])),
            ..ObjectMeta::default()
        },
        type_: Some(plan_secret::TYPE.to_owned()),
        data: Some(BTreeMap::from([(
            plan_secret::PLAN.to_owned(),
            ByteString(plan_secret::EMPTY.as_bytes().to_vec()),
        )])),
        ..KubeSecret::default()
    }
}

/// A Secret of another type is never read or written. The labels are not compared, because an
/// operator who restores a Secret may leave them out.
fn check_type(secret: &KubeSecret) -> Result<(), StoreError> {
    if secret.type_.as_deref() == Some(plan_secret::TYPE) {
        return Ok(());
    }
    Err(refuse_foreign(secret))
}

fn refuse_foreign(secret: &KubeSecret) -> StoreError {
    StoreError::Taken { kind: KIND, name: secret.name_any(), why: "is not a plan Secret" }
}

/// Reads the plan Secret of a host record.
///
/// # Errors
/// When the API server does not answer.
pub async fn read_for_host(
    client: &Client,
    host: &HostRecord,
) -> Result<(PlanSecret, StoredPlan), StoreError> {
    read(&Api::namespaced(client.clone(), &host.namespace), host.plan_secret_name()).await
}

impl PlanSecret {
    fn count(&self, key: &str) -> u64 {
        let text = self.results.get(key).and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    fn has_end(&self, checksum: &Checksum, end: &PlanEnd) -> bool {
        let key = match end {
            PlanEnd::Applied => plan_secret::APPLIED_CHECKSUM,
            PlanEnd::Failed(_) => plan_secret::FAILED_CHECKSUM,
        };
        self.results.get(key).is_some_and(|bytes| bytes == checksum.as_str().as_bytes())
    }

    /// The result keys in the form of the upstream agent.
    fn render_results(
        &self,
        checksum: &Checksum,
        end: &PlanEnd,
        outputs: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> BTreeMap<&'static str, Vec<u8>> {
        let checksum = checksum.as_str().as_bytes().to_vec();
        let count = |key| (self.count(key) + 1).to_string().into_bytes();
        let time = now.strftime("%a %b %e %H:%M:%S UTC %Y").to_string().into_bytes();
        let mut results = BTreeMap::from([(LAST_APPLY_TIME, time)]);
        match end {
            PlanEnd::Applied => results.extend([
                (plan_secret::APPLIED_CHECKSUM, checksum),
                (plan_secret::APPLIED_OUTPUT, compress(outputs)),
                (plan_secret::FAILED_CHECKSUM, vec![]),
                (plan_secret::FAILED_OUTPUT, vec![]),
                (plan_secret::FAILURE_COUNT, b"0".to_vec()),
                (SUCCESS_COUNT, count(SUCCESS_COUNT)),
            ]),
            PlanEnd::Failed(_) => results.extend([
                (plan_secret::FAILED_CHECKSUM, checksum),
                (plan_secret::FAILED_OUTPUT, compress(outputs)),
                (plan_secret::FAILURE_COUNT, count(plan_secret::FAILURE_COUNT)),
                (SUCCESS_COUNT, b"0".to_vec()),
            ]),
        }
        results
    }
}

/// Writes the end of a plan into its Secret. Sends no request if the end is stored, or if the plan
/// had no Secret.
///
/// # Errors
/// [`StoreError::Changed`] if the Secret changed since it was read.
pub async fn record_end(
    secrets: &Api<KubeSecret>,
    secret: &PlanSecret,
    checksum: &Checksum,
    end: &PlanEnd,
    outputs: &BTreeMap<String, String>,
    now: Timestamp,
) -> Result<(), StoreError> {
    if secret.resource_version.is_none() || secret.has_end(checksum, end) {
        return Ok(());
    }
    let results = secret.render_results(checksum, end, outputs, now);
    let data: BTreeMap<_, _> = results.into_iter().map(|(key, value)| (key, ByteString(value))).collect();
    let patch = json!({ "metadata": { "resourceVersion": secret.resource_version }, "data": data });
    let name = secret.name.clone();
    match secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(error) if is_conflict(&error) || is_not_found(&error) => {
            Err(StoreError::Changed { kind: KIND, name })
        }
        Err(error) => Err(StoreError::request("write the result to", KIND, &name)(error)),
    }
}

/// A gzip of a JSON map from name to base64, as the upstream agent writes it. Whole outputs are
/// left out if all are too large.
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
    // Writing to memory cannot fail; if it did, results would matter more than output.
    let _ = encoder.write_all(&text);
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn output_has_upstreams_form_and_is_bounded() {
        let outputs = BTreeMap::from([
            ("a".to_owned(), "done\n".to_owned()),
            ("b".to_owned(), "x".repeat(OUTPUT_BYTES)),
        ]);
        let mut text = String::new();
        flate2::read::GzDecoder::new(&compress(&outputs)[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, r#"{"a":"ZG9uZQo="}"#);
    }
}
