//! `kubectl baremetal ui` in a real browser, while hosts register and become nodes.

mod browser;
mod causes;
mod desktop;
mod scale;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use control_plane::audit::Mark;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::MachineRegistration;
use e2e::host::{Host as _, Simulated};
use e2e::lifecycle::{Lifecycle, NAMESPACE, await_attached};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{Setup, await_viewer};
use crate::plugin::program::Plugin;
use browser::Browser;
use desktop::Desktop;

const DEADLINE: Duration = Duration::from_mins(4);
/// The operator who has the page open.
const USER: &str = "page";

// As WebDriver names keys.
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const DOWN: &str = "\u{e015}";
const LEFT: &str = "\u{e012}";
const RIGHT: &str = "\u{e014}";

struct Story<'a> {
    setup: &'a Setup,
    browser: Browser,
    url: String,
    /// What the program had the desktop open.
    once: String,
}

impl Story<'_> {
    fn step(&self, what: &str) {
        self.setup.progress.step(what);
    }

    async fn shows(&self, selector: &str, parts: &[&str]) -> anyhow::Result<()> {
        self.browser.until_shown(selector, parts).await
    }

    /// The status line of the answer to a request with this Host header.
    async fn ask(&self, path: &str, host: &str) -> anyhow::Result<String> {
        let address = self.url.split('/').nth(2).context("a link without an address")?;
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer.lines().next().unwrap_or_default().to_owned())
    }
}

/// What the desktop opens leads to the page, and to nothing when it is used again.
async fn check_opening(story: &Story<'_>) -> anyhow::Result<()> {
    story.step("page: the browser is opened");
    story.browser.open(&story.once).await?;
    story.shows("h1", &["Fleet"]).await?;
    let place = story.browser.read("return location.href").await?;
    ensure!(place.as_str().is_some_and(|place| place.starts_with(&story.url)), "it led to {place}");
    let path = story.once.splitn(4, '/').nth(3).context("a link without a path")?;
    let answer = story.ask(&format!("/{path}"), "127.0.0.1").await?;
    ensure!(answer.contains("403"), "the link works twice: {answer}");
    Ok(())
}

/// A host registers while the page is open.
async fn check_registration(story: &Story<'_>, first: &mut Simulated) -> anyhow::Result<()> {
    let setup = story.setup;
    story.step("page: no host, then one");
    story.browser.open(&story.url).await?;
    story.shows(".empty", &["No host has registered"]).await?;
    story.shows("#connection", &["live"]).await?;
    story.shows("#attention-title", &["Nothing needs attention"]).await?;
    // It would be gone after a reload.
    story.browser.read("window.isFirstDocument = true").await?;
    let name = first.inventory();
    let mut lifecycle = Lifecycle::new(&setup.environment, first, setup.progress.clone());
    let iso = lifecycle.create_seed(&setup.base).await?;
    lifecycle.register(&iso).await?;
    story.shows(".space .row", &[&name, "Available"]).await?;
    story.shows("[data-state=All]", &["1"]).await
}

/// Another one waits for an operator.
async fn check_attention(story: &Story<'_>, second: &mut Simulated) -> anyhow::Result<()> {
    let environment = &story.setup.environment;
    let admin = &environment.management.admin;
    story.step("page: a host needs attention, and is approved");
    let registrations: Api<MachineRegistration> = Api::namespaced(admin.clone(), NAMESPACE);
    let manual = Patch::Merge(json!({ "spec": { "approval": "Manual" } }));
    registrations.patch("lab", &PatchParams::default(), &manual).await?;
    second.boot(&environment.directory.path().join("seed.iso")).await?;
    let name = second.inventory();
    let action = format!("kubectl baremetal approve {name}");
    story.shows(".entry", &[&name, "the host waits for approval", "Next", &action]).await?;
    story.shows("[data-reason=ApprovalPending] h3", &["ApprovalPending", "1"]).await?;
    let actions = story.browser.read("return document.querySelectorAll('.entry .next').length").await?;
    ensure!(actions == 1, "{actions} actions for one host");
    story.browser.save_both("attention").await?;
    let inventories: Api<MachineInventory> = Api::namespaced(admin.clone(), NAMESPACE);
    let approved = json!({ "metadata": { "annotations": { "baremetal.cluster.io/approval": "Approved" } } });
    inventories.patch(&name, &PatchParams::default(), &Patch::Merge(approved)).await?;
    story.shows("#attention-title", &["Nothing needs attention"]).await?;
    await_attached(&inventories, &name, DEADLINE).await?;
    story.shows("[data-state=Available]", &["2"]).await
}

