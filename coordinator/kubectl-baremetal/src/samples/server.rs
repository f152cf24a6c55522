//! An API server in memory, for tests of whole commands.

use fake_apiserver::{FakeApi, Kind as ServedKind, Matching, Refusal, Verb};
use kube::api::PostParams;
use kube::core::ApiResource;
use serde_json::Value;
use tokio::sync::oneshot;

use super::NAMESPACE;
use crate::cluster::{Cluster, Served};
use crate::fleet::{Kind, Object};

/// A server of every kind with these objects, and the connection of an operator.
pub(crate) async fn serve(objects: &[Object]) -> (FakeApi, Cluster) {
    let fake = FakeApi::new();
    for kind in Kind::all() {
        let ApiResource { group, version, plural, .. } = resource_of(kind);
        fake.register(ServedKind::namespaced(&group, &version, kind.name(), &plural));
    }
    let cluster = Cluster {
        client: fake.client_in("operator", NAMESPACE),
        context: String::new(),
        namespace: Some(NAMESPACE.to_owned()),
        served: Kind::all().map(|kind| Served { kind, resource: resource_of(kind) }).collect(),
    };
    for object in objects {
        let api = cluster.api_in(object.id.kind, NAMESPACE).unwrap();
        api.create(&PostParams::default(), &object.data).await.unwrap();
    }
    (fake, cluster)
}

fn resource_of(kind: Kind) -> ApiResource {
    let plural = match kind {
        Kind::MachineInventory => "machineinventories".to_owned(),
        kind => format!("{}s", kind.name().to_lowercase()),
    };
    ApiResource::from_gvk_with_plural(&kind.resources().next().unwrap(), &plural)
}

fn stored_under(kind: Kind) -> String {
    let ApiResource { group, plural, .. } = resource_of(kind);
    format!("{plural}.{group}")
}

/// Requests on the objects of a kind.
pub(crate) fn on(kind: Kind, verb: Verb) -> Matching {
    Matching::any().verb(verb).resource(&resource_of(kind).plural)
}

/// Changes an object as another client.
pub(crate) fn edit(fake: &FakeApi, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
    assert!(fake.edit((&stored_under(kind), NAMESPACE, name), change), "{kind:?} {name} does not exist");
}

/// An object as it is stored.
pub(crate) fn look(fake: &FakeApi, kind: Kind, name: &str) -> Value {
    fake.look(&stored_under(kind), NAMESPACE, name).unwrap()
}

/// Forbids to list the kind; the answer comes with the second request.
pub(crate) fn forbid(fake: &FakeApi, kind: Kind) -> oneshot::Receiver<()> {
    let (sender, asked_again) = oneshot::channel();
    fake.faults().fail(on(kind, Verb::List), usize::MAX, Refusal::Forbidden);
    fake.faults().interrupt(on(kind, Verb::List).after(1), move || sender.send(()).unwrap());
    asked_again
}
