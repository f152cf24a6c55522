//! Pools of the in-cluster IPAM provider by its own definitions, beside those of Cluster API with its manager. A
//! stand-in answers claims at the version that the provider uses; nothing of the provider runs.

mod common;

use anyhow::{Context as _, Result, ensure};
use control_plane::parts::Definitions;
use control_plane::{ClusterApi, ControlPlane, Parts, Settings, apply};
use coordinator_api::capi_ipam::{IPAddress, IPAddressClaim};
use coordinator_api::metal3::data::Metal3Data;
use coordinator_core::metal3::data::{PoolId, foreign_claim, read_foreign_address};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use common::eventually;

const GROUP: &str = "ipam.cluster.x-k8s.io";
const NAMESPACE: &str = "default";
const FINALIZER: &str = "ipam.cluster.x-k8s.io/ReleaseAddress";

fn pool(kind: &str, prefix: u8) -> Result<DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": format!("{GROUP}/v1alpha2"), "kind": kind, "metadata": { "name": "racks" },
        "spec": { "addresses": ["10.77.0.9-10.77.0.20"], "prefix": prefix, "gateway": "10.77.0.1" },
    }))?)
}

fn data(name: &str) -> Result<Metal3Data> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Data",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "cluster.x-k8s.io/cluster-name": "c1" } },
        "spec": { "index": 0, "claim": { "name": "m-1" }, "template": { "name": "workers" } },
    }))?)
}

/// Objects of Cluster API at the version of the provider.
fn earlier(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1beta1", kind));
    Api::namespaced_with(client.clone(), NAMESPACE, &kind)
}

/// The pool that a claim names, as the API server has it.
async fn find_pool(client: &Client, reference: &Value) -> Result<DynamicObject> {
    ensure!(reference["apiGroup"] == GROUP, "{reference}");
    let text = |key: &str| reference[key].as_str().with_context(|| format!("no {key} in {reference}"));
    let (kind, name) = (text("kind")?, text("name")?);
    let (resource, found) = pinned_kind(client, &GroupVersionKind::gvk(GROUP, "v1alpha2", kind)).await?;
    let pools: Api<DynamicObject> = match found.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), NAMESPACE, &resource),
    };
    Ok(pools.get(name).await?)
}

/// Gives the claim the first address of its pool.
async fn answer(client: &Client, claim: &str) -> Result<()> {
    let claims = earlier(client, "IPAddressClaim");
    let found = eventually("the claim is converted", async || Ok(claims.get(claim).await.ok())).await?;
    let reference = &found.data["spec"]["poolRef"];
    let pool = find_pool(client, reference).await?;
    let spec = &pool.data["spec"];
    let range = spec["addresses"][0].as_str().context("the pool has no addresses")?;
    let first = range.split('-').next().unwrap_or(range);
    let owner = |object: &DynamicObject, version: &str, kind: &Value| {
        json!({
            "apiVersion": format!("{GROUP}/{version}"), "kind": kind, "name": object.name_any(),
            "uid": object.uid(),
        })
    };
    let address = json!({
        "apiVersion": format!("{GROUP}/v1beta1"), "kind": "IPAddress",
        "metadata": {
            "name": claim,
            "namespace": NAMESPACE,
            "ownerReferences": [
                owner(&found, "v1beta1", &json!("IPAddressClaim")),
                owner(&pool, "v1alpha2", &reference["kind"]),
            ],
        },
        "spec": {
            "claimRef": { "name": claim }, "poolRef": reference, "address": first,
            "prefix": spec["prefix"], "gateway": spec["gateway"],
        },
    });
    apply::objects_strictly(client, &[serde_json::from_value(address)?]).await?;
    let params = PatchParams::default();
    let held = Patch::Merge(json!({ "metadata": { "finalizers": [FINALIZER] } }));
    claims.patch(claim, &params, &held).await?;
    let given = Patch::Merge(json!({ "status": { "addressRef": { "name": claim } } }));
    claims.patch_status(claim, &params, &given).await?;
    Ok(())
}

/// The coordinator's claim on a pool gets its address.
async fn claim_address(client: &Client, kind: &str) -> Result<()> {
    apply::objects_strictly(client, &[pool(kind, 16)?]).await?;
    let id = PoolId::new("racks", Some(GROUP), Some(kind));
    let data = data(&format!("{}-0", kind.to_lowercase()))?;
    let claims: Api<IPAddressClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let wanted = foreign_claim(&data, &id);
    let claim = wanted.name_any();
    let created = eventually("the claim is created", async || {
        match claims.create(&PostParams::default(), &wanted).await {
            Ok(created) => Ok(Some(created)),
            // The manager serves its webhooks a moment after it has started.
            Err(kube::Error::Api(status)) if status.code >= 500 => Ok(None),
            Err(error) => Err(error.into()),
        }
    });
    let waits = read_foreign_address(&data, &id, &created.await?, None);
    let is_told = waits.as_ref().is_err_and(|waits| waits.contains("has no address and no answer"));
    ensure!(is_told, "{waits:?}");
    answer(client, &claim).await?;
    let (claim, address) =
        (claims.get(&claim).await?, Api::<IPAddress>::namespaced(client.clone(), NAMESPACE));
    let address = address.get(&claim.name_any()).await?;
    let given = read_foreign_address(&data, &id, &claim, Some(&address)).map_err(anyhow::Error::msg)?;
    let given = (given.address.as_str(), given.prefix, given.gateway.as_deref());
    ensure!(given == ("10.77.0.9", Some(16), Some("10.77.0.1")), "{given:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn real_pools_of_another_provider_give_addresses() -> Result<()> {
    let parts = Parts::from_environment()?;
    let control_plane = ControlPlane::start(&parts, &Settings::management()).await?;
    let _cluster_api = ClusterApi::start(&parts, &control_plane).await?;
    let client = control_plane.admin().await?;
    apply::manifest(&client, &parts.definitions(Definitions::InClusterIpam)?).await?;
    for kind in ["InClusterIPPool", "GlobalInClusterIPPool"] {
        let refused = apply::objects_strictly(&client, &[pool(kind, 129)?]).await;
        ensure!(refused.is_err(), "the definition of {kind} is none of the provider");
        claim_address(&client, kind).await.context(kind)?;
    }
    Ok(())
}