/// Keys alone: filter, move, open, back.
async fn check_keys(story: &Story<'_>, host: &str) -> anyhow::Result<()> {
    story.step("page: keys");
    let browser = &story.browser;
    browser.press("/").await?;
    browser.until("the filter to have the focus", "document.activeElement.type === 'search'").await?;
    browser.press(host).await?;
    story.shows(".told", &["1 of 2"]).await?;
    browser.press(DOWN).await?;
    let key = format!("machineinventory/{NAMESPACE}/{host}");
    let selected = format!("document.querySelector('[aria-selected=true]')?.dataset.key === {}", json!(key));
    browser.until("the row to be selected", &selected).await?;
    let active = "document.activeElement.getAttribute('aria-activedescendant') === document.querySelector('[aria-selected=true]').id";
    browser.until("the row to be announced", active).await?;
    browser.press(ENTER).await?;
    story.shows("h1", &[host]).await?;
    browser.until("the title to have the focus", "document.activeElement.tagName === 'H1'").await?;
    browser.press(ESCAPE).await?;
    story.shows(".told", &["1 of 2"]).await?;
    browser.press(ESCAPE).await?;
    browser.until("the filter to be empty", "document.querySelector('input').value === ''").await?;
    story.shows("h1", &["Fleet"]).await
}

/// The first host becomes a node while its cluster is looked at.
async fn check_cluster(story: &Story<'_>, first: &mut Simulated) -> anyhow::Result<()> {
    let setup = story.setup;
    story.step("page: a cluster, as it is made");
    let name = first.inventory();
    let mut lifecycle = Lifecycle::new(&setup.environment, first, setup.progress.clone());
    lifecycle.apply_cluster(std::slice::from_ref(&name), 1).await?;
    let browser = &story.browser;
    browser.read("document.querySelector('[data-view=clusters]').click()").await?;
    story.shows(".clusters li", &["lab", NAMESPACE]).await?;
    browser.press(DOWN).await?;
    browser.press(ENTER).await?;
    let parts = [
        "cluster/lab",
        "machinedeployment/workers",
        &format!("machineinventory/{name}"),
        "plan/reprovision-",
    ];
    story.shows("[role=tree]", &parts).await?;
    story.shows("[role=tree]", &["Running v1.36.3, Node", "Applied"]).await?;
    browser.press(DOWN).await?;
    let is_at = "document.activeElement.dataset.path === '/cluster/lab'";
    browser.until("the tree to have the focus", is_at).await?;
    browser.press(LEFT).await?;
    browser
        .until("the tree to be closed", "document.querySelectorAll('[role=treeitem]').length === 1")
        .await?;
    browser.press(RIGHT).await?;
    story.shows("[role=tree]", &parts).await?;
    browser.save_both("cluster").await?;
    browser.press("/").await?;
    story.shows(".space .row", &[&name, "Running"]).await?;
    browser.until("the filter to have the focus", "document.activeElement.type === 'search'").await?;
    browser.save_both("fleet").await
}

async fn check_timeline(story: &Story<'_>, host: &str) -> anyhow::Result<()> {
    story.step("page: the life of a host");
    let browser = &story.browser;
    browser.read(&format!("location.hash = '#/host/{NAMESPACE}/{host}'")).await?;
    for (topic, parts) in [
        ("plan", &["Plan reprovision is done", "upgrade-system", "verify-system"][..]),
        ("boot", &["Booted and attached", "served by"]),
        ("installed", &["Installed", "/dev/vda"]),
        ("registered", &["Registered"]),
        ("event", &["InventoryAllocated", host]),
    ] {
        story.shows(&format!(".moment.{topic}"), parts).await?;
    }
    let done = browser.read("return document.querySelectorAll('.moment.plan .steps .done').length").await?;
    ensure!(done == 8, "{done} steps are done");
    let took = "/\\d+s$/.test(document.querySelector('.moment.plan p').innerText)";
    browser.until("how long the plan took", took).await?;
    story.shows(".facts", &["workers", "lab"]).await?;
    story.shows(".hint", &[&format!("kubectl baremetal logs -n {NAMESPACE} {host}")]).await?;
    browser.save_both("host").await
}

