//! An operating system made of files below a root: it
//! has two system slots, a boot loader that falls back, unflushed writes that a
//! power cut loses, and a cloud-init that runs once for an instance.
//!
//! All of it survives the process, so that a test can kill the agent. Every
//! effect is a line in a log.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use proto::plan::{CustomInstruction, Upgrade};
use proto::v1alpha1::{BootMode, SystemState};

use agent::boot::{seed, wipe};
use agent::durable::shadow::Shadow;
use agent::failpoint::failpoint;
use agent::host::elemental::failure;
use agent::host::observed;
use agent::host::system::{
    CloudInit, Installation, Job, Output, Placement, PlacementAction, RebootAsked, RebootMethod, Snapshot,
    Status, System, SystemError,
};
use agent::paths::Root;

/// The simulated host.
#[derive(Clone, Debug)]
pub struct SimulatedSystem {
    root: Root,
}

impl SimulatedSystem {
    /// The host below `root`, as it was left.
    #[must_use]
    pub fn new(root: Root) -> Self {
        Self { root }
    }

    /// A host that has just booted `image` from its disk, with units and
    /// workload of a node when `node` names one.
    ///
    /// # Errors
    /// As the file system has them.
    pub fn installed(root: Root, image: &str) -> io::Result<Self> {
        let host = Self { root };
        host.write("running", image)?;
        host.put("/etc/default/kubelet", "")?;
        host.start(image, "active_mode")?;
        Ok(host)
    }

    /// Gives the host a running node.
    ///
    /// # Errors
    /// As the file system has them.
    pub fn with_node(self) -> io::Result<Self> {
        for directory in wipe::NODE_DIRECTORIES {
            self.put(&format!("{directory}/of/the/former/node"), "secret")?;
        }
        self.write("units/kubelet.service", "")?;
        self.write("units/containerd.service", "")?;
        self.write("workload/pod-1", "")?;
        Ok(self)
    }

    /// Makes the verb fail with this exit code from now on: `upgrade`,
    /// `cloud-init-clean`, `reboot`, `remove-workload`, `custom`.
    ///
    /// # Errors
    /// As the file system has them.
    pub fn fail(&self, verb: &str, code: i32) -> io::Result<()> {
        self.fail_times(verb, u32::MAX, code, "as the test wants it")
    }

    /// Makes the verb fail so many times with this exit code and output.
    ///
    /// # Errors
    /// As the file system has them.
    pub fn fail_times(&self, verb: &str, times: u32, code: i32, output: &str) -> io::Result<()> {
        self.write(&format!("fail/{verb}"), &format!("{times} {code} {output}"))
    }

    /// The failure that a test wants of the verb, once.
    fn take_failure(&self, verb: &str) -> io::Result<Option<SystemError>> {
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
        Ok(Some(failure::diagnose(SystemError::Failed {
            program: verb.to_owned(),
            status: Status::Code(code),
            diagnosis: Box::default(),
            output: Output(output.to_owned()),
        })))
    }

    /// The verb does not fail any more.
    ///
    /// # Errors
    /// As the file system has them.
    pub fn succeed(&self, verb: &str) -> io::Result<()> {
        remove(&self.path("fail").join(verb))
    }

    /// Makes the image one that does not boot.
    ///
    /// # Errors
    /// As the file system has them.
    pub fn spoil_image(&self, image: &str) -> io::Result<()> {
        self.write("spoilt", bare(image))
    }

    /// Makes cloud-init complain in its next run.
    ///
    /// # Errors
    /// As the file system has them.
    pub fn spoil_cloud_init(&self, complaint: &str) -> io::Result<()> {
        self.write("complaint", complaint)
    }

    /// Makes the next upgrade outlive the agent: the call does not return, and
    /// the upgrade ends when a later agent waits for earlier jobs.
    ///
    /// # Errors
    /// As the file system has them.
    pub fn detach_upgrade(&self) -> io::Result<()> {
        self.write("detach", "")
    }

    /// Makes the next call of `upgrade` or `reboot` hang before it does anything.
    ///
    /// # Errors
    /// As the file system has them.
    pub fn hang(&self, verb: &str) -> io::Result<()> {
        self.write(&format!("hang/{verb}"), "")
    }

    async fn wait_if_hung(&self, verb: &str) {
        let mark = self.path("hang").join(verb);
        if mark.exists() {
            let _ = remove(&mark);
            std::future::pending::<()>().await;
        }
    }

