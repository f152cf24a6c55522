//! Which hosts are taken: approval, quota, expiry, revocation.

use coordinator_api::names::annotation;
use fake_apiserver::OwnerReferences;
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use serde_json::Value;

use super::world::{Host, INVENTORIES, REGISTRATIONS, World, refusal};
use super::{assert_refused, attach_to, attached, condition, pair, requests};
use crate::rpc::SessionTiming;

async fn register(world: &World, replica: usize, host: &Host, token: &str) -> Option<Refusal> {
    let registered = world.connect_to(replica, None).await.register(host, token).await;
    registered.err().map(|status| refusal(&status).unwrap())
}

fn registration(world: &World, name: &str) -> Value {
    world.fake.look(REGISTRATIONS, "fleet", name).unwrap()
}

// Fault: a host registers with `spec.approval: Manual`.
// Shown: host console, conditions `Approved` and `Ready` and an Event of the MachineInventory:
// `ApprovalPending` with the command that approves it; it gets no certificate.
#[tokio::test]
async fn new_host_waits_for_approval() {
    let world = World::start().await;
    let host = Host::new("a");
    let refused = world.connect(None).await.register(&host, "token-manual").await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::ApprovalPending));
    let command =
        "kubectl annotate --overwrite -n fleet machineinventory m-a baremetal.cluster.io/approval=Approved";
    let action = refused.metadata().get_bin(proto::refusal::NEXT_ACTION_KEY).unwrap().to_bytes().unwrap();
    assert!(String::from_utf8_lossy(&action).contains(command), "{action:?}");
    let inventory = world.inventory("m-a").unwrap();
    assert_eq!(inventory["metadata"]["annotations"][annotation::APPROVAL], "Pending");
    assert_eq!(condition(&inventory, "Approved"), pair("False", "ApprovalPending"));
    assert_eq!(condition(&inventory, "Ready"), pair("False", "ApprovalPending"));
    world.expect_event("MachineInventory", "m-a", "ApprovalPending", command).await;
    assert_eq!(world.fake.look_at_all("events").len(), 1, "none on the registration");
    let approve = "kubectl baremetal approve m-a";
    world.expect_why("machineinventory/m-a", "ApprovalPending", "approval", approve).await;
    world.settled("m-a").await;
    world.spent().await;
    assert_eq!(register(&world, 0, &host, "token-manual").await, Some(Refusal::ApprovalPending));
    assert_eq!(register(&world, 0, &host, "token").await, Some(Refusal::ApprovalPending), "another token");
    assert_eq!(requests(&world.spent().await), (0, 0), "to wait costs nothing");
    world.annotate("m-a", annotation::APPROVAL, "Approved").await;
    let done = world.connect(None).await.register(&host, "token-manual").await.unwrap();
    assert!(matches!(done.next, Some(wire::complete_response::Next::Install(_))));
}

// Fault: a program registers a new host and leaves out the boot, with which the first boot of its installed system is
// compared.
// Shown: host console: `BadRequest`; nothing is written.
#[tokio::test]
async fn a_new_host_states_its_boot() {
    let world = World::start().await;
    let host = Host::new("a");
    let mut link = world.connect(None).await;
    for (boot_id, is_installed) in [("", false), ("", true)] {
        let token = if is_installed { world.host_token("token", &host) } else { "token".to_owned() };
        let registered =
            link.register_edited(&host, &token, |request| request.boot_id = boot_id.into()).await;
        let refused = registered.err().map(|status| refusal(&status).unwrap());
        assert_eq!(refused, (!is_installed).then_some(Refusal::BadRequest));
        assert_eq!(world.inventory("m-a").is_some(), is_installed);
    }
    // The status of a host that registered may be lost, or was never written.
    world.settled("m-a").await;
    let without_boot = |request: &mut wire::CompleteRequest| request.boot_id.clear();
    let registered = world.connect(None).await.register_edited(&host, "token", without_boot).await;
    assert_eq!(refusal(&registered.err().unwrap()), Some(Refusal::BadRequest), "no live system is known");
    world.connect(None).await.register(&host, "token").await.unwrap();
    world.settled("m-a").await;
    world.connect(None).await.register_edited(&host, "token", without_boot).await.unwrap();
}

