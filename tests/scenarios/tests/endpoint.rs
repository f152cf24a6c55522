//! The internal endpoint of a cluster: duties of its control-plane hosts.

use agent::state::duty;
use coordinator::workload::HOLDER_LEASE;
use coordinator_api::cluster::BaremetalCluster;
use coordinator_api::conditions::{Reason, Type, find_condition};
use coordinator_api::names::annotation;
use fake_apiserver::Outage;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use proto::v1alpha1::LoadBalancerState;
use scenarios::{Scenario, World, kill_at_every_write};
use serde_json::json;

const CLUSTERS: &str = "baremetalclusters.infrastructure.cluster.x-k8s.io";
const POOLS: &str = "machineinventorypools.infrastructure.cluster.x-k8s.io";

fn condition_of(world: &World, cluster: &str, kind: Type) -> Option<Condition> {
    let object = world.get_object(CLUSTERS, cluster)?;
    let cluster: BaremetalCluster = serde_json::from_value(object).unwrap();
    find_condition(&cluster.status?.conditions, kind).cloned()
}

async fn wait_reason(world: &World, kind: Type, reason: Reason) -> String {
    wait_reason_of(world, "c1", kind, reason).await
}

async fn wait_reason_of(world: &World, cluster: &str, kind: Type, reason: Reason) -> String {
    let found = |world: &World| {
        let condition = condition_of(world, cluster, kind)?;
        (condition.reason == reason.as_str()).then_some(condition.message)
    };
    world.wait_until(reason.as_str(), |world| found(world).is_some()).await;
    found(world).unwrap()
}

/// What a control plane provider and Cluster API do once the first node serves.
async fn initialize_control_plane(world: &World) {
    world.apply_kubeconfig().await;
    world.set_control_plane_initialized("c1");
}

async fn with_control_plane() -> World {
    let world = World::with_internal_endpoint().await;
    wait_reason(&world, Type::LoadBalancerReady, Reason::MembersMissing).await;
    world.apply_control_plane_machine("m-1").await;
    world
}

fn kept(world: &World) -> Option<proto::balancer::Duty> {
    duty::read_duty(&world.host("host-1").disk()).unwrap()
}

/// As the unit of the duty does, which no simulated host runs.
fn do_duty(world: &World, is_holder: bool) {
    let root = world.host("host-1").disk();
    let generation = duty::kept_generation(&root);
    std::fs::create_dir_all(root.load_balancer()).unwrap();
    let interface = "eno1".to_owned();
    duty::write_state(&root, &LoadBalancerState { generation, interface, is_holder, ..Default::default() });
    world.host("host-1").kill_agent();
}

// Fault: a control-plane machine is created, serves, and is deleted.
// Shown: `LoadBalancerReady` of the BaremetalCluster: `MembersMissing`, `DutyUnconfirmed`, `AddressHeld`.
#[tokio::test(start_paused = true)]
async fn control_plane_host_has_the_duty_until_release() {
    let world = with_control_plane().await;
    // Before the plan ends: kubeadm init needs the address.
    world.wait_until("the host has its duty", |world| kept(world).is_some()).await;
    let given = kept(&world).unwrap();
    assert_eq!(given.own_address().to_string(), "10.9.0.5");
    assert!(given.holds_first && given.router_id.get() == 9 && given.interface.is_none());
    wait_reason(&world, Type::LoadBalancerReady, Reason::DutyUnconfirmed).await;
    world.wait_running("m-1").await;
    assert!(kept(&world).is_some(), "it outlives the reboot");
    do_duty(&world, true);
    let message = wait_reason(&world, Type::LoadBalancerReady, Reason::AddressHeld).await;
    assert_eq!(message, "held by host host-1");
    initialize_control_plane(&world).await;
    let shown =
        |world: &World| world.workload.look("leases.coordination.k8s.io", "kube-system", HOLDER_LEASE);
    world.wait_until("the Lease of the holder", |world| shown(world).is_some()).await;
    assert_eq!(shown(&world).unwrap()["spec"]["holderIdentity"], "host-1");
    wait_reason(&world, Type::NetworkDeviceReady, Reason::NetworkDeviceFound).await;
    wait_reason(&world, Type::NetworkConfigValid, Reason::NetworkConfigAccepted).await;
    world.expect_nothing("baremetalcluster/c1").await;
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    assert_eq!(kept(&world), None, "a released host holds no address");
    world.wait_idle().await;
    wait_reason(&world, Type::LoadBalancerReady, Reason::MembersMissing).await;
    world
        .expect_why(
            "baremetalcluster/c1",
            Reason::MembersMissing,
            "has a host yet",
            "with the first control-plane machine",
        )
        .await;
    let host = world.inventory("host-1").unwrap().status.unwrap().host.unwrap();
    assert_eq!(host.load_balancer.unwrap().duty.address, "", "and is told so");
    world.check_invariants().await;
}

