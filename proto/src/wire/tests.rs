use std::collections::BTreeMap;

use crate::plan::Image;

use super::*;

fn reprovision() -> Plan {
    let image = Image::parse("registry.example/os:v1").unwrap();
    Plan {
        id: PlanId::parse("reprovision-0011223344556677").unwrap(),
        generation: Generation(3),
        checksum: Checksum::of(b"plan"),
        kind: Kind::Reprovision,
        steps: vec![
            Step::RequestCleanup,
            Step::CleanCloudInit,
            Step::WriteSeed(Seed {
                user_data: Some(Secret::new(b"#cloud-config\n".to_vec())),
                meta_data: "instance-id: a\n".into(),
                network_config: None,
                connections: BTreeMap::from([("eno1".into(), Secret::new(b"[connection]\n".to_vec()))]),
                network_data: Some(Secret::new(b"{}".to_vec())),
            }),
            Step::UpgradeSystem(Upgrade {
                image: image.clone(),
                registry: Some(Box::new(RegistryAccess {
                    docker_config: Some(Secret::new(b"{}".to_vec())),
                    authorities: Some("pem".into()),
                    https_proxy: Some(Secret::new(b"http://proxy:1".to_vec())),
                    http_proxy: Some(Secret::new(b"http://proxy:2".to_vec())),
                    no_proxy: Some("10.0.0.0/8".into()),
                })),
            }),
            Step::SyncFileSystems,
            Step::Reboot,
            Step::VerifySystem { image },
        ],
    }
}

/// Every field of a file has another value than its default somewhere.
fn custom() -> Plan {
    let file = |directory, delete| {
        Step::WriteCustomFile(CustomFile {
            path: "/srv/x".into(),
            content: Secret::new(b"content".to_vec()),
            permissions: "0640".into(),
            directory,
            uid: 7,
            gid: 8,
            delete,
        })
    };
    let instruction = CustomInstruction {
        name: "first".into(),
        command: "/bin/sh".into(),
        args: vec!["-c".into(), "true".into()],
        env: vec!["A=b".into()],
        save_output: true,
    };
    Plan {
        kind: Kind::Custom,
        steps: vec![
            file(false, false),
            file(true, false),
            file(false, true),
            Step::RunCustomInstruction(instruction),
        ],
        ..reprovision()
    }
}

#[test]
fn a_plan_survives_the_wire() {
    for plan in [reprovision(), custom()] {
        assert_eq!(Plan::try_from(wire::Plan::from(&plan)), Ok(plan));
    }
}

#[test]
fn invalid_plan_is_refused_with_cause() {
    type Spoil = fn(&mut wire::Plan);
    let cases: [(&str, Spoil, PlanError); 8] = [
        ("kind", |plan| plan.kind = 99, PlanError::Kind(99)),
        ("generation", |plan| plan.generation = 0, PlanError::Generation),
        ("id", |plan| plan.id = "../etc".into(), PlanError::Id),
        ("checksum", |plan| plan.checksum.truncate(63), PlanError::Checksum),
        ("no steps", |plan| plan.steps.clear(), PlanError::Steps(0)),
        ("unknown step", |plan| plan.steps[0].action = None, PlanError::Step(0)),
        ("unproven reboot", |plan| drop(plan.steps.pop()), PlanError::Reboot),
        (
            "option as image",
            |plan| {
                plan.steps[3].action = Some(Action::UpgradeSystem(wire::UpgradeSystem {
                    image: "--poweroff".into(),
                    registry: None,
                }));
            },
            PlanError::Image,
        ),
    ];
    for (name, spoil, want) in cases {
        let mut plan = wire::Plan::from(&reprovision());
        spoil(&mut plan);
        assert_eq!(Plan::try_from(plan), Err(want), "{name}");
    }
}

#[test]
fn names_of_keyfiles_stay_in_their_directory() {
    for (given, want) in [("a b", "a b"), ("../x", "-..-x"), (".hidden", "-.hidden"), ("a/b", "a-b")] {
        let file = wire::Keyfile { name: given.into(), content: vec![] };
        let seed = Seed::from(wire::Seed { connections: vec![file], ..Default::default() });
        assert_eq!(seed.connections.keys().collect::<Vec<_>>(), [want]);
    }
}

#[test]
fn no_debug_shows_bootstrap_data() {
    let mut plan = reprovision();
    plan.steps[2] = Step::WriteSeed(Seed {
        user_data: Some(Secret::new(b"canary".to_vec())),
        meta_data: String::new(),
        network_config: None,
        connections: BTreeMap::from([("eno1".into(), Secret::new(b"canary".to_vec()))]),
        network_data: Some(Secret::new(b"canary".to_vec())),
    });
    let registry = RegistryAccess {
        docker_config: Some(Secret::new(b"canary".to_vec())),
        https_proxy: Some(Secret::new(b"http://canary@proxy".to_vec())),
        ..RegistryAccess::default()
    };
    let image = Image::parse("registry.example/os:v1").unwrap();
    plan.steps[3] = Step::UpgradeSystem(Upgrade { image, registry: Some(Box::new(registry)) });
    let shown = format!("{plan:?} {:?}", wire::Plan::from(&plan));
    assert!(!shown.contains("canary") && !shown.contains("99, 97, 110"), "{shown}");
}
