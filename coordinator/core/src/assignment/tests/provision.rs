//! From the claim to a running node.

use super::*;
use crate::demand::BootstrapEdit;
use crate::host::facts;
use crate::plan::PlanRecordError;
use crate::provider_id::ProviderId;
use coordinator_api::conditions::ConditionStatus;
use coordinator_api::names::annotation;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proto::plan::Checksum;

#[test]
fn provisioning_waits_for_each_input() {
    type Change = fn(&mut Demand, &mut MachineInventory, &mut Secrets);
    let cases: [(&str, Change, Option<Effect>, Option<Reason>); 6] = [
        (
            "no statement",
            |_, i, _| samples::host_status(i).carried = None,
            None,
            Some(Reason::HostStatementMissing),
        ),
        ("no name", |d, _, _| node(d).bootstrap_secret = None, None, Some(Reason::BootstrapWaiting)),
        (
            "no image",
            |d, _, _| {
                let miss = Blocker::failed_with(
                    Type::ImageResolved,
                    Problem::of_cause(Reason::ImageCatalogMiss, "no such version"),
                );
                node(d).image = Err(miss);
            },
            None,
            Some(Reason::ImageCatalogMiss),
        ),
        (
            "bootstrap not read",
            |_, _, s| s.bootstrap = SecretRead::NotRead,
            Some(Effect::ReadSecret(SecretRef::Bootstrap("join".into()))),
            None,
        ),
        (
            "bootstrap missing",
            |_, _, s| s.bootstrap = SecretRead::Missing,
            None,
            Some(Reason::BootstrapWaiting),
        ),
        ("plan not read", |_, _, s| s.plan = None, Some(Effect::ReadSecret(SecretRef::Plan)), None),
    ];
    for (name, change, effect, want) in cases {
        let (mut demand, mut inventory, mut secrets) = (samples::demand(), claimed(), read());
        change(&mut demand, &mut inventory, &mut secrets);
        let outcome = outcome(&demand, Some(&inventory), &secrets);
        assert_eq!((outcome.effect.clone(), reason(&outcome)), (effect, want), "{name}");
    }
}

/// What the host needs for its registry is read when everything else is there, and
/// is part of the plan.
#[test]
fn provisioning_needs_the_named_registry_secret() {
    let secret = |kind: &str| {
        let auths = r#"{"auths":{"registry.example":{"auth":"canary"}}}"#;
        let data = [(".dockerconfigjson".to_owned(), ByteString(auths.into()))].into();
        Box::new(KubeSecret { type_: Some(kind.into()), data: Some(data), ..KubeSecret::default() })
    };
    let decided = |registry: SecretRead<Box<KubeSecret>>| {
        let mut demand = samples::demand();
        node(&mut demand).registry_secret = Some("pull".into());
        outcome(&demand, Some(&claimed()), &Secrets { registry, ..read() })
    };
    let asked = decided(SecretRead::NotRead).effect;
    assert_eq!(asked, Some(Effect::ReadSecret(SecretRef::Registry("pull".into()))));
    for (name, read) in
        [("missing", SecretRead::Missing), ("another type", SecretRead::Read(secret("kubernetes.io/tls")))]
    {
        let blocked = decided(read);
        assert_eq!(reason(&blocked), Some(Reason::RegistrySecretInvalid), "{name}");
        assert_eq!((blocked.effect.clone(), blocked.wake), (None, Wake::Backoff), "{name}");
    }
    let assigned = decided(SecretRead::Read(secret("kubernetes.io/dockerconfigjson")));
    let steps = &assignment(&assigned).plan.steps;
    let access = steps.iter().find_map(|step| match step {
        proto::plan::Step::UpgradeSystem(upgrade) => upgrade.registry.as_deref(),
        _ => None,
    });
    assert!(access.is_some_and(|access| access.docker_config.is_some()), "{steps:?}");
    assert!(!format!("{assigned:?}").contains("canary"));
}

#[test]
fn assignment_is_shown_at_once() {
    let outcome = outcome(&samples::demand(), Some(&claimed()), &read());
    let plan = &assignment(&outcome).plan;
    assert_eq!((plan.kind, plan.generation), (proto::plan::Kind::Reprovision, Generation(1)));
    assert_eq!((phase(&outcome), reason(&outcome)), (Some(Phase::Reprovisioning), Some(Reason::PlanRunning)));
    let state = outcome.state.as_ref().unwrap();
    assert_eq!(state.plan_checksum.as_deref(), Some(plan.checksum.as_str()));
    let hash = Checksum::of(samples::bootstrap().expose()).to_string();
    assert_eq!(state.bootstrap_hash, Some(hash));
}

