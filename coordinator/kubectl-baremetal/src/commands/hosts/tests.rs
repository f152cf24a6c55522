use super::*;
use crate::arguments::Output;
use crate::samples::server::{forbid, serve};
use crate::samples::{attached, object};

#[tokio::test(start_paused = true)]
async fn watch_needs_no_more_than_list() {
    let (fake, cluster) = serve(&[object(Kind::MachineInventory, "h", attached())]).await;
    let asked_again = forbid(&fake, Kind::BareMetalHost);
    let arguments = HostsArguments {
        state: vec![],
        pool: None,
        attention: false,
        watch: true,
        output: Output { output: Format::Text },
    };
    tokio::select! {
        ended = show_hosts(&cluster, &arguments) => panic!("the watch ended: {ended:?}"),
        asked = asked_again => asked.unwrap(),
    }
}
