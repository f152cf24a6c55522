//! The persistent partition of a host, which the node's programs share with the agent, is full or read-only.

use std::fs::{self, File};
use std::future::Future;
use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use coordinator_api::conditions::{Reason, Type};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use scenarios::{MEMORY, World};

const NONE: Option<&str> = None;
const SIZE: &str = "size=16m";

/// Plays a test whose hosts share a file system of 16 MiB.
fn on_small_disk<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send) {
    let in_namespace = || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
        mount(Some("tmpfs"), Path::new(MEMORY), Some("tmpfs"), MsFlags::empty(), Some(SIZE)).unwrap();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().unwrap().block_on(test());
    };
    thread::scope(|scope| scope.spawn(in_namespace).join()).unwrap();
}

fn fill_disk(file: &Path) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let mut file = File::create(file).unwrap();
    let mut written = 0;
    for size in [65_536, 512] {
        while file.write_all(&vec![1; size]).is_ok() {
            written += size;
            assert!(written < 32 << 20, "this is not the small disk");
        }
    }
}

fn is_told(world: &World) -> bool {
    let state = world.host_condition("host-1", Type::StateWritable);
    state.is_some_and(|state| state.reason == Reason::StateUnwritable.as_str())
}

// Fault: the persistent partition of a host is full for a week.
// Shown: condition `StateWritable` of the MachineInventory: `StateUnwritable`, with the cause; the host stays attached,
// and the clean after the release frees the space.
#[test]
fn a_full_partition_keeps_the_line() {
    on_small_disk(|| async {
        let world = World::with_hosts(&["host-1"]).await;
        world.apply_machine("m-1").await;
        world.wait_running("m-1").await;
        let disk = world.host("host-1").disk();
        let ready_since = world.host_condition("host-1", Type::Ready).unwrap().last_transition_time;
        world.advance_time(Duration::from_mins(2)).await;
        assert!(disk.state().ballast().exists());
        fill_disk(&disk.join("/var/lib/kubelet/pods/1/volumes/data"));
        world.wait_until("the operator is told", is_told).await;
        world
            .expect_why(
                "machineinventory/host-1",
                Reason::StateUnwritable,
                "free space on the host's persistent partition",
                "the clean of a Machine that is deleted frees the space",
            )
            .await;
        let log = world.log().len();
        for hour in 1..=7 * 24 {
            world.advance_time(Duration::from_hours(1)).await;
            let ready = world.host_condition("host-1", Type::Ready).unwrap();
            assert_eq!(ready.last_transition_time, ready_since, "after {hour} hours: {ready:?}");
        }
        assert!(!world.log()[log..].contains("host registered"), "it never registered again");
        world.delete_machine("m-1").await;
        world.wait_until("the host is cleaned", |world| world.is_available("host-1")).await;
        world
            .wait_until("there is space", |world| {
                world.host_condition("host-1", Type::StateWritable).is_none()
            })
            .await;
        assert!(disk.state().ballast().exists(), "made again");
        world.check_invariants().await;
    });
}

// Fault: the persistent partition of a host is read-only for longer than a certificate is valid.
// Shown: condition `StateWritable` of the MachineInventory: `StateUnwritable`, with the cause; the host stays attached.
#[test]
fn a_read_only_partition_keeps_the_line() {
    on_small_disk(|| async {
        let world = World::with_hosts(&["host-1"]).await;
        let ready_since = world.host_condition("host-1", Type::Ready).unwrap().last_transition_time;
        let remount = |flags: MsFlags| {
            mount(NONE, Path::new(MEMORY), NONE, MsFlags::MS_REMOUNT | flags, Some(SIZE)).unwrap();
        };
        remount(MsFlags::MS_RDONLY);
        world.wait_until("the operator is told", is_told).await;
        world
            .expect_why(
                "machineinventory/host-1",
                Reason::StateUnwritable,
                "check the host's disk, its file system is read-only",
                "free space or repair the disk",
            )
            .await;
        for hour in 1..=30 {
            world.advance_time(Duration::from_hours(1)).await;
            let ready = world.host_condition("host-1", Type::Ready).unwrap();
            assert_eq!(ready.last_transition_time, ready_since, "after {hour} hours: {ready:?}");
        }
        remount(MsFlags::empty());
        world
            .wait_until("it is writable", |world| {
                world.host_condition("host-1", Type::StateWritable).is_none()
            })
            .await;
        world.expect_nothing("machineinventory/host-1").await;
        world.check_invariants().await;
    });
}
