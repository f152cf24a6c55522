//! The same story while something keeps breaking.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod simulated;

use std::sync::Arc;
use std::time::Duration;

use e2e::metal::{Metal, Simulated};
use e2e::play::Play;
use e2e::progress::Progress;
use e2e::serve::serve;
use e2e::stage::{Reach, Stage};
use simulated::{base_iso, blame};

/// Longer than the lease: each new coordinator leads before it dies too.
const LIFE: Duration = Duration::from_secs(9);

async fn played_while(disturb: impl AsyncFn(&Stage)) {
    let progress = Arc::new(Progress::default());
    let stage = Stage::set(Reach::Loopback, &progress).await.unwrap();
    let base = serve(base_iso(stage.directory.path())).await.unwrap();
    let mut metal = Metal::Simulated(Simulated::new(stage.workload.clone()).unwrap());
    let play = Play::new(&stage, &mut metal, progress.clone());
    let played = tokio::select! {
        played = Box::pin(play.all(&base)) => played,
        () = async { disturb(&stage).await; std::future::pending().await } => unreachable!(),
    };
    if let Err(error) = played {
        blame(&stage, &progress, &error);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_story_ends_well_although_the_coordinator_keeps_dying() {
    played_while(async |stage| {
        loop {
            tokio::time::sleep(LIFE).await;
            stage.restart_coordinator().await.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_story_ends_well_although_the_api_server_is_away_for_a_minute() {
    played_while(async |stage| {
        tokio::time::sleep(LIFE).await;
        stage.management.pause_api_server().unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        stage.management.resume_api_server().unwrap();
    })
    .await;
}
