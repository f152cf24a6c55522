//! Waits until the network has settled. The network that is observed at a registration describes
//! the host for good, and links come up late: a switch port may take half a minute to forward, and
//! DHCP answers after that.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use proto::v1alpha1::ObservedNetwork;
use tokio::time::{Instant, sleep};

use super::changes::NetworkChanges;
use super::{KernelNetwork, NetworkObserver};
use crate::ground::failure::Failure;

/// Time between two observations that have to agree.
const APART: Duration = Duration::from_secs(5);
/// Limit of the wait, because a link with carrier may never get an address.
const LONGEST: Duration = Duration::from_mins(1);

/// The network at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkSnapshot {
    /// The reported network.
    pub network: ObservedNetwork,
    /// Links that may still get an address.
    pub unaddressed: Vec<String>,
}

/// The network of the kernel, as it was when it settled last.
#[derive(Debug)]
pub struct SettledNetwork {
    kernel: KernelNetwork,
    settled: Mutex<Option<ObservedNetwork>>,
}

impl SettledNetwork {
    pub fn new(kernel: KernelNetwork) -> Self {
        Self { kernel, settled: Mutex::default() }
    }

    /// Waits until the network has settled; returns at once if the network has not changed since it
    /// settled last.
    pub async fn settle(&self) {
        let network = settle(self.settled(), || self.kernel.snapshot()).await;
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner) = network;
    }

    pub const fn kernel(&self) -> &KernelNetwork {
        &self.kernel
    }

    fn settled(&self) -> Option<ObservedNetwork> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl NetworkObserver for SettledNetwork {
    fn observe(&self) -> Result<ObservedNetwork, Failure> {
        self.settled().map_or_else(|| self.kernel.observe(), Ok)
    }

    fn watch(&self) -> io::Result<Option<NetworkChanges>> {
        self.kernel.watch()
    }
}

/// Observes the network until two observations agree and no link waits for an address, for at most
/// a minute. Returns at once if the network is still the `last` one.
async fn settle(
    mut last: Option<ObservedNetwork>,
    mut look: impl FnMut() -> Result<NetworkSnapshot, Failure>,
) -> Option<ObservedNetwork> {
    let begin = Instant::now();
    let mut known = last.is_some();
    loop {
        let NetworkSnapshot { network, unaddressed } =
            look().inspect_err(|error| tracing::warn!(%error, "cannot observe the network")).ok()?;
        let same = last.as_ref() == Some(&network);
        if same && (known || unaddressed.is_empty()) {
            return Some(network);
        }
        if begin.elapsed() >= LONGEST {
            tracing::warn!(?unaddressed, changes = !same, "network has not settled, registering as it is");
            return Some(network);
        }
        known = false;
        last = Some(network);
        sleep(APART).await;
    }
}

#[cfg(test)]
mod tests {
    use proto::v1alpha1::Interface;

    use super::*;

    /// A network with these links; those with a `?` wait for an address.
    fn sight(links: &str) -> NetworkSnapshot {
        let interface = |link: &str| Interface { name: link.replace('?', ""), ..Interface::default() };
        NetworkSnapshot {
            network: ObservedNetwork {
                interfaces: links.split_whitespace().map(interface).collect(),
                ..ObservedNetwork::default()
            },
            unaddressed: links.split_whitespace().filter(|link| link.contains('?')).map(Into::into).collect(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn two_looks_agree_before_a_registration() {
        for (name, last, looks, want, seconds) in [
            ("quiet", None, vec!["a"], "a", 5),
            ("late link", None, vec!["", "a", "a b"], "a b", 15),
            ("flapping", None, vec!["a", "", "a", ""], "", 20),
            ("no lease for half a minute", None, vec!["a b?"; 6], "a b?", 60),
            ("lease after half a minute", None, [vec!["a b?"; 6], vec!["a b c"]].concat(), "a b c", 35),
            ("settled before", Some("a b?"), vec!["a b?"], "a b?", 0),
            ("another one since", Some("a"), vec!["a b"], "a b", 5),
        ] {
            let begin = Instant::now();
            let mut left = looks.iter();
            let mut current = looks[0];
            let settled = settle(last.map(|links| sight(links).network), || {
                current = left.next().unwrap_or(&current);
                Ok(sight(current))
            });
            assert_eq!(settled.await, Some(sight(want).network), "{name}");
            assert_eq!(begin.elapsed(), Duration::from_secs(seconds), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn kernel_without_answer_is_not_awaited() {
        let error = || Failure::input_output("cannot ask the kernel for links", "");
        assert_eq!(settle(None, || Err(error())).await, None);
    }
}
