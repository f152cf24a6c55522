//! Counts the attempts of this live boot to install. The count is below `/run`, so that it survives
//! a restart of the agent and ends with the boot.

use serde::{Deserialize, Serialize};

use crate::ground::durable;
use crate::ground::failure::{Context as _, Failure};
use crate::ground::paths::{Root, read_or_empty};

const FILE: &str = "install-attempts.json";
/// The limit is low, because each attempt writes over the disk.
pub(super) const LIMIT: u32 = 3;

/// The attempts since the host booted, or since an operator named a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Attempts {
    begun: u32,
    /// The annotation `install-device` at the last attempt.
    install_device: String,
    cause: String,
    next_action: String,
}

impl Attempts {
    pub(super) fn read(root: &Root) -> Self {
        serde_json::from_str(&read_or_empty(root.runtime().join(FILE))).unwrap_or_default()
    }

    pub(super) const fn are_used_up(&self) -> bool {
        self.begun >= LIMIT
    }

    /// True if the annotation has a new value since the last attempt.
    pub(super) fn are_answered_by(&self, install_device: &str) -> bool {
        !install_device.is_empty() && install_device != self.install_device
    }

    /// Number of the next attempt.
    pub(super) fn next(&self, install_device: &str) -> u32 {
        if self.are_answered_by(install_device) { 1 } else { self.begun + 1 }
    }

    /// Counts an attempt before it writes anything, so that an attempt in which the agent was
    /// killed counts too.
    pub(super) fn begin(self, root: &Root, install_device: String) -> Result<Self, Failure> {
        let begun = self.next(&install_device);
        let cause = "the agent was stopped while it installed".to_owned();
        let next_action = "look at the host's system log (`journalctl -b`)".to_owned();
        let attempts = Self { begun, install_device, cause, next_action };
        attempts.write(root)?;
        Ok(attempts)
    }

    pub(super) fn record_failure(&mut self, root: &Root, failure: &Failure) -> Result<(), Failure> {
        self.cause.clone_from(&failure.message);
        self.next_action.clone_from(&failure.next_action);
        self.write(root)
    }

    pub(super) fn forget(root: &Root) -> Result<(), Failure> {
        durable::remove(&root.runtime().join(FILE))
    }

    pub(super) fn describe(&self) -> Failure {
        let again = "set the annotation baremetal.cluster.io/install-device on the MachineInventory to a path of the disk that it does not have yet, or boot the seed ISO again";
        let Self { begun, cause, next_action, .. } = self;
        Failure::input_output(
            format!("the install failed {begun} times since this host booted, at last because {cause}"),
            format!("{next_action}; then {again}"),
        )
    }

    fn write(&self, root: &Root) -> Result<(), Failure> {
        let directory = root.runtime();
        durable::create_directory(&directory)
            .and_then(|()| durable::write_json(&directory.join(FILE), self))
            .context("cannot count the attempts to install, so nothing is installed")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn attempts_are_counted_up_to_a_limit() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        for (number, annotation, used_up) in
            [(1, "", false), (2, "", false), (1, "/dev/sda", false), (2, "/dev/sda", false), (3, "", true)]
        {
            let attempts = Attempts::read(&root).begin(&root, annotation.to_owned()).unwrap();
            assert_eq!((attempts.begun, attempts.are_used_up()), (number, used_up), "{number} {annotation}");
            assert_eq!(Attempts::read(&root), attempts);
        }
        Attempts::forget(&root).unwrap();
        assert_eq!(Attempts::read(&root), Attempts::default());
    }

    #[test]
    fn nothing_is_installed_without_a_count() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        fs::write(root.join("/run"), "no directory").unwrap();
        let error = Attempts::default().begin(&root, String::new()).unwrap_err();
        assert!(error.message.contains(&root.runtime().display().to_string()), "{error}");
    }
}
