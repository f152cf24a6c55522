//! `bundle image` writes the image of the coordinator, `bundle manifests` what `clusterctl` reads,
//! `bundle chart` the Helm chart, `bundle plugin` what krew installs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use bundle::archive::{Entry, gzip, tar};
use bundle::components::Sources;
use bundle::image::Image;
use bundle::plugin::{Package, Plugin};
use bundle::{IMAGE, VERSION};
use clap::{Args, Parser};

/// Makes what operators install.
#[derive(Parser)]
#[command(name = "bundle")]
enum Command {
    /// The image of the coordinator, as an archive of an OCI layout.
    Image(ImageArguments),
    /// A repository of `clusterctl` with this version of the provider, and alert rules and dashboard.
    Manifests {
        /// The directory of the repository: `infrastructure-baremetal/vVERSION` is written there, and
        /// `observability`.
        #[arg(long)]
        output: PathBuf,
    },
    /// The Helm chart as an archive.
    Chart {
        /// Directory for the archive; its path is printed.
        #[arg(long)]
        output: PathBuf,
    },
    /// The archive of `kubectl baremetal` and its krew manifest.
    Plugin(PluginArguments),
}

#[derive(Args)]
struct PluginArguments {
    /// The static plugin.
    #[arg(long)]
    program: PathBuf,
    /// Licences of what is linked into it.
    #[arg(long)]
    notices: PathBuf,
    /// Where the archive is served.
    #[arg(long)]
    url: String,
    /// Directory for both; their paths are printed.
    #[arg(long)]
    output: PathBuf,
}

#[derive(Args)]
struct ImageArguments {
    /// The static coordinator.
    #[arg(long)]
    coordinator: PathBuf,
    /// The static agent.
    #[arg(long)]
    agent: PathBuf,
    /// Licences of what is linked into both.
    #[arg(long)]
    notices: PathBuf,
    /// NAME:TAG under which the archive is loaded.
    #[arg(long, default_value = IMAGE)]
    reference: String,
    /// Commit that it was built from.
    #[arg(long)]
    revision: Option<String>,
    /// Directory for the archive; its path is printed.
    #[arg(long)]
    output: PathBuf,
}

/// Its name is that of the directory in the archive too.
const CHART: &str = "baremetal-coordinator";

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Image(arguments) => write_image(arguments),
        Command::Manifests { output } => write_manifests(&output),
        Command::Chart { output } => write_chart(&output),
        Command::Plugin(arguments) => write_plugin(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bundle: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn write_image(arguments: ImageArguments) -> anyhow::Result<()> {
    let ImageArguments { coordinator, agent, notices, reference, revision, output } = arguments;
    let image = Image {
        coordinator: read_file(&coordinator)?,
        agent: read_file(&agent)?,
        notices: read_file(&notices)?,
        reference,
        revision,
    };
    let archive = image.build()?;
    let name = format!("baremetal-coordinator-{VERSION}-{}.oci.tar", image.architecture()?);
    write_file(&output.join(name), &archive)
}

fn write_manifests(output: &Path) -> anyhow::Result<()> {
    let directory = output.join(format!("infrastructure-baremetal/v{VERSION}"));
    for (name, content) in Sources::of_checkout().repository()? {
        write_file(&directory.join(name), content.as_bytes())?;
    }
    for (name, content) in Sources::of_checkout().observability()? {
        write_file(&output.join(name), content.as_bytes())?;
    }
    Ok(())
}

fn write_chart(output: &Path) -> anyhow::Result<()> {
    let files = Sources::of_checkout().chart()?;
    let entries = files.into_iter().map(|(name, text)| Entry::file(format!("{CHART}/{name}"), text));
    write_file(&output.join(format!("{CHART}-{VERSION}.tgz")), &gzip(&tar(entries.collect())?)?)
}

fn write_plugin(arguments: &PluginArguments) -> anyhow::Result<()> {
    let PluginArguments { program, notices, url, output } = arguments;
    let plugin = Plugin { program: read_file(program)?, notices: read_file(notices)? };
    let Package { name, archive, manifest } = plugin.package(url)?;
    write_file(&output.join(name), &archive)?;
    write_file(&output.join("baremetal.yaml"), manifest.as_bytes())
}

fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// Writes a file and prints its path. A half-written file is never visible.
fn write_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let failed = || format!("write {}", path.display());
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).with_context(failed)?;
    }
    let unfinished = path.with_added_extension("unfinished");
    std::fs::write(&unfinished, content).with_context(failed)?;
    std::fs::rename(&unfinished, path).with_context(failed)?;
    println!("{}", path.display());
    Ok(())
}
