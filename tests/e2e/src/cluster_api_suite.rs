//! Cluster API's own specs on simulated hosts: what they need around them, and the program that runs
//! them.

mod certificates;
mod flavors;
mod hosts;
mod output;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use control_plane::Clusterctl;
use control_plane::parts::Part;
use tokio::process::Command;

use crate::environment::Environment;
use crate::progress::Progress;
use crate::provider;
use crate::serve::{create_base_iso, serve};

/// What the image catalog of the suite has.
const CATALOG: &str = include_str!("../manifests/suite/image-catalog.yaml");

/// Which specs run, and what is kept of them.
#[derive(Clone, Debug)]
pub struct Choice {
    /// A regular expression of their names; all where there is none.
    pub specs: Option<String>,
    /// Logs and objects of their clusters are written there.
    pub artifacts: PathBuf,
}

/// Runs the specs of `choice`, and has hosts register where they ask for some.
///
/// # Errors
/// When a spec fails, or what is around them.
pub async fn run(environment: &Environment, progress: &Arc<Progress>, choice: &Choice) -> anyhow::Result<()> {
    environment.management.apply(CATALOG).await?;
    progress.step("clusterctl installs the provider with the templates of the suite");
    let mut release = provider::release()?;
    release.extend(flavors::render(environment).await?);
    let clusterctl = provider::install(environment, &environment.management, &release, &[]).await?;
    let base = serve(create_base_iso(environment.directory.path()).await?).await?;
    let program = environment.parts.path(Part::ClusterApiSuite)?;
    let log = environment.directory.path().join("specs.log");
    let mut specs = command(environment, &program, &clusterctl, choice)?;
    let errors = File::options().create(true).append(true).open(&log)?;
    specs.stdout(Stdio::piped()).stderr(errors);
    progress.step("Cluster API's own specs");
    let mut specs = specs.spawn().context("run the specs")?;
    let output = specs.stdout.take().context("the specs have no output")?;
    let finish = async {
        output::follow(output, &log, progress).await?;
        anyhow::Ok(specs.wait().await?)
    };
    let ended = tokio::select! {
        ended = finish => ended.context("follow the specs")?,
        ended = hosts::provide(environment, progress, &base) => {
            return ended.context("have hosts register for a spec");
        }
        ended = certificates::state_expiry(&environment.management.admin) => {
            return ended.context("stand for the certificates of control planes");
        }
    };
    ensure!(ended.success(), "specs failed; objects and logs are in {}", choice.artifacts.display());
    Ok(())
}

fn command(
    environment: &Environment,
    program: &Path,
    clusterctl: &Clusterctl,
    choice: &Choice,
) -> anyhow::Result<Command> {
    let endpoint = environment.workload.endpoint();
    let home = environment.directory.path().join("suite");
    std::fs::create_dir_all(&home)?;
    std::fs::create_dir_all(&choice.artifacts)?;
    let mut command = Command::new(program);
    command
        .arg("--management")
        .arg(environment.management.control_plane.admin_kubeconfig())
        .arg("--clusterctl-config")
        .arg(clusterctl.configuration())
        .arg("--artifacts")
        .arg(&choice.artifacts)
        .args(["--ginkgo.v", "--ginkgo.no-color", "--ginkgo.fail-on-empty"])
        // Variables of the templates.
        .env("CONTROL_PLANE_ENDPOINT_HOST", endpoint.ip().to_string())
        .env("CONTROL_PLANE_ENDPOINT_PORT", endpoint.port().to_string())
        .env("HOME", &home)
        .env("XDG_CONFIG_HOME", &home)
        .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
        .kill_on_drop(true);
    if let Some(specs) = &choice.specs {
        command.arg(format!("--ginkgo.focus={specs}"));
    }
    Ok(command)
}
