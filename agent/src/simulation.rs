//! What a host made of files has instead of the kernel's network: a line to
//! its coordinator in memory, and addresses that a test sets. Virtual time
//! needs it: a real socket makes such a clock jump.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::v1alpha1::ObservedNetwork;
use tokio::io::DuplexStream;

use crate::paths::Root;

/// The world around one host.
pub trait Outside: Send + Sync {
    /// A new line to the coordinator, below TLS.
    ///
    /// # Errors
    /// As connect(2) has them.
    fn dial(&self) -> io::Result<DuplexStream>;

    /// The host's network.
    fn network(&self) -> ObservedNetwork;
}

/// By root: who looks for the world has nothing else at hand.
static HOSTS: Mutex<BTreeMap<PathBuf, Arc<dyn Outside>>> = Mutex::new(BTreeMap::new());

fn hosts() -> MutexGuard<'static, BTreeMap<PathBuf, Arc<dyn Outside>>> {
    HOSTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on the host below `root` is in this world and not in the real one.
pub fn enter(root: &Root, outside: Arc<dyn Outside>) {
    hosts().insert(root.join("/etc"), outside);
}

/// The host below `root` is no more.
pub fn leave(root: &Root) {
    hosts().remove(&root.join("/etc"));
}

/// The world of the host with this `/etc`, when it is not the real one.
pub(crate) fn outside(etc: &Path) -> Option<Arc<dyn Outside>> {
    hosts().get(etc).cloned()
}
