//! Headless Chromium, driven by `WebDriver`.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use control_plane::ports;
use control_plane::process::{Server, Spec};
use fantoccini::actions::{InputSource as _, KeyAction, KeyActions};
use fantoccini::wd::{TimeoutConfiguration, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder};
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use url::{ParseError, Url};

/// What the page may need on a machine that is busy.
const DEADLINE: Duration = Duration::from_mins(3);
const SIZE: (u32, u32) = (1440, 960);
/// Of WCAG 2 for text of normal size.
const CONTRAST: f64 = 4.5;

/// Nothing but the page: no updates, no accounts, no names that are resolved. The pipe ends
/// the browser with its driver.
const FLAGS: [&str; 14] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// A text of the page, as `contrast.js` sees it.
#[derive(Debug, Deserialize)]
struct Text {
    #[expect(dead_code, reason = "named where it is faint")]
    name: String,
    #[expect(dead_code, reason = "as above")]
    shown: String,
    #[expect(dead_code, reason = "as above")]
    colour: [f64; 3],
    background: [f64; 3],
    contrast: f64,
}

/// A message to the page.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) name: String,
    pub(super) data: String,
}

/// What went over the network.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) requests: Vec<String>,
    /// Of the answers that are complete, with their headers; the stream of messages is not.
    pub(super) bytes: f64,
    pub(super) messages: Vec<Told>,
}

/// A command of Chromium's driver.
#[derive(Debug)]
struct DriverCommand {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for DriverCommand {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}

/// A browser with a fresh profile; it ends with its last holder.
pub(super) struct Browser {
    client: Client,
    screenshots: PathBuf,
    _driver: Server,
}

impl Browser {
    /// Starts one, with its files in `directory`.
    pub(super) async fn start(directory: &Path) -> anyhow::Result<Self> {
        let port = ports::free()?;
        let driver = Server::start(Spec {
            name: "chromedriver".to_owned(),
            binary: "/usr/bin/chromedriver".into(),
            arguments: vec![format!("--port={port}")],
            environment: vec![("HOME".to_owned(), directory.display().to_string())],
            log: directory.join("chromedriver.log"),
        })?;
        let probe = async || {
            let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
            connected.map(drop).map_err(|error| error.to_string())
        };
        driver.ready(DEADLINE, probe).await?;
        let profile = format!("--user-data-dir={}", directory.join("profile").display());
        let size = format!("--window-size={},{}", SIZE.0, SIZE.1);
        let flags: Vec<_> = FLAGS.iter().copied().chain([profile.as_str(), size.as_str()]).collect();
        let capabilities = json!({
            "goog:chromeOptions": { "binary": "/usr/bin/chromium", "args": flags },
            "goog:loggingPrefs": { "performance": "ALL", "browser": "ALL" },
        });
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(capabilities.as_object().cloned().context("capabilities")?);
        let client = builder.connect(&format!("http://127.0.0.1:{port}")).await?;
        client.update_timeouts(TimeoutConfiguration::new(Some(DEADLINE), Some(DEADLINE), None)).await?;
        let screenshots = find_screenshots()?;
        Ok(Self { client, screenshots, _driver: driver })
    }

    pub(super) async fn open(&self, url: &str) -> anyhow::Result<()> {
        Ok(self.client.goto(url).await?)
    }

    /// What a script answers.
    pub(super) async fn read(&self, script: &str) -> anyhow::Result<Value> {
        self.client.execute(script, vec![]).await.with_context(|| format!("run {script}"))
    }

