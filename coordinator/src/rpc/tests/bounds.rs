//! Bounds of what hosts send: how large a message is, and what is left out of one.

use std::time::Duration;

use proto::refusal::Refusal;
use proto::{limits, v1alpha1 as wire};
use serde_json::json;
use tokio::time::Instant;

use super::world::{Host, REGISTRATIONS, World, expect_console, refusal};
use super::{attached, installed, session};

// Fault: a host reports more hardware than any host has.
// Shown: host console: `BadRequest`.
#[tokio::test]
async fn too_many_facts_are_refused() {
    let world = World::start().await;
    let host = Host::new("a");
    let mut link = world.connect(None).await;
    let registered = link.register_edited(&host, "token", |request| {
        request.facts.as_mut().unwrap().disks = vec![wire::Disk::default(); limits::DISKS + 1];
    });
    let refused = registered.await.unwrap_err();
    assert_eq!(refusal(&refused), Some(Refusal::BadRequest));
    assert!(world.inventory("m-a").is_none());
    let shown = &world.fake.look(REGISTRATIONS, "fleet", "token").unwrap()["status"]["lastRefusal"];
    assert_eq!(shown["reason"], "BadRequest", "{shown}");
}

/// The stream is opened all the same: a host that is not attached executes no plan.
#[tokio::test]
async fn too_many_facts_of_a_hello_are_dropped() {
    type Edit = fn(&mut wire::HostFacts);
    fn nic(addresses: usize) -> wire::Nic {
        wire::Nic { addresses: vec![String::new(); addresses], ..Default::default() }
    }
    // What there is too much of, and the memory that is known afterwards.
    let cases: [(&str, Edit, i64); 7] = [
        ("nothing", |facts| facts.disks = vec![wire::Disk::default(); limits::DISKS], 1),
        (
            "SMBIOS sections",
            |facts| facts.smbios = vec![wire::SmbiosSection::default(); limits::SMBIOS_SECTIONS + 1],
            0,
        ),
        ("disks", |facts| facts.disks = vec![wire::Disk::default(); limits::DISKS + 1], 0),
        ("interfaces", |facts| facts.nics = vec![nic(0); limits::INTERFACES + 1], 0),
        ("addresses", |facts| facts.nics = vec![nic(limits::ADDRESSES + 1)], 0),
        ("processors", |facts| facts.processors = vec![wire::Processor::default(); limits::CARDS + 1], 0),
        (
            "graphics cards",
            |facts| facts.graphics_cards = vec![wire::GraphicsCard::default(); limits::CARDS + 1],
            0,
        ),
    ];
    for (name, edit, memory) in cases {
        let world = World::start().await;
        let (host, chain) = installed(&world).await;
        let mut facts = wire::HostFacts { memory_bytes: 1, ..Default::default() };
        edit(&mut facts);
        let hello = wire::Hello { facts: Some(facts), ..Host::hello("boot-1") };
        let mut link = world.connect(Some((&host, &chain))).await;
        let _stream = link.attach(hello).await.unwrap();
        world.until(|| session(&world)["bootId"] == "boot-1").await;
        let hardware = world.inventory("m-a").unwrap()["status"]["host"]["hardware"].clone();
        assert_eq!(hardware["memoryBytes"], memory, "{name}: {hardware}");
    }
}

/// Bytes of a text in a message of at most `limit`, and the code of the answer.
fn sizes(limit: usize) -> [(usize, Option<tonic::Code>); 2] {
    [(limit, Some(tonic::Code::OutOfRange)), (limit / 2, None)]
}

#[tokio::test]
async fn oversized_registration_is_refused() {
    let world = World::start().await;
    let host = Host::new("a");
    for (bytes, want) in sizes(limits::REGISTRATION_BYTES) {
        let mut link = world.connect(None).await;
        let registered = link.register_edited(&host, "token", |request| {
            request.facts.as_mut().unwrap().hostname = "x".repeat(bytes);
        });
        let answer = registered.await;
        assert_eq!(answer.err().map(|status| status.code()), want, "{bytes}");
        assert_eq!(world.inventory("m-a").is_some(), want.is_none(), "{bytes}");
    }
}

#[tokio::test]
async fn oversized_report_is_refused() {
    let world = World::start().await;
    let (_host, _chain, mut link, _stream) = attached(&world).await;
    for (bytes, want) in sizes(limits::REPORT_BYTES) {
        let mut network = Host::network("192.0.2.9/24");
        network.connections.insert("a".into(), "x".repeat(bytes));
        let answer = link.report_observed(network).await;
        assert_eq!(answer.err().map(|status| status.code()), want, "{bytes}");
        let status = world.inventory("m-a").unwrap()["status"].clone();
        assert_eq!(status["observedNetwork"].is_object(), want.is_none(), "{bytes}");
    }
}

