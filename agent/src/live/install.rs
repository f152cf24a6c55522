//! The live system's second half: choose the disk, install, leave what the
//! installed system needs for its identity.

mod attempts;
mod choice;
mod error;
mod installed;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proto::plan::{RegistryAccess, Seed};
use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::{Install, InstallFailed, InstallWaiting, PowerAction, ReportInstallResponse};
use tokio::time::{Instant, sleep};

use self::attempts::Attempts;
pub use self::error::InstallError;
pub use self::installed::{boot_disk, disk_missing, install_again};
use super::boot_order::{self, BootOrder};
use super::handover::{self, Handover, HandoverError};
use super::installed_disk::{self, Access, Mounts};
use crate::client::calls::{Caller, InstallReporter};
use crate::client::transport::Transport;
use crate::ground::backoff::Backoff;
use crate::ground::durable;
use crate::ground::error::{NextAction, describe_error, explain};
use crate::ground::paths::Root;
use crate::host::command::Invocation;
use crate::host::facts::disks::{self, Disk};
use crate::host::facts::os_release::parse_image;
use crate::host::facts::smbios;
use crate::host::system::{Installation, RebootMethod, System, SystemError, deadlines};
use crate::identity::Certificate;
use crate::state::install_record::InstallRecord;
use crate::state::message::Console;
use crate::state::seed;
use crate::update::program;

/// How often an unchanged reason is reported: the answer may name the disk.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);
/// The stages of the registration, in the directory of this boot.
const STAGES: &str = "stages.yaml";
/// How long the kernel and udev may take to show a new partition table.
const PARTITION_DEADLINE: Duration = Duration::from_secs(30);

/// The registered live system.
#[derive(Debug)]
pub struct Live<'a, S, M, N> {
    pub root: &'a Root,
    pub system: &'a S,
    pub mounts: &'a M,
    pub caller: Caller<'a, N>,
    pub console: Console,
    /// What the coordinator certified.
    pub certificate: Certificate,
    /// `namespace/name` of its inventory.
    pub inventory: String,
}

/// Chooses the disk, installs, leaves the agent's state, reports, and turns to
/// the wanted power action.
///
/// # Errors
/// [`InstallError`]; it was reported where it can be.
pub async fn install_host<S: System, M: Mounts, N: Transport>(
    live: Live<'_, S, M, N>,
    request: &Install,
) -> Result<(), InstallError> {
    let mut flow = Flow::new(live);
    let attempts = Attempts::read(flow.live.root);
    if attempts.are_used_up() {
        return Err(flow.await_operator(&attempts).await?);
    }
    let (disk, annotation) = flow.choose_disk(request, &attempts).await?;
    let device = disk.stable_path();
    let number = attempts.next(&annotation);
    let mut attempts = attempts.begin(flow.live.root, annotation)?;
    flow.live.console.print_message(&format!(
        "installing on {}, attempt {number} of {}, since {} UTC",
        device.display(),
        attempts::LIMIT,
        format_clock(SystemTime::now())
    ));
    let record = match flow.put_on(&disk, request).await {
        Ok(record) => record,
        Err(error) => {
            log_output(&error);
            attempts.record_failure(flow.live.root, &error)?;
            flow.live.console.print_message(&explain(&error));
            flow.report_outcome(Outcome::Failed(failure_message(&error))).await?;
            return Err(error);
        }
    };
    let order = if request.disable_boot_entry { None } else { flow.add_boot_entry(&disk.name) };
    flow.report_outcome(Outcome::Done(record.into())).await?;
    let order = order.map(|order| format!("; {order}")).unwrap_or_default();
    flow.live.console.print_message(&format!("installed on {}{order}", device.display()));
    flow.turn_to(request.power_action()).await
}

/// Hours and minutes.
fn format_clock(time: SystemTime) -> String {
    let minutes = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 60;
    format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60)
}

fn show_path(path: &Path) -> String {
    path.display().to_string()
}

