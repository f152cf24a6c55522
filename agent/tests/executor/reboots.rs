//! Reboots that a plan or an operator asks for.

use std::time::Duration;

use agent::host::observed;
use agent::plan::executor::Advance;

use super::Host;
use super::plans::{clean, reprovision};

#[tokio::test(start_paused = true)]
async fn first_reboot_is_orderly_and_next_forced() {
    let host = Host::new();
    host.simulated.hang("reboot").unwrap();
    let mut executor = host.executor();
    executor.accept(reprovision(1)).unwrap();
    for _ in 0..6 {
        let Advance::Report(report) = executor.advance().await.unwrap() else { panic!() };
        executor.reported(&report).unwrap();
    }
    // The agent dies after it has journaled the step, before it asks.
    assert!(tokio::time::timeout(Duration::from_secs(1), executor.advance()).await.is_err());
    for want in ["reboot Orderly", "reboot Forced"] {
        let mut restarted = host.executor();
        restarted.accept(reprovision(1)).unwrap();
        assert_eq!(restarted.advance().await.unwrap(), Advance::Rebooting);
        assert_eq!(host.simulated.effects().last().map(String::as_str), Some(want));
    }
}

#[tokio::test(start_paused = true)]
async fn an_ordered_reboot_ends_one_boot_between_plans() {
    let host = Host::new();
    let reboots = || host.simulated.effects().iter().filter(|effect| effect.starts_with("reboot")).count();
    let boot = || observed::boot_id(&host.root).unwrap();
    let mut executor = host.executor();
    executor.accept(clean(1)).unwrap();
    executor.order_reboot(boot());
    for _ in 0..7 {
        let Advance::Report(report) = executor.advance().await.unwrap() else { panic!() };
        assert_eq!(reboots(), 0, "the plan ends first");
        executor.reported(&report).unwrap();
    }
    let ordered = boot();
    assert_eq!(executor.advance().await.unwrap(), Advance::Rebooting);
    assert_eq!(host.simulated.effects().last().map(String::as_str), Some("reboot Orderly"));
    host.reboot();
    let mut executor = host.executor();
    executor.order_reboot(ordered);
    assert_eq!((executor.advance().await.unwrap(), reboots()), (Advance::Idle, 1), "that boot has ended");

    // A host that stays up is asked in each way, and left alone then.
    executor.order_reboot(boot());
    for _ in 0..3 {
        executor.order_reboot(boot());
        assert_eq!(executor.advance().await.unwrap(), Advance::Rebooting);
    }
    assert_eq!((executor.advance().await.unwrap(), reboots()), (Advance::Idle, 4));
}