/// The token that an installed disk keeps is of no use to another host.
#[tokio::test]
async fn a_host_token_admits_its_host_alone() {
    let world = World::start().await;
    let (host, thief) = (Host::new("a"), Host::new("b"));
    let registered = world.connect(None).await.register(&host, "token").await.unwrap();
    let kept = registered.installed_url.rsplit_once('/').unwrap().1.to_owned();
    assert_eq!(kept, world.host_token("token", &host));
    assert!(!registered.installed_url.ends_with("/token"));
    assert_eq!(register(&world, 0, &thief, &kept).await, Some(Refusal::UnknownToken));
    assert!(world.inventory("m-b").is_none());
    assert_eq!(register(&world, 0, &host, &kept).await, None);
}

// Fault: a tenant creates a MachineInventory with the hash of a host of another namespace, and the token of that host
// was rotated while the host was away.
// Shown: nothing: the host names its own namespace, and goes on with `Installing`.
#[tokio::test]
async fn a_copied_hash_shuts_no_host_out() {
    let world = World::start().await;
    let host = Host::new("a");
    register(&world, 0, &host, "token").await;
    let kept = world.host_token("token", &host);
    let other_end = if kept.ends_with('0') { '1' } else { '0' };
    let stale = format!("{}{other_end}", &kept[..kept.len() - 1]);
    assert_eq!(register(&world, 0, &host, &stale).await, None, "its key is known");
    world.settled("m-a").await;
    let mut copy = world.inventory("m-a").unwrap();
    copy["metadata"]["namespace"] = "other".into();
    world.fake.put_back(copy, OwnerReferences::Drop).unwrap();
    let is_ambiguous = async || {
        let refused = register(&world, 0, &host, "a token that was rotated").await;
        refused == Some(Refusal::UnknownToken)
    };
    while !is_ambiguous().await {
        tokio::task::yield_now().await;
    }
    assert_eq!(register(&world, 0, &host, &stale).await, None);
    world.expect_why("machineinventory/m-a", "Installing", "writes the system", "none").await;
    world.fake.take_out(INVENTORIES, "fleet", "m-a");
    world.until(|| world.context().cached_inventory(&host.host_key()).is_none()).await;
    assert_eq!(register(&world, 0, &host, &stale).await, Some(Refusal::UnknownToken), "not the copy's host");
}

/// With another key it is another host to an operator.
#[tokio::test]
async fn replaced_key_waits_for_approval() {
    let world = World::start().await;
    register(&world, 0, &Host::new("a"), "token-manual").await;
    world.settled("m-a").await;
    world.annotate("m-a", annotation::APPROVAL, "Approved").await;
    let other = Host::new("a");
    assert_eq!(register(&world, 0, &other, "token-manual").await, Some(Refusal::ApprovalPending));
    let inventory = world.inventory("m-a").unwrap();
    assert_eq!(inventory["spec"]["tpmHash"], other.hash());
    assert_eq!(inventory["metadata"]["annotations"][annotation::APPROVAL], "Pending");
}

// Fault: more hosts register than `spec.maxHosts`, on two replicas at the same moment.
// Shown: host console, Event and condition `HostsRefused` of the MachineRegistration:
// `QuotaExhausted`.
#[tokio::test]
async fn last_place_of_a_quota_is_given_once() {
    let world = World::with_replicas(2, SessionTiming::default()).await;
    let hosts: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(Host::new).into();
    let registered = hosts.iter().enumerate().map(|(index, host)| {
        let world = &world;
        async move { register(world, index % 2, host, "token-of-two").await }
    });
    let answers = futures::future::join_all(registered).await;
    let taken = answers.iter().filter(|answer| answer.is_none()).count();
    assert_eq!(taken, 2, "{answers:?}");
    assert!(answers.iter().flatten().all(|refusal| *refusal == Refusal::QuotaExhausted), "{answers:?}");
    let inventories = world.fake.look_at_all(INVENTORIES);
    assert_eq!(inventories.len(), 2);
    let shown = &registration(&world, "token-of-two")["status"]["lastRefusal"];
    assert_eq!(shown["reason"], "QuotaExhausted", "{shown}");
    world.expect_event("MachineRegistration", "token-of-two", "QuotaExhausted", "spec.maxHosts").await;
    let action = "raise spec.maxHosts";
    world.expect_why("machineregistration/token-of-two", "HostRefused", "QuotaExhausted", action).await;
    for inventory in &inventories {
        world.settled(inventory["metadata"]["name"].as_str().unwrap()).await;
    }
    for (host, answer) in hosts.iter().zip(&answers) {
        let again = register(&world, 0, host, "token-of-two").await;
        assert_eq!(again, *answer, "known hosts need no place, others get none");
    }
}

