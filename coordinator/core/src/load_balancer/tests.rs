use super::*;
use coordinator_api::cluster::{BaremetalClusterSpec, Endpoint};
use coordinator_api::conditions::{ConditionStatus, Reason, Type};
use coordinator_api::inventory::LoadBalancerReport;
use coordinator_api::network::{ObservedInterface, ObservedRoute};
use jiff::ToSpan as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

fn balancer(host: &str) -> LoadBalancer {
    LoadBalancer { host: host.into(), port: 6443, vrid: Some(7), ..Default::default() }
}

fn cluster(name: &str, host: &str, age: i64) -> BaremetalCluster {
    let spec =
        BaremetalClusterSpec { control_plane_load_balancer: Some(balancer(host)), ..Default::default() };
    let mut cluster = BaremetalCluster::new(name, spec);
    cluster.metadata.namespace = Some("fleet".into());
    cluster.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH + age.hours()));
    cluster
}

fn interface(name: &str, addresses: &[&str], master: Option<&str>) -> ObservedInterface {
    ObservedInterface {
        name: name.into(),
        addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
        master: master.map(str::to_owned),
        ..Default::default()
    }
}

fn network(interfaces: &[ObservedInterface], default: Option<&str>) -> ObservedNetwork {
    let route = |name: &str| ObservedRoute {
        destination: "0.0.0.0/0".into(),
        interface: Some(name.into()),
        ..Default::default()
    };
    ObservedNetwork {
        interfaces: interfaces.to_vec(),
        routes: default.map(route).into_iter().collect(),
        ..Default::default()
    }
}

fn plain(address: &str) -> ObservedNetwork {
    network(&[interface("eno1", &[address], None)], None)
}

fn candidate<'a>(host: &'a str, age: i64, network: &'a ObservedNetwork) -> Candidate<'a> {
    Candidate {
        host,
        machine: (host, Some(Timestamp::UNIX_EPOCH + age.hours())),
        network: Some(network),
        network_device: None,
        known: None,
        carried_generation: 0,
        is_attached: true,
    }
}

