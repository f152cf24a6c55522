//! The rules for `InfraCluster`.

use scenarios::World;
use serde_json::{Value, json};

use super::contract::{DOMAIN, VERSIONS, baremetal_cluster, condition, running, running_at};
use super::definitions::schema;

#[tokio::test(start_paused = true)]
async fn infra_cluster_control_plane_endpoint() {
    let world = running().await;
    assert_eq!(baremetal_cluster(&world, "c1")["spec"]["controlPlaneEndpoint"]["host"], "10.0.2.2");
    let endpoint = schema("BaremetalCluster", "spec/controlPlaneEndpoint");
    assert_eq!(
        (&endpoint["properties"]["host"]["minLength"], &endpoint["properties"]["host"]["maxLength"]),
        (&json!(1), &json!(512))
    );
    assert_eq!(endpoint["properties"]["port"]["maximum"].as_f64(), Some(65535.0));
    world.check_invariants().await;
}

/// A control plane provider, such as one of hosted control planes, sets the endpoint of the Cluster.
#[tokio::test(start_paused = true)]
async fn infra_cluster_endpoint_of_the_control_plane() {
    let mut world = World::new().await;
    world.apply_registration().await;
    world.register_hosts(&["host-1"]).await;
    world.apply_catalog().await;
    world.apply_cluster_of("c1", json!({})).await;
    world.apply_pool("pool", &["host-1"]).await;
    let ready = |world: &World, status: &str, reason: &str| {
        let conditions = baremetal_cluster(world, "c1")["status"]["conditions"].clone();
        conditions.as_array().into_iter().flatten().any(|condition| {
            condition["type"] == "Ready" && condition["status"] == status && condition["reason"] == reason
        })
    };
    world.wait_until("it waits", |world| ready(world, "False", "EndpointMissing")).await;
    assert!(baremetal_cluster(&world, "c1")["status"]["initialization"]["provisioned"].is_null());
    let unset = json!({ "spec": { "controlPlaneEndpoint": { "host": "", "port": 0 } } });
    world.patch("Cluster", "c1", unset).await;
    world.wait_idle().await;
    assert!(ready(&world, "False", "EndpointMissing"));
    let hosted = json!({ "spec": { "controlPlaneEndpoint": { "host": "10.0.9.9", "port": 6443 } } });
    world.patch("Cluster", "c1", hosted).await;
    world.wait_until("it is ready", |world| ready(world, "True", "EndpointKnown")).await;
    assert!(baremetal_cluster(&world, "c1")["spec"]["controlPlaneEndpoint"].is_null(), "the Cluster has it");
    assert_eq!(baremetal_cluster(&world, "c1")["status"]["initialization"]["provisioned"], true);
    world.set_infrastructure_provisioned("c1", true);
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_cluster_initialization_completed() {
    let world = running().await;
    let status = &baremetal_cluster(&world, "c1")["status"];
    assert_eq!((&status["initialization"]["provisioned"], &status["ready"]), (&json!(true), &json!(true)));
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_cluster_failure_domains() {
    let world = World::with_hosts(&["host-1", "host-2"]).await;
    for (host, domain) in [("host-1", "d1"), ("host-2", "d2")] {
        let labels = json!({ "metadata": { "labels": { DOMAIN: domain } } });
        world.patch("MachineInventory", host, labels).await;
    }
    let domains = |world: &World| baremetal_cluster(world, "c1")["status"]["failureDomains"].clone();
    let listed = |names: &[&str]| -> Value {
        names.iter().map(|name| json!({ "name": name, "controlPlane": true })).collect()
    };
    world.wait_until("two domains", |world| domains(world) == listed(&["d1", "d2"])).await;
    world.patch("MachineInventory", "host-1", json!({ "metadata": { "labels": { DOMAIN: "d2" } } })).await;
    world.wait_until("one domain", |world| domains(world) == listed(&["d2"])).await;
    world.delete("MachineInventoryPool", "pool").await;
    world.wait_until("no domain", |world| domains(world).is_null()).await;
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_cluster_conditions() {
    let world = running().await;
    let cluster = baremetal_cluster(&world, "c1");
    for kind in ["Ready", "Paused", "EndpointReady"] {
        assert!(!condition(&cluster, kind)["reason"].as_str().unwrap().is_empty(), "{kind}");
    }
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_cluster_externally_managed() {
    let world = World::with_hosts(&[]).await;
    let balancer = json!({ "type": "External", "host": "10.0.2.9", "port": 6443 });
    let owner = world.get_object("clusters.cluster.x-k8s.io", "c1").unwrap();
    let metadata = json!({
        "annotations": { "cluster.x-k8s.io/managed-by": "another" },
        "ownerReferences": [{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1",
            "uid": owner["metadata"]["uid"],
        }],
    });
    let object = json!({ "metadata": metadata, "spec": { "controlPlaneLoadBalancer": balancer } });
    world.create("BaremetalCluster", "external", object).await;
    world.wait_idle().await;
    let external = baremetal_cluster(&world, "external");
    assert!(external["status"].is_null() && external["spec"]["controlPlaneEndpoint"].is_null());
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn infra_cluster_pausing() {
    for version in VERSIONS {
        let world = running_at(version).await;
        for is_paused in [true, false] {
            world.patch("Cluster", "c1", json!({ "spec": { "paused": is_paused } })).await;
            let want = if is_paused { "True" } else { "False" };
            world
                .wait_until(&format!("Paused follows at {version}"), |world| {
                    condition(&baremetal_cluster(world, "c1"), "Paused")["status"] == want
                })
                .await;
        }
        world.check_invariants().await;
    }
    // Nothing is done while one of the two is paused.
    let balancer = json!({ "type": "External", "host": "10.0.2.9", "port": 6443 });
    let change = json!({ "spec": { "controlPlaneLoadBalancer": balancer } });
    let key = coordinator_api::names::annotation::PAUSED;
    for (kind, pause, resume) in [
        ("Cluster", json!({ "spec": { "paused": true } }), json!({ "spec": { "paused": false } })),
        (
            "BaremetalCluster",
            json!({ "metadata": { "annotations": { key: "" } } }),
            json!({ "metadata": { "annotations": { key: null } } }),
        ),
    ] {
        let world = World::new().await;
        world.apply_cluster_of("c1", json!({})).await;
        world.wait_idle().await;
        world.patch(kind, "c1", pause).await;
        world
            .wait_until("it is paused", |world| {
                condition(&baremetal_cluster(world, "c1"), "Paused")["status"] == "True"
            })
            .await;
        world.patch("BaremetalCluster", "c1", change.clone()).await;
        world.wait_idle().await;
        let endpoint = |world: &World| baremetal_cluster(world, "c1")["spec"]["controlPlaneEndpoint"].clone();
        assert_eq!(endpoint(&world), Value::Null, "{kind} is paused");
        world.patch(kind, "c1", resume).await;
        world.wait_until("the endpoint is filled", |world| endpoint(world)["host"] == "10.0.2.9").await;
        world.check_invariants().await;
    }
}