// Fault: one token registers more new hosts than `spec.newHostsPerMinute` and the burst, with
// `spec.approval: Manual` too.
// Shown: host console, Event and condition `HostsRefused` of the MachineRegistration:
// `QuotaExhausted`.
#[tokio::test]
async fn new_hosts_come_at_a_rate() {
    let world = World::start().await;
    for (token, first) in [("token", None), ("token-manual", Some(Refusal::ApprovalPending))] {
        let hosts: Vec<_> = (0..230).map(|number| Host::new(&format!("{token}-{number}"))).collect();
        let mut answers = vec![];
        for batch in hosts.chunks(15) {
            let registered = batch.iter().map(|host| register(&world, 0, host, token));
            answers.extend(futures::future::join_all(registered).await);
        }
        let admitted = answers.iter().filter(|answer| **answer == first).count();
        assert!((200..=225).contains(&admitted), "{token}: {admitted} were admitted");
        let refused = answers.iter().filter(|answer| **answer == Some(Refusal::QuotaExhausted)).count();
        assert_eq!(admitted + refused, 230, "{token}");
        let known = register(&world, 0, &hosts[0], token).await;
        assert_eq!(known, first, "a known host needs no place");
        let event = "spec.newHostsPerMinute";
        world.expect_event("MachineRegistration", token, "QuotaExhausted", event).await;
        let name = format!("machineregistration/{token}");
        world.expect_why(&name, "HostRefused", "QuotaExhausted", event).await;
    }
    assert_eq!(register(&world, 0, &Host::new("other"), "token-of-two").await, None, "another registration");
}

// Fault: a new host states a network of more than 32 KiB.
// Shown: host console, Event and condition `HostsRefused` of the MachineRegistration: `BadRequest`.
#[tokio::test]
async fn host_with_a_huge_network_is_refused() {
    let world = World::start().await;
    for (bytes, want) in [(31 << 10, None), (33 << 10, Some(Refusal::BadRequest))] {
        let host = Host::new(&format!("h-{bytes}")).with_keyfile(bytes);
        assert_eq!(register(&world, 0, &host, "token").await, want, "{bytes}");
        assert_eq!(world.inventory(&host.inventory_name()).is_some(), want.is_none());
    }
    world
        .expect_event("MachineRegistration", "token", "BadRequest", "remove interfaces, routes and keyfiles")
        .await;
    world.expect_why("machineregistration/token", "HostRefused", "32768 are allowed", "fresh seed ISO").await;
}

// Fault: a new host comes after `spec.tokenExpiresAt`.
// Shown: host console, Event and condition of the MachineRegistration: `TokenExpired`.
#[tokio::test]
async fn expired_token_registers_known_hosts_only() {
    let world = World::start().await;
    let (known, new) = (Host::new("a"), Host::new("b"));
    world.connect(None).await.register(&known, "token").await.unwrap();
    world.settled("m-a").await;
    world.spent().await;
    assert_eq!(register(&world, 0, &known, "token-expired").await, None);
    assert_eq!(register(&world, 0, &new, "token-expired").await, Some(Refusal::TokenExpired));
    let counts = world.spent().await;
    for _ in 0..5 {
        assert_eq!(register(&world, 0, &new, "token-expired").await, Some(Refusal::TokenExpired));
    }
    assert!(counts.writes <= 3, "{counts}");
    assert_eq!(requests(&world.spent().await), (0, 0), "it is shown once");
    assert!(world.inventory("m-b").is_none());
    let shown = &registration(&world, "token-expired")["status"]["lastRefusal"];
    assert_eq!(shown["reason"], "TokenExpired", "{shown}");
    let action = "set spec.tokenExpiresAt to a later time";
    world.expect_event("MachineRegistration", "token-expired", "TokenExpired", "spec.tokenExpiresAt").await;
    world.expect_why("machineregistration/token-expired", "TokenExpired", "is over", action).await;
}

