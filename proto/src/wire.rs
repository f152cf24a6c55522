//! Between [`crate::plan`] and the generated messages.

use std::fmt;

use crate::plan::{
    Checksum, CustomFile, CustomInstruction, Generation, Image, Kind, NodeIdentity, Plan, PlanError, PlanId,
    RegistryAccess, Secret, Seed, Step, Upgrade,
};
use crate::v1alpha1 as wire;
use wire::step::Action;

impl Kind {
    /// The kind that a message names.
    #[must_use]
    pub fn from_wire(kind: i32) -> Option<Self> {
        match wire::PlanKind::try_from(kind).ok()? {
            wire::PlanKind::Clean => Some(Self::Clean),
            wire::PlanKind::Reprovision => Some(Self::Reprovision),
            wire::PlanKind::Custom => Some(Self::Custom),
            wire::PlanKind::Unspecified => None,
        }
    }
}

impl From<Kind> for wire::PlanKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Clean => Self::Clean,
            Kind::Reprovision => Self::Reprovision,
            Kind::Custom => Self::Custom,
        }
    }
}

impl TryFrom<wire::Plan> for Plan {
    type Error = PlanError;

    fn try_from(plan: wire::Plan) -> Result<Self, PlanError> {
        let kind = Kind::from_wire(plan.kind).ok_or(PlanError::Kind(plan.kind))?;
        let steps = plan
            .steps
            .into_iter()
            .enumerate()
            .map(|(index, step)| parse_step(step.action.ok_or(PlanError::Step(index))?))
            .collect::<Result<_, _>>()?;
        let (id, checksum) = (PlanId::parse(&plan.id)?, Checksum::parse(&plan.checksum)?);
        Self { id, generation: Generation(plan.generation), checksum, kind, steps }.check()
    }
}

fn parse_step(action: Action) -> Result<Step, PlanError> {
    Ok(match action {
        Action::RequestCleanup(_) => Step::RequestCleanup,
        Action::CleanCloudInit(_) => Step::CleanCloudInit,
        Action::WriteSeed(step) => Step::WriteSeed(step.seed.ok_or(PlanError::Missing("seed"))?.into()),
        Action::WriteNodeIdentity(step) => Step::WriteNodeIdentity(NodeIdentity {
            uuid: step.uuid,
            provider_id: step.provider_id,
            owner: step.owner,
        }),
        Action::RemoveNodeIdentity(_) => Step::RemoveNodeIdentity,
        Action::UpgradeSystem(step) => Step::UpgradeSystem(Upgrade {
            image: Image::parse(&step.image)?,
            registry: step.registry.map(|access| Box::new(access.into())),
        }),
        Action::SyncFileSystems(_) => Step::SyncFileSystems,
        Action::Reboot(_) => Step::Reboot,
        Action::VerifySystem(step) => Step::VerifySystem(Image::parse(&step.image)?),
        Action::StopKubelet(_) => Step::StopKubelet,
        Action::RemoveWorkload(_) => Step::RemoveWorkload,
        Action::StopContainerd(_) => Step::StopContainerd,
        Action::RemoveNodeState(_) => Step::RemoveNodeState,
        Action::WriteCustomFile(file) => Step::WriteCustomFile(CustomFile {
            path: file.path,
            content: Secret::new(file.content),
            permissions: file.permissions,
            directory: file.directory,
            uid: file.uid,
            gid: file.gid,
            delete: file.delete,
        }),
        Action::RunCustomInstruction(instruction) => Step::RunCustomInstruction(CustomInstruction {
            name: instruction.name,
            command: instruction.command,
            args: instruction.args,
            env: instruction.env,
            save_output: instruction.save_output,
        }),
    })
}

impl From<wire::Seed> for Seed {
    fn from(seed: wire::Seed) -> Self {
        Self {
            user_data: seed.user_data.map(Secret::new),
            meta_data: seed.meta_data,
            network_config: seed.network_config,
            connections: seed
                .connections
                .into_iter()
                .map(|file| (file_name(&file.name), Secret::new(file.content)))
                .collect(),
            network_data: seed.network_data.map(Secret::new),
        }
    }
}

impl From<&Seed> for wire::Seed {
    fn from(seed: &Seed) -> Self {
        Self {
            user_data: seed.user_data.as_ref().map(|data| data.expose().to_vec()),
            meta_data: seed.meta_data.clone(),
            network_config: seed.network_config.clone(),
            connections: seed
                .connections
                .iter()
                .map(|(name, content)| wire::Keyfile {
                    name: name.clone(),
                    content: content.expose().to_vec(),
                })
                .collect(),
            network_data: seed.network_data.as_ref().map(|data| data.expose().to_vec()),
        }
    }
}

