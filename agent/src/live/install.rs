//! The second half of the live system: chooses the disk, installs, and writes the files that the
//! installed system needs for its identity.

mod attempts;
mod choice;
mod installed;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proto::plan::{RegistryAccess, Seed};
use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::{BootOrderRefused, Install, PowerAction, ReportInstallResponse};
use tokio::time::{Instant, sleep};

use self::attempts::Attempts;
use self::choice::Chosen;
pub use self::installed::{boot_disk, disk_missing, install_again};
use super::boot_order::{self, BootOrder};
use super::handover::{self, Handover};
use super::installed_disk::{self, Access, Mounts};
use super::used_disk;
use crate::client::calls::{Caller, InstallReporter};
use crate::client::transport::Transport;
use crate::ground::backoff::Backoff;
use crate::ground::durable;
use crate::ground::failure::{Context as _, Failure, OnPath as _};
use crate::ground::paths::{Root, read_or_empty};
use crate::host::command::Invocation;
use crate::host::facts::disks::{self, Disk};
use crate::host::facts::os_release::parse_image;
use crate::host::facts::smbios;
use crate::host::system::{Installation, RebootMethod, System, deadlines};
use crate::identity::Certificate;
use crate::state::install_record::InstallRecord;
use crate::state::message::Console;
use crate::state::seed;
use crate::update::{keys, program};

/// Interval of reports with an unchanged reason; the response may name the disk.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);
/// The file with the stages of the registration, for this boot.
const STAGES: &str = "stages.yaml";
const STARTS_AGAIN: &str = "none: the registration starts again";
/// Time that the kernel and udev may take to show a new partition table.
const PARTITION_DEADLINE: Duration = Duration::from_secs(30);

/// The registered live system.
#[derive(Debug)]
pub struct Live<'a, S, M, N> {
    pub root: &'a Root,
    pub system: &'a S,
    pub mounts: &'a M,
    pub caller: Caller<'a, N>,
    pub console: Console,
    /// The certificate of this registration.
    pub certificate: Certificate,
    /// `namespace/name` of the inventory.
    pub inventory: String,
}

/// Chooses the disk, installs, writes the agent's state, reports, and performs the wanted power
/// action. A failure has been reported if that was possible.
pub async fn install_host<S: System, M: Mounts, N: Transport>(
    live: Live<'_, S, M, N>,
    request: &Install,
) -> Result<(), Failure> {
    let mut flow = Flow::new(live);
    let attempts = Attempts::read(flow.live.root);
    if attempts.are_used_up() {
        return Err(flow.await_operator(&attempts).await?);
    }
    let (chosen, annotation) = flow.choose_disk(request, &attempts).await?;
    let Chosen { disk, emptied } = &chosen;
    let device = disk.stable_path();
    let number = attempts.next(&annotation);
    let mut attempts = attempts.begin(flow.live.root, annotation)?;
    flow.live.console.print_message(&format!(
        "installing on {}, attempt {number} of {}, since {} UTC",
        device.display(),
        attempts::LIMIT,
        format_clock(SystemTime::now())
    ));
    for used in emptied {
        flow.live.console.print_message(&format!("everything on {} is erased first", used.name_and_path()));
    }
    let record = match flow.put_on(&chosen, request).await {
        Ok(record) => record,
        Err(error) => {
            // The output of the command is only shown on the console of the live system.
            if !error.output.is_empty() {
                tracing::error!(output = error.output, "elemental install failed");
            }
            attempts.record_failure(flow.live.root, &error)?;
            flow.live.console.print_failure(&error);
            flow.report_outcome(Outcome::Failed(error.clone().into())).await?;
            return Err(error);
        }
    };
    let order = if request.disable_boot_entry { None } else { flow.add_boot_entry(&disk.name).await };
    flow.report_outcome(Outcome::Done(record.into())).await?;
    flow.report_order(order.as_ref()).await;
    let order = order.map_or_else(String::new, |order| format!("; {order}"));
    flow.live.console.print_message(&format!("installed on {}{order}", device.display()));
    flow.turn_to(request.power_action()).await
}

fn format_clock(time: SystemTime) -> String {
    let minutes = time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() / 60);
    format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60)
}

fn show_path(path: &Path) -> String {
    path.display().to_string()
}

struct Flow<'a, S, M, N> {
    live: Live<'a, S, M, N>,
    reporter: InstallReporter<'a, N>,
}

impl<'a, S: System, M: Mounts, N: Transport> Flow<'a, S, M, N> {
    fn new(live: Live<'a, S, M, N>) -> Self {
        Self { reporter: InstallReporter::new(live.caller), live }
    }

    /// Reports until the coordinator accepts or refuses the report.
    async fn report_outcome(&mut self, outcome: Outcome) -> Result<ReportInstallResponse, Failure> {
        let mut backoff = Backoff::default();
        loop {
            match self.reporter.report_outcome(outcome.clone()).await {
                Ok(response) => return Ok(response),
                Err(error) if error.refusal().is_some() => return Err(error.into()),
                Err(error) => self.live.console.print_failure(&error.failure.context("cannot report")),
            }
            backoff.wait().await;
        }
    }

    /// Reports a boot order that the firmware did not take.
    async fn report_order(&mut self, order: Option<&BootOrder>) {
        let Some(BootOrder::Failed(message)) = order else { return };
        let refused = Outcome::BootOrderRefused(BootOrderRefused { message: message.clone() });
        // A coordinator of a former release does not know this report.
        if let Err(error) = self.report_outcome(refused).await {
            tracing::warn!(%error, "cannot report the boot order");
        }
    }