/// What the command printed is for the console of the live system only.
fn log_output(error: &InstallError) {
    if let InstallError::System {
        source: SystemError::Failed { output, .. } | SystemError::TimedOut { output, .. },
        ..
    } = error
    {
        tracing::error!(output = output.0, "elemental install failed");
    }
}

fn waiting_message(error: &(impl NextAction + 'static)) -> InstallWaiting {
    InstallWaiting {
        message: describe_error(error),
        next_action: error.next_action().unwrap_or_default().to_owned(),
    }
}

fn failure_message(error: &InstallError) -> InstallFailed {
    InstallFailed {
        message: describe_error(error),
        next_action: error.next_action().unwrap_or_default().to_owned(),
    }
}

struct Flow<'a, S, M, N> {
    live: Live<'a, S, M, N>,
    reporter: InstallReporter<'a, N>,
}

impl<'a, S: System, M: Mounts, N: Transport> Flow<'a, S, M, N> {
    fn new(live: Live<'a, S, M, N>) -> Self {
        Self { reporter: InstallReporter::new(live.caller), live }
    }

    /// Tells the coordinator, however long it takes; a refusal ends it.
    async fn report_outcome(&mut self, outcome: Outcome) -> Result<ReportInstallResponse, InstallError> {
        let mut backoff = Backoff::default();
        loop {
            match self.reporter.report_outcome(outcome.clone()).await {
                Ok(response) => return Ok(response),
                Err(error) if error.refusal().is_some() => return Err(error.into()),
                Err(error) => self.live.console.print_message(&format!("cannot report: {}", explain(&error))),
            }
            backoff.wait().await;
        }
    }

    /// Reports that this host waits, until another install device is named:
    /// the registration that follows brings it.
    async fn await_operator(&mut self, attempts: &Attempts) -> Result<InstallError, InstallError> {
        let error = attempts.describe();
        self.live.console.print_message(&explain(&error));
        loop {
            let response = self.report_outcome(Outcome::Waiting(waiting_message(&error))).await?;
            if attempts.are_answered_by(&response.install_device) {
                Attempts::forget(self.live.root)?;
                return Ok(InstallError::DeviceNamed { device: response.install_device });
            }
            sleep(REPORT_INTERVAL).await;
        }
    }

    async fn put_on(&mut self, disk: &Disk, request: &Install) -> Result<InstallRecord, InstallError> {
        let device = disk.stable_path();
        let cloud_init = self.prepare_files(request)?;
        let registry = request.registry.clone().map(RegistryAccess::from);
        let installation =
            Installation { device: &device, request, cloud_init: &cloud_init, registry: registry.as_ref() };
        let installed = self.live.system.install(installation).await;
        installed.map_err(|source| InstallError::System { device: device.clone(), source })?;
        let partition = self.persistent_partition(&disk.name).await?;
        let record = InstallRecord {
            device: show_path(&device),
            image: self.choose_image(request),
            inventory: self.live.inventory.clone(),
            smbios_uuid: smbios::read_uuid(self.live.root).unwrap_or_default(),
            wwn: disk.wwn.clone(),
            serial: disk.serial.clone(),
        };
        self.leave_everything(&partition, request, &record)?;
        self.sync_disks().await?;
        Ok(record)
    }

    /// The record is on the disk by now.
    fn add_boot_entry(&self, disk: &str) -> Option<BootOrder> {
        Some(boot_order::add_disk(self.live.root, &self.find_disk(disk)?))
    }

    /// With the partitions that it has now.
    fn find_disk(&self, name: &str) -> Option<Disk> {
        disks::read_disks(self.live.root).into_iter().find(|disk| disk.name == name)
    }

