mod availability;

use std::cell::Cell;

use super::*;
use crate::samples;
use coordinator_api::conditions::Reason;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::inventory::{AllocationState, PlanState, PlanType};
use coordinator_api::names::annotation;
use coordinator_api::template::BaremetalMachineTemplateStatus;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

#[test]
fn first_available_member_is_chosen() {
    let mut roster = Roster::new(samples::pool(&["z", "a", "m"]));
    assert!(roster.choose_member(&Wish::default(), NOW, |_| false).is_err());
    assert!(roster.set_availability("a", Availability::Available));
    assert!(roster.set_availability("m", Availability::Available));
    assert_eq!(roster.choose_member(&Wish::default(), NOW, |_| false).unwrap().name, "a");
    assert_eq!(roster.choose_member(&Wish::default(), NOW, |name| name == "a").unwrap().name, "m");
    assert!(roster.set_availability("z", Availability::Available));
    assert_eq!(roster.choose_member(&Wish::default(), NOW, |_| false).unwrap().name, "z");
    assert!(!roster.set_availability("z", Availability::Available), "nothing changed");
    assert!(!roster.set_availability("unlisted", Availability::Available), "not listed");
}

/// A thousand machines may wait: a change of the members must not be a write of each of them.
#[test]
fn text_of_an_exhausted_pool_stays() {
    let mut roster = Roster::new(samples::pool(&["a", "b", "c"]));
    let mut texts = std::collections::BTreeSet::new();
    for availability in [Availability::Allocated, Availability::Preparing, Availability::Reprovisioning] {
        for host in ["a", "b", "c"] {
            roster.set_availability(host, availability);
            texts.insert(roster.choose_member(&Wish::default(), NOW, |_| false).unwrap_err().text());
        }
    }
    assert_eq!(texts.len(), 1, "{texts:?}");
}

#[test]
fn exhausted_pool_counts_its_exclusions() {
    let mut roster = Roster::new(samples::pool(&["a", "b", "c"]));
    roster.set_availability("a", Availability::Allocated);
    assert_eq!(
        roster.choose_member(&Wish::default(), NOW, |_| false).unwrap_err().detail,
        "1 allocated, 2 missing"
    );
    roster.set_availability("b", Availability::Available);
    assert_eq!(
        roster.choose_member(&Wish::default(), NOW, |_| true).unwrap_err().detail,
        "1 reserved for other machines, 1 allocated, 1 missing"
    );
    let empty = Roster::new(samples::pool(&[]));
    let problem = empty.choose_member(&Wish::default(), NOW, |_| false).unwrap_err();
    assert!(problem.next_action.contains("add machineInventories"));
}

#[test]
fn status_counts_each_member_once() {
    let mut roster = Roster::new(samples::pool(&["a", "b", "c", "d"]));
    roster.set_availability("a", Availability::Available);
    roster.set_availability("b", Availability::Preparing);
    roster.set_availability("c", Availability::Unavailable(Exclusion::NotAttached));
    let status = roster.project_status(Timestamp::UNIX_EPOCH);
    assert_eq!((status.total, status.available, status.preparing, status.unavailable), (4, 1, 1, 2));
    let valid = &status.conditions[0];
    assert_eq!((valid.status.as_str(), valid.reason.as_str()), ("False", "MemberMissing"));
    assert_eq!(
        valid.message,
        "MachineInventory d does not exist; next: register the host or remove the entry"
    );
    roster.set_availability("d", Availability::Allocated);
    roster.set_availability("c", Availability::Reprovisioning);
    let valid = &roster.project_status(Timestamp::UNIX_EPOCH).conditions[0];
    assert_eq!((valid.status.as_str(), valid.reason.as_str()), ("True", "MembersFound"));
}

