//! A host as its `MachineInventory` records it: parsed once, then only read.
//!
//! [`statement`] parses the statement of a host, [`agent_update`] decides which agent it runs,
//! [`facts`] changes the stored facts, and [`conditions`] projects the conditions from them. No
//! decision reads a condition.

pub mod agent_update;
pub mod certified;
pub mod conditions;
pub mod facts;
pub mod hardware;
pub mod identity;
mod problem;
pub mod statement;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use coordinator_api::conditions::Reason;
use coordinator_api::inventory::{
    Approval, CarriedNode, CarriedStatus, CertifiedKey, Claim, InstallState, InstallStatus, LiveTpm,
    LoadBalancerStatus, MachineInventory, PlanState, PlanStatus, PlanType, SessionStatus,
};
use coordinator_api::names::{annotation, finalizer, label};
use jiff::Timestamp;
use kube::ResourceExt as _;
use proto::plan::{Checksum, Generation, PlanId};
use serde_json::Value;

use crate::ids::{HostName, Uid};
use crate::pause::is_paused;
use crate::problem::Problem;
use crate::provider_id::ProviderId;
use hardware::Capacity;
use identity::KnownIdentity;

/// A host without a session is unreachable after this long: longer than a
/// server takes to restart.
pub const UNREACHABLE_AFTER: Duration = Duration::from_mins(5);

/// A `MachineInventory`, parsed.
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct HostRecord {
    pub name: HostName,
    pub namespace: String,
    pub uid: Option<Uid>,
    pub created: Option<Timestamp>,
    pub claim: Option<Claim>,
    /// The pool that holds it.
    pub pool: Option<String>,
    /// The `BareMetalHost` that names it.
    pub bare_metal_host: Option<String>,
    /// The plan that was announced last.
    pub plan: Option<AnnouncedPlan>,
    /// The Secret of its plan record, once it was created.
    pub plan_secret: Option<String>,
    /// The stream of its installed system.
    pub session: Option<SessionStatus>,
    /// The node and plan that the host stated; `None` until it did.
    pub carried: Option<CarriedStatus>,
    /// Items that a former node left in its kernel.
    pub left_in_kernel: Vec<String>,
    /// Paths that its system keeps over a reboot. Empty: it did not state them.
    pub kept_paths: Vec<String>,
    pub install: Option<InstallStatus>,
    /// Its part in its cluster's load balancer.
    pub load_balancer: Option<LoadBalancerStatus>,
    /// Boot id of the live system that registered last.
    pub live_boot_id: Option<String>,
    /// The TPM when the live system registered.
    pub live_tpm: Option<LiveTpm>,
    /// The key of its certificates.
    pub certified_key: Option<CertifiedKey>,
    /// Hash of the key that an operator took away.
    pub replaced_key: Option<String>,
    /// Hash of the key that an operator accepted.
    pub accepted_key: Option<String>,
    pub approval: Approval,
    /// Managed disks are asked for, which nothing here provides.
    pub has_storage: bool,
    /// An operator paused it.
    pub is_paused: bool,
    /// Two live hosts claim its identity.
    pub is_quarantined: bool,
    pub is_deleting: bool,
    /// A delete waits until its claim is gone.
    pub has_finalizer: bool,
    /// Its claim was given up without a clean.
    pub is_abandoned: bool,
    /// A machine claimed it, or a plan was written for it.
    pub was_claimed: bool,
    /// An operator wants another clean after one that failed; of an abandoned host.
    pub retries_clean: bool,
    /// `clusterctl move` waits for it.
    pub blocks_move: bool,
    /// Name of the Secret with a plan that an operator wants run.
    pub custom_plan: Option<String>,
    /// Id of the last one that was announced.
    pub last_custom_plan: Option<String>,
    /// An operator asks for a reboot.
    pub is_reboot_requested: bool,
    /// The boot that a request of a reboot ends.
    pub rebooting_from: Option<String>,
    /// The labels by which pools select it.
    pub labels: BTreeMap<String, String>,
    /// The group of the machine that held it last.
    pub reuse_group: Option<String>,
    pub capacity: Capacity,
}