#[tokio::test(start_paused = true)]
async fn paused_cluster_changes_no_duty() {
    let world = with_control_plane().await;
    world.wait_until("the host has its duty", |world| kept(world).is_some()).await;
    world.wait_running("m-1").await;
    let pause = |value| json!({ "metadata": { "annotations": { annotation::PAUSED: value } } });
    world.patch("BaremetalCluster", "c1", pause(Some(""))).await;
    wait_reason(&world, Type::Paused, Reason::Paused).await;
    let (before, balancer) = (duty::kept_generation(&world.host("host-1").disk()), json!({ "vrid": 11 }));
    world.patch("BaremetalCluster", "c1", json!({ "spec": { "controlPlaneLoadBalancer": balancer } })).await;
    world.wait_idle().await;
    assert_eq!(duty::kept_generation(&world.host("host-1").disk()), before);
    assert_eq!(kept(&world).unwrap().router_id.get(), 9, "the duty that the host has goes on");
    world.patch("BaremetalCluster", "c1", pause(None)).await;
    world
        .wait_until("the host has its new duty", |world| {
            kept(world).is_some_and(|duty| duty.router_id.get() == 11)
        })
        .await;
    world.check_invariants().await;
}

/// A control-plane host with the duty of the internal endpoint, until it is released.
pub(super) struct Endpoint;

impl Scenario for Endpoint {
    async fn begin() -> World {
        let world = World::with_internal_endpoint().await;
        wait_reason(&world, Type::LoadBalancerReady, Reason::MembersMissing).await;
        world.wait_idle().await;
        world
    }

    async fn play(world: &mut World) {
        world.apply_control_plane_machine("m-1").await;
        world.wait_running("m-1").await;
        world.wait_until("the host has its duty", |world| kept(world).is_some()).await;
        do_duty(world, true);
        wait_reason(world, Type::LoadBalancerReady, Reason::AddressHeld).await;
        initialize_control_plane(world).await;
        let holder =
            |world: &World| world.workload.look("leases.coordination.k8s.io", "kube-system", HOLDER_LEASE);
        world.wait_until("the holder's Lease is written", |world| holder(world).is_some()).await;
        assert_eq!(holder(world).unwrap()["spec"]["holderIdentity"], "host-1");
        world.wait_idle().await;
        world.note_state(CLUSTERS, "c1");
        world.delete_machine("m-1").await;
        world.wait_released("m-1", "host-1").await;
        assert_eq!(kept(world), None, "a released host holds no address");
        wait_reason(world, Type::LoadBalancerReady, Reason::MembersMissing).await;
        let action = "with the first control-plane machine";
        world.expect_why("baremetalcluster/c1", Reason::MembersMissing, "has a host yet", action).await;
    }
}

// Fault: the coordinator is killed before or after any write for a cluster with an internal endpoint.
// Shown: nothing: the host has its duty until it is released.
#[tokio::test(start_paused = true)]
async fn a_killed_coordinator_keeps_the_endpoint() {
    kill_at_every_write::<Endpoint>().await;
}

