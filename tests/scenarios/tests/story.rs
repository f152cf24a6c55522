//! The whole story, forward and back, and what it costs.

use std::time::Duration;

use fake_api::Verb;
use scenarios::{Table, World};

#[tokio::test(start_paused = true)]
async fn a_host_becomes_a_node_and_is_given_back_and_becomes_another() {
    let mut world = World::new().await;
    let mut table = Table::default();
    world.apply_registration().await;
    world.fake_is_quiet().await;

    let mark = world.fake.journal().mark();
    world.register(&["host-1"]).await;
    world.fake_is_quiet().await;
    table.add("register, install, attach", world.cost(mark));

    let mark = world.fake.journal().mark();
    world.pass(Duration::from_hours(1)).await;
    assert_eq!(world.asked(mark), [], "an idle host costs nothing");

    world.apply_catalog().await;
    world.apply_cluster("c1").await;
    world.apply_pool("pool", &["host-1"]).await;
    world.fake_is_quiet().await;
    let mark = world.fake.journal().mark();
    world.apply_machine("m-1").await;
    world.runs("m-1").await;
    world.fake_is_quiet().await;
    table.add("claim, reprovision, provide", world.cost(mark));
    println!("{}", world.cost(mark));
    println!("{:#?}", world.host("host-1").system().effects());

    let mark = world.fake.journal().mark();
    world.pass(Duration::from_hours(1)).await;
    assert_eq!(world.asked(mark), [], "a running host costs nothing");

    let mark = world.fake.journal().mark();
    world.delete_machine("m-1").await;
    world.gone("m-1", "host-1").await;
    world.fake_is_quiet().await;
    table.add("clean, release", world.cost(mark));
    println!("{}", world.cost(mark));
    println!("{table}");
    let counts = world.fake.journal().counts_of("coordinator");
    assert_eq!(counts.on(Verb::List, "secrets"), 0);
    assert_eq!(counts.on(Verb::Watch, "secrets"), 0);
    world.end().await;
}
