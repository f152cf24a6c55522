//! What a person deletes first does not matter: Cluster API's real manager and
//! its finalizers agree with ours.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod simulated;

use std::sync::Arc;

use e2e::metal::{Metal, Simulated};
use e2e::play::Play;
use e2e::progress::Progress;
use e2e::serve::serve;
use e2e::stage::{Reach, Stage};
use simulated::{base_iso, blame};

async fn play(stage: &Stage, progress: &Arc<Progress>) -> anyhow::Result<()> {
    let base = serve(base_iso(stage.directory.path())).await?;
    let mut metal = Metal::Simulated(Simulated::new(stage.workload.clone())?);
    let mut play = Play::new(stage, &mut metal, progress.clone());
    let iso = play.seed(&base).await?;
    let inventory = play.register(&iso).await?;
    play.cluster(&inventory).await?;
    play.node(&inventory, 0).await?;
    play.delete_cluster().await?;
    play.free(&inventory).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_deleted_first_gives_its_hosts_back_clean() {
    let progress = Arc::new(Progress::default());
    let stage = Stage::set(Reach::Loopback, &progress).await.unwrap();
    if let Err(error) = play(&stage, &progress).await {
        blame(&stage, &progress, &error);
    }
}
