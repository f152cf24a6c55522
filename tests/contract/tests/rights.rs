//! The coordinator may do what it does, and nothing more: the API server of the
//! scenarios refuses what no rule allows, and here every rule is used.

use std::collections::BTreeSet;
use std::time::Duration;

use contract::documents::checkout;
use coordinator_api::names::{
    IMAGE_CATALOG, INFRASTRUCTURE_GROUP, annotation, label, plan_secret, registration_secret,
};
use fake_apiserver::Request;
use scenarios::{NAMESPACE, World, bootstrap_data};
use serde::Deserialize as _;
use serde_json::{Value, json};

const RIGHTS: &str = concat!(
    include_str!("../../../coordinator/config/rbac.yaml"),
    "---\n",
    include_str!("../../../coordinator/config/all-namespaces.yaml")
);
const USERS: &str = include_str!("../../../coordinator/config/users.yaml");
const METAL3_RIGHTS: &str = include_str!("../../../coordinator/config/metal3/rbac.yaml");
const HOST_RIGHTS: &str = include_str!("../../../coordinator/config/metal3/hosts.yaml");
const MANAGER: &str = include_str!("../../../coordinator/config/manager.yaml");
const CHART_VALUES: &str = include_str!("../../../coordinator/chart/values.yaml");
const NAME: &str = "baremetal-coordinator";

/// Rights whose requests need what a scenario does not have, an election or the
/// download of a base ISO: the file and the call that need each. On a real API
/// server the test `clusters rights::` sees them used.
const OUTSIDE_SCENARIOS: [(&str, &str, &str); 3] = [
    ("baremetal-system get coordination.k8s.io/leases", "lease.rs", "self.leases.get_opt(NAME)"),
    ("baremetal-system update coordination.k8s.io/leases", "lease.rs", "self.leases.replace(NAME,"),
    (
        "* patch elemental.cattle.io/seedimages",
        "controllers/seed_image.rs",
        "store::patch(&context.client, image, \"clear spec.retriggerBuild of\"",
    ),
];

fn documents(text: &str) -> Vec<Value> {
    serde_norway::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap()).collect()
}

fn of_kind(text: &str, kind: &str) -> Value {
    documents(text).into_iter().find(|document| document["kind"] == kind).unwrap()
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().map(|one| one.as_str().unwrap())
}

/// A pod that a fault of the coordinator gave away reaches no metadata service of a cloud.
#[test]
fn network_policy_is_on_and_closes_metadata_services() {
    let policy = of_kind(MANAGER, "NetworkPolicy");
    let spec = &policy["spec"];
    assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
    let deployment = of_kind(MANAGER, "Deployment");
    assert_eq!(spec["podSelector"]["matchLabels"], deployment["spec"]["template"]["metadata"]["labels"]);
    let opened: Vec<_> = spec["ingress"].as_array().unwrap().iter().map(|rule| &rule["ports"]).collect();
    let ports = ["hosts", "health", "diagnostics"].map(|port| json!([{ "port": port }]));
    assert_eq!(opened, ports.each_ref());
    let [_, anywhere] = &spec["egress"].as_array().unwrap()[..] else { panic!("{policy}") };
    let closed: BTreeSet<_> = strings(&anywhere["to"][1]["ipBlock"]["except"])
        .chain(strings(&anywhere["to"][2]["ipBlock"]["except"]))
        .collect();
    let services = "100.100.100.200/32 168.63.129.16/32 169.254.0.0/16 192.0.0.0/24 fd00:100::100:200/128 fd00:42::42/128 fd00:a9fe:a9fe::1/128 fd00:c1::a9fe:a9fe/128 fd00:ec2::/32 fd20:ce::/32 fe80::/10";
    assert_eq!(closed, services.split(' ').collect());
    let values = &documents(CHART_VALUES)[0];
    assert_eq!(values["networkPolicy"]["enabled"], true);
}

