//! What was done to hosts, checked against the plans that were written for them: a status can say
//! anything.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use coordinator_api::inventory::{PlanState, PlanStatus, PlanType};
use memchr::memmem;
use simulated_host::{SimulatedHost, SimulatedSystem, list_files};

use crate::BOOTSTRAP_CANARY;

/// Names and generations of all plans that were written for one host.
pub(crate) type PlanIds = BTreeMap<String, u64>;

/// The disks of the hosts of a scenario, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disks {
    /// Each host has its directory there.
    pub(crate) directory: PathBuf,
}

impl Disks {
    /// The system on the disk of a host; inventories without a host have none.
    fn system(&self, host: &str) -> Option<SimulatedSystem> {
        let directory = self.directory.join(host);
        directory.exists().then(|| SimulatedSystem::new(SimulatedHost::at(directory).disk()))
    }

    /// Why a plan that is shown as applied was not.
    pub(crate) fn refute(&self, host: &str, plan: &PlanStatus) -> Option<String> {
        let system = self.system(host).filter(|_| plan.state == Some(PlanState::Applied))?;
        let id = plan.id.as_deref().unwrap_or_default();
        match plan.kind? {
            PlanType::Reprovision => {
                let ran = system.effects().contains(&format!("cloud-init {id}"));
                (!ran).then(|| format!("{host} shows {id} as applied and never booted its seed"))
            }
            PlanType::Clean => {
                let left = self.find_left(host, &system)?;
                Some(format!("{host} shows {id} as applied and holds {}", left.display()))
            }
            PlanType::Custom => None,
        }
    }

    /// A clean host must not have a file of a node, nor its bootstrap data anywhere. Images and
    /// containers of containerd go before the next node starts.
    fn find_left(&self, host: &str, system: &SimulatedSystem) -> Option<PathBuf> {
        let of_containerd = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "containerd");
        let of_node = system.node_files().into_iter().find(|path| !of_containerd(path));
        let is_secret = |bytes: &[u8]| memmem::find(bytes, BOOTSTRAP_CANARY.as_bytes()).is_some();
        of_node.or_else(|| self.search(host, is_secret).into_iter().next())
    }

    /// Files of all partitions of a host's disk whose bytes are as asked for. The live system is no
    /// part of the disk, because it is in memory.
    pub(crate) fn search(&self, host: &str, is_it: impl Fn(&[u8]) -> bool) -> Vec<PathBuf> {
        let directory = self.directory.join(host);
        let live = SimulatedHost::at(&directory).live().join("/");
        let mut files = list_files(&directory);
        files.retain(|path| !path.starts_with(&live) && fs::read(path).is_ok_and(|bytes| is_it(&bytes)));
        files
    }

    /// What was done to a host and no plan of it wanted.
    pub(crate) fn judge(&self, host: &str, plans: &PlanIds) -> Vec<String> {
        let effects = self.system(host).map(|system| system.effects()).unwrap_or_default();
        let mut wrong: Vec<_> =
            effects.iter().filter(|effect| effect.contains("former node")).cloned().collect();
        let mut newest = 0;
        let instances = effects.iter().filter_map(|effect| effect.strip_prefix("cloud-init "));
        for instance in instances.filter(|instance| is_plan(instance)) {
            match plans.get(instance) {
                None => wrong.push(format!("{instance}, which no plan of the host has")),
                Some(&generation) if generation <= newest => {
                    wrong.push(format!("{instance} of generation {generation} after {newest}"));
                }
                Some(&generation) => newest = generation,
            }
        }
        wrong.into_iter().map(|effect| format!("{host}: {effect}")).collect()
    }
}

/// Other instances are those of the install, and of boots that wait.
fn is_plan(instance: &str) -> bool {
    ["reprovision-", "clean-"].iter().any(|kind| instance.starts_with(kind))
}
