//! What one source can take from the others. All hosts are at 127.0.0.1, the
//! flood comes from 127.0.0.2.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use proto::v1alpha1 as wire;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tonic::{Code, Status};

use super::world::{Host, World};
use crate::ca::Role;

/// Connections a second.
const RATE: usize = 2000;
const TICK: Duration = Duration::from_millis(20);
/// Fifty ticks are a second.
const PER_TICK: usize = RATE / 50;
/// More than the coordinator lets wait: the process has file descriptors for both ends.
const OPEN: usize = 512;
const HOSTS: usize = 50;

/// Opens connections that send nothing, on a thread of its own: it does not wait for
/// the coordinator.
struct Flood {
    opened: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Flood {
    fn start(address: SocketAddr) -> Self {
        let (opened, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let flood = open_connections(address, opened.clone(), is_over.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        thread::spawn(move || runtime.block_on(flood));
        Self { opened, is_over }
    }

    fn count_opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

async fn open_connections(address: SocketAddr, opened: Arc<AtomicUsize>, is_over: Arc<AtomicBool>) {
    let (mut ticks, mut open) = (tokio::time::interval(TICK), JoinSet::new());
    while !is_over.load(Ordering::Relaxed) {
        ticks.tick().await;
        while open.try_join_next().is_some() {}
        for _ in 0..PER_TICK.min(OPEN - open.len()) {
            open.spawn(hold_connection(address, opened.clone()));
        }
    }
}

/// Until the coordinator closes it.
async fn hold_connection(address: SocketAddr, opened: Arc<AtomicUsize>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    if let Ok(mut stream) = socket.connect(address).await {
        opened.fetch_add(1, Ordering::Relaxed);
        let _ = stream.read(&mut [0]).await;
    }
}

// Fault: one address opens up to two thousand connections a second and says nothing.
// Shown: metric and log line by reason; hosts register and attach.
#[tokio::test]
async fn flood_of_silent_connections_leaves_room_for_hosts() {
    let world = World::start().await;
    let flood = Flood::start(world.replicas[0].address);
    world.until(|| flood.count_opened() >= RATE).await;
    let mut links = vec![];
    for number in 0..HOSTS {
        // At least as many come for each host, however slow the machine is.
        let opened = flood.count_opened();
        world.until(|| flood.count_opened() >= opened + PER_TICK).await;
        let host = Host::new(&number.to_string());
        world.connect(None).await.register(&host, "token").await.unwrap();
        let chain = host.certificate(&world.authority, Role::Installed);
        let mut link = world.connect(Some((&host, &chain))).await;
        let stream = link.attach(Host::hello("boot-1")).await.unwrap();
        links.push((link, stream));
    }
    world.until(|| world.context().sessions.count_sessions() == HOSTS).await;
    world.expect_metric("connection_failures", "SourceHandshakes").await;
    let counted = world.metrics();
    assert!(!counted.contains("reason=\"SourceAnonymous\""), "{counted}");
}

/// Calls of each kind: more than any burst.
const CALLS: usize = 200;

/// How many of the calls are not answered with "too many".
async fn count_accepted<T>(mut call: impl AsyncFnMut(usize) -> Result<T, Status>) -> usize {
    let mut accepted = 0;
    for number in 0..CALLS {
        match call(number).await {
            Err(status) if status.code() == Code::ResourceExhausted => {}
            Ok(_) | Err(_) => accepted += 1,
        }
    }
    accepted
}

/// Makes every call as often as it can, each kind on a connection of its own.
async fn call_without_pause(world: &World, host: &Host, chain: &str) {
    let start = tokio::time::Instant::now();
    let link = || world.connect(Some((host, chain)));
    let (mut observed, mut install, mut step) = (link().await, link().await, link().await);
    let (mut renew, mut register, mut attach) = (link().await, link().await, link().await);
    let accepted: [usize; 6] = tokio::join!(
        count_accepted(async |call| observed.report_observed(network_of(call)).await),
        count_accepted(async |_| install.report_install(Host::installed()).await),
        count_accepted(async |_| step.report_step(wire::StepReport::default()).await),
        count_accepted(async |_| renew.renew(host, "boot-1").await),
        count_accepted(async |_| register.register(host, "token").await),
        // Each ends the stream before it.
        count_accepted(async |_| attach.attach(Host::hello("boot-1")).await),
    )
    .into();
    // Bursts, and what the rates allow meanwhile.
    let seconds = usize::try_from(start.elapsed().as_secs()).unwrap() + 1;
    let slow = 12 + seconds / 10;
    let most = [slow, 24 + seconds / 5, 120 + seconds * 2, slow, slow, 30 + seconds / 2];
    assert!(accepted.iter().zip(most).all(|(accepted, most)| *accepted <= most), "{accepted:?} {most:?}");
    assert!(accepted[0] >= 12 && accepted[2] >= 120, "{accepted:?}");
}

fn network_of(call: usize) -> wire::ObservedNetwork {
    Host::network(&format!("192.0.2.{}/24", call % 250 + 1))
}

async fn finish_other_host(world: &World) {
    let host = Host::new("b");
    world.connect(None).await.register(&host, "token").await.unwrap();
    let chain = host.certificate(&world.authority, Role::Installed);
    let mut link = world.connect(Some((&host, &chain))).await;
    let _stream = link.attach(Host::hello("boot-1")).await.unwrap();
    link.report_install(Host::installed()).await.unwrap();
    link.report_observed(Host::network("192.0.2.1/24")).await.unwrap();
    world.until(|| world.context().sessions.contains_host(&host.host_key())).await;
}

// Fault: a host with a valid certificate makes every call as fast as it can.
// Shown: metric; its calls are refused, another host finishes its plan.
#[test]
fn host_at_full_rate_leaves_another_undisturbed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let log = crate::rpc::log::capture_log(|| {
        runtime.block_on(async {
            let world = World::start().await;
            let host = Host::new("a");
            world.connect(None).await.register(&host, "token").await.unwrap();
            let chain = host.certificate(&world.authority, Role::Installed);
            world.settled("m-a").await;
            world.spent().await;
            tokio::join!(call_without_pause(&world, &host, &chain), finish_other_host(&world));
            world.expect_metric("connection_failures", "HostCalls").await;
            let counts = world.spent().await;
            // Six kinds of calls.
            assert!(counts.requests < 2 * CALLS, "{counts}");
        });
    });
    assert!(log.lines().count() < CALLS, "{log}");
}

/// Calls until one is refused; `None` if all are answered.
async fn find_refused(calls: usize, mut call: impl AsyncFnMut() -> Result<(), Status>) -> Option<usize> {
    for number in 0..calls {
        if call().await.is_err() {
            return Some(number);
        }
    }
    None
}

// Fault: a host with a valid certificate sends more requests or bytes than any agent does, to a call without a limit
// of its own.
// Shown: metric by reason; its calls are refused before a message is decoded, another host's are not.
#[tokio::test]
async fn requests_and_bytes_of_a_host_are_counted() {
    let world = World::start().await;
    let attached = async |name: &str| {
        let host = Host::new(name);
        let chain = host.certificate(&world.authority, Role::Installed);
        world.connect(Some((&host, &chain))).await
    };
    let mut link = attached("a").await;
    let refused = find_refused(5000, async || match link.get("/nothing").await.0 {
        429 => Err(Status::resource_exhausted("")),
        _ => Ok(()),
    });
    let refused = refused.await.unwrap();
    assert!(refused >= 2400, "{refused}: a burst is allowed");
    world.expect_metric("connection_failures", "HostRequests").await;
    // Reports of another host, each within the limit of its message.
    let mut link = attached("b").await;
    let report = wire::StepReport { plan_id: "x".repeat(60 << 10), ..Default::default() };
    let refused = find_refused(1000, async || match link.report_step(report.clone()).await {
        Err(status) if status.code() == Code::Unknown => Err(status),
        _ => Ok(()),
    });
    let refused = refused.await.unwrap();
    assert!((8192 / 61..300).contains(&refused), "{refused}: a burst of 8 MiB is allowed");
    assert_ne!(attached("c").await.get("/nothing").await.0, 429);
}