    /// Whether an upgrade runs without its agent.
    #[must_use]
    pub fn has_job(&self) -> bool {
        self.path("job").exists()
    }

    /// Whether the agent has asked for a reboot in this boot.
    #[must_use]
    pub fn reboot_was_asked_for(&self) -> bool {
        self.path("reboot").exists()
    }

    /// Every effect so far, in order.
    #[must_use]
    pub fn effects(&self) -> Vec<String> {
        self.read("effects").map(|text| text.lines().map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Files of a node, below the root.
    #[must_use]
    pub fn node_files(&self) -> Vec<PathBuf> {
        wipe::NODE_DIRECTORIES.iter().flat_map(|path| list_files(&self.root.join(path))).collect()
    }

    /// How often an installer ran.
    #[must_use]
    pub fn installs(&self) -> usize {
        self.count_effects("install")
    }

    /// How often a node joined.
    #[must_use]
    pub fn joins(&self) -> usize {
        self.count_effects("node joins")
    }

    fn count_effects(&self, prefix: &str) -> usize {
        self.effects().iter().filter(|effect| effect.starts_with(prefix)).count()
    }

    /// Reset or power cut: what was not flushed is lost, what was is booted,
    /// unless it does not boot. Ends where early boot begins: call
    /// [`agent::boot::run`], then [`Self::run_cloud_init`].
    ///
    /// # Errors
    /// As the file system has them.
    pub fn power_cycle(&self) -> io::Result<()> {
        for lost in ["unflushed", "reboot", "job"] {
            remove(&self.path(lost))?;
        }
        let running = self.slot("running").unwrap_or_default();
        let next = self.slot("next").unwrap_or_else(|| running.clone());
        if self.read("spoilt").as_deref() == Some(bare(&next.source)) {
            return self.start(&running.source, "passive_mode");
        }
        self.write_slot("running", &next.source, next.number)?;
        remove(&self.path("next"))?;
        self.start(&next.source, "active_mode")
    }

    /// The snapshot in the file: its source, and its number in a second line.
    fn slot(&self, name: &str) -> Option<Snapshot> {
        let text = self.read(name)?;
        let mut lines = text.lines();
        let source = lines.next().unwrap_or_default().to_owned();
        let number = lines.next().and_then(|line| line.parse().ok());
        // Other programs write an image alone.
        let number = number.unwrap_or(if name == "running" { 1 } else { 2 });
        Some(Snapshot { number, source, ..Snapshot::default() })
    }

    fn write_slot(&self, name: &str, source: &str, number: u32) -> io::Result<()> {
        self.write(name, &format!("{source}\n{number}"))
    }

    /// A snapshot that a power cut loses.
    fn write_snapshot(&self, image: &str) -> io::Result<()> {
        let slots = ["unflushed", "next", "running"].into_iter().filter_map(|name| self.slot(name));
        let newest = slots.map(|slot| slot.number).max().unwrap_or_default();
        self.write_slot("unflushed", image, newest + 1)
    }

    /// Everything that is written so far survives a power cut: for sync(2), for
    /// an orderly shutdown, and for what other programs write.
    ///
    /// # Errors
    /// As the file system has them.
    pub fn flush(&self) -> io::Result<()> {
        match Shadow::of_process() {
            Some(shadow) => self.flush_to(&shadow),
            None => Ok(()),
        }
    }

    /// As [`Self::flush`], with the records of another process.
    ///
    /// # Errors
    /// As the file system has them.
    pub fn flush_to(&self, shadow: &Shadow) -> io::Result<()> {
        ["/var/lib", "/etc"].iter().try_for_each(|path| shadow.record_tree(&self.root.join(path)))
    }

    /// A power cut takes what the agent has not flushed: its own state, and
    /// what it removed of a node. Call [`Self::power_cycle`] after it.
    ///
    /// # Errors
    /// As the file system has them.
    pub fn lose_unflushed(&self, shadow: &Shadow) -> io::Result<()> {
        shadow.lose_unflushed(self.root.state().path())?;
        wipe::NODE_DIRECTORIES.iter().try_for_each(|path| shadow.lose_unflushed(&self.root.join(path)))
    }

    /// Whether early boot has still to run in this boot.
    #[must_use]
    pub fn is_booting(&self) -> bool {
        self.path("booting").exists()
    }

    /// What follows early boot: a new instance is run, and joins when its
    /// user-data is there; the marks of this boot are left.
    ///
    /// # Errors
    /// As the file system has them, and when the seed is not readable.
    pub fn run_cloud_init(&self) -> io::Result<()> {
        let seed = seed::load_nocloud(&self.root).map_err(io::Error::other)?;
        let former = self.root.join("/var/lib/cloud/data/instance-id");
        let instance = seed.as_ref().and_then(|seed| seed::instance_id(&seed.meta_data));
        if let (Some(seed), Some(instance)) = (seed, instance)
            && fs::read_to_string(&former).ok().as_deref() != Some(&instance)
        {
            self.effect(&format!("cloud-init {instance}"))?;
            let user_data = seed.user_data.as_ref().map_or(&[][..], |data| data.expose());
            if !user_data.is_empty() {
                let copy = format!("/var/lib/cloud/instances/{instance}/user-data.txt");
                self.put(&copy, &String::from_utf8_lossy(user_data))?;
                self.join_node()?;
            }
            self.put("/var/lib/cloud/data/instance-id", &instance)?;
        }
        self.put("/var/lib/cloud/instance/boot-finished", "")?;
        let complaint = self.read("complaint").map(|text| vec![text]).unwrap_or_default();
        let result = serde_json::json!({"v1": {"datasource": "NoCloud", "errors": complaint}});
        self.put("/run/cloud-init/result.json", &result.to_string())?;
        self.flush_node()?;
        remove(&self.path("booting"))
    }

    /// What cloud-init and the kubelet wrote is theirs to flush: only the
    /// agent's own flushes are under test.
    fn flush_node(&self) -> io::Result<()> {
        let Some(shadow) = Shadow::of_process() else { return Ok(()) };
        let mut written = wipe::NODE_DIRECTORIES.iter().chain(&["/var/lib/cloud/instances"]);
        written.try_for_each(|path| shadow.record_tree(&self.root.join(path)))
    }

    /// The units of a node wait for early boot's word.
    fn join_node(&self) -> io::Result<()> {
        if !self.root.node_gate().exists() {
            return Ok(());
        }
        let running = self.slot("running").unwrap_or_default();
        let mut line = format!("node joins on {}", bare(&running.source));
        if let Some(left) = self.node_files().first() {
            line = format!("{line} over a former node: {}", left.display());
        }
        self.effect(&line)?;
        self.put("/var/lib/kubelet/config.yaml", "of the new node")
    }

    fn start(&self, image: &str, mode: &str) -> io::Result<()> {
        let boots = self.read("boots").and_then(|text| text.parse().ok());
        let boot = boots.unwrap_or(0_u32) + 1;
        self.write("boots", &boot.to_string())?;
        for ephemeral in ["/run", "/etc/default"] {
            let path = self.root.join(ephemeral);
            if path.exists() {
                fs::remove_dir_all(&path)?;
            }
        }
        self.put("/etc/default/kubelet", "")?;
        self.put("/proc/sys/kernel/random/boot_id", &format!("boot-{boot}\n"))?;
        self.put("/proc/sys/kernel/hostname", "host\n")?;
        self.put(&format!("/run/elemental/{mode}"), "1")?;
        self.put("/etc/os-release", &format!("IMAGE=\"{}\"\n", bare(image)))?;
        self.write("booting", "")
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
        let path = self.path("effects");
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path)?;
        // One write: a kill leaves a whole line or none.
        file.write_all(format!("{line}\n").as_bytes())
    }

    /// The verb takes effect, or fails where a test wants it.
    fn perform(
        &self,
        verb: &str,
        line: &str,
        work: impl FnOnce() -> io::Result<()>,
    ) -> Result<Output, SystemError> {
        let failed = |source| SystemError::Run { program: verb.to_owned(), source };
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
#[must_use]
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

impl System for SimulatedSystem {
    async fn install(&self, installation: Installation<'_>) -> Result<Output, SystemError> {
        let mut line = format!("install {}", installation.device.display());
        for file in installation.cloud_init {
            let text = fs::read_to_string(file).unwrap_or_else(|_| file.display().to_string());
            line = format!("{line} cloud-init {}", text.replace('\n', " "));
        }
        self.perform("install", &line, || Ok(()))
    }

    async fn upgrade(&self, _: &Job, upgrade: &Upgrade) -> Result<Output, SystemError> {
        let image = &upgrade.image;
        self.earlier_jobs().await?;
        self.wait_if_hung("upgrade").await;
        if self.path("detach").exists() {
            let failed = |source| SystemError::Run { program: "upgrade".to_owned(), source };
            remove(&self.path("detach")).and_then(|()| self.write("job", image.as_str())).map_err(failed)?;
            std::future::pending::<()>().await;
        }
        let write = || self.write_snapshot(image.as_str());
        self.perform("upgrade", &format!("upgrade {image}"), write)
    }

    async fn snapshots(&self) -> Result<Vec<Snapshot>, SystemError> {
        let slots = ["unflushed", "next", "running"].into_iter().filter_map(|name| self.slot(name));
        Ok(slots.enumerate().map(|(index, slot)| Snapshot { active: index == 0, ..slot }).collect())
    }

    async fn earlier_jobs(&self) -> Result<(), SystemError> {
        let Some(image) = self.read("job") else {
            return Ok(());
        };
        let write = || {
            self.write_snapshot(&image)?;
            remove(&self.path("job"))
        };
        self.perform("upgrade", &format!("upgrade {image}"), write).map(drop)
    }

    async fn running(&self) -> Result<SystemState, SystemError> {
        let state = observed::system_state(&self.root)?;
        let booted = self.slot("running").filter(|_| state.boot_mode() == BootMode::Active);
        Ok(SystemState { snapshot: booted.map_or(0, |booted| booted.number), ..state })
    }

    async fn reboot(&self, method: RebootMethod) -> Result<RebootAsked, SystemError> {
        self.wait_if_hung("reboot").await;
        let ask = || self.write("reboot", "");
        self.perform("reboot", &format!("reboot {method:?}"), ask).map(|_| RebootAsked)
    }

    async fn sync(&self) -> Result<(), SystemError> {
        failpoint("simulated::sync");
        self.flush().map_err(|source| SystemError::Run { program: "sync".to_owned(), source })?;
        match fs::rename(self.path("unflushed"), self.path("next")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(SystemError::Run { program: "sync".to_owned(), source: error })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn cloud_init_clean(&self, _: &Job) -> Result<Output, SystemError> {
        self.perform("cloud-init-clean", "cloud-init clean", || {
            for name in ["instance", "instances", "data"] {
                remove(&self.root.join("/var/lib/cloud").join(name))?;
            }
            failpoint("simulated::during");
            remove(&self.root.join("/var/lib/cloud/seed"))
        })
    }

    async fn cloud_init(&self) -> Result<CloudInit, SystemError> {
        observed::cloud_init(&self.root)
    }

    async fn stop_unit(&self, unit: &str) -> Result<Output, SystemError> {
        let stop = || remove(&self.path("units").join(unit));
        self.perform("stop", &format!("stop {unit}"), stop)
    }

    async fn unit_runs(&self, unit: &str) -> Result<bool, SystemError> {
        Ok(self.path("units").join(unit).exists())
    }

    async fn workload(&self) -> Result<Vec<String>, SystemError> {
        let Ok(entries) = fs::read_dir(self.path("workload")) else {
            return Ok(Vec::new());
        };
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        Ok(entries.flatten().map(name).collect())
    }

    async fn remove_workload(&self) -> Result<Output, SystemError> {
        let remove = || remove(&self.path("workload"));
        self.perform("remove-workload", "remove workload", remove)
    }

    async fn unmount(&self, _: &Job, path: &Path) -> Result<Output, SystemError> {
        let line = format!("unmount {}", path.display());
        let table = self.root.join("/proc/1/mountinfo");
        self.perform("unmount", &line, || remove(&table))
    }

    async fn trim(&self, _: &Job) -> Result<Output, SystemError> {
        Ok(Output("trimmed".to_owned()))
    }

    async fn place_file(&self, _: &Job, placement: &Placement<'_>) -> Result<Output, SystemError> {
        let path = self.root.join(placement.path);
        let placed = match placement.action {
            PlacementAction::Delete => remove(&path),
            PlacementAction::Directory => fs::create_dir_all(&path),
            PlacementAction::File { staged } => {
                fs::read_to_string(staged).and_then(|text| write(&path, &text))
            }
        };
        placed.map_err(|source| SystemError::Run { program: "place-file".to_owned(), source })?;
        Ok(Output::default())
    }

    async fn run_custom(&self, _: &Job, instruction: &CustomInstruction) -> Result<Output, SystemError> {
        self.perform("custom", &format!("custom {}", instruction.name), || Ok(()))
    }
}
