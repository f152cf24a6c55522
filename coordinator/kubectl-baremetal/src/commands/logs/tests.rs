use fake_apiserver::Verb;
use serde_json::json;

use super::*;
use crate::arguments::Output;
use crate::samples::server::{edit, on, serve};
use crate::samples::{clean_plan, held_by, object, set_plan};

#[tokio::test]
async fn follow_waits_for_clean_of_deleted_machine() {
    let mut held = held_by("m");
    set_plan(&mut held, &clean_plan(), &json!({ "state": "Applied" }));
    let mut cleaned = held["status"]["plan"].clone();
    held["status"]["plan"]["type"] = json!("reprovision");
    cleaned["generation"] = json!(4);
    let machine = object(Kind::Machine, "m", json!({}));
    let (fake, cluster) = serve(&[object(Kind::MachineInventory, "h", held), machine]).await;
    edit(&fake, Kind::Machine, "m", |machine| {
        machine["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:30:00Z");
    });
    let host = fake.clone();
    let cleaning = fake.faults().interrupt(on(Kind::Machine, Verb::Get), move || {
        edit(&host, Kind::MachineInventory, "h", |host| host["status"]["plan"] = cleaned);
    });
    let output = Output { output: Format::Text };
    let arguments = LogsArguments { host: "h".to_owned(), follow: true, output };
    assert_eq!(show_logs(&cluster, &arguments).await.unwrap(), Exit::Done);
    assert!(cleaning.is_met(), "the plan before was taken for the end");
}