/// A plan as the status announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnouncedPlan {
    pub id: PlanId,
    pub generation: Generation,
    pub kind: PlanType,
    pub checksum: Checksum,
    /// SHA-256 of the bootstrap data in it.
    pub bootstrap_hash: Option<String>,
    /// Parts of the bootstrap data that a reboot takes away.
    pub not_kept: Vec<String>,
    /// Name of the Secret that holds its record.
    pub secret: String,
    /// Kind and name of the machine whose node the plan makes.
    pub owner: Option<String>,
    /// `None` while the plan is in flight.
    pub state: Option<PlanState>,
    /// Why it failed, or cannot be sent.
    pub problem: Option<Problem>,
    /// When it was announced.
    pub announced: Option<Timestamp>,
    /// When the host reported its result.
    pub ended: Option<Timestamp>,
}

/// Tells whether `spec.storage` asks for disks to be managed, which is not supported. Without volumes the
/// field asks for nothing: the end state of a host without managed disks. A name that is not known may be
/// a misspelt list of volumes.
fn asks_for_disks(storage: &Value) -> bool {
    let Some(fields) = storage.as_object() else { return !storage.is_null() };
    fields.iter().any(|(name, value)| {
        let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        match name.as_str() {
            "retryNonce" => false,
            "volumes" => !is_empty,
            _ => true,
        }
    })
}

impl HostRecord {
    /// `None` for an object without a name, which the API server never serves.
    pub fn parse(inventory: &MachineInventory) -> Option<Self> {
        let status = inventory.status.as_ref();
        let host = status.and_then(|status| status.host.as_ref());
        let plan = inventory.plan();
        let name = HostName::parse(inventory.metadata.name.as_deref()?)?;
        let announced = plan.and_then(|plan| AnnouncedPlan::parse(plan, &name));
        let annotated = |key| inventory.annotations().contains_key(key);
        let identity = KnownIdentity::of(inventory);
        Some(Self {
            name,
            namespace: inventory.namespace().unwrap_or_default(),
            uid: inventory.uid().as_deref().and_then(Uid::parse),
            created: inventory.metadata.creation_timestamp.as_ref().map(|time| time.0),
            claim: inventory.claim(),
            pool: inventory.annotations().get(annotation::POOL).filter(|pool| !pool.is_empty()).cloned(),
            bare_metal_host: inventory.annotations().get(annotation::OWNER_BARE_METAL_HOST).cloned(),
            plan: announced,
            plan_secret: plan.and_then(secret_name).map(str::to_owned),
            session: host.and_then(|host| host.session.clone()),
            carried: host.and_then(|host| host.carried.clone()),
            left_in_kernel: host.map(|host| host.left_in_kernel.clone()).unwrap_or_default(),
            kept_paths: host.map(|host| host.kept_paths.clone()).unwrap_or_default(),
            install: host.and_then(|host| host.install.clone()),
            load_balancer: host.and_then(|host| host.load_balancer.clone()),
            live_boot_id: host.and_then(|host| host.live_boot_id.clone()),
            live_tpm: identity.live_tpm,
            certified_key: identity.certified_key,
            replaced_key: inventory.annotations().get(annotation::REPLACED_KEY).cloned(),
            accepted_key: inventory.annotations().get(annotation::ACCEPTED_KEY).cloned(),
            approval: inventory.approval(),
            has_storage: inventory.spec.storage.as_ref().is_some_and(asks_for_disks),
            is_paused: is_paused(inventory, None),
            is_quarantined: annotated(annotation::QUARANTINED),
            is_deleting: inventory.metadata.deletion_timestamp.is_some(),
            has_finalizer: inventory.finalizers().iter().any(|name| name == finalizer::MACHINE_INVENTORY),
            is_abandoned: annotated(annotation::ABANDONED),
            was_claimed: [annotation::HOST_IDENTITY, annotation::HAD_PLAN].into_iter().any(annotated),
            retries_clean: annotated(annotation::RETRY_PLAN),
            blocks_move: annotated(annotation::BLOCK_MOVE),
            custom_plan: inventory.annotations().get(annotation::CUSTOM_PLAN).cloned(),
            last_custom_plan: status.and_then(|status| status.last_custom_plan.clone()),
            is_reboot_requested: annotated(annotation::REBOOT),
            rebooting_from: inventory.annotations().get(annotation::REBOOTING_FROM).cloned(),
            labels: inventory.labels().clone(),
            reuse_group: inventory.annotations().get(annotation::NODE_REUSE_GROUP).cloned(),
            capacity: host
                .and_then(|host| host.hardware.as_ref())
                .map(Capacity::of_hardware)
                .unwrap_or_default(),
        })
    }