/// One verb on one resource: `verb group/resource`, behind the namespace of a
/// Role.
fn list_rights(text: &str, name: &str) -> BTreeSet<String> {
    let roles = documents(text).into_iter().filter(|document| document["metadata"]["name"] == name);
    let mut rights = BTreeSet::new();
    for role in roles {
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or("*");
        for rule in role["rules"].as_array().into_iter().flatten() {
            for group in strings(&rule["apiGroups"]) {
                for resource in strings(&rule["resources"]) {
                    let verbs = strings(&rule["verbs"]);
                    rights.extend(verbs.map(|verb| format!("{namespace} {verb} {group}/{resource}")));
                }
            }
        }
    }
    rights
}

/// The rights that could have allowed a request.
fn describe(request: &Request) -> [String; 2] {
    let Request { verb, group, resource, subresource, namespace, .. } = request;
    let part = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
    ["*", namespace].map(|namespace| format!("{namespace} {} {group}/{resource}{part}", verb.as_str()))
}

/// A host from its registration to its release, and what operators may ask for
/// on the way.
async fn record_requests() -> BTreeSet<String> {
    let mut world = World::new().await;
    world.apply_registration().await;
    let rotate = json!({ "metadata": { "annotations": { annotation::ROTATE_TOKEN: "" } } });
    world.patch("MachineRegistration", "hosts", rotate).await;
    let seed_image =
        json!({ "registrationRef": { "name": "other" }, "baseImage": "https://images.example/os.iso" });
    world.create("SeedImage", "seed", json!({ "spec": seed_image })).await;
    world.wait_idle().await;
    world.register_hosts(&["host-1"]).await;
    world.apply_catalog().await;
    world.apply_cluster("c1").await;
    apply_balanced_cluster(&world).await;
    world.apply_pool("pool", &["host-1"]).await;
    world.apply_template("template", "pool").await;
    world.apply_machine("m-1").await;
    world.wait_running("m-1").await;
    world.delete_machine("m-1").await;
    world.wait_released("m-1", "host-1").await;
    // The holders of a host vanish: are they gone, or does the cache lack them?
    world.fake.take_out("machineinventorypools.infrastructure.cluster.x-k8s.io", NAMESPACE, "pool");
    world.apply_pool("pool-2", &["host-1"]).await;
    world.wait_idle().await;
    world.apply_machine_of("m-2", "pool-2", "v1").await;
    world.wait_running("m-2").await;
    world.fake.take_out("baremetalmachines.infrastructure.cluster.x-k8s.io", NAMESPACE, "m-2");
    world.wait_idle().await;
    // Another replica goes, and its Lease after it.
    world.start_coordinator("gone");
    world.advance_time(Duration::from_mins(1)).await;
    world.kill_coordinator("gone");
    world.advance_time(Duration::from_mins(15)).await;
    collect_used(world)
}

fn collect_used(world: World) -> BTreeSet<String> {
    let entries = world.fake.journal().entries();
    let ours = entries.iter().filter(|entry| entry.request.user == "coordinator");
    let used = ours.flat_map(|entry| describe(&entry.request)).collect();
    world.skip_invariants();
    used
}

