//! `bundle image` writes the image of the coordinator, `bundle manifests` what `clusterctl` reads,
//! `bundle chart` the Helm chart.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bundle::archive::{Entry, gzip, tar};
use bundle::components::Sources;
use bundle::image::Image;
use bundle::{IMAGE, VERSION};
use clap::{Args, Parser};

/// Makes what operators install.
#[derive(Parser)]
#[command(name = "bundle")]
enum Command {
    /// The image of the coordinator, as an archive of an OCI layout.
    Image(ImageArguments),
    /// A repository of `clusterctl` with this version of the provider.
    Manifests {
        /// The directory of the repository: `infrastructure-baremetal/vVERSION` is written there.
        #[arg(long)]
        output: PathBuf,
    },
    /// The Helm chart as an archive.
    Chart {
        /// Directory for the archive; its path is printed.
        #[arg(long)]
        output: PathBuf,
    },
}

#[derive(Args)]
struct ImageArguments {
    /// The static coordinator.
    #[arg(long)]
    coordinator: PathBuf,
    /// The static agent.
    #[arg(long)]
    agent: PathBuf,
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
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bundle: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn write_image(arguments: ImageArguments) -> Result<(), Box<dyn Error>> {
    let ImageArguments { coordinator, agent, reference, revision, output } = arguments;
    let image = Image { coordinator: read(&coordinator)?, agent: read(&agent)?, reference, revision };
    let archive = image.build()?;
    let name = format!("baremetal-coordinator-{VERSION}-{}.oci.tar", image.architecture()?);
    write(&output.join(name), &archive)
}

fn write_manifests(output: &Path) -> Result<(), Box<dyn Error>> {
    let directory = output.join(format!("infrastructure-baremetal/v{VERSION}"));
    for (name, content) in Sources::of_checkout().repository()? {
        write(&directory.join(name), content.as_bytes())?;
    }
    Ok(())
}

fn write_chart(output: &Path) -> Result<(), Box<dyn Error>> {
    let files = Sources::of_checkout().chart()?;
    let entries = files.into_iter().map(|(name, text)| Entry::file(format!("{CHART}/{name}"), text));
    write(&output.join(format!("{CHART}-{VERSION}.tgz")), &gzip(&tar(entries.collect())?)?)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("read {}: {error}", path.display()))
}

/// Writes a file and prints its path. A half-written file is never visible.
fn write(path: &Path, content: &[u8]) -> Result<(), Box<dyn Error>> {
    let failed = |error| format!("write {}: {error}", path.display());
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    let unfinished = path.with_added_extension("unfinished");
    std::fs::write(&unfinished, content).map_err(failed)?;
    std::fs::rename(&unfinished, path).map_err(failed)?;
    println!("{}", path.display());
    Ok(())
}

fn chain(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        message = format!("{message}: {error}");
        source = error.source();
    }
    message
}
