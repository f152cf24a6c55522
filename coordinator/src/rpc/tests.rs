//! The whole port over loopback TLS, against an in-memory API.

mod admission;
mod bounds;
mod flood;
mod plans;
mod registration;
mod roles;
mod sessions;
mod world;

use fake_apiserver::Counts;
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use serde_json::Value;
use world::{Host, Link, World, refusal};

use crate::ca::Role;

type Stream = tonic::Streaming<wire::CoordinatorMessage>;

fn condition(inventory: &Value, kind: &str) -> (String, String) {
    let conditions = inventory["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default();
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.into(), reason.into())
}

fn requests(counts: &Counts) -> (usize, usize) {
    (counts.requests, counts.writes)
}

fn session(world: &World) -> Value {
    world.inventory("m-a").unwrap()["status"]["host"]["session"].clone()
}

/// A registered host with the certificate of an installed system.
async fn installed(world: &World) -> (Host, String) {
    let host = Host::new("a");
    world.connect(None).await.register(&host, "token").await.unwrap();
    let chain = host.certificate(&world.authority, Role::Installed);
    world.settled("m-a").await;
    world.spent().await;
    (host, chain)
}

/// An installed host, and its open stream on the first replica.
async fn attached(world: &World) -> (Host, String, Link, Stream) {
    let (host, chain) = installed(world).await;
    let (link, stream) = attach_to(world, 0, (&host, &chain), "boot-1").await;
    (host, chain, link, stream)
}

/// Attaches, and waits until the session is stored.
async fn attach_to(
    world: &World,
    replica: usize,
    (host, chain): (&Host, &str),
    boot_id: &str,
) -> (Link, Stream) {
    let mut link = world.connect_to(replica, Some((host, chain))).await;
    let stream = link.attach(Host::hello(boot_id)).await.unwrap();
    let name = &world.replicas[replica].context.replica.name;
    world
        .until(|| {
            let session = session(world);
            session["replica"] == name.as_str() && session["bootId"] == boot_id && session["ended"].is_null()
        })
        .await;
    world.settled("m-a").await;
    (link, stream)
}

async fn assert_refused(stream: &mut Stream, want: Refusal) {
    let ended = stream.message().await.unwrap_err();
    assert_eq!(refusal(&ended), Some(want), "{ended:?}");
}
