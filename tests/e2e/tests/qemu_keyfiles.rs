//! The same by `NetworkManager`, whose keyfiles are in the registration.

use guest::Network;

#[test]
fn real_host_keeps_the_connections_of_its_registration() {
    e2e::bonded_host::run(Network::NetworkManager).unwrap();
}