    /// True if its installed system has an open stream.
    pub fn is_attached(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.ended.is_none())
    }

    /// When its session ended. A claimed host had one: where the status was lost, as in a restore,
    /// it has been without one since its inventory was created again.
    fn session_end(&self) -> Option<Timestamp> {
        match &self.session {
            Some(session) => session.ended.as_ref().map(|ended| ended.0),
            None => self.created.filter(|_| self.claim.is_some()),
        }
    }

    /// Since when it is unreachable, once the grace is over at `now`.
    pub fn unreachable_since(&self, now: Timestamp) -> Option<Timestamp> {
        let ended = self.session_end()?;
        (now >= grace_end(ended)).then_some(ended)
    }

    /// When it becomes unreachable, unless it attaches before.
    pub fn grace_ends(&self, now: Timestamp) -> Option<Timestamp> {
        let end = grace_end(self.session_end()?);
        (end > now).then_some(end)
    }

    /// True if it is attached and states that it carries nothing of any node. A free
    /// host runs the plans of operators only while it carries nothing.
    pub fn carries_nothing(&self) -> bool {
        let is_free = self.claim.is_none();
        self.is_attached() && self.carried.as_ref().is_some_and(|carried| is_empty(carried, is_free))
    }

    /// True if a free host is clean but for its kernel, which a reboot makes its own again.
    pub fn needs_fresh_kernel(&self) -> bool {
        self.claim.is_none() && !self.left_in_kernel.is_empty() && self.carries_nothing()
    }

    /// True if nothing is lost when its disk is installed again: no machine holds it,
    /// and it states that it carries nothing.
    pub fn may_be_reinstalled(&self) -> bool {
        let carries_nothing = self.carried.as_ref().is_none_or(|carried| is_empty(carried, true));
        self.claim.is_none() && carries_nothing && !self.is_deleting
    }

    /// True if the status shows a host that was never installed. A lost status does not show it.
    pub fn was_never_installed(&self) -> bool {
        let is_begun = self.install.as_ref().is_some_and(|install| match install.state {
            InstallState::Registered
            | InstallState::Waiting
            | InstallState::Installing
            | InstallState::Failed => true,
            InstallState::Installed | InstallState::LiveBootAfterInstall => false,
        });
        let is_unused = self.claim.is_none() && self.plan.is_none() && self.carried.is_none();
        is_begun && is_unused && self.session.is_none()
    }

    /// The plan that was announced and has not ended.
    pub fn plan_in_flight(&self) -> Option<&AnnouncedPlan> {
        self.plan.as_ref().filter(|plan| plan.state.is_none())
    }

    /// The plan of an operator that it executes.
    pub fn running_custom_plan(&self) -> Option<&AnnouncedPlan> {
        self.plan_in_flight().filter(|plan| plan.kind == PlanType::Custom)
    }

    /// True if an operator's plan was announced after the claim was made: then the
    /// host was a node before.
    pub fn ran_custom_plan_in_claim(&self) -> bool {
        let (Some(claim), Some(plan)) = (&self.claim, &self.plan) else { return false };
        plan.kind == PlanType::Custom && plan.generation.0 > claim.generation
    }

    /// True if it is attached and stated its node, or that it has none.
    pub fn is_known(&self) -> bool {
        self.is_attached() && self.carried.is_some()
    }

    pub fn carries_node_of(&self, provider_id: &ProviderId) -> bool {
        self.carried_node().is_some_and(|node| node.provider_id == provider_id.as_str())
    }

    /// The owner of the node that it states, if it is another one than `owner`.
    pub fn owner_other_than(&self, owner: &str) -> Option<&str> {
        let stated = self.carried_node()?.owner.as_str();
        (!stated.is_empty() && stated != owner).then_some(stated)
    }

    /// The owner of the node that it states, or of the plan that makes it a node. The owner outlives
    /// the annotations of the claim.
    pub fn stated_owner(&self) -> Option<&str> {
        let carried = self.carried_node().map(|node| node.owner.as_str()).filter(|owner| !owner.is_empty());
        carried.or_else(|| self.plan.as_ref()?.owner.as_deref())
    }

    /// The owner of the node that it states, if the claim has another one: the claim was restored from a
    /// backup, and the host was given to another machine after it.
    pub fn foreign_owner(&self) -> Option<&str> {
        self.claim.as_ref()?;
        self.owner_other_than(&self.claim_text())
    }

    /// The owner of the host, as its plans and its node name it; empty without a claim.
    pub fn claim_text(&self) -> String {
        let claim = self.claim.as_ref();
        claim.map(|claim| owner_text(&claim.kind, &claim.baremetal_machine)).unwrap_or_default()
    }

    /// The node that it states to carry.
    pub fn carried_node(&self) -> Option<&CarriedNode> {
        self.carried.as_ref()?.node.as_ref()
    }

    /// True if a caller of that boot is the installed system: an install was reported done, or the host
    /// has attached before, and the boot is not the boot of the live system. An older status has no
    /// live boot, and its host may not state its own.
    pub fn is_installed_boot(&self, boot_id: &str) -> bool {
        let has_attached = self.carried.is_some();
        let is_done = self.install.as_ref().is_some_and(|install| install.state == InstallState::Installed);
        match &self.live_boot_id {
            Some(live) => (has_attached || is_done) && !boot_id.is_empty() && boot_id != live,
            None => has_attached || (is_done && !boot_id.is_empty()),
        }
    }

    /// The plan of the claim: announced after the claim was made, and not by an
    /// operator.
    pub fn claimed_plan(&self) -> Option<&AnnouncedPlan> {
        let claim = self.claim.as_ref()?;
        let is_of_claim =
            |plan: &&AnnouncedPlan| plan.generation.0 > claim.generation && plan.kind != PlanType::Custom;
        self.plan.as_ref().filter(is_of_claim)
    }

    /// The highest generation that status, claim or host have seen.
    pub fn newest_generation(&self) -> Generation {
        let carried = self.carried.as_ref().and_then(|carried| carried.plan.as_ref());
        let carried = carried.and_then(|plan| Generation::from_status(plan.generation));
        let announced = self.plan.as_ref().map(|plan| plan.generation);
        let claimed = self.claim.as_ref().and_then(|claim| Generation::parse(claim.generation));
        carried.max(announced).max(claimed).unwrap_or(Generation(0))
    }

    pub fn failure_domain(&self) -> Option<&str> {
        self.labels.get(label::FAILURE_DOMAIN).map(String::as_str).filter(|domain| !domain.is_empty())
    }

    /// Name of the Secret that holds its plan record.
    pub fn plan_secret_name(&self) -> &str {
        self.plan_secret.as_deref().unwrap_or(self.name.as_str())
    }
}

