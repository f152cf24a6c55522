//! The state of the running system, from its files.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use proto::v1alpha1::{FailureReason, SystemState};
use serde::Deserialize;

use super::command::SYSTEM_LOG;
use super::sysfs::read_line;
use super::system::CloudInit;
use crate::ground::durable;
use crate::ground::failure::{Context as _, Failure, FailureClass, OnPath as _, describe_error};
use crate::ground::paths::{Root, read_or_empty};
use crate::host::facts::os_release::parse_image;
use crate::host::kept_paths;
use crate::host::network::kernel::dump_kernel;
use crate::host::network::leave_out_endpoint;
use crate::host::network::translate::translate_dump;
use crate::state::before_node;

/// The running system. Unknown values are empty, except for the boot id.
pub fn system_state(root: &Root) -> Result<SystemState, Failure> {
    Ok(SystemState {
        boot_id: boot_id(root)?,
        image: parse_image(&read_or_empty(root.os_release())),
        boot_mode: root.boot_mode().into(),
        hostname: read_line(&root.join("/proc/sys/kernel/hostname")),
        addresses: if *root == Root::host() { list_addresses(root) } else { Vec::new() },
        // Only `elemental state` names the snapshot.
        snapshot: 0,
        // The identity of the host may add a cause.
        state_failure: String::new(),
        // It is not known here whether the host carries a node.
        left_in_kernel: Vec::new(),
        left_behind: Vec::new(),
        kept_paths: kept_paths::list_kept(root),
    })
}

pub fn boot_id(root: &Root) -> Result<String, Failure> {
    let path = root.boot_id();
    match fs::read_to_string(&path).on("read", &path).context("cannot read the boot id") {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(failure) => Err(failure.with_next_action("reboot the host")),
    }
}

/// Addresses of the host's own interfaces, without the endpoint and those that the cluster added.
fn list_addresses(root: &Root) -> Vec<String> {
    let Ok(dump) = dump_kernel() else { return Vec::new() };
    let mut network = translate_dump(&dump);
    leave_out_endpoint(&mut network, root);
    if let Some(own) = boot_id(root).ok().and_then(|boot| before_node::own_items(root, &boot)) {
        own.filter_network(&mut network);
    }
    let nets = network.interfaces.iter().flat_map(|interface| &interface.addresses);
    let addresses = nets.filter_map(|net| net.split('/').next()?.parse::<IpAddr>().ok());
    addresses.collect::<BTreeSet<_>>().iter().map(ToString::to_string).collect()
}

/// The progress of cloud-init in this boot, from the files that it leaves.
///
/// Some versions of `status --wait` end before `runcmd` has run, so this reads the mark of the last
/// stage and `result.json`. The link to `result.json` below `/run` is of this boot, while the mark
/// may be of an earlier one.
pub fn cloud_init(root: &Root) -> Result<CloudInit, Failure> {
    let finished = root.join("/var/lib/cloud/instance/boot-finished");
    let result = root.join("/run/cloud-init/result.json");
    if !finished.exists() {
        return Ok(CloudInit::Running);
    }
    let Some(text) = durable::read_text(&result)? else { return Ok(CloudInit::Running) };
    let instance = root.join("/var/lib/cloud/data/instance-id");
    Ok(CloudInit::Finished {
        instance_id: fs::read_to_string(instance).ok().map(|text| text.trim().to_owned()),
        errors: parse_result(&text)?,
    })
}

/// Errors in cloud-init's `result.json`.
fn parse_result(text: &str) -> Result<Vec<String>, Failure> {
    #[derive(Deserialize)]
    struct Versions {
        v1: Stages,
    }
    #[derive(Deserialize)]
    struct Stages {
        #[serde(default)]
        errors: Vec<String>,
    }
    serde_json::from_str::<Versions>(text)
        .map(|result| result.v1.errors)
        .map_err(|error| unreadable("cloud-init's result.json", &error))
}

/// The output of a program, or a file that it wrote, is not in the expected form.
pub(super) fn unreadable(what: &str, error: &dyn Error) -> Failure {
    let message = format!("cannot understand {what}: {}", describe_error(error));
    Failure::new(FailureReason::Command, message, SYSTEM_LOG).with_class(FailureClass::Unknown)
}

/// Time since the kernel started; zero if the kernel does not say it.
pub fn read_uptime(root: &Root) -> Duration {
    let text = read_or_empty(root.join("/proc/uptime"));
    let seconds = text.split_whitespace().next().and_then(|word| word.parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cloud_init_finishes_with_both_marks() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(cloud_init(&root).unwrap(), CloudInit::Running);
        put("/var/lib/cloud/instance/boot-finished", "an earlier boot");
        assert_eq!(cloud_init(&root).unwrap(), CloudInit::Running);
        put("/var/lib/cloud/data/instance-id", "plan-1\n");
        put("/run/cloud-init/result.json", r#"{"v1":{"datasource":"x","errors":["e"]}}"#);
        let want = CloudInit::Finished { instance_id: Some("plan-1".into()), errors: vec!["e".into()] };
        assert_eq!(cloud_init(&root).unwrap(), want);
        put("/run/cloud-init/result.json", "garbage");
        assert!(cloud_init(&root).is_err());
    }

    #[test]
    fn the_uptime_is_that_of_the_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(read_uptime(&root).as_secs(), 0);
        fs::create_dir_all(root.join("/proc")).unwrap();
        fs::write(root.join("/proc/uptime"), "61.50 120.00\n").unwrap();
        assert_eq!(read_uptime(&root).as_millis(), 61_500);
    }
}
