//! What the agent asks of the simulated system.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use agent::ground::failpoint::failpoint;
use agent::ground::failure::Failure;
use agent::ground::paths::Root;
use agent::host::command::CommandError;
use agent::host::observed;
use agent::host::system::{
    CloudInit, Installation, Job, Output, Placement, PlacementAction, RebootAsked, RebootMethod, Snapshot,
    System,
};
use agent::state::before_node::{KernelItem, OwnItems};
use proto::plan::{CustomInstruction, Upgrade};
use proto::v1alpha1::{BootMode, SystemState};

use super::{SimulatedSystem, remove, write};

impl System for SimulatedSystem {
    async fn install(&self, installation: Installation<'_>) -> Result<Output, Failure> {
        let mut line = format!("install {}", installation.device.display());
        for file in installation.cloud_init {
            let text = fs::read_to_string(file).unwrap_or_else(|_| file.display().to_string());
            line = format!("{line} cloud-init {}", text.replace('\n', " "));
        }
        self.perform("install", &line, || Ok(()))
    }

    async fn upgrade(&self, _: &Job, upgrade: &Upgrade) -> Result<Output, Failure> {
        let image = &upgrade.image;
        self.earlier_jobs().await?;
        self.wait_if_hung("upgrade").await;
        if self.path("detach").exists() {
            let failed = |source| CommandError::Run { program: "upgrade".to_owned(), source };
            remove(&self.path("detach")).and_then(|()| self.write("job", image.as_str())).map_err(failed)?;
            std::future::pending::<()>().await;
        }
        let write = || self.write_snapshot(image.as_str());
        self.perform("upgrade", &format!("upgrade {image}"), write)
    }

    async fn snapshots(&self) -> Result<Vec<Snapshot>, Failure> {
        let slots = ["unflushed", "next", "running"].into_iter().filter_map(|name| self.slot(name));
        Ok(slots.enumerate().map(|(index, slot)| Snapshot { active: index == 0, ..slot }).collect())
    }

    async fn earlier_jobs(&self) -> Result<(), Failure> {
        let Some(image) = self.read("job") else {
            return Ok(());
        };
        let write = || {
            self.write_snapshot(&image)?;
            remove(&self.path("job"))
        };
        self.perform("upgrade", &format!("upgrade {image}"), write).map(drop)
    }

    async fn running(&self) -> Result<SystemState, Failure> {
        let state = observed::system_state(&self.root)?;
        let booted = self.slot("running").filter(|_| state.boot_mode() == BootMode::Active);
        Ok(SystemState { snapshot: booted.map_or(0, |booted| booted.number), ..state })
    }

    async fn reboot(&self, method: RebootMethod) -> Result<RebootAsked, Failure> {
        self.wait_if_hung("reboot").await;
        let ask = || self.write("reboot", "");
        self.perform("reboot", &format!("reboot {method:?}"), ask).map(|_| RebootAsked)
    }

    async fn sync(&self) -> Result<(), Failure> {
        failpoint("simulated::sync");
        let failed = |source| CommandError::Run { program: "sync".to_owned(), source };
        self.flush().map_err(failed)?;
        self.append("flushes", &self.effects().len().to_string()).map_err(failed)?;
        match fs::rename(self.path("unflushed"), self.path("next")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error).into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn cloud_init_clean(&self, _: &Job) -> Result<Output, Failure> {
        self.perform("cloud-init-clean", "cloud-init clean", || {
            for name in ["instance", "instances", "data"] {
                remove(&self.root.join("/var/lib/cloud").join(name))?;
            }
            failpoint("simulated::during");
            remove(&self.root.join("/var/lib/cloud/seed"))
        })
    }

    async fn cloud_init(&self) -> Result<CloudInit, Failure> {
        observed::cloud_init(&self.root)
    }

    async fn stop_unit(&self, unit: &str) -> Result<Output, Failure> {
        let stop = || remove(&self.path("units").join(unit));
        self.perform("stop", &format!("stop {unit}"), stop)
    }

    async fn unit_runs(&self, unit: &str) -> Result<bool, Failure> {
        Ok(self.path("units").join(unit).exists())
    }

    async fn workload(&self) -> Result<Vec<String>, Failure> {
        let Ok(entries) = fs::read_dir(self.path("workload")) else {
            return Ok(Vec::new());
        };
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        Ok(entries.flatten().map(name).collect())
    }

    async fn remove_workload(&self) -> Result<Output, Failure> {
        let remove = || remove(&self.path("workload"));
        self.perform("remove-workload", "remove workload", remove)
    }

    async fn kernel_items(&self) -> Result<BTreeSet<KernelItem>, Failure> {
        Ok(self.links().into_iter().map(KernelItem::Link).collect())
    }

    async fn remove_foreign_items(&self, _: &Job, own: &OwnItems) -> Result<(), Failure> {
        let mut left = self.links();
        left.retain(|name| name.starts_with("bpf") || own.contains(&KernelItem::Link(name.clone())));
        let text: String = left.iter().flat_map(|name| [name.as_str(), "\n"]).collect();
        let failed = |source| CommandError::Run { program: "kernel".to_owned(), source };
        Ok(self.write("kernel", &text).map_err(failed)?)
    }

    async fn unmount(&self, _: &Job, path: &Path) -> Result<Output, Failure> {
        let line = format!("unmount {}", path.display());
        self.perform("unmount", &line, || remove_mount(&self.root, path))
    }

    async fn trim(&self, _: &Job) -> Result<Output, Failure> {
        Ok(Output("trimmed".to_owned()))
    }

    async fn clear_journal(&self, _: &Job) -> Result<Output, Failure> {
        let removed = remove(&self.root.join("/var/log/journal"));
        removed.map_err(|source| CommandError::Run { program: "journalctl".to_owned(), source })?;
        Ok(Output::default())
    }

    async fn place_file(&self, _: &Job, placement: &Placement<'_>) -> Result<Output, Failure> {
        let path = self.root.join(placement.path);
        let placed = match placement.action {
            PlacementAction::Delete => remove(&path),
            PlacementAction::Directory => fs::create_dir_all(&path),
            PlacementAction::File { staged } => {
                fs::read_to_string(staged).and_then(|text| write(&path, &text))
            }
        };
        placed.map_err(|source| CommandError::Run { program: "place-file".to_owned(), source })?;
        Ok(Output::default())
    }

    async fn run_custom(&self, _: &Job, instruction: &CustomInstruction) -> Result<Output, Failure> {
        self.perform("custom", &format!("custom {}", instruction.name), || Ok(()))
    }
}

/// Takes a mount point out of the table of the host's first process.
fn remove_mount(root: &Root, path: &Path) -> io::Result<()> {
    let table = root.join("/proc/1/mountinfo");
    let mut text = fs::read_to_string(&table)?;
    text = text
        .split_inclusive('\n')
        .filter(|line| line.split(' ').nth(4).is_none_or(|point| root.join(point) != path))
        .collect();
    fs::write(&table, text)
}