/// An object that holds a host, as its plans and its node name it.
pub fn owner_text(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

pub(crate) fn grace_end(ended: Timestamp) -> Timestamp {
    ended.saturating_add(UNREACHABLE_AFTER).unwrap_or(Timestamp::MAX)
}

/// No node, and no plan that may have left a part of one.
fn is_empty(carried: &CarriedStatus, is_free: bool) -> bool {
    carried.node.is_none()
        && carried.plan.as_ref().is_none_or(|plan| match plan.kind {
            PlanType::Clean => plan.state == Some(PlanState::Applied),
            PlanType::Reprovision => false,
            PlanType::Custom => is_free && plan.state.is_some(),
        })
}

fn secret_name(plan: &PlanStatus) -> Option<&str> {
    plan.secret_ref.as_ref()?.name.as_deref()
}

impl AnnouncedPlan {
    fn parse(plan: &PlanStatus, host: &HostName) -> Option<Self> {
        let problem = plan.reason.as_ref().map(|reason| {
            let reason = reason.parse().unwrap_or(Reason::PlanFailed);
            let [message, next_action] =
                [&plan.message, &plan.next_action].map(|text| text.as_deref().unwrap_or_default());
            Problem::new(reason, message, next_action)
        });
        Some(Self {
            id: PlanId::parse(plan.id.as_deref()?).ok()?,
            generation: Generation::from_status(plan.generation?)?,
            kind: plan.kind?,
            checksum: Checksum::parse(plan.checksum.as_deref()?).ok()?,
            bootstrap_hash: plan.bootstrap_hash.clone(),
            not_kept: plan.not_kept.clone(),
            secret: secret_name(plan).unwrap_or(host.as_str()).to_owned(),
            owner: plan.owner.clone(),
            state: plan.state,
            problem,
            announced: plan.announced.as_ref().map(|announced| announced.0),
            ended: plan.ended.as_ref().map(|ended| ended.0),
        })
    }

    pub fn failure(&self) -> Problem {
        let problem = self.problem.clone();
        problem.unwrap_or_else(|| Problem::of_cause(Reason::PlanFailed, "the plan failed"))
    }

    pub fn is_failed_clean(&self) -> bool {
        self.kind == PlanType::Clean && self.state == Some(PlanState::Failed)
    }
}
