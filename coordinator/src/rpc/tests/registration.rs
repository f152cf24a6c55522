//! Registration, and what hosts report.

use fake_apiserver::{Matching, Refusal as Fault, Verb};
use kube::ResourceExt as _;
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use serde_json::json;

use super::world::{Host, INVENTORIES, Link, World, expect_console, refusal};
use super::{Stream, attach_to, attached, condition, pair, requests};
use crate::ca::{Authority, Role};

#[tokio::test]
async fn new_host_costs_three_writes() {
    let world = World::start().await;
    let host = Host::new("a");
    let mut link = world.connect(None).await;
    let first = link.register(&host, "token").await.unwrap();
    let counts = world.spent().await;
    assert_eq!(requests(&counts), (3, 3), "{counts}");
    assert_eq!(counts.on(Verb::List, "machineinventories"), 0);
    let peer = Host::peer(&first.certificate_chain);
    assert_eq!((peer.key, peer.name_hint.as_str()), (host.host_key(), "m-a"));
    let inventory = world.inventory("m-a").unwrap();
    assert_eq!(inventory["spec"]["tpmHash"], host.hash());
    assert_eq!(inventory["metadata"]["labels"]["elemental.cattle.io/managed"], "true");
    assert_eq!(inventory["metadata"]["labels"]["site"], "a");
    assert_eq!(inventory["status"]["plan"]["secretRef"]["name"], "m-a");
    assert_eq!(condition(&inventory, "Installed"), pair("False", "Installing"));
    let secret = world.secret("m-a").unwrap();
    assert_eq!(secret["type"], "elemental.cattle.io/plan");
    assert_eq!(secret["data"]["plan"], "e30=");
    assert!(matches!(first.next, Some(wire::complete_response::Next::Install(_))));
    world.settled("m-a").await;

    let again = world.connect(None).await.register(&host, "token").await.unwrap();
    assert_eq!(again.inventory_name, "m-a");
    assert_eq!(requests(&world.spent().await), (1, 0), "{}", world.spent().await);
}

// Fault: the coordinator dies between two writes of a registration.
// Shown: nothing: the host registers again, and goes on with `Installing`.
#[tokio::test]
async fn registration_repairs_what_a_crash_left() {
    for (name, broken) in [
        ("no Secret", Matching::writes().resource("secrets")),
        ("no status", Matching::writes().resource("machineinventories").subresource("status")),
    ] {
        let world = World::start().await;
        let host = Host::new("a");
        world.fake.faults().fail(broken.user("coordinator-0"), 1, Fault::Internal);
        let failed = world.connect(None).await.register(&host, "token").await.unwrap_err();
        assert_eq!(failed.code(), tonic::Code::Unavailable, "{name}");
        let done = world.connect(None).await.register(&host, "token").await.unwrap();
        assert_eq!(done.inventory_name, "m-a", "{name}");
        let inventory = world.inventory("m-a").unwrap();
        assert_eq!(inventory["status"]["plan"]["secretRef"]["name"], "m-a", "{name}");
        assert!(world.secret("m-a").is_some(), "{name}");
        world.expect_why("machineinventory/m-a", "Installing", "writes the system", "none").await;
    }
}

#[tokio::test]
async fn foreign_secret_is_not_adopted() {
    let world = World::start().await;
    let secret = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": "m-a", "namespace": "fleet" }, "data": { "key": "e30=" },
    }));
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(world.fake.client("operator"), "fleet");
    secrets.create(&kube::api::PostParams::default(), &secret.unwrap()).await.unwrap();
    let refused = world.connect(None).await.register(&Host::new("a"), "token").await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::NameTaken));
    assert_eq!(world.secret("m-a").unwrap()["data"], json!({ "key": "e30=" }));
}

// Fault: a registration is replayed, or relayed to another connection.
// Shown: host console: `BadProof`.
#[tokio::test]
async fn proof_counts_once_on_its_own_connection() {
    let world = World::start().await;
    let host = Host::new("a");
    let (mut one, mut other) = (world.connect(None).await, world.connect(None).await);
    let nonce = one.begin(&host, "token").await.unwrap();
    let stolen = host.complete(&nonce, &one.exporter);
    other.begin(&host, "token").await.unwrap();
    let relayed = other.complete(stolen.clone()).await.unwrap_err();
    assert_eq!(refusal(&relayed), Some(Refusal::BadProof), "another session");
    one.complete(stolen.clone()).await.unwrap();
    let second = one.complete(stolen).await.unwrap_err();
    assert_eq!(refusal(&second), Some(Refusal::BadProof), "a second time");
    let nonce = one.begin(&host, "token").await.unwrap();
    let foreign = Host::new("b").complete(&nonce, &one.exporter);
    let forged = one.complete(foreign).await.unwrap_err();
    assert_eq!(refusal(&forged), Some(Refusal::BadProof), "another key");
}

