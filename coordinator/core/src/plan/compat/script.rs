//! The instructions by which an upstream agent runs a plan of ours.
//!
//! That agent runs everything again at each of its starts, the reboot of the
//! plan itself included: so each instruction is guarded by a done-file named
//! after the plan, which is written when the effect is on the disk. Our own
//! agent never runs these; it gets typed steps.

use proto::plan::{PlanId, Step, to_source};

/// Where our state lives on a host (`docs/operations`).
const STATE: &str = "/var/lib/baremetal-agent";

/// Name of the last instruction.
pub(super) const REMOVE_STAGING: &str = "remove-staging";

/// Where the files of a plan wait: `files` are written before instructions, and
/// a seed in place would be deleted by `cloud-init clean --seed`.
pub(in crate::plan) fn staging_directory(id: &PlanId) -> String {
    format!("{STATE}/staging/{id}")
}

/// Arguments of `/bin/sh` for one step, `None` where an upstream agent has
/// nothing to do: it cannot prove a boot.
pub(super) fn arguments(step: &Step, id: &PlanId) -> Option<Vec<String>> {
    let body = body(step)?;
    let name = step.name();
    let script = format!(
        "done={STATE}/done/$1.{name}; [ ! -e \"$done\" ] || exit 0; staging={STATE}/staging/$1; \
         install -d -m 0700 {STATE} {STATE}/done\n{body}\nsync\n: > \"$done\""
    );
    let mut arguments = vec!["-ec".to_owned(), script, name.to_owned(), id.to_string()];
    if let Step::UpgradeSystem(upgrade) = step {
        arguments.push(to_source(upgrade.image.as_str()));
    }
    Some(arguments)
}

/// Arguments of `/bin/sh` for the last instruction. The files are written again
/// at each start, so their removal has no guard: no secret stays in them.
pub(super) fn remove_staging() -> Vec<String> {
    vec!["-ec".to_owned(), format!("rm -rf {STATE}/staging"), REMOVE_STAGING.to_owned()]
}

fn body(step: &Step) -> Option<&'static str> {
    Some(match step {
        Step::RequestCleanup => "printf '%s\\n' \"$1\" > /var/lib/baremetal-agent/cleanup-requested",
        Step::CleanCloudInit => "cloud-init clean --logs --seed",
        Step::WriteSeed(_) => WRITE_SEED,
        Step::WriteNodeIdentity(_) => {
            "install -m 0600 \"$staging/node-identity.json\" /var/lib/baremetal-agent/node-identity.json"
        }
        Step::RemoveNodeIdentity => REMOVE_NODE_IDENTITY,
        Step::UpgradeSystem(upgrade) if upgrade.registry.is_some() => UPGRADE_FROM_REGISTRY,
        Step::UpgradeSystem(_) => "elemental upgrade --reboot=false --system \"$2\"",
        Step::SyncFileSystems => "sync",
        // The done-file must be there before the machine goes down.
        Step::Reboot => "systemd-run --on-active=10 systemctl reboot",
        Step::StopKubelet => STOP_KUBELET,
        Step::RemoveWorkload => REMOVE_WORKLOAD,
        Step::StopContainerd => STOP_CONTAINERD,
        Step::RemoveNodeState => REMOVE_NODE_STATE,
        Step::VerifySystem { .. } | Step::WriteCustomFile(_) | Step::RunCustomInstruction(_) => return None,
    })
}

/// cloud-init takes a directory without user-data for no seed at all.
const WRITE_SEED: &str = r#"for seed in /var/lib/baremetal-agent/seed /var/lib/cloud/seed/nocloud; do
  rm -rf "$seed"
  install -d -m 0700 "$seed"
  for file in user-data meta-data network-config network_data.json; do
    [ ! -e "$staging/$file" ] || install -m 0600 "$staging/$file" "$seed/$file"
  done
