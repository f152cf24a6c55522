//! Runs the lifecycle live, with a host in QEMU or in User Mode Linux.

use std::process::ExitCode;
use std::sync::Arc;

use ::guest::{Image, ImageInputs};
use anyhow::Context as _;
use clap::Parser;
use control_plane::directory::Directory;
use control_plane::parts::Part;
use e2e::control_planes::metal3::kinds;
use e2e::environment::{Environment, Reach};
use e2e::host::{GuestHost, Host as _, HostKind};
use e2e::lifecycle::{Lifecycle, Proof};
use e2e::program::{print_proof, run_to_end, stopped};
use e2e::progress::Progress;
use e2e::serve::serve;
use e2e::switch::{self, DhcpServer};
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
    /// Run the host in QEMU or in User Mode Linux, which has no TPM.
    #[arg(long, value_enum, default_value_t = HostKind::Qemu)]
    host: HostKind,
    /// By the kinds of Metal3, with a host that names the inventory.
    #[arg(long)]
    metal3: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A host in User Mode Linux is in a network namespace, which is entered before there is a thread.
    let entered = if arguments.host == HostKind::Uml { switch::enter() } else { Ok(()) };
    match entered.and_then(|()| Ok(tokio::runtime::Runtime::new()?)) {
        Ok(runtime) => runtime.block_on(run(&arguments)),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> ExitCode {
    let progress = Arc::new(Progress::default());
    let work = async |directory| Box::pin(demo(arguments, &directory, &progress)).await;
    let Some((environment, host, _dhcp)) = run_to_end("demo", &progress, work).await else {
        return ExitCode::FAILURE;
    };
    if arguments.keep {
        print_access(arguments.host, &environment, &host);
        stopped().await;
    }
    ExitCode::SUCCESS
}

async fn demo(
    arguments: &Arguments,
    directory: &Arc<Directory>,
    progress: &Arc<Progress>,
) -> anyhow::Result<(Environment, GuestHost, Option<DhcpServer>)> {
    let inputs = ImageInputs::from_env()
        .context("AGENT, KUBERNETES_BIN and CONTAINERD_BIN are not set: run `make demo`")?;
    let inputs = arguments.host.adapt(inputs);
    progress.step("base ISO and OS images");
    let base = ::guest::build(Image::Iso, &inputs).await?;
    let reach = match arguments.host {
        HostKind::Qemu => Reach::Guests,
        HostKind::Uml => Reach::Segments,
    };
    let dhcp = if reach == Reach::Segments { Some(switch::create_segments(directory.path())?) } else { None };
    let environment = if arguments.metal3 {
        Environment::start_for_metal3(directory.clone(), reach, progress).await?
    } else {
        Environment::start_in(directory.clone(), reach, &[], progress).await?
    };
    let admin = &environment.management.admin;
    let mut watching = Watching::start(admin, progress);
    for kind in kinds().iter().filter(|_| arguments.metal3) {
        watching = watching.with(admin, kind, progress);
    }
    let base = serve(base).await?;
    let host = GuestHost::new(&environment, &inputs).await?;
    let mut host = if arguments.software_key { host.without_tpm() } else { host };
    let lifecycle = Lifecycle::new(&environment, &mut host, progress.clone());
    let result =
        if arguments.metal3 { lifecycle.run_metal3(&base).await } else { lifecycle.run(&base).await };
    drop(watching);
    let proof = result?;
    progress.end();
    progress.finish();
    print_proof(&proof.proven, progress);
    print_requests(&proof);
    Ok((environment, host, dhcp))
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

fn print_access(kind: HostKind, environment: &Environment, host: &GuestHost) {
    let kubectl = environment.parts.path(Part::Kubectl).map(|path| path.display().to_string());
    let kubectl = kubectl.unwrap_or_else(|_| "kubectl".to_owned());
    println!("\nEverything runs until Ctrl-C. In another terminal:");
    if kind == HostKind::Uml {
        println!("  nsenter --net --target {}", std::process::id());
    }
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