    /// What Elemental copies to the installed system and runs at each boot.
    fn prepare_files(&self, request: &Install) -> Result<Vec<PathBuf>, InstallError> {
        let mut files = vec![program::write_cloud_config(self.live.root)?];
        if !request.stages.is_empty() {
            let directory = self.live.root.runtime();
            durable::create_directory(&directory).map_err(HandoverError::from)?;
            let path = directory.join(STAGES);
            durable::write(&path, &request.stages).map_err(HandoverError::from)?;
            files.push(path);
        }
        files.extend(request.config_urls.iter().map(PathBuf::from));
        Ok(files)
    }

    async fn persistent_partition(&self, disk: &str) -> Result<String, InstallError> {
        let start = Instant::now();
        loop {
            self.live.mounts.settle(Duration::ZERO).await;
            let found = self.find_disk(disk);
            if let Some(partition) = found.as_ref().and_then(Disk::persistent_partition) {
                return Ok(partition.name.clone());
            }
            if start.elapsed() >= PARTITION_DEADLINE {
                return Err(InstallError::NoPersistentPartition { device: Path::new("/dev").join(disk) });
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    fn leave_everything(
        &self,
        partition: &str,
        request: &Install,
        record: &InstallRecord,
    ) -> Result<(), InstallError> {
        let mounted = self.mount_partition(partition)?;
        let state = mounted.state();
        handover::write(&state, self.build_handover())?;
        program::keep_program(self.live.root, &state)?;
        if let Some(seed) = &request.seed {
            seed::store(&state, &Seed::from(seed.clone())).map_err(HandoverError::from)?;
        }
        Ok(handover::write_record(&state, record)?)
    }

    fn mount_partition(&self, partition: &str) -> Result<installed_disk::Mounted, InstallError> {
        let failed = |source| InstallError::Mount { partition: partition.to_owned(), source };
        self.live.mounts.mount(partition, Access::Write).map_err(failed)
    }

    fn build_handover(&self) -> Handover<'_> {
        Handover {
            identity: self.live.caller.identity,
            certificate: &self.live.certificate,
            config: self.live.caller.config,
        }
    }

    fn choose_image(&self, request: &Install) -> String {
        if request.system_uri.is_empty() {
            let text = fs::read_to_string(self.live.root.os_release()).unwrap_or_default();
            return parse_image(&text);
        }
        request.system_uri.clone()
    }

    async fn sync_disks(&self) -> Result<(), InstallError> {
        let failed = |source| InstallError::Power { attempt: "flush the disks", source };
        self.live.system.sync().await.map_err(failed)
    }

    async fn turn_to(&mut self, action: PowerAction) -> Result<(), InstallError> {
        match action {
            PowerAction::Stay => {
                self.live
                    .console
                    .print_message("done; this host stays in the live system until it is restarted");
                Ok(())
            }
            PowerAction::Poweroff => {
                power_off(&Invocation::new("systemctl", &["poweroff"], deadlines::QUERY)).await
            }
            PowerAction::Reboot | PowerAction::Unspecified => {
                let failed = |source| InstallError::Power { attempt: "reboot", source };
                self.live.system.reboot(RebootMethod::Orderly).await.map(|_| ()).map_err(failed)
            }
        }
    }
}

async fn power_off(command: &Invocation) -> Result<(), InstallError> {
    let failed = |source| InstallError::Power { attempt: "power off", source };
    command.run().await.map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_shows_hours_and_minutes() {
        let time = UNIX_EPOCH + Duration::from_secs(86_400 * 20_000 + 3_600 * 9 + 60 * 5 + 59);
        assert_eq!(format_clock(time), "09:05");
    }

    #[tokio::test]
    async fn a_failed_power_off_is_no_success() {
        let deadline = Duration::from_millis(100);
        for (program, arguments, is_done) in
            [("true", &[][..], true), ("false", &[], false), ("sleep", &["60"], false)]
        {
            let ended = power_off(&Invocation::new(program, arguments, deadline)).await;
            assert_eq!(ended.is_ok(), is_done, "{program}");
            assert!(
                matches!(ended, Ok(()) | Err(InstallError::Power { attempt: "power off", .. })),
                "{ended:?}"
            );
        }
    }
}
