//! Faults of the simulated system: verbs that fail or hang, what does not boot.

use std::io;

use agent::ground::failure::Failure;
use agent::host::command::{CommandError, Status};
use agent::host::elemental::failure;
use agent::host::system::Output;

use super::{SimulatedSystem, bare, remove};

impl SimulatedSystem {
    /// Makes the verb fail with this exit code from now on: `upgrade`,
    /// `cloud-init-clean`, `reboot`, `remove-workload`, `custom`.
    pub fn fail(&self, verb: &str, code: i32) -> io::Result<()> {
        self.fail_times(verb, u32::MAX, code, "as the test wants it")
    }

    /// Makes the verb fail so many times with this exit code and output.
    pub fn fail_times(&self, verb: &str, times: u32, code: i32, output: &str) -> io::Result<()> {
        self.write(&format!("fail/{verb}"), &format!("{times} {code} {output}"))
    }

    /// The failure that a test wants of the verb, once.
    pub(super) fn take_failure(&self, verb: &str) -> io::Result<Option<Failure>> {
        let name = format!("fail/{verb}");
        let Some(text) = self.read(&name) else { return Ok(None) };
        let mut parts = text.splitn(3, ' ');
        let mut next = || parts.next().unwrap_or_default();
        let (times, code, output) = (next().parse().unwrap_or(1), next().parse().unwrap_or(1), next());
        match times {
            ..=1 => remove(&self.path(&name))?,
            u32::MAX => {}
            _ => self.write(&name, &format!("{} {code} {output}", times - 1))?,
        }
        Ok(Some(failure::diagnose(CommandError::Failed {
            program: verb.to_owned(),
            status: Status::Code(code),
            output: Output(output.to_owned()),
        })))
    }

    /// The verb does not fail any more.
    pub fn succeed(&self, verb: &str) -> io::Result<()> {
        remove(&self.path("fail").join(verb))
    }

    /// Makes the image one that does not boot.
    pub fn spoil_image(&self, image: &str) -> io::Result<()> {
        self.write("spoilt", bare(image))
    }

    /// Makes cloud-init complain in its next run.
    pub fn spoil_cloud_init(&self, complaint: &str) -> io::Result<()> {
        self.write("complaint", complaint)
    }

    /// Makes the next upgrade outlive the agent: the call does not return, and
    /// the upgrade ends when a later agent waits for earlier jobs.
    pub fn detach_upgrade(&self) -> io::Result<()> {
        self.write("detach", "")
    }

    /// Makes the next call of `upgrade` or `reboot` hang before it does anything.
    pub fn hang(&self, verb: &str) -> io::Result<()> {
        self.write(&format!("hang/{verb}"), "")
    }

    pub(super) async fn wait_if_hung(&self, verb: &str) {
        let mark = self.path("hang").join(verb);
        if mark.exists() {
            let _ = remove(&mark);
            std::future::pending::<()>().await;
        }
    }
}
