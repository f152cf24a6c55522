use super::*;
use crate::arguments::Output;
use crate::samples::server::{forbid, serve};
use crate::samples::{attached, fleet, id, now, object};
use crate::view::HostState;

fn rows(states: &[(&str, HostState)]) -> Rows {
    let host = object(Kind::MachineInventory, "h", attached());
    let row = describe_host(&fleet([]), &host, now()).unwrap();
    let row = |(name, state): &(&str, HostState)| {
        (id(Kind::MachineInventory, name), HostRow { name: (*name).to_owned(), state: *state, ..row.clone() })
    };
    states.iter().map(row).collect()
}

#[test]
fn watch_tells_of_hosts_that_left() {
    use HostState::{Available, Failed, Pending};

    let shown = rows(&[("deleted", Pending), ("left", Pending), ("same", Pending)]);
    let now = rows(&[("left", Available), ("new", Pending), ("other", Failed), ("same", Pending)]);
    let (changed, gone) = list_changes(&shown, &now, |row| row.state == Pending);
    let changed: Vec<_> = changed.into_iter().map(|row| (row.name.as_str(), row.state)).collect();
    let gone: Vec<_> = gone.into_iter().map(|row| row.name.as_str()).collect();
    assert_eq!((changed, gone), (vec![("left", Available), ("new", Pending)], vec!["deleted"]));
}

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
