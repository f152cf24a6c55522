//! Pages of lists, and lists at a resource version.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams, VersionMatch};
use serde_json::json;

use super::{CaseResult, Fixture, define_cases, expect_equal, expect_rejection, version};

define_cases![
    pages_show_one_state,
    pages_count_what_remains,
    a_bad_continue_token_is_rejected,
    a_continue_token_excludes_a_version,
    an_exact_list_shows_the_past,
    a_list_not_older_shows_the_newest,
    a_version_match_needs_a_version,
    a_list_of_any_version_has_no_pages,
];

async fn create(fixture: &Fixture, name: &str, label: &str) -> kube::Result<ConfigMap> {
    let map = json!({ "metadata": { "name": name, "labels": { "pages": label } } });
    let map = serde_json::from_value(map).map_err(kube::Error::SerdeError)?;
    fixture.api::<ConfigMap>().create(&PostParams::default(), &map).await
}

fn selected(label: &str) -> ListParams {
    ListParams::default().labels(&format!("pages={label}"))
}

/// With parameters that kube's own lists do not combine.
async fn list(fixture: &Fixture, query: &str) -> kube::Result<kube::core::ObjectList<ConfigMap>> {
    let url = format!("/api/v1/namespaces/{}/configmaps?{query}", fixture.namespace);
    let request = http::Request::get(url).body(Vec::new()).map_err(kube::Error::HttpError)?;
    fixture.client.request(request).await
}

async fn pages_show_one_state(fixture: Fixture) -> CaseResult {
    let maps = fixture.api::<ConfigMap>();
    for name in ["page-1", "page-2", "page-3", "page-4", "page-5"] {
        create(&fixture, name, "state").await?;
    }
    let mut names = Vec::new();
    let mut versions = BTreeSet::new();
    let mut lp = selected("state").limit(2);
    loop {
        let page = maps.list(&lp).await?;
        versions.insert(page.metadata.resource_version.clone());
        names.push(page.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
        expect_equal("items remain", page.metadata.remaining_item_count, None)?;
        if names.len() == 1 {
            maps.delete("page-4", &DeleteParams::default()).await?;
            create(&fixture, "page-6", "state").await?;
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => lp = lp.continue_token(&token),
            None => break,
        }
    }
    let want = [vec!["page-1", "page-2"], vec!["page-3", "page-4"], vec!["page-5"]];
    expect_equal("names", names, want.map(|page| page.into_iter().map(Into::into).collect()).into())?;
    expect_equal("versions", versions.len(), 1)
}

async fn pages_count_what_remains(fixture: Fixture) -> CaseResult {
    create(&fixture, "remains-1", "remains").await?;
    create(&fixture, "remains-2", "remains").await?;
    let maps = fixture.api::<ConfigMap>();
    let all = i64::try_from(maps.list(&ListParams::default()).await?.items.len())?;
    let page = maps.list(&ListParams::default().limit(1)).await?;
    expect_equal("remaining", page.metadata.remaining_item_count, Some(all - 1))
}

async fn a_bad_continue_token_is_rejected(fixture: Fixture) -> CaseResult {
    let lp = ListParams::default().limit(1).continue_token("garbage");
    expect_rejection(fixture.api::<ConfigMap>().list(&lp).await, 400, "BadRequest")
}

async fn a_continue_token_excludes_a_version(fixture: Fixture) -> CaseResult {
    create(&fixture, "token-1", "token").await?;
    create(&fixture, "token-2", "token").await?;
    let maps = fixture.api::<ConfigMap>();
    let page = maps.list(&selected("token").limit(1)).await?;
    let token = page.metadata.continue_.unwrap_or_default();
    let version = page.metadata.resource_version.unwrap_or_default();
    let query = format!("limit=1&continue={token}&resourceVersion={version}");
    expect_rejection(list(&fixture, &query).await, 400, "BadRequest")
}

async fn an_exact_list_shows_the_past(fixture: Fixture) -> CaseResult {
    let maps = fixture.api::<ConfigMap>();
    let first = create(&fixture, "exact-1", "exact").await?;
    create(&fixture, "exact-2", "exact").await?;
    maps.delete("exact-1", &DeleteParams::default()).await?;
    let lp = selected("exact").at(&version(&first)).matching(VersionMatch::Exact);
    let list = maps.list(&lp).await?;
    let names: Vec<_> = list.iter().map(|map| (map.name_any(), version(map))).collect();
    expect_equal("names", names, vec![("exact-1".into(), version(&first))])?;
    expect_equal("version", list.metadata.resource_version, Some(version(&first)))
}

async fn a_list_not_older_shows_the_newest(fixture: Fixture) -> CaseResult {
    let maps = fixture.api::<ConfigMap>();
    let first = create(&fixture, "newest-1", "newest").await?;
    let second = create(&fixture, "newest-2", "newest").await?;
    let lp = selected("newest").at(&version(&second)).matching(VersionMatch::NotOlderThan);
    expect_equal("items", maps.list(&lp).await?.items.len(), 2)?;
    let lp = selected("newest").at(&version(&first)).limit(5).matching(VersionMatch::NotOlderThan);
    let found = maps.list(&lp).await?.items.len();
    expect_equal("at least the first", found >= 1, true)
}

async fn a_version_match_needs_a_version(fixture: Fixture) -> CaseResult {
    for query in ["resourceVersionMatch=Exact", "resourceVersionMatch=Exact&resourceVersion=0"] {
        expect_rejection(list(&fixture, query).await, 422, "Invalid")
            .map_err(|mismatch| format!("{query}: {mismatch}"))?;
    }
    expect_rejection(list(&fixture, "resourceVersion=x").await, 400, "BadRequest")
}

async fn a_list_of_any_version_has_no_pages(fixture: Fixture) -> CaseResult {
    let maps = fixture.api::<ConfigMap>();
    for name in ["any-1", "any-2", "any-3"] {
        create(&fixture, name, "any").await?;
    }
    // A cache may be behind: a list at the newest version makes sure that it is not.
    maps.list(&selected("any").at(&version(&maps.get("any-3").await?))).await?;
    let list = list(&fixture, "labelSelector=pages%3Dany&resourceVersion=0&limit=1").await?;
    expect_equal("items", list.items.len(), 3)
}
