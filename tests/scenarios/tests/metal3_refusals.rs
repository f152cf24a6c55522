//! What objects of Metal3's kinds show when the API server turns the coordinator away.

use std::time::Duration;

use coordinator_api::conditions::Reason;
use coordinator_api::names::annotation;
use fake_apiserver::{Fault, Matching, Refusal, Verb};
use scenarios::World;
use serde_json::{Value, json};

const GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// An object whose first effect is refused.
struct Case {
    kind: &'static str,
    plural: String,
    spec: Value,
}

const NAME: &str = "refused";

fn case(kind: &'static str, group: &str, spec: Value) -> Case {
    Case { kind, plural: format!("{}s.{group}", kind.to_lowercase()), spec }
}

impl Case {
    /// Creates it while the coordinator may change nothing of its kind but the status.
    async fn create(&self, world: &World) -> Fault {
        let (plural, _) = self.plural.split_once('.').unwrap();
        let changes = Matching::any().user("coordinator").verb(Verb::Patch).resource(plural).subresource("");
        let refused = world.fake.faults().fail(changes, usize::MAX, Refusal::Forbidden);
        world.create(self.kind, NAME, json!({ "spec": self.spec })).await;
        refused
    }

    fn ready(&self, world: &World) -> Option<String> {
        let object = world.get_object(&self.plural, NAME)?;
        let conditions = object["status"]["conditions"].as_array()?.clone();
        let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready")?;
        Some(ready["reason"].as_str()?.to_owned())
    }

    fn is_held(&self, world: &World) -> bool {
        let object = world.get_object(&self.plural, NAME);
        object.is_some_and(|object| object["metadata"]["finalizers"].is_array())
    }
}

async fn begin() -> World {
    let world = World::with_metal3().await;
    world.apply_metal3_cluster("c1").await;
    let pool = json!({ "namePrefix": "net", "pools": [{ "subnet": "10.66.0.0/24" }], "prefix": 24 });
    world.create("IPPool", "net", json!({ "spec": pool })).await;
    world.wait_idle().await;
    world
}

// Fault: the coordinator may not change IPPools, IPAddressClaims, Metal3Clusters or BareMetalHosts.
// Shown: condition `Ready`: `ApiRequestFailed`; the change is made once it may.
#[tokio::test(start_paused = true)]
async fn refused_changes_are_conditions() {
    let mut world = begin().await;
    world.apply_registration().await;
    world.register_hosts(&["host-1"]).await;
    let failed = Some(Reason::ApiRequestFailed.as_str().to_owned());
    let pool = json!({ "apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "net" });
    let endpoint = json!({ "host": "10.0.2.2", "port": 6443 });
    for case in [
        case("IPPool", "ipam.metal3.io", json!({ "namePrefix": NAME })),
        case("IPAddressClaim", "ipam.cluster.x-k8s.io", json!({ "clusterName": "c1", "poolRef": pool })),
        case("Metal3Cluster", GROUP, json!({ "controlPlaneEndpoint": endpoint })),
        case("BareMetalHost", "metal3.io", json!({ "online": true })),
    ] {
        let refused = case.create(&world).await;
        if case.kind == "BareMetalHost" {
            let named = json!({ "metadata": { "annotations": { annotation::MACHINE_INVENTORY: "host-1" } } });
            world.patch(case.kind, NAME, named).await;
        }
        world.wait_until(case.kind, |world| case.ready(world) == failed).await;
        assert!(refused.is_met(), "{}", case.kind);
        let object = format!("{}/{NAME}", case.kind);
        world.expect_why(&object, Reason::ApiRequestFailed, NAME, "correct what the message names").await;
        world.fake.faults().clear();
        world.wait_until(case.kind, |world| case.is_held(world) && case.ready(world) != failed).await;
    }
    world.check_invariants().await;
}

// Fault: the coordinator may not read the kubeconfig of the cluster of a Metal3Machine.
// Shown: condition `Ready` of the Metal3Machine: `ApiRequestFailed`; it goes on once it may.
#[tokio::test(start_paused = true)]
async fn refused_reads_are_conditions_of_the_machine() {
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_metal3_cluster("c1").await;
    let kubeconfig = Matching::any().user("coordinator").resource("secrets").name("c1-kubeconfig");
    let refused = world.fake.faults().fail(kubeconfig, usize::MAX, Refusal::Forbidden);
    world.apply_metal3_machine("m-1", json!({})).await;
    let failed = Reason::ApiRequestFailed;
    world.wait_metal3_reason("m-1", failed.as_str()).await;
    assert!(refused.is_met());
    world.expect_why("Metal3Machine/m-1", failed, "c1-kubeconfig", "correct what the message names").await;
    world.fake.faults().clear();
    world.wait_metal3_ready("m-1").await;
    world.check_invariants().await;
}

// Fault: the coordinator may not change IPClaims, Metal3DataTemplates or Metal3DataClaims, which have no conditions.
// Shown: Event `ApiRequestFailed` of the object; the change is made once it may.
#[tokio::test(start_paused = true)]
async fn refused_changes_are_events_without_conditions() {
    let world = begin().await;
    world.create("Metal3DataTemplate", "workers", json!({ "spec": {} })).await;
    world.wait_idle().await;
    for case in [
        case("IPClaim", "ipam.metal3.io", json!({ "pool": { "name": "net" } })),
        case("Metal3DataTemplate", GROUP, json!({ "clusterName": "c1" })),
        case("Metal3DataClaim", GROUP, json!({ "template": { "name": "workers" } })),
    ] {
        let refused = case.create(&world).await;
        world.wait_until(case.kind, |_| refused.is_met()).await;
        world.advance_time(Duration::from_secs(1)).await;
        world.expect_event(case.kind, NAME, Reason::ApiRequestFailed.as_str(), "it is retried");
        world.fake.faults().clear();
        world.wait_until(case.kind, |world| case.is_held(world)).await;
    }
    world.check_invariants().await;
}