// Fault: a restore lost the status of a control-plane host that has a duty.
// Shown: nothing: the host gets a duty of a higher generation.
#[tokio::test(start_paused = true)]
async fn lost_status_gets_a_higher_duty() {
    let world = with_control_plane().await;
    world.wait_running("m-1").await;
    world.wait_idle().await;
    let before = duty::kept_generation(&world.host("host-1").disk());
    world.fake.edit(("machineinventories.elemental.cattle.io", scenarios::NAMESPACE, "host-1"), |object| {
        object["status"]["host"].as_object_mut().unwrap().remove("loadBalancer");
    });
    world
        .wait_until("a newer duty", |world| duty::kept_generation(&world.host("host-1").disk()) > before)
        .await;
    assert!(kept(&world).is_some());
    world.expect_nothing("machineinventory/host-1").await;
    world.check_invariants().await;
}

// Fault: the BaremetalMachine of a control plane is deleted by hand, and its Machine is not.
// Shown: `OwnerMismatch` of the machine; its host keeps the address.
#[tokio::test(start_paused = true)]
async fn held_machine_keeps_the_endpoint() {
    let world = with_control_plane().await;
    world.wait_running("m-1").await;
    world.wait_idle().await;
    let before = kept(&world);
    assert!(before.is_some());
    world.delete("BaremetalMachine", "m-1").await;
    world
        .expect_why("machine/m-1", Reason::OwnerMismatch, "while its Machine was not", "delete the Machine")
        .await;
    world.wait_idle().await;
    assert_eq!(kept(&world), before);
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    assert_eq!(kept(&world), None);
    world.check_invariants().await;
}

// Fault: the only control-plane host is lost and given up.
// Shown: `Abandoned` of the MachineInventory; should the host come back, it holds no address.
#[tokio::test(start_paused = true)]
async fn abandoned_host_holds_no_endpoint() {
    let mut world = with_control_plane().await;
    world.wait_running("m-1").await;
    world.host_mut("host-1").power_off();
    world.delete_machine("m-1").await;
    world.give_up_host("BaremetalMachine", "m-1").await;
    world.wait_until("m-1 is gone", |world| world.machine("m-1").is_none()).await;
    world.expect_why("machineinventory/host-1", Reason::Abandoned, "was removed while", "repair").await;
    let duty = |world: &World| {
        let host = world.inventory("host-1").unwrap().status.unwrap().host.unwrap();
        host.load_balancer.unwrap().duty
    };
    world.wait_until("its duty ends", |world| duty(world).address.is_empty()).await;
    assert!(kept(&world).is_some(), "it has not heard of that");
    world.host_mut("host-1").power_on();
    world.wait_until("it hears of it", |world| kept(world).is_none()).await;
    world.wait_until("host-1 is available", |world| world.is_available("host-1")).await;
    world.check_invariants().await;
}

