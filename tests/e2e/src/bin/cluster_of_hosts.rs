//! Runs a cluster of hosts in QEMU or in User Mode Linux: created, upgraded, deleted.

use std::process::ExitCode;
use std::sync::Arc;

use ::guest::{Image, ImageInputs};
use anyhow::{Context as _, ensure};
use clap::{Parser, ValueEnum};
use control_plane::directory::Directory;
use control_plane::parts::{Module, Part};
use e2e::cluster_of_hosts::{ClusterOfHosts, Endpoint, Hosts, first_failure, taps};
use e2e::control_planes::control_plane_kind;
use e2e::host::HostKind;
use e2e::program::{print_proof, run_to_end, stopped};
use e2e::progress::Progress;
use e2e::serve::serve;
use e2e::site::{Managers, Reach, Served, Site};
use e2e::switch;
use e2e::watching::Watching;

/// Control planes and a worker on hosts, by docs/examples/ and Cluster API's
/// managers.
#[derive(Parser)]
struct Arguments {
    /// Leave everything running at the end, or after a failure, and print how to inspect it.
    #[arg(long)]
    keep: bool,
    /// What runs the hosts.
    #[arg(long, value_enum, default_value_t = HostKind::Uml)]
    host: HostKind,
    /// The hosts hold the address of the endpoint; there is no load balancer.
    #[arg(long)]
    internal_endpoint: bool,
    /// Three hold their endpoint, lose hosts, are cut off, replaced and scaled.
    #[arg(long, default_value_t = 1)]
    control_planes: usize,
    /// Both roles are upgraded.
    #[arg(long)]
    upgrade: bool,
    /// How often the holder of the endpoint loses its power.
    #[arg(long, default_value_t = 20)]
    losses: usize,
    /// What three control planes go through, in the order given; all of it without this.
    #[arg(long, value_enum, value_delimiter = ',')]
    phases: Vec<Phase>,
}

/// What happens to three control planes.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Phase {
    /// The holder of the endpoint loses its power, again and again.
    Losses,
    /// The host with the leader of etcd loses its power.
    Leader,
    /// The holder of the endpoint is cut off from the others.
    Partition,
    /// All hosts lose their power at once.
    Power,
    /// Both roles are upgraded.
    Upgrade,
    /// A host that is lost for good is replaced.
    Replacement,
    /// The control plane is scaled to one and back.
    Scale,
}

impl Arguments {
    fn count_hosts(&self) -> usize {
        match (self.control_planes, self.upgrade) {
            (1, false) => 2,
            (1, true) => 3,
            _ => 5,
        }
    }

    /// Refuses what would be ignored.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.phases.is_empty() || self.control_planes > 1, "one control plane has no phases");
        // It needs images of two releases.
        ensure!(self.upgrade || !self.phases.contains(&Phase::Upgrade), "the phase upgrade needs --upgrade");
        Ok(())
    }

    fn list_phases(&self) -> Vec<Phase> {
        let all = if self.phases.is_empty() { Phase::value_variants() } else { &self.phases };
        all.iter().copied().filter(|phase| self.upgrade || *phase != Phase::Upgrade).collect()
    }

    /// Control planes that are several hold their endpoint.
    fn endpoint(&self) -> Endpoint {
        if self.internal_endpoint || self.control_planes > 1 {
            Endpoint::Internal
        } else {
            Endpoint::External
        }
    }

    /// Without an upgrade the images have one release alone.
    fn first_release(&self) -> &'static str {
        if self.upgrade { Module::EarlierKubernetes.version() } else { Module::Kubernetes.version() }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Before there is a thread.
    let started =
        arguments.check().and_then(|()| switch::enter()).and_then(|()| Ok(tokio::runtime::Runtime::new()?));
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
    let work = async |directory| Box::pin(run_cluster(arguments, &directory, &progress)).await;
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
    let inputs = arguments.host.adapt(inputs);
    progress.step("base ISO and OS images");
    let base = ::guest::build(Image::Iso, &inputs).await?;
    let images = ::guest::build(Image::Cluster, &inputs).await?;
    switch::create(&taps(), None)?;
    let site =
        Site::start(directory.clone(), Reach::Switch, Served::default(), Managers::Kubeadm, progress).await?;
    let client = &site.management.admin;
    let watching = Watching::start(client, progress).with(client, &control_plane_kind(), progress);
    let base = serve(base).await?;
    let hosts =
        Hosts::create(&site, progress, &base, &images, (arguments.host, arguments.count_hosts())).await?;
    let release = arguments.first_release();
    let shape = (arguments.control_planes, release);
    let mut cluster = ClusterOfHosts::create(&site, progress, hosts, arguments.endpoint(), shape).await?;
    let ended = tokio::select! {
        ended = run_phases(arguments, &mut cluster, release) => ended,
        failure = first_failure(client) => Err(failure),
    };
    drop(watching);
    if let Err(error) = &ended {
        eprintln!("\nIn step {:?}: {error:#}\n{}", progress.current(), cluster.hosts.explain().await);
        eprintln!("Proven before:\n{}", cluster.proven.join("\n"));
    }
    if arguments.keep {
        print_access(&site, &cluster.hosts);
        stopped().await;
    }
    ended?;
    progress.end();
    Ok(cluster.proven)
}

async fn run_phases(
    arguments: &Arguments,
    cluster: &mut ClusterOfHosts<'_>,
    release: &str,
) -> anyhow::Result<()> {
    cluster.apply().await?;
    cluster.await_initialized().await?;
    cluster.register_worker().await?;
    cluster.await_available(release, release).await?;
    if arguments.control_planes > 1 {
        for phase in arguments.list_phases() {
            run_phase(arguments, cluster, phase).await?;
        }
    } else {
        cluster.restore_etcd(release).await?;
        if arguments.upgrade {
            cluster.upgrade().await?;
        }
    }
    cluster.delete().await
}

async fn run_phase(
    arguments: &Arguments,
    cluster: &mut ClusterOfHosts<'_>,
    phase: Phase,
) -> anyhow::Result<()> {
    match phase {
        Phase::Losses => cluster.lose_holders(arguments.losses).await,
        Phase::Leader => cluster.lose_leader().await,
        Phase::Partition => cluster.partition_holder().await,
        Phase::Power => cluster.lose_all().await,
        Phase::Upgrade => cluster.upgrade().await,
        Phase::Replacement => cluster.replace_lost().await,
        Phase::Scale => cluster.scale_to_one_and_back().await,
    }
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