/// Its endpoint is that of its load balancer.
async fn apply_balanced_cluster(world: &World) {
    let reference = json!({ "apiGroup": INFRASTRUCTURE_GROUP, "kind": "BaremetalCluster", "name": "c2" });
    let uid = world.create("Cluster", "c2", json!({ "spec": { "infrastructureRef": reference } })).await;
    let owner =
        json!({ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c2", "uid": uid });
    let balancer =
        json!({ "controlPlaneLoadBalancer": { "type": "External", "host": "10.0.2.3", "port": 6443 } });
    let object = json!({ "metadata": { "ownerReferences": [owner] }, "spec": balancer });
    world.create("BaremetalCluster", "c2", object).await;
}

#[tokio::test(start_paused = true)]
async fn every_right_is_used() {
    let (rights, used) = (list_rights(RIGHTS, NAME), record_requests().await);
    assert!(rights.len() > 40 && used.len() > 40, "{} rights, {} requests", rights.len(), used.len());
    check_unused(&rights, &used, &OUTSIDE_SCENARIOS);
}

/// Every right is used, but for those that are known with their calls.
fn check_unused(rights: &BTreeSet<String>, used: &BTreeSet<String>, known: &[(&str, &str, &str)]) {
    let sources = checkout("coordinator/src");
    for (right, file, call) in known {
        let code = std::fs::read_to_string(sources.join(file)).unwrap();
        assert!(code.contains(call), "{right}: {file} does not call {call} any more");
    }
    let known: BTreeSet<_> = known.iter().map(|(right, ..)| (*right).to_owned()).collect();
    let unused: BTreeSet<_> = rights.difference(used).cloned().collect();
    assert_eq!(unused, known, "rights that no request uses, beside those that are known");
}

/// A scenario has no port of diagnostics. On a real API server the test `clusters scraped::` sees
/// the rights used.
#[test]
fn cluster_wide_role_reviews_and_nothing_else() {
    const REVIEWS: &str = "baremetal-coordinator-reviews";
    let reviews = [
        ("* create authentication.k8s.io/tokenreviews", "diagnostics/reviews.rs", "reviews.create("),
        ("* create authorization.k8s.io/subjectaccessreviews", "diagnostics/reviews.rs", "accesses.create("),
    ];
    check_unused(&list_rights(RIGHTS, REVIEWS), &BTreeSet::new(), &reviews);
    let bindings = documents(RIGHTS).into_iter().filter(|document| document["kind"] == "ClusterRoleBinding");
    let bound: Vec<_> = bindings.map(|binding| binding["roleRef"]["name"].clone()).collect();
    assert_eq!(bound, [REVIEWS, NAME], "the second one is of all-namespaces.yaml");
}

#[tokio::test(start_paused = true)]
async fn every_right_on_metal3_kinds_is_used() {
    let rights = list_rights(METAL3_RIGHTS, "baremetal-coordinator-metal3");
    assert!(rights.len() > 20, "{}", rights.len());
    let mut world = World::with_metal3().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_metal3_cluster("c1").await;
    let pool = json!({ "namePrefix": "net", "pools": [{ "subnet": "10.66.0.0/24" }] });
    world.create("IPPool", "net", json!({ "spec": pool })).await;
    let meta = json!({ "metaData": { "ipAddressesFromIPPool": [{ "key": "ip", "name": "net" }] } });
    world.create("Metal3DataTemplate", "workers", json!({ "spec": meta })).await;
    world.apply_metal3_machine("m-1", json!({ "spec": { "dataTemplate": { "name": "workers" } } })).await;
    world.wait_metal3_ready("m-1").await;
    claim_address(&world).await;
    give_up_machine(&mut world).await;
    world.delete_metal3_machine("m-1").await;
    world
        .create("Metal3DataClaim", "of-no-machine", json!({ "spec": { "template": { "name": "workers" } } }))
        .await;
    world.wait_idle().await;
    let used = collect_used(world);
    let known = [
        // A claim of that name exists already.
        (
            "* get ipam.metal3.io/ipclaims",
            "controllers/metal3/data_addresses.rs",
            "metal3::create(&context.client, &key.namespace, &claim)",
        ),
        // The pool is not one of another provider.
        (
            "* create ipam.cluster.x-k8s.io/ipaddressclaims",
            "controllers/metal3/data_addresses.rs",
            "metal3::create(&context.client, &key.namespace, &wanted)",
        ),
        (
            "* delete ipam.cluster.x-k8s.io/ipaddressclaims",
            "controllers/metal3/data_addresses.rs",
            "metal3::delete(&context.client, claim)",
        ),
        // The machine is a worker.
        (
            "* get controlplane.cluster.x-k8s.io/*",
            "controllers/metal3/machine.rs",
            "api.get_opt(&reference.name)",
        ),
    ];
    check_unused(&rights, &used, &known);
}

#[tokio::test(start_paused = true)]
async fn every_right_on_hosts_alone_is_used() {
    const HOSTS: &str = "baremetalhosts.metal3.io";
    let rights = list_rights(HOST_RIGHTS, "baremetal-coordinator-hosts");
    assert_eq!(rights.len(), 5, "{rights:?}");
    let mut world = World::with_bare_metal_hosts().await;
    world.register_bare_metal_hosts(&["host-1"]).await;
    world.apply_cluster("c1").await;
    world.apply_bootstrap("m-1", &bootstrap_data()).await;
    let image = json!({ "url": "oci://registry.example/os:v1" });
    let spec = json!({ "image": image, "userData": { "name": "m-1-bootstrap" } });
    let labels = json!({ "labels": { label::CLUSTER_NAME: "c1" } });
    world.patch("BareMetalHost", "bmh-host-1", json!({ "metadata": labels, "spec": spec })).await;
    world
        .wait_until("the host is provisioned", |world| world.host_state("bmh-host-1") == "provisioned")
        .await;
    // The holder of an inventory vanishes: is it gone, or does the cache lack it?
    world.fake.take_out(HOSTS, NAMESPACE, "bmh-host-1");
    world.wait_idle().await;
    check_unused(&rights, &collect_used(world), &[]);
}

/// A claim of Cluster API, until it is gone.
async fn claim_address(world: &World) {
    const CLAIMS: &str = "ipaddressclaims.ipam.cluster.x-k8s.io";
    let pool = json!({ "apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "net" });
    world.create("IPAddressClaim", "spare", json!({ "spec": { "poolRef": pool.clone() } })).await;
    let is_given =
        |world: &World| world.get_object(CLAIMS, "spare").unwrap()["status"]["addressRef"].is_object();
    world.wait_until("it has an address", is_given).await;
    world.delete("IPAddressClaim", "spare").await;
    world.wait_until("it is gone", |world| world.get_object(CLAIMS, "spare").is_none()).await;
    // The address of a claim that is removed by force is kept for some time.
    world.create("IPAddressClaim", "lost", json!({ "spec": { "poolRef": pool } })).await;
    world.wait_idle().await;
    world.fake.take_out(CLAIMS, NAMESPACE, "lost");
    world.wait_idle().await;
}

/// The host of an unhealthy machine does not answer.
async fn give_up_machine(world: &mut World) {
    const REMEDIATIONS: &str = "metal3remediations.infrastructure.cluster.x-k8s.io";
    let uid = world.get_object("machines.cluster.x-k8s.io", "m-1").unwrap()["metadata"]["uid"].clone();
    let owner =
        json!({ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m-1", "uid": uid });
    let object =
        json!({ "metadata": { "ownerReferences": [owner] }, "spec": { "strategy": { "timeout": "100s" } } });
    world.host_mut("host-1").power_off();
    world.create("Metal3Remediation", "m-1", object).await;
    let is_over = |world: &World| {
        world.get_object(REMEDIATIONS, "m-1").unwrap()["status"]["phase"] == "Deleting machine"
    };
    world.wait_until("it is given up", is_over).await;
    world.delete("Metal3Remediation", "m-1").await;
    world.host_mut("host-1").power_on();
    let is_back = |world: &World| {
        let host = world.inventory("host-1").and_then(|inventory| inventory.status?.host);
        host.and_then(|host| host.session).is_some_and(|session| session.ended.is_none())
    };
    world.wait_until("the host is back", is_back).await;
}

#[test]
fn policy_names_what_the_code_writes() {
    let policy = of_kind(RIGHTS, "ValidatingAdmissionPolicy").to_string();
    for name in [
        plan_secret::TYPE,
        registration_secret::TYPE,
        registration_secret::SUFFIX,
        label::MANAGED,
        "baremetal-coordinator-ca",
        coordinator_api::metal3::names::DATA_SECRET,
        "-metadata",
        "-networkdata",
    ] {
        assert!(policy.contains(&format!("'{name}'")), "{name}: {policy}");
    }
    let account = format!("'^system:serviceaccount:[^:]+:{NAME}$'");
    assert!(policy.contains(&account), "{account}: {policy}");
}

#[test]
fn role_allows_the_catalog_that_the_deployment_names() {
    let (role, deployment) = (of_kind(RIGHTS, "Role"), of_kind(MANAGER, "Deployment"));
    assert_eq!(role["metadata"]["namespace"], deployment["metadata"]["namespace"]);
    let mut rules = role["rules"].as_array().unwrap().iter();
    let catalog = rules.find(|rule| rule["resources"][0] == "configmaps").unwrap();
    assert_eq!(catalog["resourceNames"], json!([IMAGE_CATALOG]));
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let named = container["env"].as_array().unwrap().iter().find(|env| env["name"] == "IMAGE_CATALOG");
    assert_eq!(named.unwrap()["value"], IMAGE_CATALOG);
}

#[test]
fn deployment_runs_two_replicas_of_manager() {
    let spec = of_kind(MANAGER, "Deployment")["spec"].clone();
    assert_eq!(spec["replicas"], 2);
    assert_eq!(spec["template"]["spec"]["containers"][0]["name"], "manager");
}

/// Fields that admit a host, or lead to an ISO that does.
const ADMITTING: [&str; 4] = ["registrationToken", "registrationURL", "downloadToken", "downloadURL"];

/// Kinds of ours: `group/plural`, and whether their status has a field that admits hosts.
fn kinds_of_ours() -> Vec<(String, bool)> {
    let definitions = coordinator_api::crds::all().into_iter().chain(coordinator_api::metal3::crds());
    let kinds = definitions.map(|definition| {
        let (group, plural) = (&definition.spec.group, &definition.spec.names.plural);
        let versions = serde_json::to_value(&definition.spec.versions).unwrap();
        let admits = versions.as_array().unwrap().iter().any(|version| {
            let status = &version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
            ADMITTING.iter().any(|field| !status[field].is_null())
        });
        (format!("{group}/{plural}"), admits)
    });
    kinds.collect()
}

#[test]
fn viewer_reads_nothing_that_admits_hosts() {
    let rights = list_rights(USERS, "baremetal-viewer");
    let kinds = kinds_of_ours();
    assert!(kinds.iter().filter(|(_, admits)| *admits).count() >= 2, "{kinds:?}");
    for (kind, admits) in &kinds {
        let reads = ["get", "list", "watch"].map(|verb| rights.contains(&format!("* {verb} {kind}")));
        assert_eq!(reads, [!admits; 3], "{kind}");
    }
    let known = kinds.iter().map(|(kind, _)| kind.as_str()).collect::<BTreeSet<_>>();
    for right in &rights {
        let [_, verb, kind] = right.split(' ').collect::<Vec<_>>()[..] else { panic!("{right}") };
        assert!(["get", "list", "watch"].contains(&verb) && known.contains(kind), "{right}");
    }
}

#[test]
fn scrapers_may_read_one_path_alone() {
    let name = "baremetal-metrics-reader";
    let role = documents(USERS).into_iter().find(|role| role["metadata"]["name"] == name).unwrap();
    assert_eq!(role["rules"], json!([{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }]));
}

#[test]
fn operator_role_has_no_secret_and_no_status() {
    let rights = list_rights(USERS, "baremetal-operator");
    for (kind, _) in kinds_of_ours() {
        assert!(rights.contains(&format!("* patch {kind}")), "{kind}");
    }
    for right in &rights {
        assert!(!right.contains("secrets") && !right.contains("/status"), "{right}");
    }
}
