//! A control plane that runs elsewhere, as Kamaji and k0smotron make it: its provider gives the endpoint, and our
//! hosts are workers only.

use coordinator_api::conditions::Reason;
use fake_apiserver::{Kind, Verb};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use scenarios::{NAMESPACE, World};
use serde_json::json;

use super::contract::baremetal_cluster;

const GROUP: &str = "controlplane.cluster.x-k8s.io";
const KIND: &str = "HostedControlPlane";

/// Stands for the provider of the control plane, and for Cluster API that copies what it says.
struct Provider {
    control_planes: Api<DynamicObject>,
}

impl Provider {
    /// Cluster API's object names a control plane of the provider's kind.
    async fn install(world: &World) -> Self {
        world.fake.register(Kind::namespaced(GROUP, "v1beta2", KIND, "hostedcontrolplanes").with_status());
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1beta2", KIND));
        let client = world.fake.client("hosted-control-planes");
        let control_planes: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &resource);
        let object = DynamicObject::new("c1", &resource).data(json!({ "spec": { "replicas": 2 } }));
        control_planes.create(&PostParams::default(), &object).await.unwrap();
        let reference = json!({ "apiGroup": GROUP, "kind": KIND, "name": "c1" });
        world.patch("Cluster", "c1", json!({ "spec": { "controlPlaneRef": reference } })).await;
        Self { control_planes }
    }

    /// The pods of the control plane run behind a load balancer of the management cluster.
    async fn provide_endpoint(&self, world: &World) {
        let endpoint = json!({ "host": "10.0.9.9", "port": 6443 });
        let spec = json!({ "spec": { "controlPlaneEndpoint": endpoint } });
        self.control_planes.patch("c1", &PatchParams::default(), &Patch::Merge(&spec)).await.unwrap();
        world.patch("Cluster", "c1", spec).await;
        let status = json!({ "status": { "initialization": { "controlPlaneInitialized": true } } });
        self.control_planes
            .patch_status("c1", &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
        world.apply_kubeconfig().await;
        world.set_control_plane_initialized("c1");
    }
}

// Fault: the endpoint of a hosted control plane comes later than the machines of its workers.
// Shown: condition `Ready` of the BaremetalCluster: `EndpointMissing` until then, with who sets it.
#[tokio::test(start_paused = true)]
async fn hosted_control_plane_has_workers_of_ours() {
    let mut world = World::new().await;
    world.apply_registration().await;
    world.register_hosts(&["host-1", "host-2"]).await;
    world.apply_catalog().await;
    world.apply_cluster_of("c1", json!({})).await;
    world.apply_pool("pool", &["host-1", "host-2"]).await;
    let provider = Provider::install(&world).await;
    for machine in ["m-1", "m-2"] {
        world.apply_machine(machine).await;
    }
    let action = "or wait until the control plane provider sets";
    world
        .expect_why("baremetalcluster/c1", Reason::EndpointMissing, "the Cluster has no endpoint yet", action)
        .await;
    world.wait_idle().await;
    for host in ["host-1", "host-2"] {
        assert!(
            world.inventory(host).unwrap().claim().is_none(),
            "{host} is taken before the cluster is ready"
        );
    }

    let mark = world.fake.journal().mark();
    provider.provide_endpoint(&world).await;
    let provisioned = |world: &World| {
        baremetal_cluster(world, "c1")["status"]["initialization"]["provisioned"] == json!(true)
    };
    world.wait_until("the infrastructure is provisioned", provisioned).await;
    world.set_infrastructure_provisioned("c1", true);
    for machine in ["m-1", "m-2"] {
        world.wait_running(machine).await;
    }
    world.wait_idle().await;
    assert!(baremetal_cluster(&world, "c1")["spec"]["controlPlaneEndpoint"].is_null(), "the Cluster has it");
    for host in ["host-1", "host-2"] {
        let status = world.inventory(host).unwrap().status.unwrap().host.unwrap();
        assert!(status.load_balancer.is_none(), "{host} is a worker and holds no endpoint");
    }
    let counts = world.count_requests(mark);
    assert_eq!(counts.on(Verb::Patch, "clusters"), 0, "the Cluster belongs to Cluster API: {counts}");
    world.expect_nothing("baremetalcluster/c1").await;
    world.expect_nothing("baremetalmachine/m-1").await;
    world.expect_nothing("baremetalmachine/m-2").await;
    world.delete_machine("m-1").await;
    let is_released = |world: &World| world.machine("m-1").is_none();
    world.wait_until("a worker goes", is_released).await;
    world.check_invariants().await;
}
