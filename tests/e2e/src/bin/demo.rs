//! Plays the story live, with a QEMU host.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ::qemu::{Image, ImageInputs};
use anyhow::Context as _;
use clap::Parser;
use control_plane::directory::Directory;
use control_plane::parts::Part;
use e2e::metal::{Metal, Qemu};
use e2e::play::{Play, Proof};
use e2e::progress::Progress;
use e2e::serve::serve;
use e2e::stage::{Reach, Stage};
use e2e::watching::Watching;

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
    let directory = match Directory::temporary() {
        Ok(directory) => Arc::new(directory),
        Err(error) => {
            eprintln!("The demo needs a temporary directory: {error}");
            return ExitCode::FAILURE;
        }
    };
    // Whatever ends it, dropping the stage ends every process.
    let played = tokio::select! {
        played = Box::pin(demo(&directory, &progress)) => played,
        () = stopped() => Err(anyhow::anyhow!("stopped by a signal")),
    };
    progress.finish();
    match played {
        Ok((stage, metal)) => {
            if arguments.keep {
                look_around(&stage, &metal);
                stopped().await;
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("\nThe demo did not come to its end. In step {:?}:\n{error:#}", progress.current());
            match keep_logs(directory.path()) {
                Ok(logs) => eprintln!("\nThe logs are in {}", logs.display()),
                Err(error) => eprintln!("\nThe logs could not be kept: {error:#}"),
            }
            ExitCode::FAILURE
        }
    }
}

/// Ctrl-C, a closed terminal, or a polite kill.
async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let wait = async |kind| match signal(kind) {
        Ok(mut signal) => drop(signal.recv().await),
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::hangup()) => {}
    }
}

async fn demo(directory: &Arc<Directory>, progress: &Arc<Progress>) -> anyhow::Result<(Stage, Metal)> {
    let inputs = ImageInputs::from_env()
        .context("AGENT, KUBERNETES_BIN and CONTAINERD_BIN are not set: run `make demo`")?;
    progress.step("base ISO and OS images");
    let base = ::qemu::build(Image::Iso, &inputs).await?;
    let stage = Stage::set_in(directory.clone(), Reach::Guests, progress).await?;
    let watching = Watching::start(&stage.admin, progress);
    let base = serve(base).await?;
    let mut metal = Metal::Qemu(Box::new(Qemu::new(&stage, &inputs).await?));
    let played = Play::new(&stage, &mut metal, progress.clone()).all(&base).await;
    drop(watching);
    told(&played?, progress);
    Ok((stage, metal))
}

fn told(proof: &Proof, progress: &Progress) {
    progress.end();
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
        "\nAPI: from registration to release the coordinator sent {} requests, {} of them writes, and {events} events; it renewed {} watches.",
        proof.lifecycle.requests - economy - events - proof.lifecycle.watches,
        proof.lifecycle.writes - lease("patch") - lease("update") - events,
        proof.lifecycle.watches
    );
}

/// The stage's directory goes with the stage: what a person needs is copied.
fn keep_logs(directory: &Path) -> anyhow::Result<PathBuf> {
    let kept = std::env::temp_dir().join(format!("baremetal-demo-{}", std::process::id()));
    std::fs::create_dir_all(&kept)?;
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in std::fs::read_dir(next)? {
            let path = entry?.path();
            let is_log = path.extension().is_some_and(|extension| extension == "log");
            if path.is_dir() && !path.is_symlink() {
                pending.push(path);
            } else if is_log && let Ok(name) = path.strip_prefix(directory) {
                std::fs::copy(&path, kept.join(name.to_string_lossy().replace('/', "-")))?;
            }
        }
    }
    Ok(kept)
}

fn look_around(stage: &Stage, metal: &Metal) {
    let kubectl = stage.parts.path(Part::Kubectl).map(|path| path.display().to_string());
    let kubectl = kubectl.unwrap_or_else(|_| "kubectl".to_owned());
    println!("\nEverything runs until Ctrl-C. In another terminal:");
    println!("  alias kubectl={kubectl}");
    println!("  export KUBECONFIG={}", stage.management.admin_kubeconfig().display());
    println!("  kubectl get machineregistrations,seedimages,machineinventories,mip,bmc,bmm,machines -A");
    println!("the workload cluster:");
    println!(
        "  kubectl --kubeconfig {} get nodes --show-labels",
        stage.workload.control_plane().admin_kubeconfig().display()
    );
    println!("the host's console: {}", metal.log());
}
