//! The state that a failed assertion prints, and the text without Secrets.

use std::fmt::Write as _;

use serde_json::Value;

use crate::world::World;

/// Lines of the log that are shown.
const LINES: usize = 40;
/// Characters of each of them.
const WIDTH: usize = 240;
const KINDS: [&str; 11] = [
    "machineregistrations.elemental.cattle.io",
    "machineinventories.elemental.cattle.io",
    "machineinventorypools.infrastructure.cluster.x-k8s.io",
    "baremetalmachines.infrastructure.cluster.x-k8s.io",
    "machines.cluster.x-k8s.io",
    "clusters.cluster.x-k8s.io",
    "baremetalclusters.infrastructure.cluster.x-k8s.io",
    "seedimages.elemental.cattle.io",
    "baremetalhosts.metal3.io",
    "metal3machines.infrastructure.cluster.x-k8s.io",
    "ipclaims.ipam.metal3.io",
];

impl World {
    /// Every object, the hosts' effects, and the end of the log.
    pub fn dump(&self) -> String {
        let mut text = String::new();
        for kind in KINDS {
            for mut object in self.fake.look_at_all(kind) {
                object["metadata"].as_object_mut().unwrap().remove("managedFields");
                let _ = writeln!(text, "{kind} {object:#}");
            }
        }
        for (name, host) in &self.hosts {
            let _ = writeln!(text, "{name}: {:#?}\n{:#?}", host.system().effects(), host.errors());
        }
        for violation in self.violations() {
            let _ = writeln!(text, "{violation}");
        }
        let log = self.log();
        let lines: Vec<_> = log.lines().filter(|line| !line.starts_with("DEBUG")).collect();
        let last = lines.len().saturating_sub(LINES);
        for line in &lines[last..] {
            let _ = writeln!(text, "{}", line.chars().take(WIDTH).collect::<String>());
        }
        text
    }

    /// Everything that is readable without access to Secrets: objects, events and
    /// logs.
    pub fn public_text(&self) -> String {
        let mut text = self.log();
        for kind in KINDS.into_iter().chain(["events", "configmaps"]) {
            for object in self.fake.look_at_all(kind) {
                let _ = writeln!(text, "{object}");
            }
        }
        text
    }
}

/// A field by its JSON pointer, as text.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
