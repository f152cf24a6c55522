//! Plays the story live, with a QEMU host.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser;
use lab::{Image, ImageInputs};
use story::metal::{Metal, Qemu};
use story::play::{Play, Proof};
use story::progress::Progress;
use story::serve::serve;
use story::stage::{Reach, Stage};
use story::watching::Watching;

/// A host boots a seed ISO, becomes a Kubernetes Node, and comes back.
#[derive(Parser)]
struct Arguments {
    /// Leave everything running at the end, and print how to look around.
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let progress = Arc::new(Progress::default());
    // Whatever ends it, dropping the stage ends every process.
    let played = tokio::select! {
        played = Box::pin(demo(&arguments, &progress)) => played,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("stopped by Ctrl-C")),
    };
    progress.finish();
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nThe demo failed in step {:?}:\n{error:#}", progress.current());
            ExitCode::FAILURE
        }
    }
}

async fn demo(arguments: &Arguments, progress: &Arc<Progress>) -> anyhow::Result<()> {
    let inputs = ImageInputs::from_env()
        .context("AGENT, KUBERNETES_BIN and CONTAINERD_BIN are not set: run `make demo`")?;
    progress.step("base ISO and OS images");
    let base = lab::build(Image::Iso, &inputs).await?;
    let stage = Stage::set(Reach::Guests, progress).await?;
    let watching = Watching::start(&stage.admin, progress);
    let base = serve(base).await?;
    let mut metal = Metal::Qemu(Box::new(Qemu::new(&stage, &inputs).await?));
    let played = Play::new(&stage, &mut metal, progress.clone()).all(&base).await;
    drop(watching);
    match played {
        Ok(proof) => told(&proof, progress),
        Err(error) => {
            let logs = keep_logs(&stage, &metal)?;
            return Err(error.context(format!("the logs are in {}", logs.display())));
        }
    }
    if arguments.keep {
        look_around(&stage, &metal).await;
    }
    Ok(())
}

fn told(proof: &Proof, progress: &Progress) {
    progress.finish();
    println!("\nProven:");
    for line in &proof.proven {
        println!("  ✓ {line}");
    }
    println!("\nSteps:");
    for (name, time) in progress.done() {
        println!("  {:>4} s  {name}", time.as_secs());
    }
    let lease = |verb| proof.lifecycle.of(verb, "leases");
    let economy = lease("patch") + lease("update") + lease("get");
    let events = proof.lifecycle.of("create", "events") + proof.lifecycle.of("patch", "events");
    println!(
        "\nAPI: from registration to release the coordinator sent {} requests, {} of them writes, and {events} events.",
        proof.lifecycle.requests - economy - events,
        proof.lifecycle.writes - lease("patch") - lease("update") - events
    );
}

/// The stage's directory goes with the stage: what a person needs is moved.
fn keep_logs(stage: &Stage, metal: &Metal) -> anyhow::Result<PathBuf> {
    let kept = std::env::temp_dir().join(format!("baremetal-demo-{}", std::process::id()));
    std::fs::create_dir_all(&kept)?;
    let coordinator = stage.directory.path().join("coordinator.log");
    for log in [coordinator, PathBuf::from(metal.log())] {
        if let (true, Some(name)) = (log.is_file(), log.file_name()) {
            std::fs::copy(&log, kept.join(name))?;
        }
    }
    Ok(kept)
}

async fn look_around(stage: &Stage, metal: &Metal) {
    println!("\nEverything runs until Ctrl-C. Look around with kubectl:");
    println!("  export KUBECONFIG={}", stage.management.admin_kubeconfig().display());
    println!("  kubectl get machineregistrations,seedimages,machineinventories,mip,bmc,bmm,machines -A");
    println!("the workload cluster:");
    println!(
        "  KUBECONFIG={} kubectl get nodes --show-labels",
        stage.workload.control_plane().admin_kubeconfig().display()
    );
    println!("the host's console: {}", metal.log());
    // The signal ends the demo from outside of this future.
    std::future::pending::<()>().await;
}
