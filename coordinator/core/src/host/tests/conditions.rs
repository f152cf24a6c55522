//! Conditions that are shown as long as their cause lasts.

use super::*;
use coordinator_api::conditions::condition_false;
use coordinator_api::hardware::HardwareStatus;
use coordinator_api::network::{NetworkTemplate, ObservedNetwork};

#[test]
fn gaps_of_the_platform_are_shown_alone() {
    let with_gaps = |gaps: &[&str]| {
        let below_minimum = gaps.iter().map(|gap| (*gap).to_owned()).collect();
        let mut status = MachineInventoryStatus::default();
        status.host.get_or_insert_default().hardware =
            Some(HardwareStatus { below_minimum, ..HardwareStatus::default() });
        with_status(status)
    };
    let inventory = with_gaps(&["Linux 4.18 is older than 5.8"]);
    assert_eq!(shown(&inventory, Type::PlatformSupported, NOW), pair("False", "PlatformBelowMinimum"));
    assert_eq!(shown(&with_gaps(&[]), Type::PlatformSupported, NOW), pair("", ""));
}

#[test]
fn parts_of_a_network_that_are_lost_warn() {
    let mut inventory = with_status(MachineInventoryStatus::default());
    let part = "interface bond0: network-config has no use_carrier=0".to_owned();
    let observed = ObservedNetwork { not_replayed: vec![part], ..ObservedNetwork::default() };
    inventory.spec.observed_network = Some(observed);
    assert_eq!(shown(&inventory, Type::NetworkIncomplete, NOW), pair("True", "NetworkPartsNotReplayed"));
    project_conditions(&mut inventory, Told::Kept, NOW);
    let found = find_condition(inventory.conditions(), Type::NetworkIncomplete).unwrap();
    assert!(
        found.message.contains("network: interface bond0: network-config has no use_carrier=0; next: "),
        "{}",
        found.message
    );
    let config = Some(serde_json::json!({ "version": 2 }));
    inventory.spec.network = Some(NetworkTemplate { config, ..NetworkTemplate::default() });
    assert_eq!(shown(&inventory, Type::NetworkIncomplete, NOW), pair("", ""), "an operator gave the network");
    inventory.spec.network = None;
    inventory.spec.observed_network = Some(ObservedNetwork::default());
    assert_eq!(shown(&inventory, Type::NetworkIncomplete, NOW), pair("", ""));
}

#[test]
fn fields_without_effect_warn_beside_ready() {
    let mut status = MachineInventoryStatus::default();
    attach(&mut status, Carried::default(), "replica-1", NOW);
    let mut inventory = with_status(status);
    assert_eq!(shown(&inventory, Type::FieldsIgnored, NOW), pair("", ""));
    inventory.spec.machine_hash = Some("00".into());
    inventory.spec.ip_address_claims.insert("a".into(), serde_json::json!({}));
    assert_eq!(shown(&inventory, Type::Ready, NOW), pair("True", "PlanSuccessfullyApplied"));
    project_conditions(&mut inventory, Told::Kept, NOW);
    let found = find_condition(inventory.conditions(), Type::FieldsIgnored).unwrap();
    assert_eq!(found.message, "spec.machineHash, spec.ipAddressClaims have no effect; next: remove them");
    inventory.spec.machine_hash = None;
    inventory.spec.ip_address_claims.clear();
    assert_eq!(shown(&inventory, Type::FieldsIgnored, NOW), pair("", ""), "removed with its cause");
}

/// A writer that knows no cause keeps what the controller told, as long as it can be true.
#[test]
fn told_conditions_wait_for_the_next_decision() {
    for (reason, is_claimed, is_kept) in [
        (Reason::ApiRequestFailed, false, true),
        (Reason::OwnerMissing, true, true),
        (Reason::OwnerMissing, false, false),
    ] {
        let mut status = MachineInventoryStatus::default();
        attach(&mut status, Carried::default(), "replica-1", NOW);
        let mut inventory = with_status(status);
        let owner = is_claimed.then(|| (annotation::OWNER_BAREMETAL_MACHINE.to_owned(), "m-1".to_owned()));
        inventory.annotations_mut().extend(owner);
        let failed = condition_false(Type::Ready, reason, "");
        project_conditions(&mut inventory, Told::Decided(vec![failed]), NOW);
        for (name, told, is_shown) in
            [("told", Told::Kept, is_kept), ("decided anew", Told::Decided(vec![]), false)]
        {
            project_conditions(&mut inventory, told, NOW);
            let ready = find_condition(inventory.conditions(), Type::Ready).unwrap();
            assert_eq!(ready.reason == reason.as_str(), is_shown, "{reason:?} {name}: {}", ready.reason);
        }
    }
}

#[test]
fn pause_is_shown_while_it_lasts() {
    let mut inventory = with_status(MachineInventoryStatus::default());
    inventory.annotations_mut().insert(annotation::PAUSED.to_owned(), String::new());
    project_conditions(&mut inventory, Told::Kept, NOW);
    assert_eq!(shown(&inventory, Type::Paused, NOW), pair("True", "Paused"));
    inventory.annotations_mut().clear();
    assert_eq!(shown(&inventory, Type::Paused, NOW), pair("", ""));
}
