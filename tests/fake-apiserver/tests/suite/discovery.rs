//! Discovery.

use kube::discovery::{Discovery, Scope, verbs};

use super::{CaseResult, Fixture, GROUP, define_cases, expect_equal, expect_rejection};

define_cases![
    groups_and_versions_are_listed,
    resources_are_listed_with_their_verbs,
    an_unknown_group_is_not_found,
    discovery_finds_kinds,
    the_version_is_known,
];

async fn groups_and_versions_are_listed(fixture: Fixture) -> CaseResult {
    let groups = fixture.client.list_api_groups().await?;
    let ours = groups.groups.into_iter().find(|group| group.name == GROUP).ok_or("no group")?;
    let versions: Vec<_> = ours.versions.iter().map(|one| one.group_version.clone()).collect();
    expect_equal("versions", versions, vec![format!("{GROUP}/v1")])?;
    expect_equal("preferred", ours.preferred_version.map(|one| one.version), Some("v1".into()))?;
    let core = fixture.client.list_core_api_versions().await?;
    expect_equal("core", core.versions, vec!["v1".to_owned()])
}

async fn resources_are_listed_with_their_verbs(fixture: Fixture) -> CaseResult {
    let list = fixture.client.list_api_group_resources(&format!("{GROUP}/v1")).await?;
    let widgets = list.resources.iter().find(|one| one.name == "widgets").ok_or("no widgets")?;
    expect_equal("kind", (widgets.kind.as_str(), widgets.namespaced), ("Widget", true))?;
    let mut verbs = widgets.verbs.clone();
    verbs.sort();
    let want = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    expect_equal("verbs", verbs, want.map(Into::into).into())?;
    let status = list.resources.iter().find(|one| one.name == "widgets/status").ok_or("no status")?;
    let mut verbs = status.verbs.clone();
    verbs.sort();
    expect_equal("verbs of the status", verbs, ["get", "patch", "update"].map(Into::into).into())?;
    let core = fixture.client.list_core_api_resources("v1").await?;
    let nodes = core.resources.iter().find(|one| one.name == "nodes").ok_or("no nodes")?;
    expect_equal("namespaced", nodes.namespaced, false)
}

async fn an_unknown_group_is_not_found(fixture: Fixture) -> CaseResult {
    match fixture.client.list_api_group_resources("absent.example/v1").await {
        Err(kube::Error::Api(status)) => expect_equal("code", status.code, 404),
        other => expect_rejection(other, 404, "NotFound"),
    }
}

async fn discovery_finds_kinds(fixture: Fixture) -> CaseResult {
    let discovery = Discovery::new(fixture.client.clone()).filter(&[GROUP]).run().await?;
    let group = discovery.get(GROUP).ok_or("no group")?;
    let (resource, capabilities) = group.recommended_kind("Widget").ok_or("no kind")?;
    expect_equal("plural", resource.plural.as_str(), "widgets")?;
    expect_equal("scope", capabilities.scope == Scope::Namespaced, true)?;
    expect_equal("patch", capabilities.supports_operation(verbs::PATCH), true)
}

async fn the_version_is_known(fixture: Fixture) -> CaseResult {
    let version = fixture.client.apiserver_version().await?;
    expect_equal("version", (version.major.as_str(), version.minor.as_str()), ("1", "36"))
}
