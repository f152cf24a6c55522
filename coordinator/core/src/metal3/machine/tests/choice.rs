//! Which host a machine takes.

use super::super::choice;
use super::*;

fn named(name: &str, change: impl FnOnce(&mut BareMetalHost)) -> BareMetalHost {
    let mut host = host(json!({}), "available");
    host.metadata.name = Some(name.into());
    change(&mut host);
    host
}

fn label_host(host: &mut BareMetalHost, key: &str, value: &str) {
    host.labels_mut().insert(key.into(), value.into());
}

type Case =
    (&'static str, Metal3Machine, Vec<BareMetalHost>, &'static str, Result<&'static str, &'static str>);

fn free(name: &str) -> BareMetalHost {
    named(name, |_| {})
}

fn kept(name: &str, value: &str, state: &str) -> BareMetalHost {
    named(name, |host| {
        label_host(host, names::NODE_REUSE, value);
        host.spec.consumer_ref = Some(Consumer { kind: "Cluster".into(), ..Consumer::default() });
        host.status.as_mut().unwrap().provisioning.state = state.into();
    })
}

fn rack() -> BareMetalHost {
    named("rack", |host| label_host(host, names::FAILURE_DOMAIN, "rack-1"))
}

fn selecting() -> Metal3Machine {
    let mut machine = machine();
    machine.spec.host_selector.match_labels.insert(names::FAILURE_DOMAIN.into(), "rack-1".into());
    machine
}

fn preferring(domain: &str) -> Metal3Machine {
    let mut machine = machine();
    machine.spec.failure_domain = Some(domain.into());
    machine
}

fn check_choices(cases: Vec<Case>) {
    for (what, machine, hosts, reserved, want) in cases {
        let mut roster = HostRoster::default();
        for host in &hosts {
            // Whatever it was before is forgotten.
            roster.set_host(&host.name_any(), Some(&kept(&host.name_any(), "md-workers", "ready")));
            roster.set_host(&host.name_any(), Some(host));
        }
        let found = roster.choose_host(&machine, &owner(), &|name| name == reserved, Timestamp::UNIX_EPOCH);
        match (found, want) {
            (Ok(found), Ok(want)) => assert_eq!(found, want, "{what}"),
            (Err(blocker), Err(want)) => {
                let text = blocker.problem.event_text();
                assert!(text.contains(want), "{what}: {text}");
            }
            (found, want) => panic!("{what}: {found:?}, {want:?}"),
        }
    }
}

#[test]
fn b3_hosts_are_chosen_in_order() {
    let own = named("own", |host| host.spec.consumer_ref = serde_json::from_value(consumer()).unwrap());
    check_choices(vec![
        ("the first free one", machine(), vec![free("a"), free("b")], "", Ok("a")),
        ("not what is reserved", machine(), vec![free("a"), free("b")], "a", Ok("b")),
        ("its own", machine(), vec![free("a"), own], "", Ok("own")),
        ("kept for it", machine(), vec![free("a"), kept("b", "md-workers", "available")], "", Ok("b")),
        ("of its failure domain", preferring("rack-1"), vec![free("a"), rack()], "", Ok("rack")),
        ("of another failure domain", preferring("rack-9"), vec![free("a")], "", Ok("a")),
        ("selected", selecting(), vec![free("a"), rack()], "", Ok("rack")),
    ]);
}

fn kept_for(name: &str, state: &str, seconds: i64) -> BareMetalHost {
    let mut host = kept(name, "md-workers", state);
    let end = Timestamp::from_second(seconds).unwrap().to_string();
    host.annotations_mut().insert(names::KEPT_UNTIL.into(), end);
    label_host(&mut host, names::FAILURE_DOMAIN, "rack-1");
    host
}