// Fault: a host has an ISO whose token was changed.
// Shown: host console: `UnknownToken` with the next action; a log line and a metric; no API
// request.
#[tokio::test]
async fn unknown_token_costs_no_request() {
    let world = World::start().await;
    let host = Host::new("a");
    for token in ["unknown", "", "token-not-ready"] {
        let refused = world.connect(None).await.register(&host, token).await.unwrap_err();
        assert_eq!(refusal(&refused), Some(Refusal::UnknownToken), "{token:?}");
    }
    assert_eq!(requests(&world.spent().await), (0, 0), "{}", world.spent().await);
}

#[tokio::test]
async fn rejections_become_one_event() {
    for (token, want, action) in [
        ("token-unsupported", Refusal::BadTemplate, "correct the MachineRegistration"),
        ("token-tpm-only", Refusal::TpmRequired, Refusal::TpmRequired.next_action()),
    ] {
        let world = World::start().await;
        for _ in 0..3 {
            let refused = world.connect(None).await.register(&Host::new(""), token).await.unwrap_err();
            assert_eq!(refusal(&refused), Some(want));
        }
        let counts = world.spent().await;
        // And one condition.
        assert_eq!((requests(&counts), counts.on(Verb::Create, "events")), ((2, 2), 1), "{want:?}: {counts}");
        let events = world.fake.look_at_all("events");
        let note = events[0]["message"].as_str().unwrap();
        assert_eq!(events[0]["reason"], want.code());
        assert_eq!((&events[0]["involvedObject"]["name"], note.contains(action)), (&json!(token), true));
    }
}

#[tokio::test]
async fn named_secret_must_be_a_plan_secret() {
    type Edit = fn(&mut serde_json::Value);
    let cases: [(&str, Edit); 2] = [
        ("another type", |secret| secret["type"] = json!("Opaque")),
        ("no label", |secret| secret["metadata"]["labels"] = json!({})),
    ];
    for (name, edit) in cases {
        let world = World::start().await;
        let host = Host::new("a");
        world.connect(None).await.register(&host, "token").await.unwrap();
        world.settled("m-a").await;
        assert!(world.fake.edit(("secrets", "fleet", "m-a"), edit), "{name}");
        let before = world.secret("m-a");
        let refused = world.connect(None).await.register(&host, "token").await.unwrap_err();
        assert_eq!(refusal(&refused), Some(Refusal::NameTaken), "{name}");
        assert_eq!(world.secret("m-a"), before, "{name}");
    }
}

// Fault: the MachineRegistration has a field that is not supported.
// Shown: host console and condition `Ready` of the MachineRegistration name the field.
#[tokio::test]
async fn unsupported_registration_leaves_no_object() {
    let world = World::start().await;
    let refused = world.connect(None).await.register(&Host::new("a"), "token-unsupported").await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::BadTemplate));
    assert!(refused.message().contains("registration.auth"), "{refused:?}");
    assert!(world.inventory("m-a").is_none() && world.secret("m-a").is_none());
    let cause = "registration.auth";
    world.expect_why("machineregistration/token-unsupported", "FieldUnsupported", cause, "correct").await;
}

/// Registers a host of the same name on other hardware.
async fn register_elsewhere(world: &World, host: &Host) -> tonic::Status {
    let mut link = world.connect(None).await;
    let registered = link.register_edited(host, "token", |request| {
        request.observed_network.as_mut().unwrap().interfaces[0].permanent_mac = "52:54:00:00:00:09".into();
    });
    registered.await.unwrap_err()
}

