//! An operating system made of files below a root: it
//! has two system slots, a boot loader that falls back, unflushed writes that a
//! power cut loses, and a cloud-init that runs once for an instance.
//!
//! All of it survives the process, so that a test can kill the agent. Every
//! effect is a line in a log.

mod boots;
mod faults;
mod verbs;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use agent::ground::failpoint::failpoint;
use agent::ground::failure::Failure;
use agent::ground::paths::Root;
use agent::host::command::CommandError;
use agent::host::system::Output;
use proto::distribution::{self, Extent};

/// Where network plugins write. A boot does not empty it, the clean of a node does.
const NETWORKS: &str = "/etc/cni/net.d";

#[derive(Clone, Debug)]
pub struct SimulatedSystem {
    root: Root,
}

impl SimulatedSystem {
    /// The host below `root`, as it was left.
    pub fn new(root: Root) -> Self {
        Self { root }
    }

    /// A host that has just booted `image` from its disk, with units and
    /// workload of a node when `node` names one.
    pub fn installed(root: Root, image: &str) -> io::Result<Self> {
        let host = Self { root };
        host.write("running", image)?;
        host.put("/etc/default/kubelet", "")?;
        host.start(image, "active_mode")?;
        Ok(host)
    }

    /// Gives the host a running node.
    pub fn with_node(self) -> io::Result<Self> {
        for directory in distribution::wiped_directories(Extent::Tree) {
            self.put(&format!("{directory}/of/the/former/node"), "secret")?;
        }
        self.put(&format!("{NETWORKS}/10-calico.conflist"), "secret")?;
        self.write("workload/pod-1", "")?;
        self.with_unit("kubelet.service")?.with_unit("containerd.service")
    }

    /// Gives the host a running service.
    pub fn with_unit(self, unit: &str) -> io::Result<Self> {
        self.write(&format!("units/{unit}"), "")?;
        Ok(self)
    }

    /// Has a program of the cluster put a link into the kernel. One whose name begins with `bpf`
    /// stays there until a boot.
    pub fn put_link(&self, name: &str) -> io::Result<()> {
        self.append("kernel", name)
    }

    /// Has a program of the cluster add an address to the host's network, until the next boot.
    pub fn put_address(&self, address: &str) -> io::Result<()> {
        self.append("addresses", address)
    }

    /// Has a program of the cluster add a route, until the next boot.
    pub fn put_route(&self, destination: &str, gateway: &str) -> io::Result<()> {
        self.append("routes", &format!("{destination} {gateway}"))
    }

    /// The addresses that programs of the cluster added.
    pub fn added_addresses(&self) -> Vec<String> {
        self.read("addresses").map(|text| text.lines().map(str::to_owned).collect()).unwrap_or_default()
    }

    /// The routes that programs of the cluster added, with their gateways.
    pub fn added_routes(&self) -> Vec<(String, String)> {
        let text = self.read("routes").unwrap_or_default();
        let routes = text.lines().filter_map(|line| line.split_once(' '));
        routes.map(|(destination, gateway)| (destination.to_owned(), gateway.to_owned())).collect()
    }

    fn links(&self) -> Vec<String> {
        self.read("kernel").map(|text| text.lines().map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Whether an upgrade runs without its agent.
    pub fn has_job(&self) -> bool {
        self.path("job").exists()
    }

    /// Whether the agent has asked for a reboot in this boot.
    pub fn reboot_was_asked_for(&self) -> bool {
        self.path("reboot").exists()
    }

    /// Every effect so far, in order.
    pub fn effects(&self) -> Vec<String> {
        self.read("effects").map(|text| text.lines().map(str::to_owned).collect()).unwrap_or_default()
    }

    /// How many effects came before each flush of all disks that the agent asked for, in order.
    pub fn flushes(&self) -> Vec<usize> {
        let text = self.read("flushes").unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Files of a node, below the root.
    pub fn node_files(&self) -> Vec<PathBuf> {
        distribution::wiped_directories(Extent::Tree)
            .iter()
            .flat_map(|path| list_files(&self.root.join(path)))
            .collect()
    }

    /// How often an installer ran.
    pub fn installs(&self) -> usize {
        self.count_effects("install")
    }

    /// How often a node joined.
    pub fn joins(&self) -> usize {
        self.count_effects("node joins")
    }

    fn count_effects(&self, prefix: &str) -> usize {
        self.effects().iter().filter(|effect| effect.starts_with(prefix)).count()
    }

    fn put(&self, path: &str, text: &str) -> io::Result<()> {
        write(&self.root.join(path), text)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join("/simulation").join(name)
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        write(&self.path(name), text)
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }

    fn effect(&self, line: &str) -> io::Result<()> {
        self.append("effects", line)
    }

    fn append(&self, name: &str, line: &str) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(self.path(name))?;
        // One write: a kill leaves a whole line or none.
        file.write_all(format!("{line}\n").as_bytes())
    }

    /// The verb takes effect, or fails where a test wants it.
    fn perform(
        &self,
        verb: &str,
        line: &str,
        work: impl FnOnce() -> io::Result<()>,
    ) -> Result<Output, Failure> {
        let failed = |source| CommandError::Run { program: verb.to_owned(), source };
        failpoint("simulated::before");
        if let Some(failure) = self.take_failure(verb).map_err(failed)? {
            return Err(failure);
        }
        work().map_err(failed)?;
        self.effect(line).map_err(failed)?;
        failpoint("simulated::after");
        Ok(Output(line.to_owned()))
    }
}

/// Files below a directory, at any depth.
pub fn list_files(directory: &Path) -> Vec<PathBuf> {
    let (mut directories, mut files) = (vec![directory.to_owned()], vec![]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                _ => files.push(entry.path()),
            }
        }
    }
    files
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    // Whole or not at all, as one rename: the process may be killed here too.
    let temporary = path.with_extension("simulation");
    fs::write(&temporary, text)?;
    fs::rename(temporary, path)
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// os-release holds the reference without its scheme.
fn bare(image: &str) -> &str {
    image.strip_prefix("oci:").unwrap_or(image)
}