// Fault: `networkDevice` names no interface of a host; `host`, `port` or `type` of the load balancer is changed, or
// one is added at another place than the endpoint.
// Shown: `NetworkDeviceReady=False`, `NetworkDeviceMissing`; the API server rejects the change.
#[tokio::test(start_paused = true)]
async fn wrong_device_and_late_changes_are_said() {
    let world = with_control_plane().await;
    world.wait_until("the host has its duty", |world| kept(world).is_some()).await;
    world.patch("BaremetalCluster", "c1", json!({ "spec": { "networkDevice": "eth7" } })).await;
    let message = wait_reason(&world, Type::NetworkDeviceReady, Reason::NetworkDeviceMissing).await;
    assert!(message.contains("host host-1 has no interface eth7"), "{message}");
    world
        .expect_why(
            "baremetalcluster/c1",
            Reason::NetworkDeviceMissing,
            "host host-1 has no interface eth7",
            "correct networkDevice",
        )
        .await;
    world.wait_idle().await;
    assert!(kept(&world).is_some(), "the endpoint of a cluster is not lost by a name");
    let member = json!({ "name": "host-1", "networkDevice": "ens4" });
    world.patch("MachineInventoryPool", "pool", json!({ "spec": { "machineInventories": [member] } })).await;
    let interface = |world: &World| kept(world)?.interface.as_deref().map(str::to_owned);
    world
        .wait_until("the device of the pool's entry counts", |world| {
            interface(world).as_deref() == Some("ens4")
        })
        .await;
    for change in [json!({ "host": "10.9.0.101" }), json!({ "port": 443 }), json!({ "type": "External" })] {
        let patch = json!({ "spec": { "controlPlaneLoadBalancer": change } });
        let refused = world.try_patch("BaremetalCluster", "c1", patch).await.unwrap_err();
        assert!(refused.to_string().contains("never change"), "{refused}");
    }
    world
        .apply_cluster_of("c2", json!({ "controlPlaneEndpoint": { "host": "10.0.2.2", "port": 6443 } }))
        .await;
    for (kind, host, port) in [("External", "10.0.2.9", 6443), ("Internal", "10.0.2.2", 443)] {
        let late = json!({ "type": kind, "host": host, "port": port });
        let patch = json!({ "spec": { "controlPlaneLoadBalancer": late } });
        let refused = world.try_patch("BaremetalCluster", "c2", patch).await.unwrap_err();
        assert!(refused.to_string().contains("which the nodes use"), "{refused}");
    }
    let late = json!({ "type": "External", "host": "10.0.2.2", "port": 6443 });
    world.patch("BaremetalCluster", "c2", json!({ "spec": { "controlPlaneLoadBalancer": late } })).await;
    // Of two places that a new cluster names, the nodes use the endpoint.
    for (name, kind) in [("c3", "External"), ("c4", "Internal")] {
        let balancer = json!({ "type": kind, "host": "10.0.2.9", "port": 6443 });
        let endpoint = json!({ "host": "10.0.2.2", "port": 6443 });
        let spec = json!({ "controlPlaneEndpoint": endpoint, "controlPlaneLoadBalancer": balancer });
        world.apply_cluster_of(name, spec).await;
        let (kind, reason) = (Type::FieldsIgnored, Reason::FieldWithoutEffect);
        let message = wait_reason_of(&world, name, kind, reason).await;
        assert!(message.contains("the nodes use controlPlaneEndpoint, which differs"), "{message}");
        let balancer = condition_of(&world, name, Type::LoadBalancerReady);
        assert!(balancer.is_none_or(|found| found.status == "Unknown"), "no host is asked to hold it");
    }
    let patch = json!({ "spec": { "controlPlaneLoadBalancer": { "vrid": 10 }, "networkDevice": null } });
    world.patch("BaremetalCluster", "c1", patch).await;
    world.wait_until("the new id", |world| kept(world).is_some_and(|duty| duty.router_id.get() == 10)).await;
    world.check_invariants().await;
}