// Fault: another host has the name of a registered one.
// Shown: host console and Event on the MachineRegistration: `NameTaken`.
#[tokio::test]
async fn name_stays_with_its_key() {
    let world = World::start().await;
    world.connect(None).await.register(&Host::new("a"), "token").await.unwrap();
    for (name, is_settled) in [("before the watch has seen it", false), ("after", true)] {
        if is_settled {
            world.settled("m-a").await;
        }
        let refused = register_elsewhere(&world, &Host::new("a")).await;
        assert_eq!(refusal(&refused), Some(Refusal::NameTaken), "{name}");
    }
    world.expect_event("MachineRegistration", "token", "NameTaken", "m-a").await;
}

// Fault: a host loses its key before it is installed.
// Shown: Event `IdentityReplaced`.
#[tokio::test]
async fn lost_key_is_replaced_only_before_install() {
    let world = World::start().await;
    let (first, second, third) = (Host::new("a"), Host::new("a"), Host::new("a"));
    let done = world.connect(None).await.register(&first, "token").await.unwrap();
    world.settled("m-a").await;
    world.connect(None).await.register(&second, "token").await.unwrap();
    world.settled("m-a").await;
    let inventory = world.inventory("m-a").unwrap();
    assert_eq!(inventory["spec"]["tpmHash"], second.hash());
    world.expect_event("MachineInventory", "m-a", "IdentityReplaced", "key").await;
    let mut former = world.connect(Some((&first, &done.certificate_chain))).await;
    let refused = former.report_install(Host::started()).await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::InventoryGone), "the former key has no inventory");
    let chain = second.certificate(&world.authority, Role::Live);
    let mut live = world.connect(Some((&second, &chain))).await;
    live.report_install(Host::installed()).await.unwrap();
    world.settled("m-a").await;
    let refused = world.connect(None).await.register(&third, "token").await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::NameTaken), "it is installed");
}

// Fault: the token was changed while hosts were away for longer than their certificates live.
// Shown: nothing: a known key registers without it, and goes on with `Installing`.
#[tokio::test]
async fn known_key_needs_no_token() {
    let world = World::start().await;
    let host = Host::new("a");
    let unknown = world.connect(None).await.register(&host, "rotated").await.unwrap_err();
    assert_eq!(refusal(&unknown), Some(Refusal::UnknownToken));
    world.connect(None).await.register(&host, "token").await.unwrap();
    world.settled("m-a").await;
    let again = world.connect(None).await.register(&host, "rotated").await.unwrap();
    assert!(matches!(again.next, Some(wire::complete_response::Next::Install(_))));
    world.expect_why("machineinventory/m-a", "Installing", "writes the system", "none").await;
    let mut thief = world.connect(None).await;
    let nonce = thief.begin(&host, "rotated").await.unwrap();
    let mut request = host.complete(&nonce, &thief.exporter);
    request.proof = Host::new("b").complete(&nonce, &thief.exporter).proof;
    let refused = thief.complete(request).await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::BadProof), "a public key proves nothing");
    world.fake.edit((INVENTORIES, "fleet", "m-a"), |inventory| {
        inventory["metadata"]["annotations"]["baremetal.cluster.io/quarantined"] = json!("boot-1 boot-2");
    });
    world.settled("m-a").await;
    let refused = world.connect(None).await.register(&host, "rotated").await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::Quarantined));
}

#[tokio::test]
async fn installed_host_needs_no_registration() {
    let world = World::start().await;
    let (host, _chain, _link, _stream) = attached(&world).await;
    for (name, registration) in [("of another name", Some("deleted")), ("of before the annotation", None)] {
        world.fake.edit((INVENTORIES, "fleet", "m-a"), |inventory| {
            let annotations = inventory["metadata"]["annotations"].as_object_mut().unwrap();
            annotations.remove("baremetal.cluster.io/registration");
            annotations
                .extend(registration.map(|name| ("baremetal.cluster.io/registration".into(), json!(name))));
        });
        world.settled("m-a").await;
        let again = world.connect(None).await.register(&host, "rotated").await.unwrap();
        assert!(matches!(again.next, Some(wire::complete_response::Next::BootDisk(_))), "{name}");
    }
}

