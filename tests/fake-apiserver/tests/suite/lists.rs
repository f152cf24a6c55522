//! Lists, selectors, metadata alone.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use kube::core::PartialObjectMeta;
use serde_json::json;

use super::{CaseResult, Fixture, define_cases, expect_equal, expect_rejection};

define_cases![
    a_list_is_ordered_and_carries_a_version,
    a_list_can_be_selected_by_labels,
    a_list_can_be_selected_by_name,
    a_list_over_all_namespaces_finds_ours,
    unknown_field_selectors_are_rejected,
    metadata_can_be_read_alone,
    an_unknown_resource_is_not_found,
];

async fn make(fixture: &Fixture, name: &str, label: &str) -> CaseResult {
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "suite": label, name: "yes" } },
        "data": { "a": "1" },
    }))?;
    fixture.api::<ConfigMap>().create(&PostParams::default(), &map).await?;
    Ok(())
}

async fn names(fixture: &Fixture, lp: &ListParams) -> kube::Result<Vec<String>> {
    let list = fixture.api::<ConfigMap>().list(lp).await?;
    Ok(list.iter().map(ResourceExt::name_any).collect())
}

async fn a_list_is_ordered_and_carries_a_version(fixture: Fixture) -> CaseResult {
    for name in ["order-b", "order-a", "order-c"] {
        make(&fixture, name, "order").await?;
    }
    let lp = ListParams::default().labels("suite=order");
    expect_equal(
        "names",
        names(&fixture, &lp).await?,
        ["order-a", "order-b", "order-c"].map(Into::into).into(),
    )?;
    let list = fixture.api::<ConfigMap>().list(&lp).await?;
    let version: u64 = list.metadata.resource_version.unwrap_or_default().parse()?;
    let newest = list.items.iter().filter_map(ResourceExt::resource_version);
    let newest = newest.filter_map(|version| version.parse().ok()).max().unwrap_or(u64::MAX);
    expect_equal("at least the newest", version >= newest, true)
}

async fn a_list_can_be_selected_by_labels(fixture: Fixture) -> CaseResult {
    make(&fixture, "chosen-a", "red").await?;
    make(&fixture, "chosen-b", "blue").await?;
    for (labels, want) in [
        ("suite=red", vec!["chosen-a"]),
        ("suite in (red,blue)", vec!["chosen-a", "chosen-b"]),
        ("suite in (red,blue),suite!=red", vec!["chosen-b"]),
        ("suite in (red,blue),chosen-a", vec!["chosen-a"]),
        ("suite in (red,blue),!chosen-a", vec!["chosen-b"]),
        ("suite=green", vec![]),
    ] {
        expect_equal(
            labels,
            names(&fixture, &ListParams::default().labels(labels)).await?,
            want.into_iter().map(Into::into).collect(),
        )?;
    }
    Ok(())
}

async fn a_list_can_be_selected_by_name(fixture: Fixture) -> CaseResult {
    make(&fixture, "field-a", "field").await?;
    make(&fixture, "field-b", "field").await?;
    let lp = ListParams::default().fields("metadata.name=field-b");
    expect_equal("names", names(&fixture, &lp).await?, vec!["field-b".into()])
}

async fn a_list_over_all_namespaces_finds_ours(fixture: Fixture) -> CaseResult {
    make(&fixture, "everywhere", "everywhere").await?;
    let lp = ListParams::default().labels("suite=everywhere");
    let all: Api<ConfigMap> = Api::all(fixture.client.clone());
    let list = all.list(&lp).await?;
    let ours = list.iter().filter(|map| map.namespace().as_ref() == Some(&fixture.namespace));
    expect_equal("found", ours.count(), 1)
}

async fn unknown_field_selectors_are_rejected(fixture: Fixture) -> CaseResult {
    let lp = ListParams::default().fields("data.a=1");
    expect_rejection(fixture.api::<ConfigMap>().list(&lp).await, 400, "BadRequest")
}

async fn metadata_can_be_read_alone(fixture: Fixture) -> CaseResult {
    make(&fixture, "partial", "partial").await?;
    let partial: Api<PartialObjectMeta<ConfigMap>> = fixture.api();
    let one = partial.get("partial").await?;
    expect_equal("labels", one.labels().len(), 2)?;
    let list = partial.list(&ListParams::default().labels("suite=partial")).await?;
    expect_equal("listed", list.items.len(), 1)
}

async fn an_unknown_resource_is_not_found(fixture: Fixture) -> CaseResult {
    let mut resource = super::widget_resource();
    resource.plural = "gadgets".into();
    let gadgets: Api<kube::api::DynamicObject> =
        Api::namespaced_with(fixture.client.clone(), &fixture.namespace, &resource);
    match gadgets.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) => expect_equal("code", status.code, 404),
        other => Err(format!("got {other:?}, want 404").into()),
    }
}