// Fault: an entry of a pool names a `networkDevice`, and the hosts of its Cluster hold no endpoint.
// Shown: condition of the pool: `FieldsIgnored`, until the load balancer has type Internal.
#[tokio::test(start_paused = true)]
async fn device_without_internal_endpoint_is_said() {
    let world = World::with_hosts(&["host-1"]).await;
    let member = json!({ "name": "host-1", "networkDevice": "ens4" });
    let entries = json!({ "spec": { "machineInventories": [member] } });
    world.patch("MachineInventoryPool", "pool", entries).await;
    let shows = |world: &World, text: &str| {
        let pool = world.get_object(POOLS, "pool").unwrap();
        let conditions = pool["status"]["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .any(|found| found["type"] == "FieldsIgnored" && found.to_string().contains(text))
    };
    let message =
        "networkDevice of MachineInventory host-1 (only in a Cluster whose endpoint is a load balancer";
    world.wait_until("the entry is named", |world| shows(world, message)).await;
    world
        .expect_why(
            "machineinventorypool/pool",
            Reason::FieldWithoutEffect,
            "fields are set that have no effect here",
            "remove the fields",
        )
        .await;
    let balancer = json!({ "type": "Internal", "host": "10.0.2.2", "port": 6443 });
    world.patch("BaremetalCluster", "c1", json!({ "spec": { "controlPlaneLoadBalancer": balancer } })).await;
    world.wait_until("it has an effect", |world| shows(world, Reason::FieldsSupported.as_str())).await;
    world.check_invariants().await;
}

// Fault: nothing answers at the endpoint of a cluster whose control plane was initialized.
// Shown: `EndpointReady=False` and `Ready=False` of the BaremetalCluster, `WorkloadUnreachable`.
#[tokio::test(start_paused = true)]
async fn endpoint_that_falls_silent_is_said() {
    let world = World::with_hosts(&["host-1"]).await;
    wait_reason(&world, Type::EndpointReady, Reason::KubeconfigMissing).await;
    assert_eq!(condition_of(&world, "c1", Type::Ready).unwrap().reason, Reason::EndpointKnown.as_str());
    initialize_control_plane(&world).await;
    wait_reason(&world, Type::EndpointReady, Reason::EndpointReachable).await;
    world.workload.faults().outage(Outage::Refused);
    wait_reason(&world, Type::EndpointReady, Reason::WorkloadUnreachable).await;
    let message = wait_reason(&world, Type::Ready, Reason::WorkloadUnreachable).await;
    assert!(message.contains("check the endpoint"), "{message}");
    world
        .expect_why(
            "baremetalcluster/c1",
            Reason::WorkloadUnreachable,
            "does not answer",
            "check the control-plane endpoint",
        )
        .await;
    let object = world.get_object(CLUSTERS, "c1").unwrap();
    assert_eq!(object["status"]["ready"], true, "what is provisioned stays so");
    world.workload.faults().outage(Outage::Over);
    wait_reason(&world, Type::Ready, Reason::EndpointKnown).await;
    world.check_invariants().await;
}

// Fault: the kubeconfig of a cluster names another server than its endpoint.
// Shown: `EndpointReady` of the BaremetalCluster: `EndpointElsewhere`; it stays Ready.
#[tokio::test(start_paused = true)]
async fn kubeconfig_of_another_server_is_said() {
    let world = World::with_hosts(&["host-1"]).await;
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: 'https://10.0.2.9:6443'}}]\nusers: [{name: u, user: {token: t}}]\n";
    world.create("Secret", "c1-kubeconfig", json!({ "stringData": { "value": text } })).await;
    world.set_control_plane_initialized("c1");
    let message = wait_reason(&world, Type::EndpointReady, Reason::EndpointElsewhere).await;
    assert!(message.contains("10.0.2.9, port 6443") && message.contains("10.0.2.2"), "{message}");
    assert_eq!(condition_of(&world, "c1", Type::Ready).unwrap().reason, Reason::EndpointKnown.as_str());
    assert!(message.contains("correct the kubeconfig or the endpoint"), "{message}");
    world.expect_nothing("baremetalcluster/c1").await;
    world.check_invariants().await;
}

// Fault: a BaremetalCluster names neither endpoint nor load balancer.
// Shown: `EndpointReady` and `Ready` of the BaremetalCluster: `EndpointMissing`, until it names one.
#[tokio::test(start_paused = true)]
async fn cluster_without_endpoint_waits_for_one() {
    let world = World::new().await;
    world.apply_cluster_of("c1", json!({})).await;
    wait_reason(&world, Type::EndpointReady, Reason::EndpointMissing).await;
    wait_reason(&world, Type::Ready, Reason::EndpointMissing).await;
    world
        .expect_why(
            "baremetalcluster/c1",
            Reason::EndpointMissing,
            "neither spec.controlPlaneEndpoint nor spec.controlPlaneLoadBalancer is set",
            "set spec.controlPlaneLoadBalancer of the BaremetalCluster",
        )
        .await;
    let balancer = json!({ "type": "External", "host": "10.0.2.9", "port": 6443 });
    world.patch("BaremetalCluster", "c1", json!({ "spec": { "controlPlaneLoadBalancer": balancer } })).await;
    wait_reason(&world, Type::Ready, Reason::EndpointKnown).await;
    wait_reason(&world, Type::FieldsIgnored, Reason::FieldsSupported).await;
    world.check_invariants().await;
}