/// The plan of a host that had the name before is not this one's.
#[tokio::test]
async fn plan_secret_of_another_host_is_emptied() {
    for (name, hash, plan) in [
        ("another host", Some("0a"), "e30="),
        ("before the annotation", None, "eyJmaWxlcyI6W119"),
        ("the same host", Some("mine"), "eyJmaWxlcyI6W119"),
    ] {
        let world = World::start().await;
        let host = Host::new("a");
        let hash = hash.map(|hash| if hash == "mine" { host.hash() } else { hash.to_owned() });
        let annotations: std::collections::BTreeMap<_, _> =
            hash.into_iter().map(|hash| ("baremetal.cluster.io/tpm-hash", hash)).collect();
        let secret = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "elemental.cattle.io/plan",
            "metadata": {
                "name": "m-a", "namespace": "fleet",
                "labels": { "elemental.cattle.io/managed": "true" },
                "annotations": annotations,
            },
            "data": { "plan": "eyJmaWxlcyI6W119", "applied-checksum": "eA==" },
        }));
        let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
            kube::Api::namespaced(world.fake.client("operator"), "fleet");
        secrets.create(&kube::api::PostParams::default(), &secret.unwrap()).await.unwrap();
        world.connect(None).await.register(&host, "token").await.unwrap();
        let found = world.secret("m-a").unwrap();
        assert_eq!(found["data"]["plan"], plan, "{name}");
        assert_eq!(found["data"]["applied-checksum"] == "", plan == "e30=", "{name}");
    }
}

// Fault: a host shows a certificate of another CA.
// Shown: metric by reason, and a log line that names the address; the TLS handshake fails.
#[tokio::test]
async fn other_authorities_are_refused() {
    let world = World::start().await;
    let other = Authority::generate(jiff::Timestamp::now()).unwrap();
    let host = Host::new("a");
    assert!(world.try_connect(&other, 0, None).await.is_err(), "another authority");
    world.expect_metric("refusals", "UnknownAuthority").await;
    assert!(world.metrics().contains("refusals_total{reason=\"UnknownAuthority\"} 1"));
    let chain = host.certificate(&other, Role::Installed);
    let refused = match world.try_connect(&world.authority, 0, Some((&host, &chain))).await {
        // TLS 1.3 reports a refused certificate after the client's handshake.
        Ok(mut link) => link.report_install(Host::started()).await.is_err(),
        Err(_) => true,
    };
    assert!(refused, "a certificate of another authority");
    world.until(|| world.metrics().contains("refusals_total{reason=\"UnknownAuthority\"} 2")).await;
}

#[tokio::test]
async fn certificate_is_for_the_proven_key() {
    let world = World::start().await;
    let host = Host::new("a");
    let mut link = world.connect(None).await;
    let nonce = link.begin(&host, "token").await.unwrap();
    let mut request = host.complete(&nonce, &link.exporter);
    let other = Host::new("b").complete(&nonce, &link.exporter);
    request.certificate_request = other.certificate_request;
    let refused = link.complete(request).await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::BadRequest));
    assert!(world.inventory("m-a").is_none());
}

// Fault: an installed host reports another network than it was installed with.
// Shown: condition of the MachineInventory; plans keep the accepted network.
#[tokio::test]
async fn changed_network_is_drift() {
    let world = World::start().await;
    let (_host, _chain, mut link, _stream) = attached(&world).await;
    world.spent().await;
    for (name, network, truth, writes) in [
        ("as registered", Host::network("192.0.2.1/24"), "False", 1),
        ("again", Host::network("192.0.2.1/24"), "False", 0),
        ("another address", Host::network("192.0.2.9/24"), "True", 1),
    ] {
        link.report_observed(network).await.unwrap();
        let inventory = world.inventory("m-a").unwrap();
        assert_eq!(condition(&inventory, "NetworkDrift").0, truth, "{name}");
        let intended = &inventory["spec"]["observedNetwork"]["interfaces"][0]["addresses"];
        assert_eq!(intended, &json!(["192.0.2.1/24"]), "{name}: the intention stays");
        world.settled("m-a").await;
        assert_eq!(world.spent().await.writes, writes, "{name}");
    }
    let accept = "accept-observed-network";
    world.expect_why("machineinventory/m-a", "NetworkChanged", "192.0.2.9/24", accept).await;
}

/// A host that registers by an edited request, and attaches: while it is installed, `why` shows that.
async fn attach_registered(world: &World, edit: impl FnOnce(&mut wire::CompleteRequest)) -> (Link, Stream) {
    let host = Host::new("a");
    world.connect(None).await.register_edited(&host, "token", edit).await.unwrap();
    world.settled("m-a").await;
    let chain = host.certificate(&world.authority, Role::Installed);
    attach_to(world, 0, (&host, &chain), "boot-1").await
}

