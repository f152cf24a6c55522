//! The instructions by which an upstream agent runs a plan of ours.
//!
//! That agent runs everything again at each of its starts, the reboot of the
//! plan itself included: so each instruction is guarded by a done-file named
//! after the plan. Our own agent never runs these; it gets typed steps.

use proto::plan::{PlanId, Step};

/// Where our state lives on a host (`docs/operations`).
const STATE: &str = "/var/lib/baremetal-agent";

/// Where the files of a plan wait: `files` are written before instructions, and
/// a seed in place would be deleted by `cloud-init clean --seed`.
pub(super) fn staging(id: &PlanId) -> String {
    format!("{STATE}/staging/{id}")
}

/// Arguments of `/bin/sh` for one step, `None` where an upstream agent has
/// nothing to do: it cannot prove a boot.
pub(super) fn arguments(step: &Step, id: &PlanId) -> Option<Vec<String>> {
    let body = body(step)?;
    let name = step.name();
    let script = format!(
        "done={STATE}/done/$1.{name}; [ ! -e \"$done\" ] || exit 0; staging={STATE}/staging/$1; \
         install -d -m 0700 {STATE}/done; {body}; : > \"$done\""
    );
    let mut arguments = vec!["-ec".to_owned(), script, name.to_owned(), id.to_string()];
    if let Step::UpgradeSystem(image) = step {
        arguments.push(image.to_string());
    }
    Some(arguments)
}

fn body(step: &Step) -> Option<&'static str> {
    Some(match step {
        Step::RequestCleanup => "printf '%s\\n' \"$1\" > /var/lib/baremetal-agent/cleanup-requested",
        Step::CleanCloudInit => "cloud-init clean --logs --seed",
        Step::WriteSeed(_) => {
            "for seed in /var/lib/baremetal-agent/seed /var/lib/cloud/seed/nocloud; do \
             rm -rf \"$seed\"; install -d -m 0700 \"$seed\"; \
             for file in user-data meta-data network-config; do \
             [ ! -e \"$staging/$file\" ] || install -m 0600 \"$staging/$file\" \"$seed/$file\"; done; done; \
             rm -f \"$staging/user-data\""
        }
        Step::WriteNodeIdentity(_) => {
            "install -m 0600 \"$staging/node-identity.json\" /var/lib/baremetal-agent/node-identity.json"
        }
        Step::RemoveNodeIdentity => "rm -f /var/lib/baremetal-agent/node-identity.json",
        Step::UpgradeSystem(_) => "elemental upgrade --reboot=false --system \"$2\"",
        Step::SyncFileSystems => "sync",
        // The done-file must be there before the machine goes down.
        Step::Reboot => "systemd-run --on-active=10 systemctl reboot",
        Step::StopKubelet => "systemctl stop kubelet",
        Step::RemoveWorkload => {
            "ctr -n k8s.io tasks ls -q | xargs -r ctr -n k8s.io tasks rm -f; \
             ctr -n k8s.io containers ls -q | xargs -r ctr -n k8s.io containers rm"
        }
        Step::StopContainerd => "systemctl stop containerd",
        Step::RemoveNodeState => "find /etc/kubernetes /var/lib/kubelet -xdev -mindepth 1 -delete",
        Step::VerifySystem(_) | Step::WriteCustomFile(_) | Step::RunCustomInstruction(_) => return None,
    })
}