fn decide(candidates: &[Candidate<'_>]) -> Decision {
    let cluster = cluster("c1", "10.0.0.100", 0);
    let internal = Internal::of_cluster(&cluster).unwrap();
    let has_duties = has_duties(candidates);
    decide_members(
        &cluster,
        internal,
        candidates,
        &[Neighbour { cluster: Arc::new(cluster.clone()), has_duties }],
    )
}

fn announced(member: &Member) -> LoadBalancerStatus {
    LoadBalancerStatus { duty: member.duty.clone(), state: None }
}

#[test]
fn the_oldest_machine_is_first_in_every_duty() {
    let networks = ["10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24"].map(plain);
    let candidates =
        [candidate("b", 2, &networks[1]), candidate("c", 3, &networks[2]), candidate("a", 1, &networks[0])];
    let decision = decide(&candidates);
    assert_eq!(
        decision.members.iter().map(|member| member.host.as_str()).collect::<Vec<_>>(),
        ["a", "b", "c"]
    );
    for (position, member) in decision.members.iter().enumerate() {
        assert_eq!(member.duty.members, ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        assert_eq!(usize::try_from(member.duty.position).unwrap(), position);
        assert!(!member.duty.holds_first && member.is_new && member.duty.generation == 1);
        let message = message_of(&member.duty).unwrap();
        proto::balancer::Duty::parse(&message).unwrap().unwrap();
    }
    let alone = decide(&candidates[..1]);
    assert!(alone.members[0].duty.holds_first, "kubeadm init needs the address");
}

#[test]
fn a_duty_is_renumbered_only_when_it_changes() {
    let networks = ["10.0.0.1/24", "10.0.0.2/24"].map(plain);
    let first = decide(&[candidate("a", 1, &networks[0])]);
    let known = announced(&first.members[0]);
    let a = Candidate { known: Some(&known), ..candidate("a", 1, &networks[0]) };
    let again = decide(&[a]);
    assert_eq!((again.members[0].is_new, again.members[0].duty.generation), (false, 1));
    let grown = decide(&[a, candidate("b", 2, &networks[1])]);
    assert_eq!((grown.members[0].is_new, grown.members[0].duty.generation), (true, 2));
    let restored = decide(&[Candidate { known: None, carried_generation: 8, ..a }]);
    assert_eq!(restored.members[0].duty.generation, 9, "the host has 8");
    let behind = decide(&[Candidate { carried_generation: 8, ..a }]);
    assert_eq!((behind.members[0].is_new, behind.members[0].duty.generation), (true, 9));
}

#[test]
fn address_is_on_interface_routing_to_endpoint() {
    let card = |name, address| interface(name, &[address], None);
    let two = network(&[card("eno1", "10.0.0.1/24"), card("eno2", "192.0.2.1/24")], Some("eno2"));
    let bond = network(&[card("bond0", "10.0.0.1/24"), interface("eno1", &[], Some("bond0"))], None);
    let six = network(&[interface("eno1", &["10.0.0.1/24", "2001:db8::1/64"], None)], None);
    let holder = network(&[interface("eno1", &["10.0.0.100/32", "10.0.0.1/24"], None)], None);
    let slave = DeviceProblem::IsSlave { device: "eno1".into(), master: "bond0".into() };
    let missing = DeviceProblem::Missing { device: "eth0".into(), found: "eno1, eno2".into() };
    let nothing = |device: Option<&str>| DeviceProblem::NoAddress { device: device.map(str::to_owned) };
    for (name, network, device, endpoint, want) in [
        ("connected", &two, None, "10.0.0.100", Ok("10.0.0.1")),
        ("by the default route", &two, None, "203.0.113.5", Ok("192.0.2.1")),
        ("as named", &two, Some("eno2"), "10.0.0.100", Ok("192.0.2.1")),
        ("missing", &two, Some("eth0"), "10.0.0.100", Err(missing)),
        ("member of a bond", &bond, Some("eno1"), "10.0.0.100", Err(slave)),
        ("bond", &bond, Some("bond0"), "10.0.0.100", Ok("10.0.0.1")),
        ("IPv6", &six, None, "2001:db8::100", Ok("2001:db8::1")),
        ("no IPv6", &two, None, "2001:db8::100", Err(nothing(None))),
        ("no IPv6 as named", &two, Some("eno1"), "2001:db8::100", Err(nothing(Some("eno1")))),
        ("the endpoint is no own address", &holder, None, "10.0.0.100", Ok("10.0.0.1")),
    ] {
        let found = find_address(Some(network), device, endpoint.parse().unwrap());
        assert_eq!(found, want.map(|address| address.parse().unwrap()), "{name}");
    }
    assert_eq!(find_address(None, None, "10.0.0.100".parse().unwrap()), Err(DeviceProblem::NoReport));
}

#[test]
fn duplicate_address_or_router_id_is_named() {
    let ours = cluster("c1", "10.0.0.100", 5);
    let internal = Internal::of_cluster(&ours).unwrap();
    let network = plain("10.0.0.1/24");
    let candidates = [candidate("a", 1, &network)];
    let against = |other: &BaremetalCluster, has_duties: bool, candidates: &[Candidate<'_>]| {
        let other = Neighbour { cluster: Arc::new(other.clone()), has_duties };
        let own = Neighbour { cluster: Arc::new(ours.clone()), has_duties: false };
        decide_members(&ours, internal, candidates, &[own, other])
    };
    let (older, younger) = (cluster("c2", "10.0.0.100", 1), cluster("c0", "10.0.0.100", 9));
    let holding = against(&older, true, &candidates);
    assert_eq!((holding.address_taken.as_deref(), holding.members.len()), (Some("fleet/c2"), 0));
    // Times of creation are new after a restore.
    let by_name = against(&older, false, &candidates);
    assert_eq!((by_name.address_taken, by_name.members.len()), (None, 1));
    let by_name = against(&younger, false, &candidates);
    assert_eq!(by_name.address_taken.as_deref(), Some("fleet/c0"));
    let stated = [Candidate { carried_generation: 3, ..candidate("a", 1, &network) }];
    assert_eq!(against(&younger, false, &stated).address_taken, None, "its host states its duty");
    let against = |other: &BaremetalCluster| against(other, false, &candidates);
    let same_id = against(&cluster("c2", "10.0.0.200", 1));
    assert_eq!((same_id.router_id_shared, same_id.members.len()), (vec!["fleet/c2".to_owned()], 1));
    let elsewhere = against(&cluster("c2", "10.9.0.200", 1));
    assert!(elsewhere.router_id_shared.is_empty());
    let mut external = cluster("c2", "10.0.0.100", 1);
    external.spec.control_plane_load_balancer.as_mut().unwrap().kind = LoadBalancerType::External;
    assert!(against(&external).address_taken.is_none());
    let twin = network.clone();
    let twins = decide(&[candidates[0], candidate("b", 2, &twin)]);
    assert_eq!(twins.members.len(), 1);
    assert!(matches!(twins.problems[..], [(_, DeviceProblem::AddressShared(_))]));
}

#[test]
fn a_wrong_device_takes_no_place_away() {
    let networks = ["10.0.0.1/24", "10.0.0.2/24"].map(plain);
    let members = [candidate("a", 1, &networks[0]), candidate("b", 2, &networks[1])];
    let known: Vec<_> = decide(&members).members.iter().map(announced).collect();
    let gone = network(&[], None);
    for (name, changed) in [
        ("a name that is mistyped", Candidate { network_device: Some("eth7"), ..members[0] }),
        ("an interface without address", Candidate { network: Some(&gone), ..members[0] }),
        ("no report since a restore", Candidate { network: None, ..members[0] }),
    ] {
        let candidates = [
            Candidate { known: Some(&known[0]), ..changed },
            Candidate { known: Some(&known[1]), ..members[1] },
        ];
        let decision = decide(&candidates);
        assert!(decision.members.iter().all(|member| !member.is_new), "{name}: {decision:?}");
        assert_eq!((decision.members.len(), decision.problems.len()), (2, 1), "{name}");
        let new = decide(&[changed, Candidate { known: Some(&known[1]), ..members[1] }]);
        assert_eq!(new.members.len(), 1, "{name}: a new host has no place");
    }
    // Its former address is another host's now.
    let of_a = plain("10.0.0.1/24");
    let lost = Candidate { network: Some(&gone), known: Some(&known[0]), ..members[0] };
    let given = decide(&[lost, Candidate { network: Some(&of_a), ..members[1] }]);
    let hosts: Vec<_> = given.members.iter().map(|member| member.host.as_str()).collect();
    assert_eq!(hosts, ["b"]);
}

#[test]
fn another_router_id_waits_for_all_members() {
    let networks = ["10.0.0.1/24", "10.0.0.2/24"].map(plain);
    let members = [candidate("a", 1, &networks[0]), candidate("b", 2, &networks[1])];
    let known: Vec<_> = decide(&members).members.iter().map(announced).collect();
    let mut changed = cluster("c1", "10.0.0.100", 0);
    changed.spec.control_plane_load_balancer.as_mut().unwrap().vrid = Some(8);
    let internal = Internal::of_cluster(&changed).unwrap();
    let decide = |first: &LoadBalancerStatus, is_attached: bool| {
        let candidates = [
            Candidate { known: Some(first), ..members[0] },
            Candidate { known: Some(&known[1]), is_attached, ..members[1] },
        ];
        let decision = decide_members(&changed, internal, &candidates, &[]);
        let shown = project_conditions(&decision, &candidates);
        let valid = shown.into_iter().find(|update| update.kind == Type::NetworkConfigValid).unwrap();
        (decision, valid)
    };
    let ids = |decision: &Decision| -> Vec<_> {
        decision.members.iter().map(|member| (member.duty.vrid, member.is_new)).collect()
    };
    let (waiting, valid) = decide(&known[0], false);
    assert_eq!(ids(&waiting), [(7, false), (7, false)]);
    assert_eq!(valid.reason, Reason::DutyUnconfirmed);
    assert!(valid.message.contains("vrid stays 7 until host b is attached"), "{}", valid.message);
    let (told, valid) = decide(&known[0], true);
    assert_eq!((ids(&told), valid.reason), (vec![(8, true), (8, true)], Reason::NetworkConfigAccepted));
    // One that goes away while the change is under way is told when it comes back.
    let (begun, _) = decide(&announced(&told.members[0]), false);
    assert_eq!(ids(&begun), [(8, false), (8, true)]);
}

#[test]
fn new_member_waits_until_others_know_it() {
    let networks = ["10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24"].map(plain);
    let [a, b, c] = [0, 1, 2].map(|index| candidate(["a", "b", "c"][index], 1, &networks[index]));
    let known: Vec<_> = decide(&[a, b]).members.iter().map(announced).collect();
    let told: Vec<_> = decide(&[a, b, c]).members.iter().map(announced).collect();
    let confirmed = |status: &LoadBalancerStatus| {
        let state =
            LoadBalancerReport { generation: status.duty.generation, ..LoadBalancerReport::default() };
        LoadBalancerStatus { state: Some(state), ..status.clone() }
    };
    let confirmed_old = known.iter().map(confirmed).collect::<Vec<_>>();
    let mut failed_new = confirmed(&told[0]);
    failed_new.state.as_mut().unwrap().message = "no space left".to_owned();
    let confirmed_new = told.iter().map(confirmed).collect::<Vec<_>>();
    for (name, of_a, a_is_attached, want) in [
        ("all are attached", &known[0], true, 3),
        ("one is away with its former duty", &confirmed_old[0], false, 2),
        ("one is away and has not confirmed the new one", &told[0], false, 2),
        ("one is away and knows the new one", &confirmed_new[0], false, 3),
        ("one is away and could not keep the new one", &failed_new, false, 2),
    ] {
        let candidates = [
            Candidate { known: Some(of_a), is_attached: a_is_attached, ..a },
            Candidate { known: Some(&known[1]), ..b },
            c,
        ];
        let decision = decide(&candidates);
        assert_eq!(decision.members.len(), want, "{name}");
        let shown = project_conditions(&decision, &candidates);
        let valid = shown.into_iter().find(|update| update.kind == Type::NetworkConfigValid).unwrap();
        let is_waiting = valid.message.starts_with("host c becomes a member when host a is attached");
        assert_eq!((valid.reason == Reason::DutyUnconfirmed, is_waiting), (want == 2, want == 2), "{name}");
    }
    // After a restore: what was announced is not known, and some are told again before others.
    let carrying = Candidate { carried_generation: 5, ..c };
    let away = Candidate { known: Some(&told[0]), is_attached: false, ..a };
    assert_eq!(decide(&[away, carrying]).members.len(), 2, "it carries a duty");
    assert_eq!(decide(&[Candidate { is_attached: false, ..a }, b]).members.len(), 1, "b may be unknown to a");
}

#[test]
fn a_released_host_gets_the_empty_duty_once() {
    let network = plain("10.0.0.1/24");
    let member = decide(&[candidate("a", 1, &network)]).members.remove(0);
    let ended = end_duty(Some(&announced(&member)), 4).unwrap();
    assert_eq!((ended.generation, ended.address.as_str()), (5, ""));
    assert_eq!(proto::balancer::Duty::parse(&message_of(&ended).unwrap()), Ok(None));
    assert_eq!(end_duty(Some(&LoadBalancerStatus { duty: ended, state: None }), 4), None);
    assert_eq!(end_duty(None, 4), None, "nothing is known of it");
}

#[test]
fn conditions_name_holder_or_cause() {
    let networks = ["10.0.0.1/24", "10.0.0.2/24"].map(plain);
    let plain_candidates = [candidate("a", 1, &networks[0]), candidate("b", 2, &networks[1])];
    let decision = decide(&plain_candidates);
    let report = |is_holder, message: &str| {
        let generation = 1;
        Some(LoadBalancerReport { generation, is_holder, message: message.into(), ..Default::default() })
    };
    let stale = Some(LoadBalancerReport { generation: 0, is_holder: true, ..Default::default() });
    for (name, a, b, want, part) in [
        ("held", report(true, ""), report(false, ""), Reason::AddressHeld, "held by host a"),
        ("in part", report(true, ""), report(false, "no ip_vs"), Reason::AddressHeld, "host b: no ip_vs"),
        ("no holder", report(false, ""), report(false, ""), Reason::HolderMissing, "/readyz"),
        ("unconfirmed", report(false, ""), None, Reason::DutyUnconfirmed, "host b"),
        ("stale report", stale, report(false, ""), Reason::DutyUnconfirmed, "host a"),
        ("failed", report(false, ""), report(false, "no eth7"), Reason::MemberFailed, "host b: no eth7"),
    ] {
        let known: Vec<_> = decision
            .members
            .iter()
            .zip([a, b])
            .map(|(member, state)| LoadBalancerStatus { state, ..announced(member) })
            .collect();
        let candidates: Vec<_> = plain_candidates
            .iter()
            .zip(&known)
            .map(|(candidate, known)| Candidate { known: Some(known), ..*candidate })
            .collect();
        let conditions = project_conditions(&decide(&candidates), &candidates);
        let found = conditions.iter().find(|condition| condition.kind == Type::LoadBalancerReady).unwrap();
        assert_eq!(found.reason, want, "{name}");
        assert!(found.message.contains(part), "{name}: {}", found.message);
        assert_eq!(found.status == ConditionStatus::True, want == Reason::AddressHeld, "{name}");
    }
    let none = project_conditions(&decide(&[]), &[]);
    assert!(none.iter().any(|condition| condition.reason == Reason::MembersMissing));
}

#[test]
fn conditions_name_wrong_interfaces_and_addresses() {
    let bond =
        network(&[interface("bond0", &["10.0.0.1/24"], None), interface("eno1", &[], Some("bond0"))], None);
    let six = network(&[interface("eno1", &["2001:db8::1/64"], None)], None);
    let base = candidate("a", 1, &bond);
    for (name, candidate, want) in [
        ("member", Candidate { network_device: Some("eno1"), ..base }, Reason::NetworkDeviceIsSlave),
        ("missing", Candidate { network_device: Some("eth0"), ..base }, Reason::NetworkDeviceMissing),
        ("no report", Candidate { network: None, ..base }, Reason::NetworkUnknown),
        ("family", Candidate { network: Some(&six), ..base }, Reason::AddressMissing),
    ] {
        let conditions = project_conditions(&decide(&[candidate]), &[candidate]);
        let found = conditions.iter().find(|condition| condition.reason == want);
        assert!(found.is_some_and(|found| found.message.contains("host a")), "{name}: {conditions:?}");
    }
}

fn endpoint(host: &str, port: i32) -> Endpoint {
    Endpoint { host: host.to_owned(), port }
}

#[test]
fn fields_without_effect_cause_one_warning() {
    type Change = fn(&mut BaremetalClusterSpec);
    let external = |spec: &mut BaremetalClusterSpec| {
        spec.control_plane_load_balancer.as_mut().unwrap().kind = LoadBalancerType::External;
    };
    let other = "spec.controlPlaneLoadBalancer (";
    let cases: [(&str, Change, &[&str]); 12] = [
        ("internal", |_| {}, &[]),
        ("its endpoint", |s| s.control_plane_endpoint = Some(endpoint("10.0.0.100", 6443)), &[]),
        ("a name for it", |s| s.control_plane_endpoint = Some(endpoint("api.example", 6443)), &[]),
        ("another endpoint", |s| s.control_plane_endpoint = Some(endpoint("10.0.0.7", 6443)), &[other]),
        ("another port", |s| s.control_plane_endpoint = Some(endpoint("10.0.0.100", 443)), &[other]),
        ("internal with a device", |s| s.network_device = Some("bond0".into()), &[]),
        ("no name", |s| s.network_type = Some(String::new()), &[]),
        ("a network", |s| s.network_type = Some("kube-ovn".into()), &["spec.networkType"]),
        ("external", |s| s.control_plane_load_balancer.as_mut().unwrap().vrid = None, &[]),
        ("external with vrid", |_| {}, &["spec.controlPlaneLoadBalancer.vrid"]),
        (
            "external with everything",
            |s| {
                s.network_device = Some("bond0".into());
                s.network_type = Some("kube-ovn".into());
            },
            &["spec.controlPlaneLoadBalancer.vrid", "spec.networkDevice", "spec.networkType"],
        ),
        (
            "no load balancer",
            |s| {
                s.control_plane_load_balancer = None;
                s.network_device = Some("bond0".into());
            },
            &["spec.networkDevice"],
        ),
    ];
    for (name, change, want) in cases {
        let mut cluster = cluster("c1", "10.0.0.100", 0);
        if name.starts_with("external") {
            external(&mut cluster.spec);
        }
        change(&mut cluster.spec);
        let condition = ignored_condition(&cluster);
        let is_warning = condition.status == ConditionStatus::True;
        assert_eq!((condition.kind, is_warning), (Type::FieldsIgnored, !want.is_empty()), "{name}");
        assert!(want.iter().all(|field| condition.message.contains(field)), "{name}: {}", condition.message);
        assert_eq!(condition.message.matches("spec.").count(), want.len(), "{name}: {}", condition.message);
    }
}