impl From<wire::RegistryAccess> for RegistryAccess {
    fn from(access: wire::RegistryAccess) -> Self {
        let text = |text: String| (!text.is_empty()).then_some(text);
        let secret = |bytes: Vec<u8>| (!bytes.is_empty()).then(|| Secret::new(bytes));
        Self {
            docker_config: secret(access.docker_config),
            authorities: text(access.authorities),
            https_proxy: secret(access.https_proxy.into_bytes()),
            http_proxy: secret(access.http_proxy.into_bytes()),
            no_proxy: text(access.no_proxy),
        }
    }
}

impl From<&RegistryAccess> for wire::RegistryAccess {
    fn from(access: &RegistryAccess) -> Self {
        let text = |secret: &Option<Secret>| {
            let bytes = secret.as_ref().map(Secret::expose).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        Self {
            docker_config: access
                .docker_config
                .as_ref()
                .map(|file| file.expose().to_vec())
                .unwrap_or_default(),
            authorities: access.authorities.clone().unwrap_or_default(),
            https_proxy: text(&access.https_proxy),
            http_proxy: text(&access.http_proxy),
            no_proxy: access.no_proxy.clone().unwrap_or_default(),
        }
    }
}

/// A name that stays in its directory, and is seen there.
fn file_name(name: &str) -> String {
    let name = name.replace(['/', '\0'], "-");
    if name.starts_with('.') { format!("-{name}") } else { name }
}

impl From<&Plan> for wire::Plan {
    fn from(plan: &Plan) -> Self {
        Self {
            id: plan.id.to_string(),
            generation: plan.generation.0,
            checksum: plan.checksum.to_string(),
            kind: wire::PlanKind::from(plan.kind).into(),
            steps: plan.steps.iter().map(|step| wire::Step { action: Some(step.into()) }).collect(),
        }
    }
}

impl From<&Step> for Action {
    fn from(step: &Step) -> Self {
        match step {
            Step::RequestCleanup => Self::RequestCleanup(wire::RequestCleanup {}),
            Step::CleanCloudInit => Self::CleanCloudInit(wire::CleanCloudInit {}),
            Step::WriteSeed(seed) => Self::WriteSeed(wire::WriteSeed { seed: Some(seed.into()) }),
            Step::WriteNodeIdentity(identity) => Self::WriteNodeIdentity(wire::WriteNodeIdentity {
                uuid: identity.uuid.clone(),
                provider_id: identity.provider_id.clone(),
                owner: identity.owner.clone(),
            }),
            Step::RemoveNodeIdentity => Self::RemoveNodeIdentity(wire::RemoveNodeIdentity {}),
            Step::UpgradeSystem(upgrade) => Self::UpgradeSystem(wire::UpgradeSystem {
                image: upgrade.image.to_string(),
                registry: upgrade.registry.as_deref().map(Into::into),
            }),
            Step::SyncFileSystems => Self::SyncFileSystems(wire::SyncFileSystems {}),
            Step::Reboot => Self::Reboot(wire::Reboot {}),
            Step::VerifySystem(image) => Self::VerifySystem(wire::VerifySystem { image: image.to_string() }),
            Step::StopKubelet => Self::StopKubelet(wire::StopKubelet {}),
            Step::RemoveWorkload => Self::RemoveWorkload(wire::RemoveWorkload {}),
            Step::StopContainerd => Self::StopContainerd(wire::StopContainerd {}),
            Step::RemoveNodeState => Self::RemoveNodeState(wire::RemoveNodeState {}),
            Step::WriteCustomFile(file) => Self::WriteCustomFile(wire::WriteCustomFile {
                path: file.path.clone(),
                content: file.content.expose().to_vec(),
                permissions: file.permissions.clone(),
                directory: file.directory,
                uid: file.uid,
                gid: file.gid,
                delete: file.delete,
            }),
            Step::RunCustomInstruction(instruction) => {
                Self::RunCustomInstruction(wire::RunCustomInstruction {
                    name: instruction.name.clone(),
                    command: instruction.command.clone(),
                    args: instruction.args.clone(),
                    env: instruction.env.clone(),
                    save_output: instruction.save_output,
                })
            }
        }
    }
}

// The generated messages that may carry bootstrap data have no derived Debug:
// one `{:?}` in a log would publish join tokens.
impl fmt::Debug for wire::Seed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Seed(…)")
    }
}

impl fmt::Debug for wire::Keyfile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Keyfile({:?})", self.name)
    }
}

impl fmt::Debug for wire::WriteCustomFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "WriteCustomFile({:?})", self.path)
    }
}

impl fmt::Debug for wire::RunCustomInstruction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RunCustomInstruction({:?})", self.name)
    }
}

impl fmt::Debug for wire::RegistryAccess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RegistryAccess(…)")
    }
}

impl fmt::Debug for wire::CoordinatorSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CoordinatorSettings(…)")
    }
}

impl fmt::Debug for wire::BeginRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BeginRequest(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
                Step::VerifySystem(image),
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
}