// Fault: an operator shuts a host out whose stream is open.
// Shown: host console; conditions `Approved` and `Ready` of the MachineInventory: `Revoked`; no
// call is accepted, whatever certificate the host has.
#[tokio::test]
async fn revoked_host_loses_its_stream() {
    let world = World::start().await;
    let (host, chain, mut link, mut stream) = attached(&world).await;
    world.annotate("m-a", annotation::APPROVAL, "Revoked").await;
    assert_refused(&mut stream, Refusal::Revoked).await;
    let refused = link.renew(&host, "boot-1").await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::Revoked));
    assert_eq!(register(&world, 0, &host, "token").await, Some(Refusal::Revoked));
    world.expect_why("machineinventory/m-a", "Revoked", "shut out", "approve m-a").await;
    world.annotate("m-a", annotation::APPROVAL, "Approved").await;
    let (_link, _stream) = attach_to(&world, 0, (&host, &chain), "boot-1").await;
    let shown = condition(&world.inventory("m-a").unwrap(), "Approved");
    assert_eq!(shown, pair("True", "ApprovedByOperator"));
}

// Fault: a registration URL is guessed.
// Shown: 404, whatever is wrong with it.
#[tokio::test]
async fn registration_url_answers_with_its_file() {
    let world = World::start().await;
    let mut link = world.connect(None).await;
    let (status, body) = link.get("/elemental/registration/token").await;
    assert_eq!(status, 200, "{body}");
    let file: Value = serde_norway::from_str(&body).unwrap();
    let registration = &file["elemental"]["registration"];
    assert_eq!(registration["url"], "https://c.example/elemental/registration/token");
    assert_eq!((&registration["emulate-tpm"], &registration["auth"]), (&true.into(), &"tpm".into()));
    assert_eq!(registration["ca-cert"], world.authority.certificates());
    assert_eq!(file.as_object().unwrap().len(), 1, "nothing else is told");
    for token in ["guessed", "token-not-ready", "token-expired", "token-unsupported"] {
        link.expect_404(&format!("/elemental/registration/{token}")).await;
    }
    assert_eq!(requests(&world.spent().await), (0, 0));
}

#[tokio::test]
async fn registry_credentials_are_for_hosts_that_install() {
    let world = World::start().await;
    let secret = serde_json::from_value(serde_json::json!({
        "type": "kubernetes.io/dockerconfigjson", "metadata": { "name": "pull", "namespace": "fleet" },
        "stringData": { ".dockerconfigjson": r#"{"auths":{"registry.example":{"username":"u","password":"p"}}}"# },
    }));
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(world.fake.client("operator"), "fleet");
    secrets.create(&kube::api::PostParams::default(), &secret.unwrap()).await.unwrap();
    for token in ["token", "token-manual"] {
        world.fake.edit((REGISTRATIONS, "fleet", token), |registration| {
            registration["metadata"]["annotations"] =
                serde_json::json!({ annotation::REGISTRY_SECRET: "pull" });
            registration["spec"]["config"]["elemental"]["install"] =
                serde_json::json!({ "system-uri": "registry.example/os:v1" });
        });
    }
    let registrations = &world.context().caches.registrations;
    world
        .until(|| registrations.state().iter().filter(|one| one.metadata.annotations.is_some()).count() == 2)
        .await;
    let host = Host::new("a");
    let register = async |token: &str, disks: usize| {
        let mut link = world.connect(None).await;
        let nonce = link.begin(&host, token).await.unwrap();
        let mut request = host.complete(&nonce, &link.exporter);
        request.facts.as_mut().unwrap().disks =
            vec![wire::Disk { name: "sda".into(), ..wire::Disk::default() }; disks];
        match link.complete(request).await.map(|completed| completed.next) {
            Ok(Some(wire::complete_response::Next::Install(install))) => Ok(install.registry.is_some()),
            Ok(next) => panic!("{next:?}"),
            Err(refused) => Err(refusal(&refused)),
        }
    };
    assert_eq!(register("token-manual", 1).await, Err(Some(Refusal::ApprovalPending)));
    world.annotate("m-a", annotation::APPROVAL, "Approved").await;
    world.settled("m-a").await;
    assert_eq!(register("token", 0).await, Ok(false), "no disk");
    assert_eq!(register("token", 1).await, Ok(true));
    let installed = world.host_token("token", &host);
    assert_eq!(register(&installed, 1).await, Ok(false), "an installed system");
}