#[test]
fn members_valid_while_usable_or_running_plan() {
    use Availability::{Allocated, Available, Preparing, Reprovisioning, Unavailable};
    for (availability, want) in [
        (Available, Reason::MembersFound),
        (Allocated, Reason::MembersFound),
        (Preparing, Reason::MembersFound),
        (Reprovisioning, Reason::MembersFound),
        (Unavailable(Exclusion::Missing), Reason::MemberMissing),
        (Unavailable(Exclusion::OtherPool), Reason::MemberInAnotherPool),
        (Unavailable(Exclusion::NoPlanSecret), Reason::PlanSecretMissing),
        (Unavailable(Exclusion::Deleting), Reason::MemberNotReady),
        (Unavailable(Exclusion::Quarantined), Reason::MemberNotReady),
        (Unavailable(Exclusion::NotAttached), Reason::MemberNotReady),
        (Unavailable(Exclusion::CarriesNode), Reason::MemberNotReady),
        (Unavailable(Exclusion::PlanFailed), Reason::MemberNotReady),
        (Unavailable(Exclusion::Abandoned), Reason::MemberNotReady),
        (Unavailable(Exclusion::OwnerMissing), Reason::MemberNotReady),
        (Unavailable(Exclusion::NotApproved), Reason::MemberNotReady),
        (Unavailable(Exclusion::ManagedDisks), Reason::MemberNotReady),
        // It ends by itself.
        (Unavailable(Exclusion::CustomPlan), Reason::MembersFound),
    ] {
        let mut roster = Roster::new(samples::pool(&["a"]));
        roster.set_availability("a", availability);
        let valid = &roster.project_status(Timestamp::UNIX_EPOCH).conditions[0];
        let status = if want == Reason::MembersFound { "True" } else { "False" };
        assert_eq!(
            (valid.status.as_str(), valid.reason.as_str()),
            (status, want.as_str()),
            "{availability:?}"
        );
    }
}

#[test]
fn ready_says_how_many_are_available() {
    let mut roster = Roster::new(samples::pool(&["a", "b"]));
    roster.set_availability("a", Availability::Available);
    let ready = |roster: &Roster| {
        let conditions = roster.project_status(Timestamp::UNIX_EPOCH).conditions;
        conditions.into_iter().find(|condition| condition.type_ == "Ready").unwrap()
    };
    assert_eq!(
        ready(&roster).message,
        "1 of 2 members available: 1 missing; MachineInventory b does not exist; next: register the host or remove the entry"
    );
    roster.set_availability("b", Availability::Allocated);
    assert_eq!(ready(&roster).message, "1 of 2 members available: 1 allocated");
}

#[test]
fn hostname_of_two_members_makes_pool_invalid() {
    let named = |entries: &[(&str, Option<&str>)]| {
        let mut pool = Arc::unwrap_or_clone(samples::pool(&[]));
        let entry = |(name, hostname): &(&str, Option<&str>)| PoolMember {
            name: (*name).to_owned(),
            hostname: hostname.map(str::to_owned),
            ..PoolMember::default()
        };
        pool.spec.machine_inventories = entries.iter().map(entry).collect();
        pool.spec.selector = Some(serde_json::from_value(serde_json::json!({})).unwrap());
        let mut roster = Roster::new(Arc::new(pool));
        for (name, _) in entries {
            roster.set_availability(name, Availability::Available);
        }
        roster
    };
    let valid = |roster: &Roster| roster.project_status(Timestamp::UNIX_EPOCH).conditions.remove(0);
    for (name, entries, want) in [
        ("two hostnames", &[("a", Some("n1")), ("b", Some("n2"))][..], Reason::MembersFound),
        ("one hostname", &[("a", Some("n1")), ("b", Some("n1"))], Reason::HostnameShared),
        ("the name of another member", &[("a", None), ("b", Some("a"))], Reason::HostnameShared),
        ("names exchanged", &[("a", Some("b")), ("b", Some("a"))], Reason::MembersFound),
        ("one member twice", &[("a", Some("n1")), ("a", Some("n1"))], Reason::MembersFound),
    ] {
        assert_eq!(valid(&named(entries)).reason, want.as_str(), "{name}");
    }
    let mut roster = named(&[("a", Some("c"))]);
    roster.set_selected("c", true);
    roster.set_availability("c", Availability::Available);
    let message = "the nodes of MachineInventory a, c would all have the name c; next: give each entry its own hostname";
    assert_eq!(valid(&roster).message, message);
    roster.set_selected("c", false);
    assert_eq!(valid(&roster).reason, Reason::MembersFound.as_str());
}

