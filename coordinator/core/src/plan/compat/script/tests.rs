use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use proto::plan::Seed;

use super::*;

/// A directory in the place of a host's root, with only those commands that a
/// script may find.
struct Host(PathBuf);

/// Where a script finds files; all of it is moved below the host's directory.
const PLACES: [&str; 15] = [
    "/var/lib/",
    "/var/log/",
    "/run/kubeadm",
    "/run/cloud-init",
    "/run/k3s",
    "/sys/fs/cgroup",
    "/etc/cni",
    "/etc/default",
    "/etc/kubernetes",
    "/etc/pki",
    "/etc/rancher",
    "/etc/ssl",
    "/etc/sysconfig",
    "/etc/systemd",
    "/proc/mounts",
];
const TOOLS: [&str; 10] = ["cat", "cut", "find", "install", "rm", "sed", "sh", "shred", "sort", "true"];

impl Host {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("script-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::SeqCst));
        let host = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(host.path("/commands")).unwrap();
        for tool in TOOLS {
            let found = ["/usr/bin", "/bin"].map(|directory| Path::new(directory).join(tool));
            let found = found.iter().find(|path| path.exists()).unwrap();
            symlink(found, host.path("/commands").join(tool)).unwrap();
        }
        host.put("/proc/mounts", "");
        for quiet in ["sync", "sleep", "fstrim", "journalctl"] {
            let path = host.path("/commands").join(quiet);
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        host
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A command of the host: writes down how it was called, then runs `body`.
    fn command(&self, name: &str, body: &str) {
        let log = self.path("/calls");
        let path = self.path("/commands").join(name);
        let script = format!("#!/bin/sh\necho \"{name} $*\" >> {}\n{body}\n", log.display());
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("/calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn run(&self, step: &Step) -> Output {
        let mut arguments = arguments(step, &id()).unwrap();
        for place in PLACES {
            arguments[1] = arguments[1].replace(place, &format!("{}{place}", self.0.display()));
        }
        // These run on the machine that builds: nothing outside is touched.
        for word in arguments[1].split(|c: char| c.is_whitespace() || "\"'=;()".contains(c)) {
            let inside =
                !word.starts_with('/') || word == "/dev/null" || Path::new(word).starts_with(&self.0);
            assert!(inside, "{word}");
        }
        let mut shell = Command::new("/bin/sh");
        shell.args(&arguments).env_clear().env("PATH", self.path("/commands")).output().unwrap()
    }

    fn is_done(&self, step: &Step) -> bool {
        self.path(&format!("{STATE}/done/{}.{}", id(), step.name())).exists()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn id() -> PlanId {
    PlanId::parse("clean-0123456789abcdef").unwrap()
}

fn seed() -> Step {
    Step::WriteSeed(Seed {
        user_data: None,
        meta_data: String::new(),
        network_config: None,
        connections: BTreeMap::new(),
        network_data: None,
    })
}

#[test]
fn clean_succeeds_on_host_without_node_state() {
    let steps = [
        Step::StopKubelet,
        Step::RemoveWorkload,
        Step::StopContainerd,
        Step::RemoveNodeState,
        Step::RemoveNodeIdentity,
        seed(),
    ];
    for (name, runtime) in [("no ctr", None), ("containerd is down", Some("exit 1"))] {
        let host = Host::new();
        host.command("systemctl", "exit 1");
        if let Some(body) = runtime {
            host.command("ctr", body);
        }
        for step in &steps {
            let ran = host.run(step);
            assert!(ran.status.success(), "{name}: {}: {ran:?}", step.name());
            assert!(host.is_done(step), "{name}: {}", step.name());
        }
        let stopped = host.calls().into_iter().find(|call| call.starts_with("systemctl stop"));
        assert_eq!(stopped, None, "{name}: there are no units");
    }
}

#[test]
fn existing_units_are_stopped_or_step_fails() {
    let host = Host::new();
    host.command("systemctl", "case \"$*\" in *k3s.service | *containerd.service) ;; *) exit 1 ;; esac");
    assert!(host.run(&Step::StopKubelet).status.success());
    assert!(host.run(&Step::StopContainerd).status.success());
    let stopped: Vec<_> = host.calls().into_iter().filter(|call| call.contains(" stop ")).collect();
    assert_eq!(stopped, ["systemctl stop k3s.service", "systemctl stop containerd.service"]);
    let stuck = Host::new();
    stuck.command("systemctl", "case \"$1\" in cat) ;; *) exit 1 ;; esac");
    assert!(!stuck.run(&Step::StopKubelet).status.success());
    assert!(!stuck.is_done(&Step::StopKubelet));
}

#[test]
fn workload_is_removed_or_step_fails() {
    const CTR: &str = r#"case "$3 $4" in
  "tasks list") echo a; echo b ;;
  "containers list") cat_if_there ;;
  "tasks delete") exit 1 ;;
esac"#;
    for (name, delete, want) in [("removed", "rm -f", true), ("stays", "true", false)] {
        let host = Host::new();
        let listed = host.path("/listed").display().to_string();
        host.put("/listed", "");
        let body = CTR
            .replace("cat_if_there", &format!("if [ -e {listed} ]; then echo c; fi"))
            .replace("esac", &format!("  \"containers delete\") {delete} {listed} ;;\nesac"));
        host.command("ctr", &body);
        let ran = host.run(&Step::RemoveWorkload);
        assert_eq!(ran.status.success(), want, "{name}: {ran:?}");
        assert_eq!(host.is_done(&Step::RemoveWorkload), want, "{name}");
        for call in ["ctr -n k8s.io tasks delete -f b", "ctr -n k8s.io containers delete c"] {
            assert!(host.calls().iter().any(|made| made == call), "{name}: {:?}", host.calls());
        }
    }
}

#[test]
fn volumes_are_unmounted_deepest_first_before_deletion() {
    let host = Host::new();
    host.put("/etc/kubernetes/pki/ca.crt", "secret");
    host.put("/var/lib/kubelet/pods/a/volume/token", "secret");
    host.put("/var/lib/cloud/instances/a/user-data.txt", "secret");
    host.put("/run/kubeadm/kubeadm-join-config.yaml", "secret");
    host.put("/run/cloud-init/combined-cloud-config.json", "secret");
    host.put("/var/log/cloud-init-output.log", "secret");
    let below = |path: &str| host.path(path).display().to_string();
    let pods = below("/var/lib/kubelet/pods/a");
    let mounts =
        format!("tmpfs / tmpfs rw 0 0\ntmpfs {pods} tmpfs rw 0 0\ntmpfs {pods}/volume tmpfs rw 0 0\n");
    host.put("/proc/mounts", &mounts);
    host.command("umount", "[ \"$1\" = -l ] || [ \"$1\" != \"${1%/volume}\" ]");
    let ran = host.run(&Step::RemoveNodeState);
    assert!(ran.status.success(), "{ran:?}");
    let want = [format!("umount {pods}/volume"), format!("umount {pods}"), format!("umount -l {pods}")];
    assert_eq!(host.calls(), want);
    let emptied = [
        "/etc/kubernetes",
        "/var/lib/kubelet",
        "/var/lib/cloud/instances",
        "/run/kubeadm",
        "/run/cloud-init",
        "/var/log",
    ];
    for directory in emptied {
        assert_eq!(fs::read_dir(host.path(directory)).unwrap().count(), 0, "{directory}");
    }
}

#[test]
fn missing_user_data_becomes_empty_seed_file() {
    let host = Host::new();
    host.put(&format!("{}/meta-data", staging_directory(&id())), "instance-id: x\n");
    host.put("/var/lib/cloud/seed/nocloud/network-config", "of the former node");
    assert!(host.run(&seed()).status.success());
    let seeded = |name: &str| fs::read_to_string(host.path("/var/lib/cloud/seed/nocloud").join(name)).ok();
    assert_eq!(seeded("meta-data").as_deref(), Some("instance-id: x\n"));
    assert_eq!(seeded("user-data").as_deref(), Some(""));
    assert_eq!(seeded("network-config"), None);
    assert!(!host.path(&format!("{STATE}/seed/user-data")).exists(), "absent where it is the authority");
}

#[test]
fn what_is_done_is_not_done_again() {
    let host = Host::new();
    assert!(host.run(&Step::RequestCleanup).status.success());
    let marker = host.path(&format!("{STATE}/cleanup-requested"));
    assert_eq!(fs::read_to_string(&marker).unwrap(), format!("{}\n", id()));
    fs::remove_file(&marker).unwrap();
    assert!(host.run(&Step::RequestCleanup).status.success());
    assert!(!marker.exists());
    let mode = fs::metadata(host.path(STATE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "the state is root's alone");
}

#[test]
fn an_upgrade_names_a_source_that_elemental_reads() {
    for (given, want) in [("10.0.0.1:5000/os:v1", "oci:10.0.0.1:5000/os:v1"), ("dir:/os", "dir:/os")] {
        let image = proto::plan::Image::parse(given).unwrap();
        assert_eq!(arguments(&Step::UpgradeSystem(image.into()), &id()).unwrap().last().unwrap(), want);
    }
}

#[test]
fn an_upgrade_reaches_its_registry() {
    let host = Host::new();
    let names = "DOCKER_CONFIG SSL_CERT_FILE HTTPS_PROXY HTTP_PROXY NO_PROXY";
    let show = format!(r#"for name in {names}; do eval "echo $name=\${{$name-unset}}"; done > "$0.env""#);
    host.command("elemental", &show);
    let staging = staging_directory(&id());
    for (name, text) in [("config.json", "{}"), ("authorities.pem", "site"), ("https-proxy", "http://p:1")] {
        host.put(&format!("{staging}/{name}"), text);
    }
    let upgrade = proto::plan::Upgrade {
        image: proto::plan::Image::parse("registry.example/os:v1").unwrap(),
        registry: Some(Box::default()),
    };
    let ran = host.run(&Step::UpgradeSystem(upgrade));
    assert!(ran.status.success(), "{ran:?}");
    let seen = fs::read_to_string(host.path("/commands/elemental.env")).unwrap();
    let place = host.path(&staging);
    for line in [
        format!("DOCKER_CONFIG={}", place.display()),
        format!("SSL_CERT_FILE={}/bundle.pem", place.display()),
        "HTTPS_PROXY=http://p:1".to_owned(),
        "HTTP_PROXY=unset".to_owned(),
        "NO_PROXY=unset".to_owned(),
    ] {
        assert!(seen.lines().any(|found| found == line), "{line} is not in {seen}");
    }
    assert!(fs::read_to_string(place.join("bundle.pem")).unwrap().ends_with("site"));
}

#[test]
fn unmanaged_workload_is_killed_through_cgroup() {
    let pod = "/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/cri-containerd-a.scope";
    for step in [Step::RemoveWorkload, Step::StopContainerd] {
        let host = Host::new();
        host.command("systemctl", "exit 1");
        host.put(&format!("{pod}/cgroup.procs"), "12\n");
        host.put(&format!("{pod}/cgroup.kill"), "");
        let ran = host.run(&step);
        assert!(!ran.status.success() && !host.is_done(&step), "it still runs: {ran:?}");
        assert_eq!(fs::read_to_string(host.path(&format!("{pod}/cgroup.kill"))).unwrap(), "1\n");
        host.put(&format!("{pod}/cgroup.procs"), "");
        assert!(host.run(&step).status.success());
    }
}

#[test]
fn shim_is_killed_only_after_containerd_stops() {
    let service = "/sys/fs/cgroup/system.slice/containerd.service";
    for (step, is_killed) in [(Step::RemoveWorkload, false), (Step::StopContainerd, true)] {
        let host = Host::new();
        host.command("systemctl", "exit 1");
        host.put(&format!("{service}/cgroup.procs"), "12\n");
        host.put(&format!("{service}/cgroup.kill"), "");
        host.run(&step);
        let written = fs::read_to_string(host.path(&format!("{service}/cgroup.kill"))).unwrap();
        assert_eq!(!written.is_empty(), is_killed, "{step:?}");
    }
}

#[test]
fn every_distribution_is_removed_image_is_kept() {
    let host = Host::new();
    let removed = [
        "/etc/cni/net.d/10-calico.conflist",
        "/etc/default/rke2-server",
        "/etc/rancher/k3s/config.yaml.d/10-token.yaml",
        "/etc/rancher/node/password",
        "/etc/rancher/rke2/config.yaml",
        "/etc/rancher/rke2/config.yaml.d/50-server.yaml",
        "/etc/rancher/rke2/registries.yaml",
        "/etc/systemd/system/k3s.service.env",
        "/run/k3s/containerd/x",
        "/var/lib/baremetal-agent/cleanup-requested",
        "/var/lib/cni/networks/x",
        "/var/lib/etcd/member/snap/db",
        "/var/lib/rancher/rke2/server/token",
    ];
    let kept = ["/etc/cni/net.d/99-loopback.conf", "/var/lib/rancher/x"];
    removed.iter().chain(&kept).for_each(|path| host.put(path, "secret"));
    let token = fs::File::open(host.path("/var/lib/rancher/rke2/server/token")).unwrap();
    let ran = host.run(&Step::RemoveNodeState);
    assert!(ran.status.success(), "{ran:?}");
    assert!(removed.iter().all(|path| !host.path(path).exists()));
    assert!(kept.iter().all(|path| host.path(path).exists()));
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut &token, &mut content).unwrap();
    assert!(!content.windows(6).any(|part| part == b"secret"), "{content:?}");
}