    /// Reports that this host waits until another install device is named, which the next
    /// registration brings.
    async fn await_operator(&mut self, attempts: &Attempts) -> Result<Failure, Failure> {
        let error = attempts.describe();
        self.live.console.print_failure(&error);
        loop {
            let response = self.report_outcome(Outcome::Waiting(error.clone().into())).await?;
            if attempts.are_answered_by(&response.install_device) {
                Attempts::forget(self.live.root)?;
                let device = response.install_device;
                let message = format!("the annotation baremetal.cluster.io/install-device is now {device}");
                return Ok(Failure::refused(message, STARTS_AGAIN));
            }
            sleep(REPORT_INTERVAL).await;
        }
    }

    async fn put_on(&mut self, chosen: &Chosen, request: &Install) -> Result<InstallRecord, Failure> {
        let Chosen { disk, emptied } = chosen;
        if !emptied.is_empty() {
            let targets: Vec<_> = emptied.iter().collect();
            used_disk::empty_disks(self.live.root, self.live.mounts, &targets).await?;
        }
        let device = disk.stable_path();
        let cloud_init = self.prepare_files(request)?;
        let registry = request.registry.clone().map(RegistryAccess::from);
        let installation =
            Installation { device: &device, request, cloud_init: &cloud_init, registry: registry.as_ref() };
        let installed = self.live.system.install(installation).await;
        installed.context(format_args!("the install on {} failed", device.display()))?;
        self.refresh_paths(disk).await;
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

    /// The other paths to the disk still show its former partitions.
    async fn refresh_paths(&self, disk: &Disk) {
        for path in &disk.other_paths {
            let device = format!("/dev/{path}");
            let reread = Invocation::new("blockdev", &["--rereadpt", &device], deadlines::QUERY);
            if let Err(error) = self.live.mounts.run_tool(&reread).await {
                tracing::warn!(device, error = %Failure::from(error), "cannot read the partition table again");
            }
        }
    }

    /// The record is on the disk by now.
    async fn add_boot_entry(&self, disk: &str) -> Option<BootOrder> {
        Some(boot_order::add_disk(self.live.root, &self.find_disk(disk).await?))
    }

    /// The disk with its current partitions.
    async fn find_disk(&self, name: &str) -> Option<Disk> {
        disks::look_at_disks(self.live.root).await.into_iter().find(|disk| disk.has_name(name))
    }

    /// The files that Elemental copies to the installed system and runs at each boot.
    fn prepare_files(&self, request: &Install) -> Result<Vec<PathBuf>, Failure> {
        let mut files = vec![program::write_cloud_config(self.live.root)?];
        if !request.stages.is_empty() {
            let directory = self.live.root.runtime();
            durable::create_directory(&directory)?;
            let path = directory.join(STAGES);
            durable::write(&path, &request.stages)?;
            files.push(path);
        }
        files.extend(request.config_urls.iter().map(PathBuf::from));
        Ok(files)
    }

    async fn persistent_partition(&self, disk: &str) -> Result<String, Failure> {
        let start = Instant::now();
        loop {
            self.live.mounts.settle(Duration::ZERO).await;
            let found = self.find_disk(disk).await;
            if let Some(partition) = found.as_ref().and_then(Disk::persistent_partition) {
                return Ok(partition.name.clone());
            }
            if start.elapsed() >= PARTITION_DEADLINE {
                return Err(Failure::input_output(
                    format!("/dev/{disk} has no partition named persistent after the install"),
                    "use an image that is built for Elemental",
                ));
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    fn leave_everything(
        &self,
        partition: &str,
        request: &Install,
        record: &InstallRecord,
    ) -> Result<(), Failure> {
        let mounted = self.mount_partition(partition)?;
        let state = mounted.state();
        handover::write(&state, self.build_handover())?;
        program::keep_program(self.live.root, &state)?;
        keys::hand_over(self.live.root, &state)?;
        if let Some(seed) = &request.seed {
            seed::store(&state, &Seed::from(seed.clone()))?;
        }
        handover::write_record(&state, record)
    }

    fn mount_partition(&self, partition: &str) -> Result<installed_disk::Mounted, Failure> {
        let mounted = self.live.mounts.mount(partition, Access::Write);
        mounted
            .on("mount the persistent partition of the installed disk,", &Path::new("/dev").join(partition))
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
            return parse_image(&read_or_empty(self.live.root.os_release()));
        }
        request.system_uri.clone()
    }

    async fn sync_disks(&self) -> Result<(), Failure> {
        self.live.system.sync().await.map_err(|failure| power_failure("flush the disks", failure))
    }

    async fn turn_to(&mut self, action: PowerAction) -> Result<(), Failure> {
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
                let asked = self.live.system.reboot(RebootMethod::Orderly).await;
                asked.map(drop).map_err(|failure| power_failure("reboot", failure))
            }
        }
    }
}

async fn power_off(command: &Invocation) -> Result<(), Failure> {
    command.run().await.map(drop).map_err(|error| power_failure("power off", error.into()))
}

fn power_failure(attempt: &str, failure: Failure) -> Failure {
    failure.context(format_args!("cannot {attempt}")).with_next_action("do it at the host")
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
            let is_named = |failure: Failure| failure.message.starts_with("cannot power off: ");
            assert!(ended.map_or_else(is_named, |()| true), "{program}");
        }
    }
}