fn selecting(members: &[&str]) -> Roster {
    let mut pool = Arc::unwrap_or_clone(samples::pool(members));
    pool.spec.selector =
        Some(serde_json::from_value(serde_json::json!({ "matchLabels": { "rack": "r1" } })).unwrap());
    Roster::new(Arc::new(pool))
}

#[test]
fn selected_members_follow_the_listed_ones_by_name() {
    let mut roster = selecting(&["z"]);
    let labels = |rack: &str| BTreeMap::from([("rack".to_owned(), rack.to_owned())]);
    assert!(roster.selects(&labels("r1")) && !roster.selects(&labels("r2")));
    for host in ["c", "b", "z"] {
        assert_eq!(roster.set_selected(host, true), host != "z", "a listed one is a member already");
        roster.set_availability(host, Availability::Available);
    }
    let choose = |roster: &Roster, taken: &[&str]| {
        roster
            .choose_member(&Wish::default(), NOW, |name| taken.contains(&name))
            .map(|member| member.name.clone())
    };
    assert_eq!(choose(&roster, &[]).as_deref(), Ok("z"));
    assert_eq!(choose(&roster, &["z"]).as_deref(), Ok("b"));
    assert_eq!(roster.project_status(Timestamp::UNIX_EPOCH).total, 3);
    assert!(roster.set_selected("b", false) && !roster.set_selected("b", false));
    assert_eq!(choose(&roster, &["z"]).as_deref(), Ok("c"));
    assert!(!roster.set_selected("z", false), "the list still has it");
    let status = roster.project_status(Timestamp::UNIX_EPOCH);
    assert_eq!((status.total, status.available), (2, 2));
}

#[test]
fn selector_that_cannot_be_used_is_shown() {
    let mut pool = Arc::unwrap_or_clone(samples::pool(&[]));
    let selector = serde_json::json!({ "matchExpressions": [{ "key": "rack", "operator": "Near" }] });
    pool.spec.selector = Some(serde_json::from_value(selector).unwrap());
    let roster = Roster::new(Arc::new(pool));
    assert!(!roster.selects(&BTreeMap::new()));
    let status = roster.project_status(Timestamp::UNIX_EPOCH);
    assert_eq!(status.conditions[0].reason, Reason::SelectorInvalid.as_str());
}

/// A pool with `nodeReuse`.
fn reusing_pool(hosts: &[&str]) -> Roster {
    let mut pool = MachineInventoryPool::clone(&samples::pool(hosts));
    pool.spec.node_reuse = Some(true);
    Roster::new(Arc::new(pool))
}

#[test]
fn wish_binds_domain_and_prefers_former_hosts() {
    let mut roster = reusing_pool(&["a", "b", "c", "d"]);
    for (host, domain, group) in
        [("a", "d1", Some("other")), ("b", "d1", None), ("c", "d1", Some("mine")), ("d", "d2", None)]
    {
        roster.set_availability(host, Availability::Available);
        let traits = Traits {
            failure_domain: Some(domain.to_owned()),
            reuse_group: group.map(str::to_owned),
            ..Traits::default()
        };
        assert!(roster.set_traits(host, traits.clone()) && !roster.set_traits(host, traits));
    }
    let choose = |failure_domain, reuse_group, taken: &[&str]| {
        let [failure_domain, reuse_group] =
            [failure_domain, reuse_group].map(|text: Option<&str>| text.map(str::to_owned));
        let wish = Wish { failure_domain, reuse_group };
        roster.choose_member(&wish, NOW, |name| taken.contains(&name)).map(|member| member.name.as_str())
    };
    for (name, domain, group, taken, want) in [
        ("anything", None, None, &[][..], "a"),
        ("domain", Some("d2"), None, &[], "d"),
        ("its own", None, Some("mine"), &[], "c"),
        ("one of none", None, Some("mine"), &["c"], "b"),
        ("one of another", Some("d1"), Some("mine"), &["b", "c"], "a"),
    ] {
        assert_eq!(choose(domain, group, taken), Ok(want), "{name}");
    }
    let full = choose(Some("d2"), None, &["d"]).unwrap_err();
    assert!(
        full.event_text().contains("no member in failure domain d2 is free")
            && full.detail == "1 reserved for other machines",
        "{full:?}"
    );
    let unknown = choose(Some("d3"), None, &[]).unwrap_err();
    assert!(unknown.message.contains("it has no member in failure domain d3"), "{unknown:?}");
    assert_eq!(roster.failure_domains().collect::<Vec<_>>(), ["d1", "d2"]);
    roster.set_traits("d", Traits::default());
    assert_eq!(roster.failure_domains().collect::<Vec<_>>(), ["d1"]);
}

