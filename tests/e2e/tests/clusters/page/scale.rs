//! The page with thousands of hosts.

use anyhow::ensure;
use control_plane::directory::Directory;
use control_plane::parts::Parts;
use control_plane::{ControlPlane, Settings, apply};
use coordinator_api::crds;
use coordinator_api::inventory::MachineInventory;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::browser::Browser;
use super::{ENTER, ESCAPE};
use crate::common::take_turn;
use crate::plugin::program::Plugin;

const END: &str = "\u{e010}";
const HOME: &str = "\u{e011}";
const HOSTS: usize = 5000;
/// Requests at once.
const CONCURRENCY: usize = 32;
/// One of so many hosts has a status; without one a host is being installed.
const WITH_STATUS: usize = 5;
/// Elements of the page: those of the rows that can be seen, and not of the fleet.
const ELEMENTS: u64 = 1500;

fn name_of(number: usize) -> String {
    format!("rack{:02}-node{number:04}", number / 100)
}

fn inventory(number: usize) -> anyhow::Result<MachineInventory> {
    let approval = if number.is_multiple_of(50) { "Pending" } else { "Approved" };
    Ok(serde_json::from_value(json!({
        "apiVersion": "elemental.cattle.io/v1beta1",
        "kind": "MachineInventory",
        "metadata": {
            "name": name_of(number),
            "annotations": {
                "baremetal.cluster.io/approval": approval,
                "baremetal.alauda.io/pool": format!("pool-{}", number % 7),
            },
        },
        "spec": { "tpmHash": format!("{number:064x}") },
    }))?)
}

fn status(number: usize) -> Value {
    let mut session = json!({ "replica": "one", "bootId": "b-1", "since": "2026-01-01T00:00:00Z" });
    if number.is_multiple_of(35) {
        session["ended"] = json!("2026-01-02T00:00:00Z");
    }
    json!({ "status": { "host": {
        "image": "registry.example/os:v1", "bootMode": "active", "hostname": name_of(number),
        "addresses": [format!("10.{}.{}.7", number / 250, number % 250)], "agentVersion": "0.1.0",
        "session": session, "carried": {}, "install": { "state": "Installed", "device": "/dev/sda" },
    } } })
}

async fn create_hosts(client: &Client) -> anyhow::Result<Api<MachineInventory>> {
    let api: Api<MachineInventory> = Api::namespaced(client.clone(), "default");
    let create = async |number: usize| {
        api.create(&PostParams::default(), &inventory(number)?).await?;
        if number.is_multiple_of(WITH_STATUS) {
            let patch = Patch::Merge(status(number));
            api.patch_status(&name_of(number), &PatchParams::default(), &patch).await?;
        }
        anyhow::Ok(())
    };
    let writes = futures::stream::iter(0..HOSTS).map(create).buffer_unordered(CONCURRENCY);
    writes.try_collect::<Vec<()>>().await?;
    Ok(api)
}

async fn check_scale(management: &ControlPlane, directory: &Directory) -> anyhow::Result<()> {
    let client = management.admin().await?;
    for crd in crds::all() {
        apply::manifest(&client, &crds::yaml(&crd)?).await?;
    }
    let api = create_hosts(&client).await?;
    let plugin = Plugin::new(management.admin_kubeconfig())?;
    let mut served = plugin.start("ui --no-open")?;
    let url = served.until_line("the link", |line| line.starts_with("http://")).await?;
    let browser = Browser::start(directory.path()).await?;
    browser.open(&url).await?;
    browser.until_shown("[data-state=All]", &["5,000"]).await?;
    browser
        .until_shown(".attention", &["ApprovalPending", "98 more in the table", "HostUnreachable"])
        .await?;
    browser.save_both("scale").await?;
    let elements = browser.read("return document.querySelectorAll('*').length").await?;
    ensure!(elements.as_u64().is_some_and(|count| count < ELEMENTS), "{elements} elements");

    // The last of all, by keys alone.
    browser.press("/").await?;
    browser.press("node49").await?;
    browser.until_shown(".told", &["100 of 5,000"]).await?;
    browser.press(ENTER).await?;
    browser.press(END).await?;
    let last = "document.querySelector('.row[aria-selected=true]')?.dataset.key.endsWith('node4999')";
    browser.until("the last host", last).await?;
    let patch = json!({ "metadata": { "annotations": { "baremetal.cluster.io/approval": "Revoked" } } });
    api.patch(&name_of(4999), &PatchParams::default(), &Patch::Merge(patch)).await?;
    // It asks for an operator now, and is the first one.
    browser.until_shown("[data-state=Revoked]", &["1"]).await?;
    browser.press(HOME).await?;
    browser.until_shown(".row[data-key$=node4999]", &["Revoked"]).await?;
    browser.press(ESCAPE).await?;
    browser.until("all hosts", "document.querySelector('.told').innerText === ''").await?;
    let elements = browser.read("return document.querySelectorAll('*').length").await?;
    ensure!(elements.as_u64().is_some_and(|count| count < ELEMENTS), "{elements} elements");
    browser.check_console().await?;
    browser.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn page_stays_small_with_thousands_of_hosts() {
    let _turn = take_turn().await;
    let directory = Directory::temporary().unwrap();
    let parts = Parts::from_environment().unwrap();
    let management = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
    check_scale(&management, &directory).await.unwrap();
}
