//! Discovery.

use kube::discovery::{Discovery, Scope, verbs};

use super::{Bench, GROUP, Verdict, refused, same, sentences};

sentences![
    groups_and_versions_are_listed,
    resources_are_listed_with_their_verbs,
    an_unknown_group_is_not_found,
    discovery_finds_kinds,
    the_version_is_known,
];

async fn groups_and_versions_are_listed(bench: Bench) -> Verdict {
    let groups = bench.client.list_api_groups().await?;
    let ours = groups.groups.into_iter().find(|group| group.name == GROUP).ok_or("no group")?;
    let versions: Vec<_> = ours.versions.iter().map(|one| one.group_version.clone()).collect();
    same("versions", versions, vec![format!("{GROUP}/v1")])?;
    same("preferred", ours.preferred_version.map(|one| one.version), Some("v1".into()))?;
    let core = bench.client.list_core_api_versions().await?;
    same("core", core.versions, vec!["v1".to_owned()])
}

async fn resources_are_listed_with_their_verbs(bench: Bench) -> Verdict {
    let list = bench.client.list_api_group_resources(&format!("{GROUP}/v1")).await?;
    let widgets = list.resources.iter().find(|one| one.name == "widgets").ok_or("no widgets")?;
    same("kind", (widgets.kind.as_str(), widgets.namespaced), ("Widget", true))?;
    let mut verbs = widgets.verbs.clone();
    verbs.sort();
    let want = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    same("verbs", verbs, want.map(Into::into).into())?;
    let status = list.resources.iter().find(|one| one.name == "widgets/status").ok_or("no status")?;
    let mut verbs = status.verbs.clone();
    verbs.sort();
    same("verbs of the status", verbs, ["get", "patch", "update"].map(Into::into).into())?;
    let core = bench.client.list_core_api_resources("v1").await?;
    let nodes = core.resources.iter().find(|one| one.name == "nodes").ok_or("no nodes")?;
    same("namespaced", nodes.namespaced, false)
}

async fn an_unknown_group_is_not_found(bench: Bench) -> Verdict {
    match bench.client.list_api_group_resources("absent.example/v1").await {
        Err(kube::Error::Api(status)) => same("code", status.code, 404),
        other => refused(other, 404, "NotFound"),
    }
}

async fn discovery_finds_kinds(bench: Bench) -> Verdict {
    let discovery = Discovery::new(bench.client.clone()).filter(&[GROUP]).run().await?;
    let group = discovery.get(GROUP).ok_or("no group")?;
    let (resource, capabilities) = group.recommended_kind("Widget").ok_or("no kind")?;
    same("plural", resource.plural.as_str(), "widgets")?;
    same("scope", capabilities.scope == Scope::Namespaced, true)?;
    same("patch", capabilities.supports_operation(verbs::PATCH), true)
}

async fn the_version_is_known(bench: Bench) -> Verdict {
    let version = bench.client.apiserver_version().await?;
    same("version", (version.major.as_str(), version.minor.as_str()), ("1", "36"))
}
