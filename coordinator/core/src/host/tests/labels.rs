//! Labels that a host keeps from the time of its first plan on.

use std::collections::BTreeMap;

use super::*;

#[test]
fn stale_labels_are_shown_until_they_are_written() {
    let stale = |text: &str| BTreeMap::from([("rack".to_owned(), text.to_owned())]);
    let statement = HostStatement::parse(hello(Carried::default())).unwrap();
    let attach = |status: &mut MachineInventoryStatus, stale_labels: Option<&BTreeMap<String, String>>| {
        let (hardware, network, settings, now) = (None, None, None, NOW);
        let (namespace, name, replica, statement) = ("default", "host-1", "replica-1", &statement);
        facts::record_attach(
            status,
            Attach { namespace, name, replica, statement, hardware, network, stale_labels, settings, now },
        );
    };
    let mut status = MachineInventoryStatus::default();
    attach(&mut status, Some(&stale("r2")));
    attach(&mut status, None);
    let mut inventory = with_status(status);
    inventory.metadata.labels = Some(stale("r1"));
    assert_eq!(shown(&inventory, Type::LabelsStale, NOW), pair("True", "LabelsKept"));
    project_conditions(&mut inventory, Told::Kept, NOW);
    let message = &find_condition(inventory.conditions(), Type::LabelsStale).unwrap().message;
    assert!(message.contains("kubectl label --overwrite machineinventory host-1 rack=r2"), "{message}");
    inventory.metadata.labels = Some(stale("r2"));
    assert_eq!(shown(&inventory, Type::LabelsStale, NOW), pair("", ""), "an operator wrote it");
    inventory.metadata.labels = Some(stale("r1"));
    attach(inventory.status.as_mut().unwrap(), Some(&BTreeMap::new()));
    assert_eq!(shown(&inventory, Type::LabelsStale, NOW), pair("", ""), "the host states the former one");
}