#[test]
fn b3_kept_host_is_awaited_until_expiry() {
    let busy = |seconds| kept_for("b", "deprovisioning", seconds);
    check_choices(vec![
        (
            "busy",
            machine(),
            vec![free("a"), busy(60)],
            "",
            Err("another host is chosen: 1 hosts, until 1970-01-01T00:01:00Z"),
        ),
        ("busy, its end has come", machine(), vec![free("a"), busy(0)], "", Ok("a")),
        ("selected and busy, its end has come", selecting(), vec![rack(), busy(0)], "", Ok("rack")),
        ("nothing else is there", selecting(), vec![free("a"), busy(0)], "", Err("no BareMetalHost can be")),
        ("ready, its end has come", machine(), vec![free("a"), kept_for("b", "ready", 0)], "", Ok("b")),
        (
            "the last end counts",
            machine(),
            vec![busy(0), kept_for("c", "deprovisioning", 60)],
            "",
            Err("hosts are kept for this machine"),
        ),
    ]);
}

#[test]
fn b2_excluded_hosts_are_counted_by_cause() {
    check_choices(vec![
        (
            "kept for others",
            machine(),
            vec![kept("b", "md-other", "available")],
            "",
            Err("1 kept for other machines"),
        ),
        (
            "kept and busy, without end",
            machine(),
            vec![free("a"), kept("b", "md-workers", "deprovisioning")],
            "",
            Err("not available yet: 1 hosts; next: see the state of the host"),
        ),
        ("not selected", selecting(), vec![free("a")], "", Err("1 not selected")),
        (
            "some are selected",
            selecting(),
            vec![free("a"), free("b"), rack()],
            "rack",
            Err("1 about to be claimed, 2 not selected"),
        ),
        (
            "by what no label leads to",
            {
                let mut machine = machine();
                let absent = json!({ "matchExpressions": [{ "key": "a", "operator": "exists" }] });
                machine.spec.host_selector = serde_json::from_value(absent).unwrap();
                machine
            },
            vec![free("a"), rack()],
            "",
            Err("2 not selected"),
        ),
        ("about to be claimed", machine(), vec![free("a")], "a", Err("chosen: 1 about to be claimed")),
        ("none", machine(), vec![], "", Err("there is no BareMetalHost")),
    ]);
}

#[test]
fn b2_states_and_marks_of_hosts_exclude_them() {
    check_choices(vec![
        (
            "in use",
            machine(),
            vec![named("a", |host| host.spec.consumer_ref = Some(Consumer::default()))],
            "",
            Err("1 in use"),
        ),
        (
            "with an error",
            machine(),
            vec![named("a", |host| host.status.as_mut().unwrap().error_message = "x".into())],
            "",
            Err("1 with an error"),
        ),
        (
            "unhealthy",
            machine(),
            vec![named("a", |host| {
                host.annotations_mut().insert(names::HOST_UNHEALTHY[1].into(), String::new());
            })],
            "",
            Err("1 marked unhealthy"),
        ),
        (
            "paused",
            machine(),
            vec![named("a", |host| {
                host.annotations_mut().insert(names::HOST_PAUSES[0].into(), String::new());
            })],
            "",
            Err("1 paused"),
        ),
        (
            "in another state",
            machine(),
            vec![named("a", |host| {
                host.status.as_mut().unwrap().provisioning.state = "inspecting".into();
            })],
            "",
            Err("1 not available"),
        ),
    ]);
}

#[test]
fn a_host_that_is_gone_leaves_nothing() {
    let mut roster = HostRoster::default();
    for host in [free("a"), rack(), kept("b", "md-other", "ready")] {
        roster.set_host(&host.name_any(), Some(&host));
        roster.set_host(&host.name_any(), None);
    }
    assert!(roster.is_empty());
    for machine in [machine(), selecting(), preferring("rack-1")] {
        let blocker = roster.choose_host(&machine, &owner(), &|_| false, Timestamp::UNIX_EPOCH).unwrap_err();
        assert!(blocker.problem.text().contains("there is no BareMetalHost"), "{}", blocker.problem.text());
    }
}

#[test]
fn b5_machines_of_a_control_plane_share_hosts() {
    let mut owner = owner();
    owner.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "controlplane.cluster.x-k8s.io/v1beta2".into(),
        kind: "KubeadmControlPlane".into(),
        name: "cp".into(),
        ..OwnerReference::default()
    }]);
    assert_eq!(choice::reuse_value(&owner).as_deref(), Some("cp-cp"));
}
