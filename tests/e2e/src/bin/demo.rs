//! Runs the lifecycle live, with a QEMU host.

use std::process::ExitCode;
use std::sync::Arc;

use ::qemu::{Image, ImageInputs};
use anyhow::Context as _;
use clap::Parser;
use control_plane::directory::Directory;
use control_plane::parts::Part;
use e2e::control_planes::metal3::kinds;
use e2e::environment::{Environment, Reach};
use e2e::host::{Host, Qemu};
use e2e::lifecycle::{Lifecycle, Proof};
use e2e::program::{print_proof, run_to_end, stopped};
use e2e::progress::Progress;
use e2e::serve::serve;
use e2e::watching::Watching;

/// A host boots a seed ISO, becomes a Kubernetes Node, and comes back.
#[derive(Parser)]
struct Arguments {
    /// Leave everything running at the end, and print how to inspect it.
    #[arg(long)]
    keep: bool,
    /// Give the host no TPM: it registers with a software key.
    #[arg(long)]
    software_key: bool,
    /// By the kinds of Metal3, with a host that names the inventory.
    #[arg(long)]
    metal3: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let progress = Arc::new(Progress::default());
    let work = async |directory| demo(&arguments, &directory, &progress).await;
    let Some((environment, host)) = run_to_end("demo", &progress, work).await else {
        return ExitCode::FAILURE;
    };
    if arguments.keep {
        print_access(&environment, &host);
        stopped().await;
    }
    ExitCode::SUCCESS
}

async fn demo(
    arguments: &Arguments,
    directory: &Arc<Directory>,
    progress: &Arc<Progress>,
) -> anyhow::Result<(Environment, Host)> {
    let inputs = ImageInputs::from_env()
        .context("AGENT, KUBERNETES_BIN and CONTAINERD_BIN are not set: run `make demo`")?;
    progress.step("base ISO and OS images");
    let base = ::qemu::build(Image::Iso, &inputs).await?;
    let environment = if arguments.metal3 {
        Environment::start_for_metal3(directory.clone(), Reach::Guests, progress).await?
    } else {
        Environment::start_in(directory.clone(), Reach::Guests, &[], progress).await?
    };
    let admin = &environment.management.admin;
    let mut watching = Watching::start(admin, progress);
    for kind in kinds().iter().filter(|_| arguments.metal3) {
        watching = watching.with(admin, kind, progress);
    }
    let base = serve(base).await?;
    let qemu = Qemu::new(&environment, &inputs).await?;
    let qemu = if arguments.software_key { qemu.without_tpm() } else { qemu };
    let mut host = Host::Qemu(Box::new(qemu));
    let lifecycle = Lifecycle::new(&environment, &mut host, progress.clone());
    let result =
        if arguments.metal3 { lifecycle.run_metal3(&base).await } else { lifecycle.run(&base).await };
    drop(watching);
    let proof = result?;
    progress.end();
    progress.finish();
    print_proof(&proof.proven, progress);
    print_requests(&proof);
    Ok((environment, host))
}

fn print_requests(proof: &Proof) {
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

fn print_access(environment: &Environment, host: &Host) {
    let kubectl = environment.parts.path(Part::Kubectl).map(|path| path.display().to_string());
    let kubectl = kubectl.unwrap_or_else(|_| "kubectl".to_owned());
    println!("\nEverything runs until Ctrl-C. In another terminal:");
    println!("  alias kubectl={kubectl}");
    println!("  export KUBECONFIG={}", environment.management.control_plane.admin_kubeconfig().display());
    println!("  kubectl get machineregistrations,seedimages,machineinventories,mip,bmc,bmm,machines -A");
    println!("  kubectl get bmh,m3m,m3d,ippools,ipaddresses -A   # with METAL3=1");
    println!("the workload cluster:");
    println!(
        "  kubectl --kubeconfig {} get nodes --show-labels",
        environment.workload.control_plane().admin_kubeconfig().display()
    );
    println!("the host's console: {}", host.log());
}