#[test]
fn former_host_is_found_without_a_scan() {
    let names: Vec<_> = (0..1000).map(|number| format!("host-{number}")).collect();
    let mut roster = reusing_pool(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for name in &names {
        roster.set_availability(name, Availability::Available);
        let reuse_group = Some(if name == "host-999" { "mine" } else { "other" }.to_owned());
        roster.set_traits(name, Traits { reuse_group, ..Traits::default() });
    }
    for (group, want) in [("mine", "host-999"), ("other", "host-0"), ("new", "host-0")] {
        let looked_at = Cell::new(0);
        let is_reserved = |_: &str| {
            looked_at.set(looked_at.get() + 1);
            false
        };
        let wish = Wish { reuse_group: Some(group.to_owned()), ..Wish::default() };
        let chosen = roster.choose_member(&wish, NOW, is_reserved).map(|member| member.name.as_str());
        assert_eq!((chosen, looked_at.get()), (Ok(want), 1), "{group}");
    }
}

#[test]
fn returning_host_of_the_group_is_waited_for() {
    let mut roster = reusing_pool(&["a", "b", "c"]);
    for (host, group) in [("a", None), ("b", Some("mine")), ("c", Some("mine"))] {
        let failure_domain = Some("d1".to_owned());
        roster.set_traits(
            host,
            Traits { failure_domain, reuse_group: group.map(str::to_owned), ..Traits::default() },
        );
    }
    roster.set_availability("a", Availability::Available);
    let failed = Availability::Unavailable(Exclusion::PlanFailed);
    for (name, availabilities, wish, want) in [
        (
            "its host is cleaned",
            [Availability::Preparing, Availability::Allocated],
            (Some("d1"), Some("mine")),
            Err("waiting for the clean of a host"),
        ),
        (
            "another of its hosts is free",
            [Availability::Preparing, Availability::Available],
            (None, Some("mine")),
            Ok("c"),
        ),
        ("another group", [Availability::Preparing, Availability::Allocated], (None, Some("other")), Ok("a")),
        ("no reuse", [Availability::Preparing, Availability::Allocated], (None, None), Ok("a")),
        ("its clean failed", [failed, Availability::Allocated], (None, Some("mine")), Ok("a")),
        (
            "its other host runs",
            [Availability::Allocated, Availability::Allocated],
            (None, Some("mine")),
            Ok("a"),
        ),
    ] {
        for (host, availability) in ["b", "c"].into_iter().zip(availabilities) {
            roster.set_availability(host, availability);
        }
        let wish = Wish { failure_domain: wish.0.map(str::to_owned), reuse_group: wish.1.map(str::to_owned) };
        let got = roster.choose_member(&wish, NOW, |_| false).map(|member| member.name.as_str());
        match want {
            Ok(host) => assert_eq!(got, Ok(host), "{name}"),
            Err(start) => assert!(
                got.as_ref()
                    .is_err_and(|problem| problem.message.starts_with(start) && problem.detail == "b"),
                "{name}: {got:?}"
            ),
        }
    }
}

#[test]
fn wait_for_a_returning_host_ends() {
    let mut roster = reusing_pool(&["a", "b"]);
    roster.set_traits("b", Traits { reuse_group: Some("mine".to_owned()), ..Traits::default() });
    roster.set_availability("a", Availability::Available);
    roster.set_availability("b", Availability::Preparing);
    let wish = Wish { reuse_group: Some("mine".to_owned()), ..Wish::default() };
    for (name, holder, minutes, is_over) in [
        ("released just now", Holder::Releases(NOW), 0, false),
        ("released for less than the limit", Holder::Releases(NOW), 29, false),
        ("released for the limit", Holder::Releases(NOW), 30, true),
        ("the machine is not seen in deletion", Holder::Keeps, 30, false),
    ] {
        roster.set_holder("b", holder);
        let now = NOW + SignedDuration::from_mins(minutes);
        let chosen = roster.choose_member(&wish, now, |_| false).map(|member| member.name.as_str());
        assert_eq!(chosen.ok(), is_over.then_some("a"), "{name}");
    }
}

#[test]
fn domains_follow_availability_and_labels() {
    let mut roster = Roster::new(samples::pool(&["a", "b", "c"]));
    let place = |roster: &mut Roster, host: &str, domain: Option<&str>| {
        let failure_domain = domain.map(str::to_owned);
        roster.set_traits(host, Traits { failure_domain, ..Traits::default() })
    };
    for host in ["a", "b", "c"] {
        assert!(
            place(&mut roster, host, Some("d1")) && roster.set_availability(host, Availability::Available)
        );
    }
    roster.set_availability("a", Availability::Allocated);
    roster.set_availability("b", Availability::Preparing);
    let wish = Wish { failure_domain: Some("d1".to_owned()), ..Wish::default() };
    let chosen =
        |roster: &Roster| roster.choose_member(&wish, NOW, |_| false).map(|member| member.name.clone());
    assert_eq!(chosen(&roster).as_deref(), Ok("c"));
    assert!(place(&mut roster, "c", Some("d2")));
    assert_eq!(chosen(&roster).unwrap_err().detail, "1 allocated, 1 being cleaned");
    assert_eq!(roster.failure_domains().collect::<Vec<_>>(), ["d1", "d2"]);
    assert!(place(&mut roster, "c", None));
    assert_eq!(roster.failure_domains().collect::<Vec<_>>(), ["d1"]);
    assert_eq!(roster.choose_member(&Wish::default(), NOW, |_| false).unwrap().name, "c");
}

#[test]
fn template_has_the_least_that_any_member_has() {
    let mut roster = selecting(&["h1", "h2"]);
    assert!(roster.set_selected("h3", true));
    let status = |roster: &Roster| template_status(&roster.least_capacity());
    let amount = |roster: &Roster, name: &str| status(roster).capacity.get(name).map(|found| found.0.clone());
    let traits = |threads: i64, gibibytes: i64, architecture| Traits {
        capacity: Capacity {
            cpu_threads: Some(threads),
            memory_bytes: Some(gibibytes << 30),
            architecture: Some(architecture),
        },
        ..Traits::default()
    };
    assert_eq!(status(&roster), BaremetalMachineTemplateStatus::default());
    assert!(roster.set_traits("h1", traits(8, 64, "amd64")));
    assert!(roster.set_traits("h2", traits(16, 32, "amd64")));
    assert_eq!(amount(&roster, "cpu").as_deref(), Some("8"));
    assert_eq!(amount(&roster, "memory").as_deref(), Some("34359738368"));
    assert_eq!(status(&roster).node_info.unwrap().architecture, "amd64");
    assert!(roster.set_traits("h3", traits(4, 64, "arm64")));
    assert_eq!((amount(&roster, "cpu").as_deref(), status(&roster).node_info), (Some("4"), None));
    assert!(roster.set_selected("h3", false));
    assert!(roster.set_traits("h2", Traits::default()));
    assert_eq!(amount(&roster, "memory").as_deref(), Some("68719476736"), "only h1 told it");
}

#[test]
fn device_without_internal_endpoint_is_named() {
    let mut pool = MachineInventoryPool::clone(&samples::pool(&["a", "b", "c"]));
    for (number, device) in [(1, "eth1"), (2, "")] {
        pool.spec.machine_inventories[number].network_device = Some(device.to_owned());
    }
    let condition = |pool: &MachineInventoryPool, holds_endpoint| {
        ignored_condition(pool, holds_endpoint).map(|update| (update.reason, update.message))
    };
    let supported = || Some((Reason::FieldsSupported, String::new()));
    assert_eq!(condition(&pool, Some(true)), supported());
    assert_eq!(condition(&pool, None), None, "not known yet");
    let (reason, message) = condition(&pool, Some(false)).unwrap();
    assert_eq!(reason, Reason::FieldWithoutEffect);
    assert!(message.starts_with("networkDevice of MachineInventory b (only"), "{message}");
    pool.spec.machine_inventories.remove(1);
    for holds_endpoint in [None, Some(false)] {
        assert_eq!(condition(&pool, holds_endpoint), supported(), "none is named");
    }
}