/// A crash between the announcement and the status of the machine loses no hash.
#[test]
fn announced_plan_tells_its_bootstrap_hash() {
    let mut inventory = claimed();
    let assigned = outcome(&samples::demand(), Some(&inventory), &read());
    let Assignment { plan, bootstrap_hash, .. } = assignment(&assigned);
    let status = inventory.status.as_mut().unwrap();
    facts::record_announcement(status, plan, bootstrap_hash.as_ref(), &[], NOW);
    let followed = outcome(&samples::demand(), Some(&inventory), &read());
    let state = followed.state.unwrap();
    assert_eq!(state.bootstrap_hash, assigned.state.unwrap().bootstrap_hash);
    assert!(state.bootstrap_hash.is_some() && followed.effect.is_none());
}

#[test]
fn machine_names_what_a_reboot_removes() {
    let mut inventory = claimed();
    let data = "#cloud-config\nwrite_files:\n- {path: /etc/sysctl.d/a.conf, content: a}\n";
    let secrets = Secrets { bootstrap: SecretRead::Read(Secret::new(data.into())), ..read() };
    let silent = outcome(&samples::demand(), Some(&inventory), &secrets);
    assert_eq!(assignment(&silent).not_kept, Vec::<String>::new(), "the host did not state its paths");
    samples::host_status(&mut inventory).kept_paths = vec!["/etc/kubernetes".into()];
    let assigned = outcome(&samples::demand(), Some(&inventory), &secrets);
    let Assignment { plan, not_kept, .. } = assignment(&assigned);
    assert_eq!(not_kept, &["file /etc/sysctl.d/a.conf"]);
    let status = inventory.status.as_mut().unwrap();
    facts::record_announcement(status, plan, None, not_kept, NOW);
    let followed = outcome(&samples::demand(), Some(&inventory), &secrets);
    for (name, state) in [("before the plan runs", assigned.state), ("after", followed.state)] {
        let shown = project_conditions(&state.unwrap());
        let kept = shown.iter().find(|update| update.kind == Type::BootstrapFilesKept).unwrap();
        assert_eq!(
            (kept.status, kept.reason),
            (ConditionStatus::False, Reason::BootstrapFilesNotKept),
            "{name}"
        );
        assert!(kept.message.contains("/etc/sysctl.d/a.conf"), "{name}: {}", kept.message);
    }
    let data = "#cloud-config\nmounts: [[LABEL=etcd_disk, /var/lib/etcddisk]]\n";
    let secrets = Secrets { bootstrap: SecretRead::Read(Secret::new(data.into())), ..read() };
    for edit in [BootstrapEdit::Kubeadm, BootstrapEdit::Unchanged] {
        let mut demand = samples::demand();
        node(&mut demand).bootstrap_edit = edit;
        let refused = outcome(&demand, Some(&claimed()), &secrets);
        assert_eq!(reason(&refused), Some(Reason::BootstrapInvalid), "{edit:?}");
    }
}

#[test]
fn bootstrap_data_without_socket_gets_the_default() {
    let data = "#cloud-config\nwrite_files:\n- path: /k.yaml\n  content: |\n    apiVersion: kubeadm.k8s.io/v1beta4\n    kind: JoinConfiguration\n";
    let mut demand = samples::demand();
    node(&mut demand).bootstrap_edit = BootstrapEdit::Kubeadm;
    let bootstrap = SecretRead::Read(proto::plan::Secret::new(data.into()));
    let outcome = outcome(&demand, Some(&claimed()), &Secrets { bootstrap, ..read() });
    let steps = &assignment(&outcome).plan.steps;
    let seed = steps.iter().find_map(|step| match step {
        proto::plan::Step::WriteSeed(seed) => seed.user_data.as_ref(),
        _ => None,
    });
    assert_eq!(assignment(&outcome).resolved.as_ref(), seed, "shown beside the data");
    let seed = String::from_utf8_lossy(seed.unwrap().expose());
    assert!(seed.contains("criSocket: \"unix:///var/run/containerd/containerd.sock\"\n"), "{seed}");
}

