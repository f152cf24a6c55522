use fake_apiserver::Verb;
use serde_json::json;

use super::*;
use crate::fleet::Object;
use crate::samples::server::{edit, look, on, serve};
use crate::samples::{cluster_of_one, held_by, machine_with, object, ready};

fn held_host() -> Vec<Object> {
    let machine = json!({ "status": { "conditions": [ready()] } });
    let mut objects = cluster_of_one(machine, machine_with(&[ready()]));
    objects.push(object(Kind::MachineInventory, "h", held_by("m")));
    objects
}

fn scale_down() -> DrainArguments {
    let change = Change { dry_run: false, yes: true };
    DrainArguments { host: "h".to_owned(), removal: Options { scale_down: true, wait: false, change } }
}

#[tokio::test]
async fn scale_down_takes_one_replica() {
    let (fake, cluster) = serve(&held_host()).await;
    drain_host(&cluster, &scale_down()).await.unwrap();
    assert_eq!(look(&fake, Kind::MachineDeployment, "workers")["spec"]["replicas"], 0);
    let annotations = &look(&fake, Kind::Machine, "m")["metadata"]["annotations"];
    assert_eq!(annotations["cluster.x-k8s.io/delete-machine"], "");
}

#[tokio::test]
async fn scale_down_keeps_replicas_of_others() {
    let (fake, cluster) = serve(&held_host()).await;
    let others = fake.clone();
    let fault = fake.faults().interrupt(on(Kind::MachineDeployment, Verb::Patch), move || {
        edit(&others, Kind::MachineDeployment, "workers", |group| group["spec"]["replicas"] = json!(10));
    });
    let failure = drain_host(&cluster, &scale_down()).await.unwrap_err();
    assert!(fault.is_met());
    let want = "its replicas may not be 1 any more: run the command again";
    assert!(failure.to_string().contains(want), "{failure}");
    assert_eq!(look(&fake, Kind::MachineDeployment, "workers")["spec"]["replicas"], 10);
}