    /// Waits until an expression is true; it is looked at whenever the document changes.
    pub(super) async fn until(&self, what: &str, expression: &str) -> anyhow::Result<()> {
        let script = format!(
            "return new Promise((resolve) => {{
                const observer = new MutationObserver(() => check());
                const check = () => {{
                    if (!({expression})) return;
                    observer.disconnect();
                    resolve(true);
                }};
                const all = {{ subtree: true, childList: true, characterData: true, attributes: true }};
                observer.observe(document, all);
                check();
            }});"
        );
        if let Err(error) = self.client.execute(&script, vec![]).await {
            let text = self.read("return document.body.innerText").await?;
            self.save("failed").await?;
            anyhow::bail!("wait for {what}: {error}; the page shows:\n{}", text.as_str().unwrap_or_default());
        }
        Ok(())
    }

    /// Waits until an element shows each of `parts`.
    pub(super) async fn until_shown(&self, selector: &str, parts: &[&str]) -> anyhow::Result<()> {
        let expression = format!(
            "[...document.querySelectorAll({})].some((one) => {}.every((part) => one.innerText.includes(part)))",
            json!(selector),
            json!(parts)
        );
        self.until(&format!("{selector} with {parts:?}"), &expression).await
    }

    /// Types into what has the focus.
    pub(super) async fn press(&self, keys: &str) -> anyhow::Result<()> {
        // By the keyboard and not by an element, which a change of the page may replace.
        let mut actions = KeyActions::new("keyboard".to_owned());
        for value in keys.chars() {
            actions = actions.then(KeyAction::Down { value }).then(KeyAction::Up { value });
        }
        Ok(self.client.perform_actions(actions).await?)
    }

    pub(super) async fn set_dark(&self, is_dark: bool) -> anyhow::Result<()> {
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.run("goog/cdp/execute", json!({ "cmd": "Emulation.setEmulatedMedia", "params": features }))
            .await?;
        Ok(())
    }

    /// Keeps a picture of the page, light and dark, and has each text be legible in both.
    pub(super) async fn save_both(&self, name: &str) -> anyhow::Result<()> {
        self.set_dark(true).await?;
        let dark = self.measure_texts().await?;
        self.save(&format!("{name}-dark")).await?;
        self.set_dark(false).await?;
        let light = self.measure_texts().await?;
        self.save(&format!("{name}-light")).await?;
        for (scheme, texts) in [("dark", &dark), ("light", &light)] {
            ensure!(texts.len() > 10, "{name}, {scheme}: few texts were measured: {texts:#?}");
            let faint: Vec<_> = texts.iter().filter(|text| text.contrast < CONTRAST).collect();
            ensure!(faint.is_empty(), "{name}, {scheme}: {faint:#?}");
        }
        let brightest = |texts: &[Text]| texts.iter().flat_map(|text| text.background).fold(0.0, f64::max);
        ensure!(brightest(&dark) < 128.0, "{name}: the dark page is light: {dark:#?}");
        ensure!(brightest(&light) > 240.0, "{name}: the light page is dark: {light:#?}");
        Ok(())
    }

    async fn measure_texts(&self) -> anyhow::Result<Vec<Text>> {
        Ok(serde_json::from_value(self.read(include_str!("contrast.js")).await?)?)
    }

    async fn save(&self, name: &str) -> anyhow::Result<()> {
        let path = self.screenshots.join(format!("{name}.png"));
        std::fs::write(&path, self.client.screenshot().await?)?;
        println!("screenshot: {}", path.display());
        Ok(())
    }

    /// Every address that the browser asked since this was read last.
    pub(super) async fn list_requests(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.take_traffic().await?.requests)
    }

    /// What went over the network since this was read last, as the browser recorded it; without its
    /// own start page.
    pub(super) async fn take_traffic(&self) -> anyhow::Result<Traffic> {
        let entries = self.run("se/log", json!({ "type": "performance" })).await?;
        let (mut traffic, mut ours) = (Traffic::default(), BTreeSet::new());
        for entry in entries.as_array().context("a log without entries")? {
            let message: Value = serde_json::from_str(entry["message"].as_str().unwrap_or_default())?;
            let (message, text) = (&message["message"], |value: &Value| value.as_str().map(str::to_owned));
            let about = &message["params"];
            match message["method"].as_str().unwrap_or_default() {
                "Network.requestWillBeSent" => {
                    let url = text(&about["request"]["url"]).filter(|url| url.starts_with("http://"));
                    ours.extend(url.is_some().then(|| about["requestId"].to_string()));
                    traffic.requests.extend(url);
                }
                "Network.loadingFinished" if ours.contains(&about["requestId"].to_string()) => {
                    traffic.bytes += about["encodedDataLength"].as_f64().unwrap_or_default();
                }
                "Network.eventSourceMessageReceived" => {
                    let (name, data) =
                        text(&about["eventName"]).zip(text(&about["data"])).context("no text")?;
                    traffic.messages.push(Told { name, data });
                }
                _ => {}
            }
        }
        Ok(traffic)
    }

    /// Fails when the page wrote an error to the console.
    pub(super) async fn check_console(&self) -> anyhow::Result<()> {
        let entries = self.run("se/log", json!({ "type": "browser" })).await?;
        let is_error = |entry: &&Value| entry["level"] == "SEVERE";
        let errors: Vec<_> = entries.as_array().into_iter().flatten().filter(is_error).collect();
        ensure!(errors.is_empty(), "the page wrote errors: {errors:#?}");
        Ok(())
    }

    async fn run(&self, path: &'static str, body: Value) -> anyhow::Result<Value> {
        Ok(self.client.issue_cmd(DriverCommand { path, body }).await?)
    }

    pub(super) async fn close(self) -> anyhow::Result<()> {
        Ok(self.client.close().await?)
    }
}

/// Beside what cargo builds: outside of the checkout wherever that is.
fn find_screenshots() -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe()?;
    let target = here.ancestors().nth(3).context("the test is not in a target directory")?;
    let screenshots = target.join("screenshots");
    std::fs::create_dir_all(&screenshots)?;
    Ok(screenshots)
}