// Fault: a host floods its stream with messages that cost more than they say.
// Shown: host console: that a stream has one Hello, or that there are too many reports.
#[tokio::test]
async fn stream_ends_at_the_second_hello() {
    use tonic::Code::{InvalidArgument, ResourceExhausted};
    use wire::host_message::Message;

    for (message, count, code, want) in [
        (Message::Hello(Host::hello("boot-1")), 1, InvalidArgument, "a stream has one Hello"),
        // Progress of no plan.
        (Message::Progress(wire::StepProgress::default()), 700, ResourceExhausted, "too many reports"),
    ] {
        let world = World::start().await;
        let (_host, _chain, link, mut stream) = attached(&world).await;
        let flood = async {
            for _ in 0..count {
                link.try_send(message.clone()).await;
            }
        };
        let (ended, ()) = tokio::join!(
            async {
                loop {
                    if let Err(status) = stream.message().await {
                        return status;
                    }
                }
            },
            flood
        );
        assert_eq!(ended.code(), code, "{ended}");
        expect_console(&ended, want);
    }
}

// Fault: a host sends a message of 131,072 empty interfaces, which would take 17 MB.
// Shown: host console: the message has too many fields.
#[tokio::test]
async fn empty_fields_are_refused_before_decoding() {
    let world = World::start().await;
    let nics = vec![wire::Nic::default(); 100_000];
    let facts = wire::HostFacts { nics, ..Default::default() };
    let host = Host::new("b");
    let mut link = world.connect(None).await;
    let registered = link.register_edited(&host, "token", |request| request.facts = Some(facts.clone()));
    let refused = registered.await.unwrap_err();
    expect_console(&refused, "too many fields");
    let (host, chain) = installed(&world).await;
    let mut link = world.connect(Some((&host, &chain))).await;
    let hello = wire::Hello { facts: Some(facts), ..Host::hello("boot-1") };
    let ended = match link.attach(hello).await {
        Ok(mut stream) => stream.message().await.map(drop),
        Err(status) => Err(status),
    };
    assert_eq!(ended.unwrap_err().code(), tonic::Code::InvalidArgument, "it is no Hello");
}

// Fault: a client sends the headers of a registration and half of its message, and then nothing.
// Shown: metric by reason; its call is refused after five seconds, and another host registers meanwhile.
#[tokio::test]
async fn half_a_message_is_waited_for_briefly() {
    // The header of a message of six bytes, and three of them.
    const HALF: &[u8] = &[0, 0, 0, 0, 6, 1, 2, 3];
    let world = World::start().await;
    let mut slow = world.connect(None).await;
    let start = Instant::now();
    let (_rest, answer) = slow.start_message("/baremetal.v1alpha1.Registration/Begin", HALF).await;
    world.connect(None).await.register(&Host::new("a"), "token").await.unwrap();
    assert!(!answer.is_finished(), "the other host came meanwhile");
    // The sockets are idle from now on, so that the clock moves to the end of the wait by itself.
    tokio::time::pause();
    let refused = answer.await.unwrap().unwrap();
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
    expect_console(&refused, "the message did not arrive in time");
    assert!(start.elapsed() >= Duration::from_secs(5), "{:?}", start.elapsed());
    world.expect_metric("connection_failures", "MessageTimeout").await;
    assert!(world.metrics().contains("connection_failures_total{reason=\"MessageTimeout\"} 1"));
}

/// What cannot be replayed is left out, and the log names it.
#[test]
fn scoped_resolver_does_not_refuse_the_host() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let log = crate::rpc::log::capture_log(|| {
        runtime.block_on(async {
            let world = World::start().await;
            let host = Host::new("a");
            let mut link = world.connect(None).await;
            let registered = link.register_edited(&host, "token", |request| {
                let network = request.observed_network.as_mut().unwrap();
                network.dns_servers = vec!["fe80::1%eth0".into(), "192.0.2.53".into()];
            });
            registered.await.unwrap();
            let inventory = world.inventory("m-a").unwrap();
            assert_eq!(inventory["spec"]["observedNetwork"]["dnsServers"], json!(["192.0.2.53"]));
        });
    });
    let told: Vec<_> = log.lines().filter(|line| line.contains("it cannot be replayed")).collect();
    assert!(matches!(&told[..], [line] if line.contains("fe80::1%eth0")), "{log}");
}