/// What others may not, and what the page does not do.
async fn check_walls(story: &Story<'_>, mark: Mark) -> anyhow::Result<()> {
    story.step("page: who is refused, and what it asked for");
    let browser = &story.browser;
    let own = format!("/{}/", story.url.split('/').nth(3).unwrap_or_default());
    let live = format!("{own}live");
    for (path, host, status) in [
        (own.as_str(), "127.0.0.1", "200"),
        (&live, "evil.example", "421"),
        ("/", "127.0.0.1", "403"),
        ("/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/", "127.0.0.1", "403"),
        ("/open/AAAA", "127.0.0.1", "403"),
    ] {
        let answer = story.ask(path, host).await?;
        ensure!(answer.contains(status), "GET {path} of {host}: {answer}, wanted {status}");
    }
    ensure!(browser.read("return window.isFirstDocument").await? == true, "the page was loaded again");
    browser.check_console().await?;
    let requests = browser.list_requests().await?;
    ensure!(requests.len() > 10, "the requests of the page were not recorded: {requests:?}");
    // The browser begins with a page of its own files.
    let own = [story.url.as_str(), &story.once, "chrome://", "data:"];
    let is_own = |request: &&String| own.iter().any(|own| request.starts_with(own));
    let elsewhere: Vec<_> = requests.iter().filter(|request| !is_own(request)).collect();
    ensure!(elsewhere.is_empty(), "the page asked for {elsewhere:?}");
    let blocked = "return fetch('http://127.0.0.2:9/').then(() => 'sent', (error) => error.name)";
    ensure!(browser.read(blocked).await? == "TypeError", "the page may ask others");
    let policy = "return new Promise((resolve) => { \
        document.addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective)); \
        fetch('http://127.0.0.2:9/').catch(() => {}); })";
    ensure!(browser.read(policy).await? == "connect-src", "the policy of the page let a request pass");
    let counts = story.setup.environment.management.control_plane.audit().counts(USER, mark)?;
    let secrets: Vec<_> = counts.by.keys().filter(|request| request.contains("secrets")).collect();
    ensure!(secrets.is_empty() && counts.writes == 0 && counts.refused_writes == 0, "{counts:#?}");
    ensure!(counts.watches > 0 && counts.gets <= 20, "objects are read one by one: {counts:#?}");
    Ok(())
}

/// An operator who may list hosts and their machines alone.
async fn check_viewer(story: &Story<'_>, host: &str) -> anyhow::Result<()> {
    story.step("page: what may not be listed is left out");
    let management = &story.setup.environment.management;
    management.apply(include_str!("plugin/viewer.yaml")).await?;
    await_viewer(management).await?;
    let plugin = Plugin::new(management.control_plane.kubeconfig("viewer", "none")?)?;
    let mut served = plugin.start("ui --no-open")?;
    let url = served.until_line("the link", |line| line.starts_with("http://127.0.0.1:")).await?;
    story.browser.open(&url).await?;
    story.shows(".space .row", &[host, "Running"]).await?;
    story.shows("#notes p", &["left out", "clusters.cluster.x-k8s.io is forbidden"]).await?;
    story.shows("#notes p", &["left out", "events.events.k8s.io is forbidden"]).await
}

async fn run_story(setup: &Setup) -> anyhow::Result<()> {
    let management = &setup.environment.management;
    let mark = management.mark()?;
    let desktop = Desktop::prepare()?;
    let plugin = Plugin::new(management.control_plane.kubeconfig(USER, "system:masters")?)?;
    let plugin = plugin.with_programs(desktop.programs());
    let mut served = plugin.start("ui")?;
    let url = served.until_line("the link", |line| line.starts_with("http://127.0.0.1:")).await?;
    let once = desktop.read_link(DEADLINE).await?;
    let browser = Browser::start(setup.environment.directory.path()).await?;
    let story = Story { setup, browser, url, once };
    let workload = &setup.environment.workload;
    let mut first = Simulated::new(workload.clone(), 1)?;
    let mut second = Simulated::new(workload.clone(), 2)?;
    let name = first.inventory();
    check_opening(&story).await?;
    check_registration(&story, &mut first).await?;
    check_attention(&story, &mut second).await?;
    causes::check_others(&story).await?;
    check_keys(&story, &name).await?;
    check_cluster(&story, &mut first).await?;
    causes::check_why(&story, &name).await?;
    check_timeline(&story, &name).await?;
    check_walls(&story, mark).await?;
    check_viewer(&story, &name).await?;
    story.browser.open(&story.url).await?;
    story.shows("#connection", &["live"]).await?;
    drop(served);
    story.shows("#connection", &["not connected"]).await?;
    story.browser.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn page_follows_the_life_of_hosts() {
    let setup = Setup::start().await;
    setup.check(run_story(&setup).await);
}
