//! The install message for the live system.

use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_api::registration::{DeviceRequirement, Install, MachineRegistration};
use kube::ResourceExt;
use proto::plan::{RegistryAccess, Secret, Seed};
use proto::v1alpha1 as wire;

use crate::cloud_init;
use crate::host::HostRecord;
use crate::network::{self, NetworkError};

/// Why a host cannot be installed yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// The installed system would have no network.
    #[error("the network of the installed system cannot be rendered: {0}")]
    Network(#[from] NetworkError),
}

/// The install message of a host: the settings of its registration, the disk that an operator named
/// on its inventory, and a seed without a node. `registry` is for the image of [`system_image`].
pub fn install_message(
    registration: &MachineRegistration,
    inventory: &MachineInventory,
    registry: Option<&RegistryAccess>,
) -> Result<wire::Install, InstallError> {
    let config = registration.spec.config.as_ref();
    let install = config.and_then(|config| config.elemental.as_ref()?.install.clone()).unwrap_or_default();
    let named = inventory.annotations().get(annotation::INSTALL_DEVICE).filter(|device| !device.is_empty());
    let device = named.or(install.device.as_ref()).map_or_else(String::new, String::clone);
    let snapshotter = install.snapshotter.clone().unwrap_or_default();
    let cloud_config =
        config.and_then(|config| config.cloud_config.as_ref()).filter(|config| !config.is_null());
    // The elemental operator distinguishes cloud-config from stages in the same way.
    let (user_data, stages) = match cloud_config {
        Some(config) if config.get("stages").is_some() => (None, cloud_init::stages(config)),
        Some(config) => (Some(Secret::new(cloud_init::user_data(config).into_bytes())), String::new()),
        None => (None, String::new()),
    };
    let instance = inventory.uid().unwrap_or_else(|| inventory.name_any());
    let network = network::host_network(&inventory.spec)?;
    let seed = Seed {
        user_data,
        meta_data: cloud_init::neutral_meta_data(&format!("install-{instance}")),
        network_config: network.network_config,
        connections: network.connections,
        network_data: network.network_data,
    };
    Ok(wire::Install {
        power_action: power_action(&install).into(),
        device,
        device_selector: install.device_selector.iter().map(requirement_message).collect(),
        allow_erase: install.allow_erase,
        system_uri: install.system_uri.unwrap_or_default(),
        snapshotter_type: snapshotter.kind,
        snapshotter_max_snaps: u32::try_from(snapshotter.max_snaps).unwrap_or(2).max(2),
        debug: install.debug,
        eject_cd: install.eject_cd,
        no_format: install.no_format,
        disable_boot_entry: install.disable_boot_entry,
        seed: Some(wire::Seed::from(&seed)),
        stages: stages.into_bytes(),
        config_urls: install.config_urls,
        registry: registry.map(wire::RegistryAccess::from),
        reinstall: reinstall_device(inventory).unwrap_or("").to_owned(),
    })
}

/// The disk that an operator wants installed again; `None` if the host has data to lose.
pub fn reinstall_device(inventory: &MachineInventory) -> Option<&str> {
    let named = inventory.annotations().get(annotation::REINSTALL).filter(|device| !device.is_empty())?;
    HostRecord::parse(inventory)?.may_be_reinstalled().then_some(named)
}

/// The image to install, unless it is the image of the live system.
pub fn system_image(registration: &MachineRegistration) -> Option<&str> {
    let install = registration.spec.config.as_ref()?.elemental.as_ref()?.install.as_ref()?;
    install.system_uri.as_deref().filter(|image| !image.is_empty())
}

/// `poweroff` takes precedence over `reboot` because it is the more cautious action.
fn power_action(install: &Install) -> wire::PowerAction {
    match (install.poweroff, install.reboot) {
        (true, _) => wire::PowerAction::Poweroff,
        (false, Some(false)) => wire::PowerAction::Stay,
        (false, Some(true) | None) => wire::PowerAction::Reboot,
    }
}

fn requirement_message(requirement: &DeviceRequirement) -> wire::DeviceRequirement {
    let (key, operator): (&str, &str) = (requirement.key.into(), requirement.operator.into());
    wire::DeviceRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: requirement.values.clone(),
    }
}
