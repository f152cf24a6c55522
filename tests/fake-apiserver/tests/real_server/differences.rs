//! The same requests to two servers, and where their answers differ.
//!
//! Every field of every kind of this project is removed, set to null and set to values of other
//! types, in dry runs of a create, of an update and of an update of the status.

use futures::{StreamExt, TryStreamExt};
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::suite::Mismatch;
use crate::suite::samples::Sample;

const NAMESPACE: &str = "default";
const IN_PARALLEL: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) accepted: usize,
    pub(crate) rejected: usize,
    pub(crate) differences: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Write {
    Create,
    Update,
    UpdateStatus,
}

pub(crate) async fn compare(real: &Client, fake: &Client) -> Result<Comparison, Mismatch> {
    let mut comparison = Comparison::default();
    for sample in Sample::all() {
        let apis =
            [real, fake].map(|client| Api::namespaced_with(client.clone(), NAMESPACE, &sample.resource));
        let stored = [create(&apis[0], &sample).await?, create(&apis[1], &sample).await?];
        let cases: Vec<_> = requests(&sample).collect();
        let mut answers = futures::stream::iter(cases)
            .map(|(write, change, data)| {
                let (apis, stored) = (&apis, &stored);
                async move {
                    let real = send(&apis[0], write, &stored[0], data.clone()).await?;
                    let fake = send(&apis[1], write, &stored[1], data).await?;
                    Ok::<_, Mismatch>((write, change, real, fake))
                }
            })
            .buffered(IN_PARALLEL);
        while let Some((write, change, real, fake)) = answers.try_next().await? {
            match &real {
                Ok(_) => comparison.accepted += 1,
                Err(_) => comparison.rejected += 1,
            }
            if real != fake {
                let kind = &sample.resource.kind;
                comparison
                    .differences
                    .push(format!("{write:?} {kind} {change}: real {real:?}, fake {fake:?}"));
            }
        }
    }
    Ok(comparison)
}

async fn create(api: &Api<DynamicObject>, sample: &Sample) -> Result<DynamicObject, Mismatch> {
    let pp = PostParams::default();
    let mut made = api.create(&pp, &sample.object("compared")).await?;
    if sample.has_status {
        made.data["status"] = sample.status.clone();
        made = api.replace_status("compared", &pp, &made).await?;
    }
    Ok(made)
}

/// Every request, with a description of its change.
fn requests(sample: &Sample) -> impl Iterator<Item = (Write, String, Value)> {
    let spec = changes(&sample.spec, "spec");
    let status = if sample.has_status { changes(&sample.status, "status") } else { Vec::new() };
    let (whole, state) = (sample.spec.clone(), sample.status.clone());
    let create =
        spec.clone().into_iter().map(|(change, spec)| (Write::Create, change, json!({ "spec": spec })));
    let update = spec
        .into_iter()
        .map(move |(change, spec)| (Write::Update, change, json!({ "spec": spec, "status": state })));
    let status = status.into_iter().map(move |(change, status)| {
        (Write::UpdateStatus, change, json!({ "spec": whole, "status": status }))
    });
    create.chain(update).chain(status)
}

/// Copies of `value`, each changed at one place.
fn changes(value: &Value, root: &str) -> Vec<(String, Value)> {
    let mut pointers = vec![String::new()];
    collect_pointers(value, "", &mut pointers);
    let others = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(0),
        json!(300),
        json!(1.5),
        json!(9_999_999_999_i64),
        json!(""),
        json!("other text"),
        json!([]),
        json!([null]),
        json!({}),
        json!({ "unknown": 1 }),
    ];
    let mut changes = Vec::new();
    for pointer in pointers {
        for other in &others {
            // The real server takes any list for a time.
            if pointer.ends_with("Time") && other.is_array() {
                continue;
            }
            let mut copy = value.clone();
            if let Some(place) = copy.pointer_mut(&pointer) {
                *place = other.clone();
            }
            changes.push((format!("{root}{pointer} = {other}"), copy));
        }
        let mut copy = value.clone();
        if let Some((parent, name)) = pointer.rsplit_once('/')
            && let Some(Value::Object(members)) = copy.pointer_mut(parent)
        {
            members.remove(name);
            changes.push((format!("{root}{pointer} removed"), copy));
        }
        let mut copy = value.clone();
        if let Some(Value::Array(items)) = copy.pointer_mut(&pointer)
            && let Some(first) = items.first().cloned()
        {
            items.push(first);
            changes.push((format!("{root}{pointer} doubled"), copy));
        }
    }
    changes
}

fn collect_pointers(value: &Value, at: &str, pointers: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(name, member)| (name.clone(), member)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, item)| (index.to_string(), item)).collect()
        }
        _ => Vec::new(),
    };
    for (name, child) in children {
        let pointer = format!("{at}/{name}");
        pointers.push(pointer.clone());
        collect_pointers(child, &pointer, pointers);
    }
}

/// Spec and status of the answer, or code, reason and causes of the rejection.
type Answer = Result<Value, (u16, String, Vec<(String, String)>)>;

async fn send(
    api: &Api<DynamicObject>,
    write: Write,
    stored: &DynamicObject,
    data: Value,
) -> Result<Answer, Mismatch> {
    let mut object = stored.clone();
    object.data = data;
    let pp = PostParams { dry_run: true, ..PostParams::default() };
    let result = match write {
        Write::Create => {
            object.metadata = kube::api::ObjectMeta { name: Some("new".into()), ..Default::default() };
            api.create(&pp, &object).await
        }
        Write::Update => api.replace("compared", &pp, &object).await,
        Write::UpdateStatus => api.replace_status("compared", &pp, &object).await,
    };
    match result {
        Ok(object) => Ok(Ok(object.data)),
        Err(kube::Error::Api(status)) => {
            let causes = status.details.clone().map(|details| details.causes).unwrap_or_default();
            let mut causes: Vec<_> = causes.into_iter().map(|cause| (cause.field, cause.reason)).collect();
            causes.sort();
            Ok(Err((status.code, status.reason.clone(), causes)))
        }
        Err(error) => Err(error.into()),
    }
}
