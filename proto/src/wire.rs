//! Between [`crate::plan`] and the generated messages.

mod redaction;
#[cfg(test)]
mod tests;

use crate::plan::{
    Checksum, CustomFile, CustomInstruction, Generation, Kind, NodeIdentity, Plan, PlanError, PlanId,
    RegistryAccess, Secret, Seed, Step, Upgrade,
};
use crate::v1alpha1 as wire;
use wire::step::Action;

impl Kind {
    /// The kind that a message names.
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
            image: step.image.try_into()?,
            registry: step.registry.map(|access| Box::new(access.into())),
        }),
        Action::SyncFileSystems(_) => Step::SyncFileSystems,
        Action::Reboot(_) => Step::Reboot,
        Action::VerifySystem(step) => Step::VerifySystem { image: step.image.try_into()? },
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
            Step::VerifySystem { image } => {
                Self::VerifySystem(wire::VerifySystem { image: image.to_string() })
            }
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