/// Generations only grow, wherever the highest one was recorded.
#[test]
fn new_plan_exceeds_all_generations() {
    type Change = fn(&mut MachineInventory, &mut Secrets);
    let cases: [(&str, Change, u64); 4] = [
        ("nothing seen", |_, _| {}, 1),
        ("the claim", |i, _| samples::claim(i, AllocationState::Allocated, 6), 7),
        (
            "the host",
            |i, _| {
                samples::claim(i, AllocationState::Allocated, 8);
                samples::announce(i, PlanType::Clean, 8, Some(PlanState::Applied));
            },
            9,
        ),
        (
            "the Secret",
            |_, s| {
                let (plan, _) = render(&samples::clean(), Generation(11), "another").unwrap();
                s.plan = Some(StoredPlan::Record(Box::new(plan)));
            },
            12,
        ),
    ];
    for (name, change, want) in cases {
        let (mut inventory, mut secrets) = (claimed(), read());
        change(&mut inventory, &mut secrets);
        let outcome = outcome(&samples::demand(), Some(&inventory), &secrets);
        assert_eq!(assignment(&outcome).plan.generation, Generation(want), "{name}");
    }
}

/// A crash between the Secret and the announcement costs no second plan; bytes
/// that we would not write are never announced.
#[test]
fn stored_record_is_announced_when_same() {
    let first = outcome(&samples::demand(), Some(&claimed()), &read());
    let first = assignment(&first);
    assert!(first.bytes.is_some());
    let stored = |plan| Secrets { plan: Some(plan), ..read() };
    let again =
        outcome(&samples::demand(), Some(&claimed()), &stored(StoredPlan::Record(first.plan.clone())));
    assert_eq!(assignment(&again), &Assignment { bytes: None, ..first.clone() });
    let (foreign, _) = render(&samples::reprovision(), Generation(1), "another").unwrap();
    let other = outcome(&samples::demand(), Some(&claimed()), &stored(StoredPlan::Record(Box::new(foreign))));
    let other = assignment(&other);
    assert_eq!((other.bytes.is_none(), other.plan.generation), (false, Generation(2)));
}

#[test]
fn lost_record_is_reported() {
    for (name, stored, want) in [
        ("missing", StoredPlan::Missing, Reason::PlanSecretMissing),
        (
            "unusable",
            StoredPlan::Unusable { error: PlanRecordError::NotTyped, generation: Generation(0) },
            Reason::PlanSecretInvalid,
        ),
    ] {
        let secrets = Secrets { plan: Some(stored), ..read() };
        let outcome = outcome(&samples::demand(), Some(&claimed()), &secrets);
        assert_eq!(assignment(&outcome).lost.as_ref().map(|lost| lost.reason), Some(want), "{name}");
    }
}

#[test]
fn plan_result_decides_what_follows() {
    let demand = samples::demand();
    let provider_id = ProviderId::parse(samples::PROVIDER_ID).unwrap();
    for (name, kind, state, effect, allocation, want) in [
        (
            "in flight",
            PlanType::Reprovision,
            None,
            None,
            Some(AllocationState::Reprovisioning),
            Some(Phase::Reprovisioning),
        ),
        (
            "failed",
            PlanType::Reprovision,
            Some(PlanState::Failed),
            None,
            Some(AllocationState::Unavailable),
            Some(Phase::Failed),
        ),
        (
            "applied",
            PlanType::Reprovision,
            Some(PlanState::Applied),
            Some(Effect::SetProviderId(provider_id)),
            None,
            None,
        ),
        // The cache of machines is behind: what was cleaned is no node.
        ("cleaned", PlanType::Clean, Some(PlanState::Applied), None, None, Some(Phase::Preparing)),
    ] {
        let outcome = outcome(&demand, Some(&with_plan(kind, state)), &read());
        assert_eq!((outcome.effect.clone(), phase(&outcome)), (effect, want), "{name}");
        assert_eq!(outcome.state.and_then(|state| state.allocation), allocation, "{name}");
    }
}

/// A plan that was announced before the claim was made belongs to another one.
#[test]
fn plans_before_the_claim_do_not_count() {
    let mut inventory = free();
    samples::announce(&mut inventory, PlanType::Clean, 4, Some(PlanState::Applied));
    samples::claim(&mut inventory, AllocationState::Allocated, 4);
    let outcome = outcome(&samples::demand(), Some(&inventory), &read());
    assert_eq!(assignment(&outcome).plan.generation, Generation(5));
}

