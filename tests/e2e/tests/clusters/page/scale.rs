//! The page with thousands of hosts.

use anyhow::{bail, ensure};
use control_plane::audit::Counts;
use control_plane::directory::Directory;
use control_plane::parts::Parts;
use control_plane::{ControlPlane, Settings, apply};
use coordinator_api::crds;
use coordinator_api::inventory::MachineInventory;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::browser::{Browser, Told, Traffic};
use super::{ENTER, ESCAPE, USER};
use crate::common::take_machine;
use crate::plugin::program::Plugin;

const END: &str = "\u{e010}";
const HOME: &str = "\u{e011}";
const HOSTS: usize = 5000;
const CONCURRENCY: usize = 32;
/// One of so many hosts has a status; without one a host is being installed.
const WITH_STATUS: usize = 5;
/// Elements of the page: those of the rows that can be seen, and not of the fleet.
const ELEMENTS: u64 = 1500;
/// Of these, rows of the table: those of the window, and eight on either side.
const ROWS: u64 = 48;
/// The files of the page, with the headers of their answers.
const FILES: f64 = 72.0 * 1024.0;
/// Data of one host among all, on average.
const HOST: usize = 640;
/// Messages with which a page begins, beside the hosts: begin, notes, complete, twice where it is opened
/// before the lists are complete.
const BEGIN: usize = 6;
/// Hosts of one message among these.
const HOSTS_OF_MESSAGE: usize = 250;
/// Data of the message about one host that changed.
const CHANGE: usize = 1024;
/// Hosts that change one after the other.
const CHANGES: usize = 10;
/// Requests of the program until the page shows the fleet: a list and a watch of each kind and of Events,
/// discovery, and the parts of the list of hosts.
const BEGIN_REQUESTS: u64 = 40;

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

async fn check_elements(browser: &Browser) -> anyhow::Result<()> {
    for (selector, bound) in [("*", ELEMENTS), (".space .row", ROWS)] {
        let count = browser.read(&format!("return document.querySelectorAll('{selector}').length")).await?;
        ensure!(count.as_u64().is_some_and(|count| count < bound), "{count} elements {selector}");
    }
    Ok(())
}

/// What the page was sent until it showed all hosts: each of them once.
fn check_begin(traffic: &Traffic, counts: &Counts) -> anyhow::Result<()> {
    let data: usize = traffic.messages.iter().map(|told| told.data.len()).sum();
    println!(
        "begin: {} requests of the page, {} bytes of files, {} messages, {data} bytes; {} requests of the program",
        traffic.requests.len(),
        traffic.bytes,
        traffic.messages.len(),
        counts.requests
    );
    ensure!(traffic.bytes > 1024.0 && traffic.bytes < FILES, "{} bytes of files", traffic.bytes);
    ensure!(traffic.messages.len() <= HOSTS / HOSTS_OF_MESSAGE + BEGIN, "{}", traffic.messages.len());
    ensure!(data > HOSTS * 100 && data < HOSTS * HOST, "{data} bytes of hosts");
    ensure!(counts.requests <= BEGIN_REQUESTS && counts.watches > 0, "{counts:#?}");
    Ok(())
}

/// Each host that changes is one small message that names it, for which the page asks for nothing and the
/// program asks the API server for nothing.
async fn check_changes(scale: &Scale<'_>) -> anyhow::Result<()> {
    let Scale { browser, api, management } = scale;
    let mark = management.audit().mark()?;
    browser.take_traffic().await?;
    for number in 1..=CHANGES {
        let name = name_of(number * 7 + 1);
        let patch = json!({ "metadata": { "annotations": { "baremetal.cluster.io/approval": "Revoked" } } });
        api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        browser.until_shown("[data-state=Revoked]", &[&(number + 1).to_string()]).await?;
        let traffic = browser.take_traffic().await?;
        let [Told { name: event, data }] = &*traffic.messages else {
            bail!("{name} changed, and the page was told {:#?}", traffic.messages);
        };
        let told: Value = serde_json::from_str(data)?;
        ensure!(event == "lines" && told["changed"].as_array().is_some_and(|all| all.len() == 1), "{data}");
        ensure!(told["changed"][0]["name"] == name && data.len() < CHANGE, "{} bytes: {data}", data.len());
        ensure!(traffic.requests.is_empty(), "the page asked for {:?}", traffic.requests);
    }
    // Another page begins with what the program has.
    browser.read("location.reload()").await?;
    browser.until_shown("[data-state=Revoked]", &[&(CHANGES + 1).to_string()]).await?;
    let counts = management.audit().counts(USER, mark)?;
    // A watch that the server ended is opened again.
    ensure!(counts.requests == counts.watches && counts.watches < BEGIN_REQUESTS, "{counts:#?}");
    println!("{CHANGES} changes: {} requests of the program", counts.requests);
    check_elements(browser).await
}

struct Scale<'a> {
    browser: &'a Browser,
    api: &'a Api<MachineInventory>,
    management: &'a ControlPlane,
}

async fn check_scale(management: &ControlPlane, directory: &Directory) -> anyhow::Result<()> {
    let client = management.admin().await?;
    for crd in crds::all() {
        apply::manifest(&client, &crds::yaml(&crd)?).await?;
    }
    let api = create_hosts(&client).await?;
    let mark = management.audit().mark()?;
    let plugin = Plugin::new(management.kubeconfig(USER, "system:masters")?)?;
    let mut served = plugin.start("ui --no-open")?;
    let url = served.until_line("the link", |line| line.starts_with("http://")).await?;
    let browser = Browser::start(directory.path()).await?;
    browser.open(&url).await?;
    browser.until_shown("[data-state=All]", &["5,000"]).await?;
    browser
        .until_shown(".attention", &["ApprovalPending", "98 more in the table", "HostUnreachable"])
        .await?;
    check_begin(&browser.take_traffic().await?, &management.audit().counts(USER, mark)?)?;
    browser.save_both("scale").await?;
    check_elements(&browser).await?;

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
    check_elements(&browser).await?;
    check_changes(&Scale { browser: &browser, api: &api, management }).await?;
    browser.check_console().await?;
    browser.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn page_stays_small_with_thousands_of_hosts() {
    let _machine = take_machine().await;
    let directory = Directory::temporary().unwrap();
    let parts = Parts::from_environment().unwrap();
    let management = ControlPlane::start(&parts, &Settings::management()).await.unwrap();
    check_scale(&management, &directory).await.unwrap();
}
