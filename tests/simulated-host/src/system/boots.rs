//! Boots of the simulated system: its slots, what a power cut loses, cloud-init.

use std::fs;
use std::io;

use agent::ground::durable::shadow::Shadow;
use agent::host::system::Snapshot;
use agent::state::seed;
use proto::distribution::{self, Extent};

use super::{NETWORKS, SimulatedSystem, bare, remove};

impl SimulatedSystem {
    /// Reset or power cut: what was not flushed is lost, what was is booted,
    /// unless it does not boot. Ends where early boot begins: call
    /// [`agent::boot::run`], then [`Self::run_cloud_init`].
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
    pub(super) fn slot(&self, name: &str) -> Option<Snapshot> {
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
    pub(super) fn write_snapshot(&self, image: &str) -> io::Result<()> {
        let slots = ["unflushed", "next", "running"].into_iter().filter_map(|name| self.slot(name));
        let newest = slots.map(|slot| slot.number).max().unwrap_or_default();
        self.write_slot("unflushed", image, newest + 1)
    }

    /// Everything that is written so far survives a power cut: for sync(2), for
    /// an orderly shutdown, and for what other programs write.
    pub fn flush(&self) -> io::Result<()> {
        match Shadow::of_process() {
            Some(shadow) => self.flush_to(&shadow),
            None => Ok(()),
        }
    }

    /// As [`Self::flush`], with the records of another process.
    pub fn flush_to(&self, shadow: &Shadow) -> io::Result<()> {
        ["/var/lib", "/etc"].iter().try_for_each(|path| shadow.record_tree(&self.root.join(path)))
    }

    /// A power cut takes what the agent has not flushed: its own state, and
    /// what it removed of a node. Call [`Self::power_cycle`] after it.
    pub fn lose_unflushed(&self, shadow: &Shadow) -> io::Result<()> {
        shadow.lose_unflushed(self.root.state().path())?;
        let mut of_node = distribution::wiped_directories(Extent::Tree).into_iter().chain([NETWORKS]);
        of_node.try_for_each(|path| shadow.lose_unflushed(&self.root.join(path)))
    }

    /// Whether early boot has still to run in this boot.
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
        let directories = distribution::wiped_directories(Extent::Tree);
        let mut written = directories.into_iter().chain(["/var/lib/cloud/instances"]);
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

    pub(super) fn start(&self, image: &str, mode: &str) -> io::Result<()> {
        let boots = self.read("boots").and_then(|text| text.parse().ok());
        let boot = boots.unwrap_or(0_u32) + 1;
        self.write("boots", &boot.to_string())?;
        for added in ["kernel", "addresses", "routes"] {
            remove(&self.path(added))?;
        }
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
}
