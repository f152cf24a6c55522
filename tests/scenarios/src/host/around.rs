//! What is around a host: its lines, its network, its partitions.

use std::fs;
use std::io;

use agent::install::found::{Access, Mounted, Mounts};
use agent::simulation::Outside;
use agent::system::simulated::Simulated;
use proto::v1alpha1::{Interface, ObservedNetwork, Route};
use tokio::io::DuplexStream;

use super::Metal;

impl Outside for Metal {
    fn dial(&self) -> io::Result<DuplexStream> {
        self.cables.dial(&self.name)
    }

    /// One interface by DHCP, one with a static address and route.
    fn network(&self) -> ObservedNetwork {
        let interface = |name: &str, mac: &str| Interface {
            name: name.into(),
            mac: mac.into(),
            permanent_mac: mac.into(),
            mtu: 1500,
            ..Interface::default()
        };
        let dynamic = Interface { dhcp4: true, ..interface("ens3", "52:54:00:00:00:01") };
        let fixed =
            Interface { addresses: vec!["10.9.0.5/24".into()], ..interface("ens4", "52:54:00:00:00:02") };
        let route = Route {
            destination: "10.10.0.0/16".into(),
            gateway: "10.9.0.1".into(),
            interface: "ens4".into(),
            ..Route::default()
        };
        ObservedNetwork { interfaces: vec![dynamic, fixed], routes: vec![route], ..Default::default() }
    }
}

impl Mounts for Metal {
    /// The persistent partition holds a file system once the install ran.
    fn mount(&self, partition: &str, _: Access) -> io::Result<Mounted> {
        let path = self.directory.join(partition);
        if Simulated::new(self.live()).effects().iter().any(|effect| effect.starts_with("install")) {
            fs::create_dir_all(&path)?;
        }
        if path.exists() { Ok(Mounted::directory(path)) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}