done
for file in $staging/*.nmconnection; do
  [ ! -e "$file" ] || install -m 0600 "$file" /var/lib/baremetal-agent/seed/
done
[ -e "$seed/user-data" ] || install -m 0600 /dev/null "$seed/user-data""#;

/// The variable for authorities replaces the bundle of the system.
const UPGRADE_FROM_REGISTRY: &str = r#"[ ! -e "$staging/config.json" ] || export DOCKER_CONFIG="$staging"
if [ -e "$staging/authorities.pem" ]; then
  : > "$staging/bundle.pem"
  for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem; do
    [ ! -e "$bundle" ] || { cat "$bundle" > "$staging/bundle.pem"; break; }
  done
  cat "$staging/authorities.pem" >> "$staging/bundle.pem"
  export SSL_CERT_FILE="$staging/bundle.pem"
fi
[ ! -e "$staging/https-proxy" ] || export HTTPS_PROXY="$(cat "$staging/https-proxy")"
[ ! -e "$staging/http-proxy" ] || export HTTP_PROXY="$(cat "$staging/http-proxy")"
[ ! -e "$staging/no-proxy" ] || export NO_PROXY="$(cat "$staging/no-proxy")"
elemental upgrade --reboot=false --system "$2""#;

/// What early boot wrote for the kubelet goes with it: the mark and the line
/// after it are the agent's (`agent/src/state/node_identity`).
const REMOVE_NODE_IDENTITY: &str = r#"rm -f /var/lib/baremetal-agent/node-identity.json
for file in /etc/default/kubelet /etc/sysconfig/kubelet; do
  [ ! -e "$file" ] || sed -i '\%^# The next line is written by baremetal-agent at every boot\.$%,+1d' "$file"
done
rm -f /etc/rancher/rke2/config.yaml.d/90-baremetal-agent.yaml /etc/rancher/k3s/config.yaml.d/90-baremetal-agent.yaml"#;

/// Whatever runs the kubelet, by distribution. A unit that does not exist
/// cannot be stopped: systemctl would end with an error.
const STOP_KUBELET: &str = r#"for unit in kubelet rke2-agent rke2-server k3s-agent k3s; do
  if systemctl cat "$unit.service" > /dev/null 2>&1; then systemctl stop "$unit.service"; fi
done"#;

/// Containers outlive their runtime, also those of the runtimes that RKE2 and
/// k3s bring: the kernel is asked what still runs.
macro_rules! kill_workload {
    ($more:literal) => {
        concat!(
            r#"list() {
  find /sys/fs/cgroup -type d \( -name '*kubepods*' -o -name 'cri-containerd-*' -o -name 'k3s.service' \
    -o -name 'k3s-agent.service' -o -name 'rke2-server.service' -o -name 'rke2-agent.service'"#,
            $more,
            r#" \)
}
running() { list | while read -r cgroup; do find "$cgroup" -name cgroup.procs -exec cat {} +; done; }
if [ -d /sys/fs/cgroup ]; then
  for second in 1 2 3 4 5; do
    [ -n "$(running)" ] || break
    list | while read -r cgroup; do [ ! -e "$cgroup/cgroup.kill" ] || echo 1 > "$cgroup/cgroup.kill"; done
    sleep 1
  done
  left=$(running)
  [ -z "$left" ] || { echo "cannot be killed: $left" >&2; exit 1; }
fi"#
        )
    };
}

const STOP_CONTAINERD: &str = concat!(
    "if systemctl cat containerd.service > /dev/null 2>&1; then systemctl stop containerd.service; fi\n",
    kill_workload!(" -o -name containerd.service")
);

/// Without a runtime that answers only the kernel can be asked. A task that ends in
/// between is an error of its removal; whether all are gone is asked afterwards.
const REMOVE_WORKLOAD: &str = concat!(
    r#"if command -v ctr > /dev/null && ctr -n k8s.io containers list -q > /dev/null 2>&1; then
  for task in $(ctr -n k8s.io tasks list -q); do ctr -n k8s.io tasks delete -f "$task" || :; done
  for container in $(ctr -n k8s.io containers list -q); do ctr -n k8s.io containers delete "$container" || :; done
  left=$(ctr -n k8s.io containers list -q)
  [ -z "$left" ] || { echo "cannot be removed: $left" >&2; exit 1; }
fi
"#,
    kill_workload!("")
);

/// Pods' volumes stay mounted when their pods are gone, and a mount point
/// cannot be removed; one whose server is away can only be unmounted lazily.
/// cloud-init and kubeadm keep copies of the bootstrap data, and the journal has
/// what they printed. What holds secrets is overwritten where `shred` is there, and the disk is told that it is free.
const REMOVE_NODE_STATE: &str = r#"cut -d ' ' -f 2 /proc/mounts | sort -r | while read -r mount; do
  case $mount in
    /var/lib/kubelet/* | /var/lib/rancher/* | /run/k3s/*) umount "$mount" || umount -l "$mount" ;;
  esac
done
files="/run/cloud-init/combined-cloud-config.json /run/cloud-init/instance-data-sensitive.json
  /var/log/cloud-init.log /var/log/cloud-init-output.log
  /etc/rancher/k3s/config.yaml /etc/rancher/k3s/k3s.yaml /etc/rancher/k3s/registries.yaml
  /etc/rancher/rke2/config.yaml /etc/rancher/rke2/rke2.yaml /etc/rancher/rke2/registries.yaml
  /etc/systemd/system/k3s.service.env /etc/systemd/system/k3s-agent.service.env
  /etc/default/k3s /etc/default/k3s-agent /etc/default/rke2-server /etc/default/rke2-agent
  /etc/sysconfig/k3s /etc/sysconfig/k3s-agent /etc/sysconfig/rke2-server /etc/sysconfig/rke2-agent"
if command -v shred > /dev/null; then
  for path in $files /etc/kubernetes /etc/rancher/k3s/config.yaml.d /etc/rancher/node /etc/rancher/rke2/config.yaml.d \
    /var/lib/cloud/instances /var/lib/etcd /var/lib/kubelet/pki \
    /var/lib/rancher/k3s/agent /var/lib/rancher/k3s/server /var/lib/rancher/rke2/server; do
    [ ! -e "$path" ] || find "$path" -xdev -type f -links 1 -exec shred -n 1 {} + || :
  done
fi
directories="/etc/kubernetes /etc/rancher/k3s/config.yaml.d /etc/rancher/node /etc/rancher/rke2/config.yaml.d /run/k3s /run/kubeadm /var/lib/cloud/instances /var/lib/cni
  /var/lib/etcd /var/lib/kubelet /var/lib/rancher/k3s /var/lib/rancher/rke2 /var/log/containers /var/log/pods"
for directory in $directories; do
  [ ! -d "$directory" ] || find "$directory" -xdev -mindepth 1 -delete
done
rm -f $files /var/lib/baremetal-agent/cleanup-requested
if [ -d /etc/cni/net.d ]; then
  for plugin in antrea calico canal cilium flannel kube-ovn kube-router kubeconfig multus ovn weave whereabouts; do
    find /etc/cni/net.d -mindepth 1 -maxdepth 1 -name "*$plugin*" -exec rm -rf {} +
  done
fi
for directory in $directories; do
  [ ! -d "$directory" ] || left=$(find "$directory" -mindepth 1 -print -quit)
  [ -z "${left:-}" ] || { echo "still there: $left" >&2; exit 1; }
done
journalctl --rotate --vacuum-time=1s
sync
fstrim -v /var/lib/baremetal-agent || echo "not trimmed""#;

#[cfg(test)]
mod tests;
