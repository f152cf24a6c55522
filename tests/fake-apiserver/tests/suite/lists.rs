//! Lists, selectors, metadata alone.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use kube::core::PartialObjectMeta;
use serde_json::json;

use super::{Bench, Verdict, refused, same, sentences};

sentences![
    a_list_is_ordered_and_carries_a_version,
    a_list_can_be_selected_by_labels,
    a_list_can_be_selected_by_name,
    a_list_over_all_namespaces_finds_ours,
    an_unknown_field_selector_is_refused,
    metadata_can_be_read_alone,
    an_unknown_resource_is_not_found,
];

async fn make(bench: &Bench, name: &str, label: &str) -> Verdict {
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "suite": label, name: "yes" } },
        "data": { "a": "1" },
    }))?;
    bench.api::<ConfigMap>().create(&PostParams::default(), &map).await?;
    Ok(())
}

async fn names(bench: &Bench, lp: &ListParams) -> kube::Result<Vec<String>> {
    let list = bench.api::<ConfigMap>().list(lp).await?;
    Ok(list.iter().map(ResourceExt::name_any).collect())
}

async fn a_list_is_ordered_and_carries_a_version(bench: Bench) -> Verdict {
    for name in ["order-b", "order-a", "order-c"] {
        make(&bench, name, "order").await?;
    }
    let lp = ListParams::default().labels("suite=order");
    same("names", names(&bench, &lp).await?, ["order-a", "order-b", "order-c"].map(Into::into).into())?;
    let list = bench.api::<ConfigMap>().list(&lp).await?;
    let version: u64 = list.metadata.resource_version.unwrap_or_default().parse()?;
    let newest = list.items.iter().filter_map(ResourceExt::resource_version);
    let newest = newest.filter_map(|version| version.parse().ok()).max().unwrap_or(u64::MAX);
    same("at least the newest", version >= newest, true)
}

async fn a_list_can_be_selected_by_labels(bench: Bench) -> Verdict {
    make(&bench, "chosen-a", "red").await?;
    make(&bench, "chosen-b", "blue").await?;
    for (labels, want) in [
        ("suite=red", vec!["chosen-a"]),
        ("suite in (red,blue)", vec!["chosen-a", "chosen-b"]),
        ("suite in (red,blue),suite!=red", vec!["chosen-b"]),
        ("suite in (red,blue),chosen-a", vec!["chosen-a"]),
        ("suite in (red,blue),!chosen-a", vec!["chosen-b"]),
        ("suite=green", vec![]),
    ] {
        same(
            labels,
            names(&bench, &ListParams::default().labels(labels)).await?,
            want.into_iter().map(Into::into).collect(),
        )?;
    }
    Ok(())
}

async fn a_list_can_be_selected_by_name(bench: Bench) -> Verdict {
    make(&bench, "field-a", "field").await?;
    make(&bench, "field-b", "field").await?;
    let lp = ListParams::default().fields("metadata.name=field-b");
    same("names", names(&bench, &lp).await?, vec!["field-b".into()])
}

async fn a_list_over_all_namespaces_finds_ours(bench: Bench) -> Verdict {
    make(&bench, "everywhere", "everywhere").await?;
    let lp = ListParams::default().labels("suite=everywhere");
    let all: Api<ConfigMap> = Api::all(bench.client.clone());
    let list = all.list(&lp).await?;
    let ours = list.iter().filter(|map| map.namespace().as_ref() == Some(&bench.namespace));
    same("found", ours.count(), 1)
}

async fn an_unknown_field_selector_is_refused(bench: Bench) -> Verdict {
    let lp = ListParams::default().fields("data.a=1");
    refused(bench.api::<ConfigMap>().list(&lp).await, 400, "BadRequest")
}

async fn metadata_can_be_read_alone(bench: Bench) -> Verdict {
    make(&bench, "partial", "partial").await?;
    let partial: Api<PartialObjectMeta<ConfigMap>> = bench.api();
    let one = partial.get("partial").await?;
    same("labels", one.labels().len(), 2)?;
    let list = partial.list(&ListParams::default().labels("suite=partial")).await?;
    same("listed", list.items.len(), 1)
}

async fn an_unknown_resource_is_not_found(bench: Bench) -> Verdict {
    let mut resource = super::widget_resource();
    resource.plural = "gadgets".into();
    let gadgets: Api<kube::api::DynamicObject> =
        Api::namespaced_with(bench.client.clone(), &bench.namespace, &resource);
    match gadgets.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) => same("code", status.code, 404),
        other => Err(format!("got {other:?}, want 404").into()),
    }
}
