//! Coordinators of a world: starts, kills, and kills at a write.

use std::sync::PoisonError;

use coordinator::config::CatalogName;
use fake_apiserver::{Matching, Side};
use proto::update_keys::{ReleaseSignature, SIGNATURE_FILE};

use super::build::rules_of;
use super::{COORDINATOR, World};
use crate::NAMESPACE;

/// As `rbac.yaml` has it for the coordinator's own namespace.
const CATALOG_RIGHTS: &str = "
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: { name: catalog, namespace: fleet }
rules:
  - { apiGroups: [''], resources: [configmaps], resourceNames: [NAME], verbs: [list, watch] }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: { name: catalog, namespace: fleet }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: catalog }
subjects:
  - { kind: ServiceAccount, name: baremetal-coordinator, namespace: baremetal-system }
";

impl World {
    /// One more coordinator; the user of its requests has its name.
    pub fn start_coordinator(&self, name: &str) {
        self.fake.authorize(name, self.rules.clone());
        let process = self.site.start(name);
        self.coordinators.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), process);
    }

    /// kill -9.
    pub fn kill_coordinator(&self, name: &str) {
        let process = self.coordinators.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        drop(process);
    }

    /// kill -9 and a start.
    pub fn restart_coordinator(&self) {
        self.kill_coordinator(COORDINATOR);
        self.start_coordinator(COORDINATOR);
    }

    /// The coordinator is started again with this agent for its hosts.
    pub fn serve_agent(&mut self, file: &[u8]) {
        let path = self.directory.path().join("agent");
        std::fs::write(&path, file).unwrap();
        self.site.config.agent_path = Some(path);
        self.restart_coordinator();
    }

    /// The same, with the signature of a key for updates beside the agent.
    pub fn serve_signed_agent(&mut self, file: &[u8], signature: &ReleaseSignature) {
        let beside = self.directory.path().join(SIGNATURE_FILE);
        std::fs::write(beside, serde_json::to_vec(signature).unwrap()).unwrap();
        self.serve_agent(file);
    }

    /// The coordinator is started again for those machines, templates and clusters alone whose
    /// label `cluster.x-k8s.io/watch-filter` has this value.
    pub fn filter_objects(&mut self, value: &str) {
        self.site.config.watch_filter = Some(value.to_owned());
        self.restart_coordinator();
    }

    /// The coordinator is started again with another image catalog, in [`NAMESPACE`]: an operator
    /// has given it the right to read that there.
    pub fn read_catalog(&mut self, name: &str) {
        self.site.config.image_catalog =
            CatalogName { namespace: Some(NAMESPACE.to_owned()), name: name.to_owned() };
        self.rules = rules_of(&CATALOG_RIGHTS.replace("NAME", name));
        self.restart_coordinator();
    }

    /// The coordinator is started again with this URL for its hosts; its certificate has the
    /// names of the former ones too.
    pub fn move_coordinator(&mut self, url: &str) {
        self.site.config.server_names = self.site.config.certificate_names();
        url.clone_into(&mut self.site.config.server_url);
        self.restart_coordinator();
    }

    /// The coordinator is killed at its `write`th write from now, counted from 1,
    /// and is started again.
    pub fn stop_coordinator_at(&self, write: usize, side: Side) {
        let stopped = self.fake.faults().stop(COORDINATOR, Matching::writes(), write, side);
        self.stops.lock().unwrap_or_else(PoisonError::into_inner).push(stopped);
    }

    /// Some stop was planned whose coordinator was not started again yet.
    pub(crate) fn has_planned_stops(&self) -> bool {
        !self.stops.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The number of planned stops that were not reached.
    pub(crate) fn count_unmet_stops(&self) -> usize {
        let stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        stops.iter().filter(|stop| !stop.is_reached()).count()
    }

    /// Restarts a coordinator that was stopped as planned.
    pub(crate) fn restart_stopped(&self) {
        let died = {
            let mut stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
            let planned = stops.len();
            stops.retain(|stop| !stop.is_reached());
            stops.len() < planned
        };
        if died {
            self.restart_coordinator();
        }
    }
}
