//! Runs a cluster of QEMU hosts: made, upgraded, deleted.

use std::process::ExitCode;
use std::sync::Arc;

use ::qemu::{Image, ImageInputs};
use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use control_plane::directory::Directory;
use control_plane::parts::{Module, Part};
use e2e::cluster_of_hosts::{ClusterOfHosts, Endpoint, Hosts, first_failure, taps};
use e2e::control_planes::control_plane_kind;
use e2e::program::{print_proof, run_to_end, stopped};
use e2e::progress::Progress;
use e2e::serve::serve;
use e2e::site::{Managers, Reach, Served, Site};
use e2e::switch;
use e2e::watching::Watching;

/// Control planes and a worker of QEMU hosts, by docs/examples/ and Cluster API's
/// managers.
#[derive(Parser)]
struct Arguments {
    /// Leave everything running at the end, or after a failure, and print how to inspect it.
    #[arg(long)]
    keep: bool,
    /// The hosts hold the address of the endpoint; there is no load balancer.
    #[arg(long)]
    internal_endpoint: bool,
    /// What happens to the cluster before it is deleted.
    #[arg(long, value_enum, default_value_t = Change::Upgrade)]
    change: Change,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Change {
    /// Nothing.
    None,
    /// Both roles are upgraded.
    Upgrade,
    /// The control plane is scaled to three hosts, of which one loses its power.
    Scale,
}

impl Change {
    /// How many hosts run then.
    fn count_hosts(self) -> usize {
        match self {
            Self::None => 2,
            Self::Upgrade => 3,
            Self::Scale => 4,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Before there is a thread.
    let started = switch::enter().and_then(|()| Ok(tokio::runtime::Runtime::new()?));
    match started {
        Ok(runtime) => runtime.block_on(run(&arguments)),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> ExitCode {
    let progress = Arc::new(Progress::default());
    let work = async |directory| run_cluster(arguments, &directory, &progress).await;
    let Some(proven) = run_to_end("e2e", &progress, work).await else {
        return ExitCode::FAILURE;
    };
    print_proof(&proven, &progress);
    ExitCode::SUCCESS
}

async fn run_cluster(
    arguments: &Arguments,
    directory: &Arc<Directory>,
    progress: &Arc<Progress>,
) -> anyhow::Result<Vec<String>> {
    let inputs = ImageInputs::from_env()
        .context("AGENT, KUBERNETES_BIN and CONTAINERD_BIN are not set: run `make e2e`")?;
    progress.step("base ISO and OS images");
    let base = ::qemu::build(Image::Iso, &inputs).await?;
    let images = ::qemu::build(Image::Cluster, &inputs).await?;
    switch::create(&taps(), None)?;
    let site =
        Site::start(directory.clone(), Reach::Switch, Served::default(), Managers::Kubeadm, progress).await?;
    let client = &site.management.admin;
    let watching = Watching::start(client, progress).with(client, &control_plane_kind(), progress);
    let base = serve(base).await?;
    let hosts = Hosts::create(&site, progress, &base, &images, arguments.change.count_hosts()).await?;
    let endpoint = if arguments.internal_endpoint { Endpoint::Internal } else { Endpoint::External };
    let release = first_release(arguments);
    let mut cluster = ClusterOfHosts::create(&site, progress, hosts, endpoint, release).await?;
    let ended = tokio::select! {
        ended = run_phases(arguments, &mut cluster, release) => ended,
        failure = first_failure(client) => Err(failure),
    };
    drop(watching);
    if let Err(error) = &ended {
        eprintln!("\nIn step {:?}: {error:#}\n{}", progress.current(), cluster.hosts.explain().await);
    }
    if arguments.keep {
        print_access(&site, &cluster.hosts);
        stopped().await;
    }
    progress.end();
    ended.map(|()| cluster.proven)
}

/// Without an upgrade the images have one release alone.
fn first_release(arguments: &Arguments) -> &'static str {
    match arguments.change {
        Change::Upgrade => Module::EarlierKubernetes.version(),
        Change::None | Change::Scale => Module::Kubernetes.version(),
    }
}

async fn run_phases(
    arguments: &Arguments,
    cluster: &mut ClusterOfHosts<'_>,
    release: &str,
) -> anyhow::Result<()> {
    cluster.apply().await?;
    cluster.await_initialized().await?;
    if arguments.change == Change::Scale {
        cluster.scale_control_plane().await?;
    }
    cluster.register_worker().await?;
    cluster.await_available(release, release).await?;
    match arguments.change {
        Change::None => cluster.restore_etcd(release).await?,
        Change::Upgrade => {
            cluster.restore_etcd(release).await?;
            cluster.upgrade().await?;
        }
        Change::Scale => cluster.lose_control_plane().await?,
    }
    cluster.delete().await
}

fn print_access(site: &Site, hosts: &Hosts<'_>) {
    let kubectl = site.parts.path(Part::Kubectl).map(|path| path.display().to_string());
    println!("\nEverything runs until Ctrl-C. In another terminal, as root:");
    println!("  nsenter --net --target {}", std::process::id());
    println!("  alias kubectl={}", kubectl.unwrap_or_else(|_| "kubectl".to_owned()));
    println!("  export KUBECONFIG={}", site.management.control_plane.admin_kubeconfig().display());
    println!("  kubectl get clusters,kubeadmcontrolplanes,machines,bmm,machineinventories -A");
    for console in hosts.consoles() {
        println!("a host's console: {}", console.display());
    }
}
