use super::*;

fn now(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn system(boot_id: &str) -> SystemState {
    SystemState {
        boot_id: boot_id.into(),
        image: "os:v1".into(),
        boot_mode: BootMode::Active.into(),
        hostname: "h".into(),
        addresses: vec!["192.0.2.1".into()],
    }
}

fn arrival(system: &SystemState) -> Arrival<'_> {
    Arrival { system, agent_version: "1", generation: 3 }
}

fn condition(status: &MachineInventoryStatus, kind: Type) -> (String, String) {
    let found = conditions::find(&status.conditions, kind).unwrap();
    (found.status.clone(), found.reason.clone())
}

fn with(status: MachineInventoryStatus) -> MachineInventory {
    MachineInventory { status: Some(status), ..MachineInventory::default() }
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.into(), reason.into())
}

#[test]
fn a_host_is_ready_only_when_its_installed_system_attaches() {
    let secret = ObjectReference::default();
    let fresh = MachineInventory::default();
    let status = registered(&fresh, secret.clone(), now(1));
    assert_eq!(condition(&status, Type::Ready), pair("False", "WaitingForPlan"));
    assert_eq!(condition(&status, Type::Installed), pair("False", "Installing"));
    let inventory = with(status);
    assert!(!is_installed(&inventory) && !has_attached(&inventory));
    let status = attached(&inventory, arrival(&system("a")), now(2));
    assert_eq!(condition(&status, Type::Ready), pair("True", "PlanSuccessfullyApplied"));
    assert_eq!(condition(&status, Type::Installed), pair("True", "InstallDone"));
    let plan = status.plan.clone().unwrap();
    assert_eq!(plan.secret_ref, Some(secret.clone()));
    assert_eq!(
        plan.checksum.as_deref(),
        Some("44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a")
    );
    let host = status.host.clone().unwrap();
    assert_eq!((host.boot_id.as_str(), host.boot_mode.as_str(), host.generation), ("a", "active", 3));
    let inventory = with(status.clone());
    assert_eq!(attached(&inventory, arrival(&system("a")), now(9)), status, "again: nothing new");
    assert_eq!(registered(&inventory, secret, now(9)), status, "registered again: nothing new");
}

#[test]
fn each_report_of_an_installation_has_its_reason() {
    use install_report::Outcome;
    let live = || Outcome::LiveBootAfterInstall(LiveBootAfterInstall { device: "/dev/sda".into() });
    let done = || Outcome::Done(InstallDone { device: "/dev/sda".into(), image: "os:v1".into() });
    let attached = with(attached(&MachineInventory::default(), arrival(&system("a")), now(1)));
    let fresh = MachineInventory::default();
    for (name, inventory, outcome, want, installed) in [
        (
            "waiting",
            &fresh,
            Outcome::Waiting(InstallWaiting { message: "m".into() }),
            ("False", "InstallWaiting"),
            false,
        ),
        (
            "started",
            &fresh,
            Outcome::Started(InstallStarted { device: "/dev/sda".into() }),
            ("False", "Installing"),
            false,
        ),
        ("done", &fresh, done(), ("False", "InstallDone"), true),
        (
            "failed",
            &fresh,
            Outcome::Failed(InstallFailed { message: "m".into(), output: String::new() }),
            ("False", "InstallFailed"),
            false,
        ),
        ("live boot before the first attach", &fresh, live(), ("False", "LiveBootAfterInstall"), true),
        ("live boot later", &attached, live(), ("True", "LiveBootAfterInstall"), true),
    ] {
        let status = install(inventory, &InstallReport { outcome: Some(outcome) }, now(2));
        assert_eq!(condition(&status, Type::Installed), pair(want.0, want.1), "{name}");
        assert_eq!(is_installed(&with(status)), installed, "{name}");
    }
}

#[test]
fn a_plan_ends_in_the_status_with_its_checksum_and_reason() {
    let mut inventory = with(attached(&MachineInventory::default(), arrival(&system("a")), now(1)));
    let status = inventory.status.as_mut().unwrap();
    status.plan = Some(PlanStatus { generation: Some(4), ..PlanStatus::default() });
    let failed = End::Failed { message: "step upgrade-system: no space".into() };
    for (name, end, want, state) in [
        ("applied", End::Applied, ("True", "PlanSuccessfullyApplied"), PlanState::Applied),
        ("failed", failed, ("False", "PlanFailure"), PlanState::Failed),
    ] {
        let status = ended(&inventory, "c", (&end, Some(&system("b"))), now(2));
        assert_eq!(condition(&status, Type::Ready), pair(want.0, want.1), "{name}");
        let plan = status.plan.clone().unwrap();
        assert_eq!((plan.checksum.as_deref(), plan.state), (Some("c"), Some(state)), "{name}");
        let host = status.host.clone().unwrap();
        assert_eq!((host.boot_id.as_str(), host.agent_version.as_str()), ("b", "1"), "{name}");
        let again = ended(&with(status.clone()), "c", (&end, Some(&system("b"))), now(3));
        assert_eq!(again, status, "{name}: told twice");
    }
}

#[test]
fn a_lost_host_comes_back_as_it_was() {
    let before = with(attached(&MachineInventory::default(), arrival(&system("a")), now(1)));
    let lost = with(unreachable(&before, now(2)));
    assert!(is_unreachable(&lost) && !is_unreachable(&before));
    assert_eq!(condition(lost.status.as_ref().unwrap(), Type::Ready), pair("Unknown", "HostUnreachable"));
    let back = attached(&lost, arrival(&system("a")), now(3));
    assert_eq!(condition(&back, Type::Ready), pair("True", "PlanSuccessfullyApplied"));
}

#[test]
fn drift_is_a_condition_and_the_intention_stays() {
    let inventory = MachineInventory::default();
    for (drift, want) in [
        (None, ("False", "NetworkAsIntended")),
        (Some("eth0 lost 192.0.2.1/24".to_owned()), ("True", "NetworkChanged")),
    ] {
        let status = observed(&inventory, ObservedNetwork::default(), drift, None, now(1));
        assert_eq!(condition(&status, Type::NetworkDrift), pair(want.0, want.1));
        assert!(status.observed_network.is_some() && status.host.is_none());
    }
}
