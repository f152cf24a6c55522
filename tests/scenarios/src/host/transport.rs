//! What is around a host: its connections and its network.

use std::io;
use std::sync::atomic::Ordering;

use agent::client::config::Config;
use agent::client::error::CallError;
use agent::client::transport::{Tap, Transport};
use agent::ground::failure::Failure;
use agent::host::network::NetworkObserver;
use agent::host::network::changes::NetworkChanges;
use proto::v1alpha1::{Interface, ObservedNetwork, Route};
use simulated_host::SimulatedSystem;
use tokio::io::DuplexStream;

use super::{Machine, UNREACHABLE_COORDINATOR};

impl Transport for Machine {
    type Stream = DuplexStream;

    async fn dial(&self, config: &Config) -> Result<DuplexStream, CallError> {
        let failed = |source| CallError::away(&config.address(), &source);
        let is_cut_off = self.stranded.load(Ordering::SeqCst) || self.deaf.load(Ordering::SeqCst);
        if is_cut_off || config.host == UNREACHABLE_COORDINATOR {
            return Err(failed(io::ErrorKind::NetworkUnreachable.into()));
        }
        self.network.dial(&self.name).map_err(failed)
    }

    fn tap(&self) -> Option<Tap> {
        Some(self.tokens.tap(&self.name))
    }
}

impl NetworkObserver for Machine {
    /// An interface by DHCP, another with a static address and route, and what the cluster added. The address
    /// of `host-1` is 10.9.0.5, that of `host-2` the next one.
    fn observe(&self) -> Result<ObservedNetwork, Failure> {
        let interface = |name: &str, mac: &str| Interface {
            name: name.into(),
            mac: mac.into(),
            permanent_mac: mac.into(),
            mtu: 1500,
            ..Interface::default()
        };
        let dynamic = Interface { dhcp4: true, ..interface("ens3", "52:54:00:00:00:01") };
        let added = SimulatedSystem::new(self.files.disk());
        let number = self.name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(1_u16);
        let [high, low] = number.saturating_add(4).to_be_bytes();
        let addresses = [vec![format!("10.9.{high}.{low}/20")], added.added_addresses()].concat();
        let fixed = Interface { addresses, ..interface("ens4", "52:54:00:00:00:02") };
        let own = ("10.10.0.0/16".to_owned(), "10.9.0.1".to_owned());
        let route = |(destination, gateway)| Route {
            destination,
            gateway,
            interface: "ens4".into(),
            ..Route::default()
        };
        let routes = std::iter::once(own).chain(added.added_routes()).map(route).collect();
        Ok(ObservedNetwork { interfaces: vec![dynamic, fixed], routes, ..Default::default() })
    }

    fn watch(&self) -> io::Result<Option<NetworkChanges>> {
        Ok(None)
    }
}