// Fault: a host registers with a bond that no plan replays wholly.
// Shown: condition `NetworkIncomplete` of the MachineInventory, with the parameter.
#[tokio::test]
async fn network_that_is_not_replayed_is_told() {
    let world = World::start().await;
    let bond = wire::Bond {
        mode: "802.3ad".into(),
        unsupported: vec!["use_carrier=0".into()],
        ..wire::Bond::default()
    };
    let registered = attach_registered(&world, |request| {
        request.observed_network.as_mut().unwrap().interfaces[0].bond = Some(bond);
    });
    let _attached = registered.await;
    let action = "give its network in spec.network";
    world.expect_why("machineinventory/m-a", "NetworkPartsNotReplayed", "use_carrier=0", action).await;
}

// Fault: a host registers whose system is older than the minimum.
// Shown: condition `PlatformSupported` of the MachineInventory, with each part; the host is installed.
#[tokio::test]
async fn platform_below_the_minimum_is_told() {
    let world = World::start().await;
    let old =
        wire::Platform { kernel: "5.3.18-default".into(), control_groups: 1, ..wire::Platform::default() };
    let registered =
        attach_registered(&world, |request| request.facts.as_mut().unwrap().platform = Some(old));
    let _attached = registered.await;
    let cause = "Linux 5.3.18-default is older than 5.8; control groups have version 1";
    world.expect_why("machineinventory/m-a", "PlatformBelowMinimum", cause, "docs/versions.md").await;
}

// Fault: a host reports without a pause.
// Shown: metric by reason; what is above the limit is refused.
#[tokio::test]
async fn reports_of_one_host_are_limited() {
    let world = World::start().await;
    let (_host, _chain, mut link, _stream) = attached(&world).await;
    let mut codes = vec![];
    for index in 0..20 {
        let reported = link.report_observed(Host::network(&format!("192.0.2.{index}/24"))).await;
        codes.extend(reported.err().map(|status| status.code()));
    }
    assert!(
        codes.len() >= 6 && codes.iter().all(|code| *code == tonic::Code::ResourceExhausted),
        "{codes:?}"
    );
    world.expect_metric("connection_failures", "HostCalls").await;
}

#[tokio::test]
async fn replicas_that_start_together_share_one_authority() {
    let fake = fake_apiserver::FakeApi::new();
    let secrets = |user: &str| kube::Api::namespaced(fake.client(user), "system");
    let (one, other) = (secrets("one"), secrets("other"));
    let now = jiff::Timestamp::now();
    let (one, other) =
        tokio::join!(crate::ca::read_or_create(&one, now), crate::ca::read_or_create(&other, now));
    let third = crate::ca::read_or_create(&secrets("third"), now).await.unwrap();
    assert_eq!(one.unwrap().certificates(), third.certificates());
    assert_eq!(other.unwrap().certificates(), third.certificates());
    assert_eq!(fake.journal().counts().on(Verb::List, "secrets"), 0);
}

// Fault: a registration is paused while hosts boot its seed ISO.
// Shown: host console; new hosts ask again, and known hosts go on.
#[tokio::test]
async fn paused_registration_admits_no_new_host() {
    let world = World::start().await;
    let known = Host::new("a");
    world.connect(None).await.register(&known, "token").await.unwrap();
    world.settled("m-a").await;
    let name = ("machineregistrations.elemental.cattle.io", "fleet", "token");
    let pause = |value: serde_json::Value| {
        world.fake.edit(name, |registration| {
            registration["metadata"]["annotations"] = json!({ "cluster.x-k8s.io/paused": value });
        });
    };
    pause(json!(""));
    let new = Host::new("b");
    let seen =
        || world.context().caches.registrations.state().iter().any(|one| !one.annotations().is_empty());
    world.until(seen).await;
    let refused = world.connect(None).await.register(&new, "token").await.unwrap_err();
    assert_eq!((refused.code(), refusal(&refused)), (tonic::Code::Unavailable, None), "{refused:?}");
    expect_console(&refused, "MachineRegistration token is paused");
    assert!(world.inventory("m-b").is_none());
    world.connect(None).await.register(&known, "token").await.unwrap();
    world.fake.edit(name, |registration| registration["metadata"]["annotations"] = json!({}));
    world.until(|| !seen()).await;
    world.connect(None).await.register(&new, "token").await.unwrap();
}
