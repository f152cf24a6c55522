//! Upgrades that outlive their agent, are cut off, or end in a fallback.

use std::time::Duration;

use agent::plan::executor::Advance;
use proto::v1alpha1::step_report::Outcome as Reported;

use super::plans::reprovision;
use super::{Host, V2};

#[tokio::test(start_paused = true)]
async fn an_upgrade_outliving_its_agent_is_awaited() {
    let host = Host::new();
    let mut executor = host.executor();
    let plan = reprovision(1);
    executor.accept(plan.clone()).unwrap();
    for _ in 0..4 {
        let Advance::Report(report) = executor.advance().await.unwrap() else { panic!() };
        executor.reported(&report).unwrap();
    }
    // The agent dies while its job runs on.
    host.simulated.detach_upgrade().unwrap();
    let dies = tokio::time::timeout(Duration::from_secs(1), executor.advance());
    assert!(dies.await.is_err() && host.simulated.has_job());
    let mut restarted = host.executor();
    restarted.accept(plan).unwrap();
    let Advance::Report(report) = restarted.advance().await.unwrap() else { panic!() };
    assert!(matches!(report.outcome, Some(Reported::Done(_))), "{report:?}");
    let upgrades = host.simulated.effects().iter().filter(|effect| effect.starts_with("upgrade")).count();
    assert_eq!(upgrades, 1);
}

#[tokio::test(start_paused = true)]
async fn upgrade_interrupted_after_fallback_is_repeated() {
    let host = Host::new();
    host.simulated.spoil_image(V2).unwrap();
    host.play(&reprovision(1)).await;
    // The state names the failed snapshot as the next one, and the agent dies
    // while it pulls the same image for another plan.
    let mut executor = host.executor();
    let plan = reprovision(2);
    executor.accept(plan.clone()).unwrap();
    for _ in 0..4 {
        let Advance::Report(report) = executor.advance().await.unwrap() else { panic!() };
        executor.reported(&report).unwrap();
    }
    host.simulated.hang("upgrade").unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(1), executor.advance()).await.is_err());
    let mut restarted = host.executor();
    restarted.accept(plan).unwrap();
    restarted.advance().await.unwrap();
    let upgrades = host.simulated.effects().iter().filter(|effect| effect.starts_with("upgrade")).count();
    assert_eq!(upgrades, 2, "{:?}", host.simulated.effects());
}

#[tokio::test(start_paused = true)]
async fn no_node_joins_after_a_fallback() {
    let host = Host::new();
    host.simulated.spoil_image(V2).unwrap();
    host.play(&reprovision(1)).await;
    let effects = host.simulated.effects();
    assert!(!effects.iter().any(|effect| effect.starts_with("node joins")), "{effects:?}");
}