// Fault: a cluster is made with the address and port of the internal endpoint of another one, or with its vrid.
// Shown: `NetworkConfigValid=False`: `AddressTaken` of the newer BaremetalCluster, `RouterIdShared` of both.
#[tokio::test(start_paused = true)]
async fn shared_address_and_shared_vrid_are_said() {
    let world = World::new().await;
    for (name, host, vrid) in [("c1", "10.9.0.100", 9), ("c2", "10.9.0.100", 8), ("c3", "10.9.0.101", 9)] {
        let balancer = json!({ "type": "Internal", "host": host, "port": 6443, "vrid": vrid });
        world.apply_cluster_of(name, json!({ "controlPlaneLoadBalancer": balancer })).await;
        // The older of two clusters has the address: creation times are whole seconds.
        world.wait_idle().await;
    }
    let kind = Type::NetworkConfigValid;
    let message = wait_reason_of(&world, "c1", kind, Reason::RouterIdShared).await;
    assert!(message.contains("fleet/c3"), "{message}");
    for (name, reason, cause, action) in [
        (
            "c2",
            Reason::AddressTaken,
            "another BaremetalCluster has the same address and port",
            "delete one of the two clusters",
        ),
        (
            "c3",
            Reason::RouterIdShared,
            "another cluster of the network has the same vrid",
            "change spec.controlPlaneLoadBalancer.vrid",
        ),
    ] {
        let message = wait_reason_of(&world, name, kind, reason).await;
        assert!(message.contains("BaremetalCluster fleet/c1"), "{message}");
        world.expect_why(&format!("baremetalcluster/{name}"), reason, cause, action).await;
    }
    let other_id = json!({ "spec": { "controlPlaneLoadBalancer": { "vrid": 7 } } });
    world.patch("BaremetalCluster", "c3", other_id).await;
    for name in ["c1", "c3"] {
        wait_reason_of(&world, name, kind, Reason::NetworkConfigAccepted).await;
    }
    world.check_invariants().await;
}

// Fault: a cluster without hosts is made with the vrid of an older one, far off in the wide network of its hosts.
// Shown: `RouterIdShared` of the older BaremetalCluster, by the network that its hosts report.
#[tokio::test(start_paused = true)]
async fn vrid_is_compared_in_the_network_of_hosts() {
    let world = with_control_plane().await;
    world.wait_running("m-1").await;
    let kind = Type::NetworkConfigValid;
    wait_reason(&world, kind, Reason::NetworkConfigAccepted).await;
    world.wait_idle().await;
    let balancer = json!({ "type": "Internal", "host": "10.9.9.100", "port": 6443, "vrid": 9 });
    world.apply_cluster_of("c2", json!({ "controlPlaneLoadBalancer": balancer })).await;
    let message = wait_reason(&world, kind, Reason::RouterIdShared).await;
    assert!(message.contains("BaremetalCluster fleet/c2"), "{message}");
    let (cause, action) =
        ("another cluster of the network has the same vrid", "change spec.controlPlaneLoadBalancer.vrid");
    world.expect_why("baremetalcluster/c1", Reason::RouterIdShared, cause, action).await;
    let other_id = json!({ "spec": { "controlPlaneLoadBalancer": { "vrid": 8 } } });
    world.patch("BaremetalCluster", "c2", other_id).await;
    wait_reason(&world, kind, Reason::NetworkConfigAccepted).await;
    world.check_invariants().await;
}