#[test]
fn running_machine_stays_as_its_host_states() {
    type Change = fn(&mut MachineInventory);
    let demand = samples::running(samples::demand());
    let cases: [(&str, Change, Option<Reason>); 5] = [
        ("carries the node", |_| {}, None),
        ("status lost", |i| i.status = None, Some(Reason::HostStatementMissing)),
        (
            "carries no node",
            |i| samples::host_status(i).carried.as_mut().unwrap().node = None,
            Some(Reason::HostCarriesNoNode),
        ),
        (
            "quarantined",
            |i| samples::annotate(i, annotation::QUARANTINED, "x"),
            Some(Reason::DuplicateIdentity),
        ),
        (
            "unreachable",
            |i| samples::host_status(i).session.as_mut().unwrap().ended = Some(Time(seconds(-301))),
            Some(Reason::HostUnreachable),
        ),
    ];
    for (name, change, want) in cases {
        let mut inventory = running_host();
        change(&mut inventory);
        let outcome = outcome(&demand, Some(&inventory), &Secrets::default());
        assert_eq!((phase(&outcome), reason(&outcome)), (Some(Phase::Running), want), "{name}");
        assert!(!matches!(outcome.effect, Some(Effect::Assign(_) | Effect::Release)), "{name}: {outcome:?}");
    }
}

fn set_owner(inventory: &mut MachineInventory, owner: &str) {
    let carried = samples::host_status(inventory).carried.as_mut().unwrap();
    owner.clone_into(&mut carried.node.as_mut().unwrap().owner);
}

/// After a restore of an older backup the claim is not that of the node.
#[test]
fn node_of_a_later_machine_stays() {
    let (running, begun) = (samples::running(samples::demand()), samples::demand());
    let deleted = samples::deleted(running.clone());
    for (owner, is_foreign) in [
        ("", false),
        ("BaremetalMachine/worker-1", false),
        ("BaremetalMachine/worker-2", true),
        ("BareMetalHost/worker-1", true),
    ] {
        let mut inventory = running_host();
        set_owner(&mut inventory, owner);
        for (demand, is_held) in [(&running, true), (&begun, true), (&deleted, false)] {
            let outcome = outcome(demand, Some(&inventory), &Secrets::default());
            let is_shown = reason(&outcome) == Some(Reason::HostCarriesNode);
            assert_eq!(is_shown, is_foreign && is_held, "{owner}: {outcome:?}");
            assert_eq!(outcome.effect == Some(Effect::Release), is_foreign && !is_held, "{owner}");
        }
        let mut lost = inventory.clone();
        lost.metadata.annotations.as_mut().unwrap().retain(|key, _| !key.contains("owner"));
        let outcome = outcome(&running, Some(&lost), &Secrets::default());
        assert_eq!(matches!(outcome.effect, Some(Effect::Claim { .. })), !is_foreign, "{owner}: {outcome:?}");
    }
}

/// A `BareMetalHost` keeps its name; its providerID has that of the `Metal3Machine`.
#[test]
fn node_of_a_later_consumer_stays() {
    let of_consumer = |name: &str| ProviderId::of_metal3("default", "worker-1", name);
    let demand = Demand { provider_id: Some(of_consumer("m-1")), ..samples::running(samples::demand()) };
    for (carried, owner, is_foreign) in [
        (of_consumer("m-1"), "BaremetalMachine/worker-1", false),
        (of_consumer("m-2"), "BaremetalMachine/worker-1", true),
        (of_consumer("m-2"), "", false),
        (ProviderId::of_uid("u-1"), "BaremetalMachine/worker-1", false),
    ] {
        let mut inventory = running_host();
        set_owner(&mut inventory, owner);
        let node = samples::host_status(&mut inventory).carried.as_mut().unwrap().node.as_mut().unwrap();
        node.provider_id = carried.to_string();
        let shown = reason(&outcome(&demand, Some(&inventory), &Secrets::default()));
        assert_eq!(shown == Some(Reason::HostCarriesNode), is_foreign, "{carried} {owner}");
        let released = outcome(&samples::deleted(demand.clone()), Some(&inventory), &Secrets::default());
        assert_eq!(released.effect == Some(Effect::Release), is_foreign, "{carried} {owner}");
    }
}

/// The reprovision of a node is not the newest plan once an operator's plan came.
#[test]
fn an_operators_plan_brings_no_second_reprovision() {
    let mut node = running_host();
    samples::announce(&mut node, PlanType::Custom, 2, Some(PlanState::Applied));
    let named = outcome(&samples::demand(), Some(&node), &read());
    assert!(matches!(named.effect, Some(Effect::SetProviderId(_))), "{named:?}");
    samples::host_status(&mut node).carried.as_mut().unwrap().node = None;
    let lost = outcome(&samples::demand(), Some(&node), &read());
    assert_eq!((lost.effect.clone(), reason(&lost)), (None, Some(Reason::HostCarriesNoNode)));
    let deleted = outcome(&samples::deleted(samples::running(samples::demand())), Some(&node), &read());
    assert!(
        matches!(deleted.effect, Some(Effect::Assign(_))),
        "cleaned, though it carries no node: {deleted:?}"
    );
}
