//! A client of the endpoint, and waits for what a site shows.

use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sched::{CloneFlags, setns};

use crate::network::Network;
use crate::node::PORT;

const PAUSE: Duration = Duration::from_millis(20);
/// Longest wait of one attempt to connect: a lost packet is not sent again within it.
const ATTEMPT: Duration = Duration::from_millis(40);

/// Waits until `look` sees it.
///
/// # Errors
/// When it is not seen in time; the message has what was seen last.
pub fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> anyhow::Result<Result<T, String>>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match look()? {
            Ok(found) => return Ok(found),
            Err(seen) if Instant::now() >= deadline => {
                bail!("not in {} s: {what}; seen: {seen}", limit.as_secs())
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Measures from before `lose` runs until a client connects to the endpoint after it has
/// returned. A loss must end what serves at once: a connection that is still accepted counts.
///
/// # Errors
/// When nothing is served in time.
pub fn time_failover(
    network: &Network,
    lose: impl FnOnce() -> anyhow::Result<()>,
    limit: Duration,
) -> anyhow::Result<Duration> {
    let namespace = File::open(format!("/run/netns/{}", network.switch()))?;
    let endpoint = SocketAddr::new(network.family.endpoint(), PORT);
    // What `lose` takes to return is part of what clients see.
    let start = Instant::now();
    lose()?;
    let measured = thread::spawn(move || {
        setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).context("enter the clients' namespace")?;
        while start.elapsed() < limit {
            if TcpStream::connect_timeout(&endpoint, ATTEMPT).is_ok() {
                return Ok(start.elapsed());
            }
            // A refusal comes at once.
            thread::sleep(Duration::from_millis(2));
        }
        bail!("nothing served the endpoint in {} s", limit.as_secs())
    });
    measured.join().map_err(|_| anyhow::anyhow!("the client panicked"))?
}

/// Creates a `ConfigMap` as administrator through `address`; whether it was created.
///
/// # Errors
/// When curl cannot be run.
pub fn write_through(
    namespace: &str,
    address: IpAddr,
    pki: &Path,
    name: &str,
    limit: Duration,
) -> anyhow::Result<bool> {
    let file = |name: &str| pki.join(name).display().to_string();
    let body = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#);
    let done = Command::new("ip")
        .args(["netns", "exec", namespace, "curl", "--silent", "--output", "/dev/null"])
        .args(["--max-time", &limit.as_secs_f64().to_string()])
        .args(["--write-out", "%{http_code}", "--resolve", &format!("kubernetes:{PORT}:{address}")])
        .args(["--cacert", &file("ca.crt"), "--cert", &file("admin.crt"), "--key", &file("admin.key")])
        .args(["--header", "Content-Type: application/json", "--data", &body])
        .arg(format!("https://kubernetes:{PORT}/api/v1/namespaces/default/configmaps"))
        .output()
        .context("run curl")?;
    Ok(done.stdout == b"201")
}
