//! What can be due for a machine, and why it may have to wait.

use coordinator_api::conditions::Reason;
use coordinator_api::inventory::Claim;

use crate::image_catalog;
use crate::plan::Stored;

/// The one effect that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Hold the machine and note which inventory it will claim: with the
    /// machine's resourceVersion as precondition, so that a stale cache never
    /// chooses twice.
    Choose {
        /// Name of the inventory.
        inventory: String,
    },
    /// Make the inventory this machine's own: one compare-and-swap.
    Claim {
        /// Name of the inventory.
        inventory: String,
        /// Who claims.
        claim: Claim,
    },
    /// Write the plan Secret, then announce it.
    Assign {
        /// Name of the inventory.
        inventory: String,
        /// The plan.
        stored: Box<Stored>,
    },
    /// The plan Secret holds the plan already: a crash came in between.
    Announce {
        /// Name of the inventory.
        inventory: String,
        /// The plan.
        stored: Box<Stored>,
    },
    /// The host has proven the plan: tell Cluster API.
    Provide {
        /// Name of the inventory.
        inventory: String,
        /// The providerID.
        provider_id: String,
    },
    /// Give the inventory back to its pool.
    Release {
        /// Name of the inventory.
        inventory: String,
    },
    /// A person has given the host up: let go of it without the proof that it
    /// was cleaned, and offer it to nobody.
    Abandon {
        /// Name of the inventory.
        inventory: String,
    },
    /// Let the machine go.
    RemoveFinalizer,
    /// Nothing is due.
    Rest,
    /// Something must happen first.
    Wait(Waiting),
    /// Time alone does not cure it; a cause that goes away does.
    Fail(Failure),
}

/// What is waited for: each is the reason of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The owning Machine or its Cluster.
    Owner,
    /// A person.
    Paused,
    /// The pool.
    Pool {
        /// Its name.
        name: String,
    },
    /// A free member.
    Member {
        /// Name of the pool.
        pool: String,
        /// What excludes how many.
        excluded: String,
    },
    /// The name of the bootstrap Secret.
    BootstrapName,
    /// The bootstrap Secret.
    BootstrapSecret {
        /// Its name.
        name: String,
    },
    /// The host, which works on a reprovision.
    Reprovision {
        /// Name of the plan.
        plan: String,
        /// What keeps the host from it.
        trouble: Option<Trouble>,
    },
    /// The host, which works on a clean.
    Clean {
        /// Name of the plan.
        plan: String,
        /// What keeps the host from it.
        trouble: Option<Trouble>,
    },
}

/// Why the plan does not get on, as the inventory says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Reason of the inventory's condition `Ready`.
    pub reason: Reason,
    /// Its message.
    pub message: String,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The Machine names no version.
    Version,
    /// The catalog has no image, or the image no registry.
    Image(image_catalog::ImageError),
    /// The bootstrap data cannot be used.
    Bootstrap(String),
    /// The network cannot be rendered.
    Network(String),
    /// The host could not do the plan.
    Plan {
        /// Cause and next action.
        message: String,
    },
    /// No plan can be made of all that: it is too large.
    Unplannable(String),
    /// The pool belongs to another Cluster.
    PoolOfOtherCluster {
        /// Name of the pool.
        pool: String,
        /// Whose it is.
        cluster: String,
    },
    /// The inventory of a running machine is gone, or somebody else's.
    InventoryLost {
        /// Its name.
        name: String,
    },
}
